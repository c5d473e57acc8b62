"""Files made to do harm: nothing may be executed, nothing written outside the run, and the memory stays bounded."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import safetensors.torch
import torch
from common import Tally, arguments, in_child, train

import tightrope
from tightrope import checkpoint, compare
from tightrope.errors import TightropeError
from tightrope.report.read import collect
from tightrope.run import RunFolder
from tightrope.study import read as read_study
from tightrope.study import survey
from tightrope.study.rows import run_rows

#: What a trial may take beyond what the process had: a run of the maze takes a few MB.
MOST_MEMORY = 1_500_000_000

Case = tuple[str, Callable[[Path, Path], None]]  # a name, and what is done to a run, given a folder outside it


def newest(run: Path) -> Path:
    return RunFolder(run).checkpoints.saved()[-1]


def bomb(outside: Path) -> Any:
    class Bomb:
        def __reduce__(self) -> tuple[Any, tuple[str]]:
            return os.system, (f"touch {outside}/executed",)

    return Bomb()


def rewritten(change: Callable[[dict[str, Any], dict[str, Any]], None]) -> Callable[[Path, Path], None]:
    """A checkpoint with its checksum in order and something else in it."""

    def act(run: Path, outside: Path) -> None:
        tensors, facts = checkpoint.read(newest(run))
        change(tensors, facts)
        checkpoint.write(newest(run), tensors, facts)

    return act


def raw(header: bytes, body: bytes = b"", length: int | None = None) -> Callable[[Path, Path], None]:
    """A checkpoint's bytes from scratch."""

    def act(run: Path, outside: Path) -> None:
        for path in (newest(run), RunFolder(run).last, RunFolder(run).best):
            path.write_bytes(struct.pack("<Q", len(header) if length is None else length) + header + body)

    return act


def text(name: str, content: str | bytes) -> Callable[[Path, Path], None]:
    def act(run: Path, outside: Path) -> None:
        (run / name).parent.mkdir(exist_ok=True)
        (run / name).write_bytes(content.encode() if isinstance(content, str) else content)

    return act


def in_config(old: str, new: str) -> Callable[[Path, Path], None]:
    def act(run: Path, outside: Path) -> None:
        lines = (run / "config.toml").read_text().splitlines()
        changed = [new if line.startswith(f"{old} = ") else line for line in lines]
        (run / "config.toml").write_text("\n".join(changed) + "\n")

    return act


def facts(**values: Any) -> Callable[[Path, Path], None]:
    return rewritten(lambda tensors, known: known.update(values))


def tensor(name: str, value: torch.Tensor) -> Callable[[Path, Path], None]:
    return rewritten(lambda tensors, known: tensors.update({name: value}))


def in_place_of(name: str, make: Callable[[Path, Path], None]) -> Callable[[Path, Path], None]:
    def act(run: Path, outside: Path) -> None:
        path = newest(run) if name == "newest" else run / name
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        make(path, outside)

    return act


def nested(depth: int) -> str:
    return "[" * depth + "]" * depth


def declared(dtype: str, shape: list[int], offsets: list[int]) -> bytes:
    meta = {"tightrope": "1", "facts": "{}", "sha256": "0" * 64}
    return json.dumps({"__metadata__": meta, "w": {"dtype": dtype, "shape": shape, "data_offsets": offsets}}).encode()


def sparse(path: Path, size: int, front: bytes = b"") -> None:
    path.write_bytes(front)
    os.truncate(path, size)


