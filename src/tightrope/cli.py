"""The command line: parses, calls, prints."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import tyro
from tyro import MISSING
from tyro.conf import FlagCreatePairsOff

from tightrope import config as settings
from tightrope import usage
from tightrope.commands import (
    COMMANDS,
    FAMILIES,
    Bench,
    Compare,
    Completion,
    Demo,
    Doctor,
    Evaluate,
    Export,
    Games,
    Presets,
    Resume,
    StudyReport,
    StudyRows,
    StudyRun,
    StudyStatus,
    Train,
    Watch,
)
from tightrope.errors import TightropeError, counted, near
from tightrope.idle import why_idle

#: Packages whose module has another name.
PACKAGES = {"PIL": "pillow", "imageio_ffmpeg": "imageio-ffmpeg", "ale_py": "ale-py"}
#: What a shell expects of a program that was interrupted: `train && evaluate` must not go on.
STOPPED = 130


def main(words: list[str] | None = None) -> None:
    """The entry point: one sentence and status 2 for what a user can mend."""
    # PyTorch's threads sleep while they wait. On cores that others use too, spinning made an evaluation 5 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a terminal without UTF-8 shows question marks instead
            stream.reconfigure(errors="replace")
    words = sys.argv[1:] if words is None else words
    try:
        status = run(words)
    except TightropeError as problem:
        print(f"tightrope: {problem}", file=sys.stderr)
        status = 2
    except ModuleNotFoundError as missing:
        name = str(missing.name).partition(".")[0]
        package = PACKAGES.get(name, name)
        print(f"tightrope: this needs {name}, which is not installed: pip install {package}", file=sys.stderr)
        status = 2
    except BrokenPipeError:  # the reader of a pipe has left
        status = 0
    except KeyboardInterrupt:
        print("tightrope: stopped", file=sys.stderr)
        status = STOPPED
    raise SystemExit(status)


def overview(families: Iterable[str] = FAMILIES) -> str:
    """What `tightrope --help` says, as wide as the terminal."""
    lines: list[str] = []
    for family in families:
        lines += ["", family]
        lines += [entry(name, usage.first_line(command)) for name, command in FAMILIES[family].items()]
    return "\n".join(lines)


def columns() -> int:
    """Of the terminal, or as COLUMNS says; 80 in a pipe. Lines of more than 100 are hard to read."""
    return min(100, shutil.get_terminal_size().columns)


def filled(text: str, first: str = "", then: str = "") -> str:
    """As wide as the terminal; no word is broken, for it may be a name."""
    return textwrap.fill(
        text,
        columns(),
        initial_indent=first,
        subsequent_indent=then,
        break_long_words=False,
        break_on_hyphens=False,
    )


def entry(name: str, text: str, wide: int = 14) -> str:
    """A name, and beside it what is said of it."""
    return filled(text, f"  {name:<{wide}}", " " * (wide + 2))


EXAMPLES = """
examples
  tightrope demo                      # the method at work, minutes on a CPU
  tightrope doctor                    # what this machine can train
  tightrope train minatar/breakout    # minutes on a CPU
  tightrope train pong                # 10M frames; wants a GPU
  tightrope watch pong                # a trained agent comes with it
  tightrope study run laptop          # many runs, then one web page

