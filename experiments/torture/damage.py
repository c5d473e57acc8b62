"""Run folders with a byte flipped, a file cut, swapped, lost, or taken from another game, seed or version.

Whatever is done to them, they are refused in a sentence or read as they were: what is resumed ends as the run that
nobody touched, and an agent that can be loaded has the weights that were saved.
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import random
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from common import Tally, agent, arguments, in_child, outcome, same, train

import tightrope
from tightrope import compare
from tightrope.device import cores
from tightrope.errors import TightropeError
from tightrope.study.rows import run_rows

#: Many trials: shorter than the others.
TINY: dict[str, Any] = {"frames": 160, "epoch_frames": 40, "checkpoint_frames": 20, "eval_max_game_frames": 15}

Damage = Callable[[Path, random.Random, list[Path]], None]


def flip_a_bit(path: Path, rng: random.Random, others: list[Path]) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def flip_a_bit_of_the_header(path: Path, rng: random.Random, others: list[Path]) -> None:
    data = bytearray(path.read_bytes())
    if data:
        data[rng.randrange(min(len(data), 2000))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def change_a_digit(path: Path, rng: random.Random, others: list[Path]) -> None:
    data = bytearray(path.read_bytes())
    digits = [at for at, byte in enumerate(data[:5000]) if chr(byte).isdigit()]
    if digits:
        data[rng.choice(digits)] = ord(rng.choice("0123456789"))
    path.write_bytes(data)


def cut(path: Path, rng: random.Random, others: list[Path]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: rng.randrange(len(data) + 1)])


def cut_the_front(path: Path, rng: random.Random, others: list[Path]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[rng.randrange(len(data) + 1) :])


def blank_a_block(path: Path, rng: random.Random, others: list[Path]) -> None:
    """As a disk does that lost a block."""
    data = bytearray(path.read_bytes())
    at = rng.randrange(len(data) + 1)
    data[at : at + 512] = bytes(len(data[at : at + 512]))
    path.write_bytes(data)


def put_something_in(path: Path, rng: random.Random, others: list[Path]) -> None:
    data, at = path.read_bytes(), rng.randrange(path.stat().st_size + 1)
    path.write_bytes(data[:at] + rng.randbytes(rng.randrange(1, 100)) + data[at:])


def swap_with_another(path: Path, rng: random.Random, others: list[Path]) -> None:
    other = rng.choice([p for p in path.parents[0].rglob("*") if p.is_file()])
    mine, theirs = path.read_bytes(), other.read_bytes()
    path.write_bytes(theirs)
    other.write_bytes(mine)


def take_from_another_run(path: Path, rng: random.Random, others: list[Path]) -> None:
    """Another game, another seed, other numbers: a file of the same name, or all checkpoints."""
    other = rng.choice(others)
    name = path.relative_to(_run_of(path))
    if rng.random() < 0.3:
        shutil.rmtree(_run_of(path) / "checkpoints")
        shutil.copytree(other / "checkpoints", _run_of(path) / "checkpoints")
    elif (other / name).exists():
        shutil.copyfile(other / name, path)
    else:
        shutil.copyfile(rng.choice(sorted((other / "checkpoints").iterdir())), path)


def make_it_another_version(path: Path, rng: random.Random, others: list[Path]) -> None:
    if path.suffix != ".safetensors":
        return flip_a_bit(path, rng, others)
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    header["__metadata__"]["tightrope"] = rng.choice(["0", "2", "", "1.0", "999999999999"])
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + length :])
    return None


def lose(path: Path, rng: random.Random, others: list[Path]) -> None:
    path.unlink()


def _run_of(path: Path) -> Path:
    return path.parent.parent if path.parent.name == "checkpoints" else path.parent


KINDS: list[Damage] = [
    flip_a_bit, flip_a_bit_of_the_header, change_a_digit, cut, cut_the_front, blank_a_block, put_something_in,
    swap_with_another, take_from_another_run, make_it_another_version, lose,
]  # fmt: skip


def paused(game: str, folder: Path, **fields: Any) -> tuple[Path, dict[str, Any]]:
    """A run that was stopped half-way, and what it comes to if it goes on."""
    train(game, folder, keep_checkpoints=100, **TINY, **fields)
    expected = outcome(folder)
    saved = sorted(folder.glob("checkpoints/at-*"))
    for path in saved[len(saved) // 2 :]:
        path.unlink()
    for path in saved[: len(saved) // 2 - 2]:
        path.unlink()
    return folder, expected


def trial(run: Path, expected: dict[str, Any]) -> str:
    """What became of a damaged run, for each of the ways to use it."""
    good = {which: agent_or_refusal(run, which) for which in ("best", "last")}
    for which, found in good.items():
        if found is not None and not any(same(found["weights"], weights) for weights in expected["agents"]):
            return f"BROKEN: wrong weights of the {which} agent"
    for look in (compare.read, run_rows):  # what is said of them may be old; a traceback may not be
        with contextlib.suppress(TightropeError):
            look(run)
    try:
        tightrope.resume(run, quiet=True)
        if not same(expected["tensors"], (after := outcome(run))["tensors"]):
            return "BROKEN: resumed to something else"
        if not same({k: expected[k] for k in ("metrics", "evaluations", "last")}, {k: after[k] for k in after
                    if k in ("metrics", "evaluations", "last")}):  # fmt: skip
            return "BROKEN: resumed with other records"
        return "resumed to the same end"
    except TightropeError as problem:
        if "\n" in str(problem):
            return f"BROKEN: more than a sentence: {problem}"
        return "refused in a sentence"


def agent_or_refusal(run: Path, which: str) -> dict[str, Any] | None:
    try:
        return agent(run, which)
    except TightropeError:
        return None


def base(folder: Path) -> tuple[list[tuple[Path, dict[str, Any]]], list[Path]]:
    """Runs to be damaged, with their ends, and runs to take files from."""
    games = [("maze", {}), ("CartPole-v1", {"num_envs": 3, "overlap": True})]
    runs = [paused(game, folder / f"run-{n}", **fields) for n, (game, fields) in enumerate(games)]
    others = [folder / name for name in ("seed", "game", "numbers", "shape")]
    train("maze", others[0], seed=7, **TINY)
    train("Acrobot-v1", others[1], num_envs=3, overlap=True, **TINY)
    train("maze", others[2], lam=1, **TINY)
    train("maze-6", others[3], **TINY)
    for run, expected in runs:
        # Should the two have changed places, each is read as what it is.
        expected["agents"] = [agent(run, which)["weights"] for which in ("best", "last")]
    return runs, others


#: The runs and where the trials are, set before the processes are forked that inherit them.
base_runs: tuple[list[tuple[Path, dict[str, Any]]], list[Path]] = ([], [])
room = Path()


def one(number: int, seed: int) -> tuple[str, str]:
    """The trial of that number: what was done, and what came of it."""
    runs, others = base_runs
    rng, damage = random.Random(f"{seed}-{number}"), KINDS[number % len(KINDS)]
    source, expected = rng.choice(runs)
    run = room / f"trial-{number}"
    shutil.copytree(source, run)
    files = sorted(p for p in run.rglob("*") if p.is_file() and "tensorboard" not in p.parts and p.name != ".lock")
    path = rng.choice(files)
    damage(path, rng, others)
    said = in_child(lambda: trial(run, expected), 120)
    shutil.rmtree(run)
    return f"{number} {damage.__name__} {path.name}", said


def main() -> int:
    global base_runs, room
    count, rng = arguments(2000, "damaged run folders")
    tally = Tally("damage")
    jobs = int(os.environ.get("JOBS", cores()))
    with tempfile.TemporaryDirectory() as folder:
        room, base_runs = Path(folder), base(Path(folder))
        work = partial(one, seed=rng.randrange(10**9))
        with multiprocessing.get_context("fork").Pool(jobs) as pool:
            for kind, said in pool.imap_unordered(work, range(count), chunksize=5):
                tally.add(kind, said)
    return tally.record(f"{count} damaged run folders, {len(KINDS)} kinds")


if __name__ == "__main__":
    sys.exit(main())
