"""What the torture programs share: a short run, what it ends with, a process of its own for each trial, the record."""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch

import tightrope
from tightrope import checkpoint
from tightrope.config import learning
from tightrope.errors import TightropeError
from tightrope.run import RunFolder, commit

RESULTS = Path(os.environ.get("TORTURE_RESULTS", Path(__file__).parents[2] / "results" / "torture"))
TIMED = ("seconds", "frames_per_second")

#: A run of a second or so, with several checkpoints, lines and evaluations.
SHORT: dict[str, Any] = {
    "frames": 400, "learn_start_steps": 60, "epoch_frames": 100, "eval_episodes": 2, "eval_max_game_frames": 30,
    "checkpoint_frames": 50, "log_frames": 20, "replay_rows": 300, "epsilon_decay_steps": 300, "target_every_steps": 50,
}  # fmt: skip


def train(game: str, out: Path, **fields: Any) -> None:
    tightrope.train(game, out=out, quiet=True, device="cpu", **SHORT | fields)


def outcome(run: Path) -> dict[str, Any]:
    """All that a run has learned and told but the time it took, in a form that can be compared."""
    folder = RunFolder(run)
    newest = folder.checkpoints.saved()[-1]
    tensors, facts = checkpoint.read(newest)
    for name in facts["segments"]:
        tensors[name] = checkpoint.read(folder.checkpoints.folder / name)[0]["frames"]
    return {
        "tensors": {name: tensor.nan_to_num(7.0) for name, tensor in tensors.items()},
        "metrics": [{k: v for k, v in line.items() if k not in TIMED} for line in folder.metrics()],
        "evaluations": [{k: v for k, v in row.items() if k not in TIMED} for row in folder.evaluations()],
        "best": agent(run, "best"),
        "last": agent(run, "last"),
    }


def agent(run: Path, which: str) -> dict[str, Any]:
    """A run's agent, less what changes nothing of what it learned."""
    found = tightrope.load(run, which=which, device="cpu")
    facts = dict(vars(found.facts))
    facts["config"] = learning(facts["config"])
    return {"weights": dict(found.network.state_dict()), "facts": facts}


def same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return bool(one == other)


def in_child(work: Callable[[], str], seconds: float = 60, before: Callable[[], None] = lambda: None) -> str:
    """What the work says, done in a process of its own: so it can neither hang, nor crash, nor fill the memory here.

    A TightropeError is "refused: ..."; anything else that goes wrong is "BROKEN: ...".
    """
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        said = "BROKEN: nothing was said"
        try:
            before()
            said = work()
        except TightropeError as problem:
            said = f"refused: {problem}"
        except BaseException:
            said = "BROKEN: " + " | ".join(traceback.format_exc().strip().splitlines()[-4:])
        finally:
            os.write(writer, said.encode("utf-8", "replace")[:4000])
            os._exit(0)
    os.close(writer)
    until = time.monotonic() + seconds
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        if time.monotonic() > until:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            os.close(reader)
            return f"BROKEN: it hung for {seconds:.0f} s"
        time.sleep(0.002)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode("utf-8", "replace")
    return said or "BROKEN: its process died"


class Tally:
    """Counts outcomes and keeps the broken ones word for word."""

    def __init__(self, test: str) -> None:
        self.test, self.began = test, time.monotonic()
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []

    def add(self, kind: str, said: str) -> None:
        self.counts[said.partition(":")[0]] += 1
        if said.startswith("BROKEN"):
            self.broken.append(f"{kind}: {said}")
            print(self.broken[-1], file=sys.stderr, flush=True)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def record(self, how_many: str, **more: Any) -> int:
        """Into results/torture/TEST.json; the status of the program."""
        found = {
            "test": self.test, "how_many": how_many, "outcomes": dict(sorted(self.counts.items())),
            "broken": self.broken, "seconds": round(time.monotonic() - self.began), "commit": commit(),
            "date": datetime.now(UTC).date().isoformat(), "python": platform.python_version(),
            "torch": torch.__version__, **more,
        }  # fmt: skip
        RESULTS.mkdir(parents=True, exist_ok=True)
        (RESULTS / f"{self.test}.json").write_text(json.dumps(found, indent=1) + "\n")
        print(f"{self.test}: {how_many}; {found['outcomes']}; {found['seconds']} s")
        return 1 if self.broken else 0


def arguments(count: int, what: str) -> tuple[int, random.Random]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--count", type=int, default=count, help=what)
    parser.add_argument("--seed", type=int, default=0, help="of the trials")
    found = parser.parse_args()
    torch.set_num_threads(1)
    return found.count, random.Random(found.seed)
