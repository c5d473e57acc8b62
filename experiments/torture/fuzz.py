"""Command lines and TOML files from a fuzzer: a sentence and status 2, or a valid run.

All in one process. What would train is let go as far as its numbers are accepted, its game is known and its study is
planned; one in so many of those that were accepted is then really run, for a few steps.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import string
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

from common import Tally, arguments

from tightrope import api, cli, config
from tightrope.config import field_names, preset_names
from tightrope.errors import TightropeError
from tightrope.run import Description
from tightrope.study.plan import parse, shipped
from tightrope.trainer import Trainer

NUMBERS = ("0", "1", "-1", "4", "10M", "1e6", "2.5", "1_000", "nan", "inf", "-inf", "1e400", "9" * 30, "0x10", "1e-30",
           "", " ", "k", "M", "--", "٣", "1,000", "true", "False", "maybe", "'", '"', "\x00", "é", "🎈", "None", "[]",
           "a" * 300, "../x", "/dev/null", "-", "=", "auto", "paper", "both", "mean")  # fmt: skip
GAMES = ("pong", "maze", "maze-12", "maze-0", "minatar/breakout", "CartPole-v1", "ALE/MsPacman-v5", "pogn", "",
         "Pendulum-v1", "no_module:Env-v0", ":", "a:b", "/", "atari/", "Blackjack-v1", "tightrope/Maze-v0",
         "\x00", "é")  # fmt: skip
OPTIONS = (
    "preset", "seed", "device", "out", "quiet", "json", "episodes", "protocol", "which", "video", "workers", "ray",
    "rounds", "seconds", "game", "num_envs", "replay_rows", "peers", "open", "videos", "commit", "help", "trust",
    "version", "lamb",
)  # fmt: skip
#: Commands whose valid use would measure, film, or run for minutes: what they are given is read, and no more.
LONG = ("bench", "demo", "watch", "study run", "study report", "study rows", "evaluate")


def mutated(text: str, rng: random.Random) -> str:
    """A few characters changed, added, lost or moved."""
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(text) + 1)
        text = rng.choice([
            text[:at] + text[at + 1 :], text[:at] + rng.choice(string.printable) + text[at:],
            text[:at] + text[at:][::-1], text[:at] + rng.choice(NUMBERS) + text[at + 1 :], text[:at] * 2,
        ])  # fmt: skip
    return text[:20_000]


def words(rng: random.Random) -> list[str]:
    """A command line: most parts of it right, so that the wrong ones are reached."""
    command = rng.choice([*cli.COMMANDS, "train", "train", "train", "resume", "evaluate"])
    found = command.split()
    if rng.random() < 0.9:
        place = {
            "train": rng.choice(GAMES),
            "presets": rng.choice([*preset_names(), "nope"]),
            "study run": rng.choice(shipped()),
        }
        found.append(place.get(command, rng.choice(["/nowhere", ".", "x", "", "pong"])))
    for _ in range(rng.choice([0, 1, 1, 1, 2, 2, 3, 5])):
        own = [f for f in getattr(cli.COMMANDS[command], "__dataclass_fields__", {}) if f != "fields"]
        name = rng.choice([*(field_names() if command == "train" else own), *own, rng.choice(OPTIONS)])
        if name in ("help", "h"):
            continue
        value = rng.choice(NUMBERS) if rng.random() < 0.7 else str(rng.choice([rng.randrange(100), rng.random()]))
        option = rng.choice(["--", "--", "--", "-", ""]) + (name.replace("_", "-") if rng.random() < 0.3 else name)
        found += [f"{option}={value}"] if rng.random() < 0.4 else [option, value]
    if rng.random() < 0.3:
        found = [mutated(word, rng) if rng.random() < 0.3 else word for word in found]
    if rng.random() < 0.1:
        rng.shuffle(found)
    return found


class Stopped(BaseException):
    """A command that was accepted."""


def accepted(*what: Any, **more: Any) -> Any:
    raise Stopped


@contextlib.contextmanager
def only_read() -> Iterator[None]:
    """Commands are read and their games and numbers checked, but nothing is trained, measured or filmed."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(api, "Trainer", accepted))
        for name in LONG:
            stack.enter_context(mock.patch.dict(cli.HANDLERS, {name: accepted}))
        yield


