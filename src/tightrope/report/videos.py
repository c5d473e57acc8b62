"""The best agent of a game, seen: a short video, small enough to be part of the page."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from tightrope.errors import TightropeError
from tightrope.report.data import Collection, Run, title_of
from tightrope.report.words import number
from tightrope.run import RunFolder

SECONDS = 20
HEIGHT = 420  # pixels
MOST_BYTES = 700_000


def best_run(collection: Collection, game: str) -> Run | None:
    """The run with the best evaluation that has kept its agent."""
    runs = [r for r in collection.runs if r.game == game and r.evaluations and r.folder is not None]
    kept = [run for run in runs if run.folder is not None and RunFolder(run.folder).best.exists()]
    return max(kept, key=lambda run: run.best, default=None)


def best_agents(collection: Collection, out: Path) -> tuple[dict[str, tuple[str, str]], list[str]]:
    """For each game (video as a data URI, what it shows), and what could not be filmed, in sentences."""
    found, problems = {}, []
    for game in collection.games:
        run = best_run(collection, game)
        if run is None:
            problems.append(f"{title_of(game)}: no agent was kept.")
            continue
        try:
            film = _filmed(run, out / f"{game.replace('/', '-')}.mp4")
        except TightropeError as problem:
            problems.append(f"{title_of(game)}: {problem}.")
            continue
        seen = f"{title_of(game)}: the best agent, {run.arm.name}, seed {run.seed}, evaluated at {number(run.best)}"
        found[game] = ("data:video/mp4;base64," + base64.b64encode(film).decode(), seen)
    return found, problems


def _filmed(run: Run, path: Path) -> bytes:
    """The beginning of one game, halved until it is small enough. Kept for the next report of the same agent."""
    import torch

    from tightrope.agent import Agent
    from tightrope.watch.play import STEPS_PER_SECOND, pictures
    from tightrope.watch.scene import fitted
    from tightrope.watch.screens import write_video

    assert run.folder is not None
    weights = RunFolder(run.folder).best
    if path.exists() and path.stat().st_mtime >= weights.stat().st_mtime:
        return path.read_bytes()
    agent = Agent.load(weights, torch.device("cpu"))

    def frames(count: int) -> Iterator[np.ndarray]:
        return (fitted(picture, HEIGHT) for picture in pictures(agent, 0, count))

    count = SECONDS * STEPS_PER_SECOND
    write_video(path, frames(count), STEPS_PER_SECOND)
    while path.stat().st_size > MOST_BYTES and count > 1:
        count //= 2
        write_video(path, frames(count), STEPS_PER_SECOND)
    return path.read_bytes()