def cases() -> Iterator[Case]:
    big = json.dumps({"agent": 1, "pad": "x" * 1000})
    for name in ("newest", "checkpoints/last.safetensors", "checkpoints/best.safetensors"):
        yield (
            f"pickle as {name}",
            in_place_of(name, lambda path, out: path.write_bytes(pickle.dumps(bomb(out))) and None),
        )
        yield (
            f"torch.save as {name}",
            in_place_of(name, lambda path, out: torch.save({"w": torch.ones(2), "x": bomb(out)}, path)),
        )
        yield (
            f"NumPy pickle as {name}",
            in_place_of(
                name, lambda path, out: np.save(path.open("wb"), np.array([bomb(out)], dtype=object), allow_pickle=True)
            ),
        )
        yield f"a pipe as {name}", in_place_of(name, lambda path, out: os.mkfifo(path))
        yield f"a folder as {name}", in_place_of(name, lambda path, out: path.mkdir())
        yield f"/dev/zero as {name}", in_place_of(name, lambda path, out: path.symlink_to("/dev/zero"))
        yield f"a link to itself as {name}", in_place_of(name, lambda path, out: path.symlink_to(path.name))
        yield f"a link outside as {name}", in_place_of(name, lambda path, out: path.symlink_to(out / "mine"))
        yield f"a terabyte of nothing as {name}", in_place_of(name, lambda path, out: sparse(path, 10**12))
        head = declared("U8", [10**12], [0, 10**12])
        front = struct.pack("<Q", len(head)) + head
        yield (
            f"a terabyte with a header as {name}",
            in_place_of(name, lambda path, out, front=front: sparse(path, 10**12 + len(front), front)),
        )
        yield (
            f"safetensors of somebody else as {name}",
            in_place_of(
                name, lambda path, out: path.write_bytes(safetensors.torch.save({"w": torch.ones(3)})) and None
            ),
        )
    yield "header of 2^60 bytes", raw(b"{}", length=2**60)
    yield "header longer than the file", raw(b"{}", length=90_000_000)
    yield "header that is no JSON", raw(b"\xff\xfe" * 50)
    yield "header nested 100,000 deep", raw(nested(100_000).encode())
    yield (
        "header of 60 MB",
        raw(json.dumps({"__metadata__": {"x" * 100 + str(n): big for n in range(50_000)}}).encode()),
    )
    yield "tensor beyond the file", raw(declared("F32", [1000], [0, 4000]))
    yield "tensor of 10^18 bytes", raw(declared("U8", [10**18], [0, 10**18]))
    yield "tensor whose size overflows", raw(declared("F64", [2**62, 2**62], [0, 8]), bytes(8))
    yield "negative offsets", raw(declared("U8", [8], [8, 0]), bytes(8))
    yield "unknown type", raw(declared("F1024", [1], [0, 8]), bytes(8))
    yield "metadata that is no text", raw(json.dumps({"__metadata__": {"facts": {"a": 1}}}).encode())
    good = {"tightrope": "1", "sha256": checkpoint._digest({}, nested(100_000)), "facts": nested(100_000)}
    yield "facts nested 100,000 deep", raw(json.dumps({"__metadata__": good}).encode())
    listed = {"tightrope": "1", "sha256": checkpoint._digest({}, "[]"), "facts": "[]"}
    yield "facts that are a list", raw(json.dumps({"__metadata__": listed}).encode())
    digits = '{"segments": {}, "replay": {"head": ' + "9" * 10_000 + "}}"
    many = {"tightrope": "1", "sha256": checkpoint._digest({}, digits), "facts": digits}
    yield "a number of 10,000 digits", raw(json.dumps({"__metadata__": many}).encode())
    for value in (
        "../../mine",
        "/etc/passwd",
        "..",
        ".",
        "",
        "a\0b",
        "x" * 5000,
        "../" * 1000 + "etc/passwd",
        "~",
        "$(id)",
    ):
        yield f"segment called {value[:20]!r}", facts(segments={value: "0" * 64})
    yield "100,000 segments", facts(segments={f"frames-{n}.safetensors": "0" * 64 for n in range(100_000)})
    for value in (None, 7, "frames", [], [[]], {"frames-000000.safetensors": None}):
        yield f"segments = {value!r}", facts(segments=value)
    for value in (10**18, -1, 10**30, -(10**18), "many", None, 1e308, [], True):
        yield f"replay's head = {value!r}", facts(replay={"head": value, "finished_rows": 0})
        for name in ("steps", "updates", "frames", "started_at", "epochs", "evaluated_at", "seconds"):
            yield f"{name} = {value!r}", facts(**{name: value})
    for value in ({}, {"metrics.jsonl": 10**18}, {"metrics.jsonl": [-1, ""], "evaluations.csv": [0, ""]},
                  {"metrics.jsonl": [10**18, ""], "evaluations.csv": [10**18, ""]}, None, "x"):  # fmt: skip
        yield f"records = {value!r}", facts(records=value)
    for value in ({}, None, 3, {"lam": nested(10)}):
        yield f"config = {value!r}", facts(config=value)
    for value in (
        torch.tensor([10**15]),
        torch.tensor([-5]),
        torch.zeros(0, dtype=torch.int64),
        torch.tensor([float("nan")]),
    ):
        yield f"length of a log = {value.tolist()}", tensor("side0.game.log_lengths", value)
        yield f"seedings = {value.tolist()}", tensor("side0.game.log_seedings", value)
        yield f"life_steps = {value.tolist()}", tensor("side0.life_steps", value)
    yield "actions out of range", rewritten(lambda t, f: t["side0.game.log_actions"].fill_(30_000))
    yield "resets out of range", rewritten(lambda t, f: t["side0.game.log_actions"].fill_(-30_000))
    yield "an action sent out of range", tensor("side0.sent", torch.tensor([10**9]))
    for name in ("replay.rewards", "replay.flags", "rms_mean.0", "online.body.1.weight", "telemetry.loss",
                 "side0.frames", "replay.began", "random.learner", "memory.values", "recent_scores"):  # fmt: skip
        yield f"{name} a single number", tensor(name, torch.zeros(1))
        yield f"{name} of text's size", tensor(name, torch.zeros(3, 7, dtype=torch.uint8))
        yield f"{name} missing", rewritten(lambda t, f, name=name: t.pop(name))
    yield "weights that are no numbers", rewritten(lambda t, f: t["online.body.1.weight"].fill_(float("nan")))
    for content in (
        "",
        "\0",
        "\xff",
        nested(10),
        "a = " + nested(100_000),
        "a." * 50_000 + "b = 1",
        "game = 7",
        "[[x]]\n" * 9,
    ):
        yield f"config.toml = {content[:20]!r} ...", text("config.toml", content)
    yield "config.toml of a gigabyte", in_place_of("config.toml", lambda path, out: sparse(path, 10**9))
    yield "config.toml that is a pipe", in_place_of("config.toml", lambda path, out: os.mkfifo(path))
    for field, line in [
        ("replay_rows", "replay_rows = 1000000000000"), ("replay_rows", "replay_rows = " + "9" * 5000),
        ("frames", "frames = nan"), ("frames", "frames = 1e400"), ("batch_size", "batch_size = 1000000000000"),
        ("num_envs", "num_envs = 4096"), ("k", "k = 64"), ("lam", "lam = inf"), ("game", 'game = "../../etc"'),
        ("game", 'game = "antigravity:X-v0"'), ("game", 'game = "os:system"'), ("game", "game = {}"),
        ("game", 'game = "' + "x" * 100_000 + '"'), ("game", 'game = "maze-9999"'), ("seed", "seed = -1"),
        ("seed", "seed = 1" + "0" * 100), ("preset", 'preset = "../../etc/passwd"'), ("device", 'device = "cuda:9"'),
        ("network", 'network = "os.system"'), ("checkpoint_frames", "checkpoint_frames = 1"),
    ]:  # fmt: skip
        yield f"config.toml says {line[:40]}", in_config(field, line)
    for name in ("metrics.jsonl", "evaluations.csv", ".lock", "checkpoints", "tensorboard", "config.toml"):
        yield f"{name} leads outside", in_place_of(name, lambda path, out: path.symlink_to(out / "mine"))
        yield f"{name} is a pipe", in_place_of(name, lambda path, out: os.mkfifo(path))
    for name in ("checkpoints/last.safetensors.tmp", "config.toml.tmp", "checkpoints/at-000000000400.safetensors.tmp"):
        yield f"{name} leads outside", in_place_of(name, lambda path, out: path.symlink_to(out / "mine"))
    for content in (nested(100_000), '{"frames": 1e999}', "\0" * 1000, "x" * 10_000_000):
        yield f"metrics.jsonl = {content[:20]!r} ...", text("metrics.jsonl", content)
        yield f"evaluations.csv = {content[:20]!r} ...", text("evaluations.csv", "frames,score\n" + content)
        yield f"status.json = {content[:20]!r} ...", text("status.json", content)
        yield f"study.toml = {content[:20]!r} ...", text("study.toml", content)
    for arm in ("../x", "/x", "..", "a/b", "a\\\\b", ""):
        yield f"a study whose arm is {arm!r}", text("study.toml", STUDY + f'[arms]\n"{arm}" = {{ preset = "maze" }}\n')
    for game in ("../../x", "/etc/passwd", "antigravity:X-v0", "a:b:c", "maze\\u0000"):
        yield f"a study of the game {game!r}", text("study.toml", STUDY.replace("maze", game) + "arms.maze = {}\n")
    yield "a study nested 100,000 deep", text("study.toml", STUDY + "x = " + nested(100_000))
    yield (
        "a study of 10^6 seeds",
        text("study.toml", STUDY.replace("[0]", str(list(range(10**6)))) + "arms.maze = {}\n"),
    )