def try_words(line: list[str], rng: random.Random) -> str:
    said, errors = io.StringIO(), io.StringIO()
    try:
        with only_read(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(errors):
            cli.main(line)
    except Stopped:
        if line[0] == "train" and rng.random() < 0.15:
            return really_run(line)
        return "accepted"
    except SystemExit as ended:
        if ended.code == 0:
            return "answered"
        told = errors.getvalue()
        if ended.code != 2:
            return f"BROKEN: status {ended.code} for {line}: {told[-300:]}"
        if "Traceback" in told or not told.strip():
            return f"BROKEN: no sentence for {line}: {told[-300:]!r}"
        return "refused with status 2"
    except BaseException as problem:
        return f"BROKEN: {type(problem).__name__} for {line}: {problem}"
    return f"BROKEN: no status for {line}"


def really_run(line: list[str]) -> str:
    """The same, with a trainer that takes three steps."""

    def three_steps(self: Trainer) -> Iterator[dict[str, Any]]:
        for _ in range(3):
            self.step()
            yield self.log()

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(Trainer, "train", three_steps))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.chdir(folder))
        kept = [word for word in line if "out" not in word]
        try:
            cli.main(kept)
        except SystemExit as ended:
            # A replay that the machine has no room for is refused only now.
            return "really run" if ended.code in (0, 2) else f"BROKEN: status {ended.code} for {line}"
        except BaseException as problem:
            return f"BROKEN: {type(problem).__name__} in {line}: {problem}"
    return "BROKEN: no status"


STUDIES = [
    'games = ["maze", "minatar-5"]\nseeds = [0, 1]\nframes = 1000\n[arms]\npaper = {}\n'
    'soft = { preset = "paper", lam = 0.5 }\n',
    'about = "x"\ngames = ["pong"]\nseeds = [3]\ndevice = "cpu"\nlam = 2\nframes = "2M"\narms.dqn = {}\n',
]


def toml(rng: random.Random) -> str:
    if rng.random() < 0.4:
        return mutated(mutated(rng.choice(STUDIES), rng), rng)
    lines = []
    for _ in range(rng.randrange(8)):
        key = rng.choice(
            [*field_names(), "games", "seeds", "arms", "device", "about", "[arms]", "arms.x", "arms.x.lam", "zz"]
        )
        value = rng.choice([*NUMBERS, '"maze"', "[0]", '["maze"]', "{}", '{ preset = "maze" }', "[[]]",
                            "{ a = { b = 1 } }", "1979-05-27", "[1, 'a', {}]", "-0", "1e999", "'''x'''",
                            "true"])  # fmt: skip
        lines.append(key if key.startswith("[") else f"{key} = {value}")
    return rng.choice(STUDIES)[: rng.randrange(200)] + "\n".join(lines)


def try_toml(text: str, folder: Path) -> str:
    """As a study, and as the settings of a run."""
    said = []
    path = folder / "config.toml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    for read in (lambda: parse(text, "fuzzed"), lambda: Description.from_toml(path)):
        try:
            read()
            said.append("accepted")
        except TightropeError as problem:
            if not str(problem).strip():
                return f"BROKEN: no sentence for {text!r}"
            said.append("refused with status 2")
        except BaseException as problem:
            return f"BROKEN: {type(problem).__name__} for {text!r}: {problem}"
    return max(said, key=lambda word: word == "accepted")


def settings(rng: random.Random) -> str:
    """A run's config.toml, with one line changed or spoiled."""
    description = Description("maze", "maze", 0, "cpu", config.preset("maze"), made_with={"commit": "x"})
    lines = description.to_toml().splitlines()
    at = rng.randrange(len(lines))
    key, equals, _ = lines[at].partition(" = ")
    lines[at] = f"{key}{equals}{rng.choice(NUMBERS)}" if rng.random() < 0.6 else mutated(lines[at], rng)
    return "\n".join(lines)


def torture(count: int, rng: random.Random, tally: Tally, folder: Path) -> None:
    with contextlib.chdir(folder):
        before = set(folder.rglob("*"))
        for number in range(count):
            if number % 2:
                text = toml(rng) if number % 4 == 1 else settings(rng)
                tally.add("toml", try_toml(text, folder))
            else:
                tally.add("words", try_words(words(rng), rng))
        left = {path for path in folder.rglob("*") if path.name not in ("config.toml", ".lock")} - before
        if left:
            tally.add("words", f"BROKEN: left behind {sorted(map(str, left))[:5]}")


def main() -> int:
    count, rng = arguments(20_000, "command lines and TOML files")
    tally = Tally("fuzz")
    os.environ["COLUMNS"] = "200"
    with tempfile.TemporaryDirectory() as folder:
        torture(count, rng, tally, Path(folder))
    return tally.record(f"{count} command lines and TOML files")


if __name__ == "__main__":
    sys.exit(main())