Every command has --help with examples of its own; tightrope --version says
which one this is."""


def run(words: list[str]) -> int:
    if words == ["--version"]:
        from tightrope import __version__

        print(__version__)
        return 0
    if words and words[0] == "help":
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print("tightrope: deep Q-learning by optimality tightening\n" + overview() + "\n" + EXAMPLES)
        return 0
    name, rest = words[0], words[1:]
    if name == "study":
        name, rest = " ".join(words[:2]), words[2:]
        if name in ("study", "study -h", "study --help"):
            print(overview(["many runs"]).strip())
            return 0
    if name not in COMMANDS:
        raise TightropeError(f"unknown command {name!r}{near(name, COMMANDS) or '; tightrope --help lists them'}")
    command, handler = COMMANDS[name], HANDLERS[name]
    asked_for_help = bool({"-h", "--help"} & set(rest))
    typed: dict[str, Any] = {}
    default: Any = None
    description = usage.description(command)
    if not asked_for_help:
        rest, typed = checked(name, rest)
    if command is Train:  # tyro shows the fields in --help; those that were typed are read already
        shown = preset_for_help(rest)
        default = Train(game=MISSING, fields=usage.fields_of(settings.numbers(shown)))
        description += f"\n\nThe fields' defaults are those of {shown}; of another preset: --preset NAME --help"
    parsed = tyro.cli(
        command,
        args=["--help"] if asked_for_help else rest,
        prog=f"tightrope {name}",
        description=description,
        default=default,
        config=(FlagCreatePairsOff,),
    )
    return handler(parsed, **typed)


def preset_for_help(words: list[str]) -> str:
    """Whose numbers `train --help` shows: the preset named, the one that suits the game named, or paper."""
    given = [value for word, value in zip(words, [*words[1:], ""], strict=True) if word == "--preset"]
    given += [word.partition("=")[2] for word in words if word.startswith("--preset=")]
    if given:
        return given[-1]
    if {"-h", "--help"} & set(words) and not words[0].startswith("-"):
        from tightrope.games import canonical, default_preset

        return default_preset(canonical(words[0]))
    return "paper"


def checked(command: str, words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The words that tyro is to read, and the preset's fields that were typed; a mistake gets one sentence."""
    kinds = get_type_hints(COMMANDS[command])
    own = {f.name for f in dataclasses.fields(COMMANDS[command])} - {"fields"}
    fields = set(settings.field_names()) if command == "train" else set()
    result: list[str] = []
    typed: dict[str, Any] = {}
    positional: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            positional.append(word)
            result.append(word)
            continue
        option, equals, value = word.removeprefix("--").partition("=")
        name = option.replace("-", "_")
        if name not in own | fields:
            if command == "train":
                raise settings.unknown_field(name, value or (left[0] if left else None))
            raise TightropeError(f"unknown option --{option} of tightrope {command}{near(name, own)}")
        if name in own and kinds[name] is bool:
            if equals and value.lower() not in ("true", "false"):
                raise TightropeError(f"{name} = {value!r}: must be true or false")
            if value.lower() != "false":
                result.append("--" + name)
            continue
        if not equals:
            if not left:
                must = settings.allowed(name) if name in fields else "a value"
                raise TightropeError(f"--{option} needs {must}")
            value = left.pop(0)
        if name in fields:
            typed[name] = settings.coerce(name, value)
            continue
        check_value(name, value, kinds[name])
        result += ["--" + name, value]
    # The first field of a command is its one positional word, if it has any, or all of them where it takes several.
    first = next(iter(dataclasses.fields(COMMANDS[command])), None)
    extras = get_type_hints(COMMANDS[command], include_extras=True)
    takes = first is not None and "Positional" in str(extras[first.name])
    if first is not None and first.default is dataclasses.MISSING and not positional:
        raise TightropeError(f"tightrope {command} needs {first.name.upper()}; see tightrope {command} --help")
    for field in dataclasses.fields(COMMANDS[command]):
        if field.default is MISSING and f"--{field.name}" not in result:
            raise TightropeError(f"tightrope {command} needs --{field.name}; see tightrope {command} --help")
    if takes and first is not None and get_origin(kinds[first.name]) is tuple:
        return result, typed
    if first is not None and positional and takes:
        check_value(first.name, positional[0], kinds[first.name])
    if len(positional) > takes:
        raise TightropeError(f"tightrope {command} takes no {positional[takes]!r}; see tightrope {command} --help")
    return result, typed


def check_value(name: str, value: str, kind: Any) -> None:
    """Refuses what an option of a command does not take."""
    must = ""
    if kind is int and not re.fullmatch(r"-?[0-9]+", value):
        must = "a whole number"
    elif kind is float and not re.fullmatch(r"-?[0-9]*\.?[0-9]+(e-?[0-9]+)?", value):
        must = "a number"
    elif get_origin(kind) is Literal and value not in get_args(kind):
        *others, last = get_args(kind)
        must = f"{', '.join(others)} or {last}"
    elif kind in (Path, Path | None) and not value:
        must = "a path"
    if must:
        raise TightropeError(f"{name} = {value!r}: must be {must}")
    if name == "study" or kind in (Path, Path | None):
        try:
            Path(value).exists()
        except (OSError, ValueError) as problem:  # a name that is too long, a folder that is not ours to look into
            reason = problem.strerror if isinstance(problem, OSError) else problem
            raise TightropeError(f"{name} = {value if len(value) < 60 else value[:57] + '...'!r}: {reason}") from None


