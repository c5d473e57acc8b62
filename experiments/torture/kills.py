"""kill -9 at random moments of training, saving and resuming; every run must end as the one that nobody killed."""

from __future__ import annotations

import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import Tally, arguments, in_child, outcome, same, train

import tightrope
from tightrope.checkpoint import unfinished

#: Saving nearly all the time; two halves that play in turn; a game with state of its own; emulators.
RUNS: list[tuple[str, dict[str, Any], int]] = [
    ("maze", {"checkpoint_frames": 10, "frames": 1500}, 4),
    ("CartPole-v1", {"num_envs": 4, "overlap": True, "frames": 2500, "checkpoint_frames": 100}, 3),
    ("minatar/breakout", {"num_envs": 3, "frames": 1200, "checkpoint_frames": 100}, 2),
    ("pong", {"num_envs": 2, "frames": 1600, "checkpoint_frames": 100, "batch_size": 4, "fast": False,
              "max_game_frames": 400, "replay_rows": 400}, 1),
]  # fmt: skip


def go_on(game: str, fields: dict[str, Any], run: Path) -> None:
    """Begins or resumes, as a person would after each crash."""
    if (run / "config.toml").exists():
        tightrope.resume(run, quiet=True)
    else:
        train(game, run, **fields)


def killed(game: str, fields: dict[str, Any], run: Path, seconds: float) -> str:
    """One sitting, killed after so many seconds; what the folder was doing then, or "ended" if it was faster."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            go_on(game, fields, run)
            os._exit(0)
        except BaseException as problem:
            os.write(writer, f"BROKEN: {type(problem).__name__}: {problem}".encode()[:2000])
            os._exit(1)
    os.close(writer)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    _, status = os.waitpid(pid, 0)
    with os.fdopen(reader, "rb") as pipe:
        said = pipe.read().decode()
    if os.WIFEXITED(status):
        return said or "ended"
    writing = any(unfinished(path) for path in run.rglob("*"))
    return "killed while a file was being written" if writing else "killed between writes"


def campaign(count: int, rng: random.Random, tally: Tally, folder: Path, game: str, fields: dict[str, Any]) -> None:
    unbroken = folder / "unbroken"
    said = in_child(lambda: train(game, unbroken, **fields) or "fine", 300)
    assert said == "fine", said
    expected = outcome(unbroken)
    kills = runs = 0
    while kills < count:
        run, mean, stuck = folder / f"broken-{runs}", 0.5, 0
        runs += 1
        while True:
            newest = max(run.glob("checkpoints/at-*"), default=None)
            said = killed(game, fields, run, rng.expovariate(1 / mean))
            if said == "ended":
                break
            tally.add(game, said)
            kills += 1
            # Not for ever in the same place: a run that never got to its next checkpoint is given more time.
            stuck = stuck + 1 if max(run.glob("checkpoints/at-*"), default=None) == newest else 0
            mean = 0.5 * (1 + stuck)
            if said.startswith("BROKEN") or kills >= count:
                said = in_child(lambda: go_on(game, fields, run) or "fine", 300)  # noqa: B023
                break
        equal = said in ("ended", "fine") and same(expected, outcome(run))
        tally.add(game, "run ended as the unbroken one" if equal else f"BROKEN: {run} ended otherwise: {said}")


def main() -> int:
    count, rng = arguments(200, "kills")
    tally = Tally("kills")
    shares = sum(share for *_, share in RUNS)
    with tempfile.TemporaryDirectory() as folder:
        for number, (game, fields, share) in enumerate(RUNS):
            (Path(folder) / str(number)).mkdir()
            campaign(-(-count * share // shares), rng, tally, Path(folder) / str(number), game, fields)
    kills = sum(n for said, n in tally.counts.items() if said.startswith("killed"))
    return tally.record(f"{kills} kills")


if __name__ == "__main__":
    sys.exit(main())