STUDY = 'games = ["maze"]\nseeds = [0]\n'


def as_study(run: Path) -> Path:
    """A study whose only cell is this run."""
    study = run.parent / "study"
    shutil.rmtree(study, ignore_errors=True)
    (study / "cells" / "maze" / "paper").mkdir(parents=True)
    (study / "cells" / "maze" / "paper" / "seed-0").symlink_to(run)
    return study


def use(run: Path, outside: Path) -> str:
    """Everything that a person may do with a folder that came by mail."""
    refused = 0
    ways: list[Callable[[], Any]] = [
        lambda: tightrope.load(run, device="cpu"),
        lambda: tightrope.load(run, which="last", device="cpu"),
        lambda: tightrope.resume(run, quiet=True),
        lambda: read_study(run),
        lambda: survey(run),
        lambda: compare.read(run),
        lambda: run_rows(run),
        lambda: collect(as_study(run)),
        lambda: tightrope.train("maze", out=run, quiet=True, frames=100, device="cpu"),
    ]
    for way in ways:
        try:
            way()
        except TightropeError as problem:
            refused += 1
            if "\n" in str(problem).strip() and "TOML" not in str(problem):
                return f"BROKEN: more than a sentence: {problem}"
    if (outside / "executed").exists():
        return "BROKEN: something was executed"
    return "refused or harmless"


def limit_memory() -> None:
    most = psutil.Process().memory_info().vms + MOST_MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def seen(folder: Path) -> list[tuple[str, int, bytes]]:
    return sorted((str(p), p.stat().st_mtime_ns, p.read_bytes() if p.is_file() else b"") for p in folder.rglob("*"))


def torture(folder: Path, tally: Tally, every: int = 1) -> None:
    base, outside = folder / "base", folder / "outside"
    train("maze", base, frames=200)
    outside.mkdir()
    (outside / "mine").write_bytes(b"mine")
    before = seen(outside)
    for number, (name, act) in enumerate(cases()):
        if number % every:
            continue
        run = folder / "run"
        shutil.copytree(base, run)
        act(run, outside)
        said = in_child(lambda: use(run, outside), 60, limit_memory)  # noqa: B023
        if seen(outside) != before:
            said = "BROKEN: something was written outside the run"
        tally.add(name, said)
        shutil.rmtree(run)


def main() -> int:
    arguments(0, "all cases, always")
    tally = Tally("hostile")
    with tempfile.TemporaryDirectory() as folder:
        torture(Path(folder), tally)
    return tally.record(f"{tally.total} hostile run folders, studies and agents")


if __name__ == "__main__":
    sys.exit(main())