# ---------------------------------------------------------------------------------------------------------- commands


def train(args: Train, **fields: Any) -> int:
    from tightrope import api

    agent = api.train(
        args.game,
        preset=args.preset or None,
        seed=args.seed,
        device=args.device,
        out=args.out,
        quiet=args.quiet,
        callbacks=[args.callbacks],
        json=args.json,
        **fields,
    )
    return STOPPED if agent.stopped else 0


def resume(args: Resume) -> int:
    from tightrope import api

    agent = api.resume(
        args.run,
        device=args.device or None,
        quiet=args.quiet,
        callbacks=[args.callbacks],
        json=args.json,
        trust=args.trust,
        frames=settings.coerce("frames", args.frames) if args.frames else None,
    )
    return STOPPED if agent.stopped else 0


def evaluate(args: Evaluate) -> int:
    from tightrope import api
    from tightrope.run import commit

    began = time.monotonic()
    agent = api.load(args.run, which=args.which, device=args.device, trust=args.trust)
    with waiting("playing ...") as say:
        ended = lambda games: say(f"playing: {games} of {args.episodes} games have ended")  # noqa: E731
        result = agent.evaluate(args.episodes, args.protocol, args.seed, ended)
    facts = {
        "game": agent.facts.game,
        "agent": agent.which or str(args.run),
        "protocol": result.protocol,
        "episodes": len(result.scores),
        "score": result.mean,
        "std": result.std,
        "normalised_pct": result.normalised_pct,
        "trained_frames": agent.facts.frames,
        "preset": agent.facts.preset,
        "training_seed": agent.facts.seed,
        "evaluation_seed": args.seed,
        "commit": commit(),
        "device": str(agent.device),
        "seconds": round(time.monotonic() - began, 3),
        "scores": list(result.scores),
    }
    if args.json:
        print(json.dumps(facts))
        return 0
    human = "n/a" if result.normalised_pct is None else f"{result.normalised_pct:.1f} %"
    played = counted(len(result.scores), "game")
    print(f"{facts['game']}: {result.mean:.2f} ± {result.std:.2f}, mean and deviation of {played}")
    trained = f"{agent.which or 'an'} agent of preset {agent.facts.preset}, trained for {agent.facts.frames:,} frames"
    print(f"human-normalised: {human}; protocol {result.protocol}; {trained}")
    return 0


