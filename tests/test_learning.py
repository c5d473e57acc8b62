"""Learning, not only running: stated scores within stated frames, on one core each."""

from __future__ import annotations

from pathlib import Path

import pytest

import tightrope
from tightrope.run import RunFolder


def best_score(run: Path | None) -> float:
    assert run is not None
    return max(float(row["score"]) for row in RunFolder(run).evaluations())


@pytest.mark.parametrize(
    ("game", "frames", "score", "fields"),
    [
        # The goal is reached in every game of an evaluation; a random agent reaches it in few.
        ("maze", 12_000, 1.0, {}),
        # Of at most 500; a random agent balances for about 22 steps.
        ("CartPole-v1", 20_000, 300.0, {}),
        # A random agent breaks half a brick a game.
        ("minatar/breakout", 30_000, 2.5, {"epoch_frames": 7_500, "eval_episodes": 20}),
    ],
)
def test_reaches_its_score(tmp_path: Path, game: str, frames: int, score: float, fields: dict[str, int]) -> None:
    agent = tightrope.train(game, frames=frames, out=tmp_path / "run", quiet=True, device="cpu", **fields)
    assert best_score(agent.run) >= score
    # The agent kept as the best is that agent: its own score comes with it.
    assert tightrope.load(tmp_path / "run").facts.score == best_score(agent.run)