@contextlib.contextmanager
def waiting(text: str) -> Iterator[Callable[[str], None]]:
    """In a terminal a line that says what is being done, which can be changed and is gone at the end."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(text) as status:
        yield status.update


def compare(args: Compare) -> int:
    from tightrope import compare as beside

    runs = [beside.read(path) for path in args.runs]
    if len(runs) < 2:
        raise TightropeError("compare wants the folders of two runs or more")
    if args.json:
        print(json.dumps({"runs": [vars(run) for run in runs], "differ": beside.differences(runs)}))
    else:
        beside.show(runs)
    return 0


def watch(args: Watch) -> int:
    from tightrope import api
    from tightrope.watch import watch as show

    agent = api.load(args.run, which=args.which, device="cpu", trust=args.trust)
    print(show(agent, args.seed, args.video, speed=args.speed, seconds=args.seconds, plain=args.plain))
    return 0


def export(args: Export) -> int:
    from tightrope import api
    from tightrope.export import export_onnx

    agent = api.load(args.run, which=args.which, device="cpu", trust=args.trust)
    print(export_onnx(agent, args.onnx, args.states))
    return 0


def presets(args: Presets) -> int:
    names = settings.preset_names()
    if not args.name:
        for name in names:
            print(entry(name, settings.about(name), max(map(len, names)) + 2))
        return 0
    chosen = settings.preset(args.name)
    values = chosen.to_dict()
    origins = settings.origins(args.name)
    wide = max(map(len, values)) + 2
    print(filled(f"{args.name}: {settings.about(args.name)}. Behind each number its meaning, and where it is from."))
    for group, fields in settings.groups().items():
        print(f"\n{group}")
        for name in fields:
            facts = settings.describe(name)
            idle = f" (no effect: {why})" if (why := why_idle(name, chosen)) else ""
            print(entry(name, f"{usage.value_of(name, values[name])} · {facts['meaning']}{idle}", wide))
            print(entry("", f"[{origins[name]}]", wide))
    return 0


def games(args: Games) -> int:
    from tightrope.games.atari import rom_names
    from tightrope.games.minatar import GAMES
    from tightrope.scores import references

    def listed(text: str, names: list[str]) -> None:
        wide = max(map(len, names)) + 2
        across = max(1, columns() // wide)  # two spaces before each
        print(filled(text))
        for start in range(0, len(names), across):
            print("".join(f"  {name:<{wide - 2}}" for name in names[start : start + across]).rstrip())

    listed(
        "Atari (any usual spelling: pong, MsPacman, ALE/MsPacman-v5); * has a human reference in the paper:",
        [name + ("*" if name in references() else "") for name in rom_names()],
    )
    listed("MinAtar:", [f"minatar/{game}" for game in GAMES])
    listed("The paper's maze, the number being its shortest path:", ["maze", "maze-40"])
    listed("Any Gymnasium environment with discrete actions:", ["CartPole-v1", "FrozenLake-v1", "my_module:MyEnv-v0"])
    return 0


def doctor(args: Doctor) -> int:
    from tightrope.doctor import examine, told

    with waiting("looking, and measuring what this machine can train; up to a minute or so ..."):
        found = examine(args.device, args.seconds)
    print(json.dumps(found) if args.json else told(found))
    return 1 if found["amiss"] else 0


def bench(args: Bench) -> int:
    from tightrope.bench import bench as measure
    from tightrope.bench import told

    given = dataclasses.asdict(args)
    given.pop("json")
    found = measure(**given)
    print(json.dumps(found) if args.json else told(found))
    return 0


def demo(args: Demo) -> int:
    from tightrope.demo import demo as show

    show(args.out)
    return 0


def study_run(args: StudyRun) -> int:
    from tightrope.study.plan import folder, read, shipped
    from tightrope.study.run import run_study

    if not args.study:
        for name in shipped():
            study = read(name)
            print(entry(name, f"{study.about} ({counted(len(study.cells), 'cell')})", max(map(len, shipped())) + 2))
        print(filled(f"tightrope study run NAME runs one; the files, with how long each takes: {folder()}"))
        return 0
    survey = run_study(args.study, args.out, args.workers, args.ray, games=args.games, arms=args.arms, seeds=args.seeds)
    left = [seen for seen in survey.cells if seen.state != "done"]
    if left:
        told = f"failed or were stopped (the first one's log: {left[0].log}); the same command tries them again"
        print(f"tightrope: {len(left)} of {counted(len(survey.cells), 'cell')} {told}", file=sys.stderr)
    return 1 if left else 0


def study_status(args: StudyStatus) -> int:
    from rich.console import Console

    from tightrope.study import read, survey
    from tightrope.study.show import as_json, table

    found = survey(args.study)
    if args.json:
        print(json.dumps(as_json(found, read(args.study))))
    else:
        Console(highlight=False).print(table(found, str(args.study)))
    return 0


def study_report(args: StudyReport) -> int:
    import webbrowser

    from tightrope.report import write_report

    page = write_report(args.study, out=args.out, videos=args.videos)
    print(page)
    if args.open:
        webbrowser.open(Path(page).resolve().as_uri())
    return 0


def study_rows(args: StudyRows) -> int:
    from tightrope.study.rows import add_rows

    print(add_rows(args.study, args.out, args.commit, args.device))
    return 0


def completion(args: Completion) -> int:
    print(usage.completion(args.shell, COMMANDS))
    return 0


HANDLERS: dict[str, Callable[..., int]] = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "compare": compare,
    "watch": watch,
    "export": export,
    "presets": presets,
    "games": games,
    "doctor": doctor,
    "bench": bench,
    "demo": demo,
    "study run": study_run,
    "study status": study_status,
    "study report": study_report,
    "study rows": study_rows,
    "completion": completion,
}
