"""The model card beside every saved agent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml
from scipy import stats
from torch import nn

import tightrope
from tightrope.agent import AgentFacts, shipped
from tightrope.card import card
from tightrope.config import preset
from tightrope.errors import TightropeError
from tightrope.evaluation import Evaluation
from tightrope.run import RunFolder

SHORT = {"frames": 600, "learn_start_steps": 100, "epoch_frames": 200, "eval_episodes": 4, "eval_max_game_frames": 40}


def front(text: str) -> dict[str, object]:
    """The part that the Hugging Face Hub reads."""
    _, yaml_text, _ = text.split("---\n", 2)
    found: dict[str, object] = yaml.safe_load(yaml_text)
    return found


def row(text: str, name: str) -> str:
    return next(line for line in text.splitlines() if line.startswith(f"| {name} |"))


def test_every_saved_agent_has_a_card(tmp_path: Path) -> None:
    agent = tightrope.train("maze", out=tmp_path / "run", quiet=True, device="cpu", lam=1, seed=2, **SHORT)  # type: ignore[arg-type]
    run = RunFolder(tmp_path / "run")
    agent.save(tmp_path / "mine.safetensors")
    last = run.evaluations()[-1]
    for file in (run.last, tmp_path / "mine.safetensors"):
        text = file.with_suffix(".md").read_text()
        assert "`tightrope/Maze-v0`" in row(text, "game")
        assert "`maze` with" in row(text, "preset")
        assert "lam = 1" in row(text, "preset")
        assert "600 frames, seed 2" in row(text, "training")
        assert f"{float(last['score']):.4g}, 95 % interval" in row(text, "score")
        assert "run: 4 games, epsilon 0.05, at most 40 frames a game; after 600 frames" in row(text, "protocol")
        assert "MIT" in row(text, "licence")
        assert f'tightrope.load("{file.name}")' in text
        assert front(text)["license"] == "mit"
    best = min(run.evaluations(), key=lambda found: (-float(found["score"]), int(found["frames"])))
    assert f"{int(best['frames']):,} frames, seed 2" in row(run.best.with_suffix(".md").read_text(), "training")
    # What is on the card comes with the agent's file, and goes with it.
    loaded = tightrope.load(run.last)
    assert loaded.facts == agent.facts
    loaded.save(tmp_path / "again.safetensors")
    cards = [(tmp_path / f"{name}.md").read_text().replace(name, "") for name in ("mine", "again")]
    assert cards[0] == cards[1]


def test_an_agent_of_ones_own_game_and_network(tmp_path: Path) -> None:
    import gymnasium

    agent = tightrope.train(
        env=lambda: gymnasium.make("CartPole-v1"), network=lambda shape, actions: nn.Linear(*shape, actions),
        out=tmp_path / "run", quiet=True, device="cpu", frames=200, learn_start_steps=100, eval_every_epochs=0,
    )  # fmt: skip
    assert agent.run is not None
    text = RunFolder(agent.run).last.with_suffix(".md").read_text()
    assert "not evaluated" in row(text, "score")
    assert 'tightrope.load("last.safetensors", env=..., network=...)' in text
    assert "tightrope watch" not in text


def test_a_plain_dqn_is_called_one_and_an_old_agent_says_what_is_not_known() -> None:
    config = preset("dqn").to_dict()
    text = card(AgentFacts("atari/pong", "dqn", 0, 1000, 3.25, "auto", config), "")
    assert "by plain DQN" in text
    assert "3.25; protocol and interval were not kept" in row(text, "score")
    assert "interval is a bootstrap" not in text
    other = card(AgentFacts("atari/pong", "of-tomorrow", 0, 1000, None, "auto", config), "")
    assert row(other, "preset") == "| preset | `of-tomorrow` |"
    for damaged in ({}, {"protocol": "paper", "mean": "high"}, {"protocol": ["paper"]}):
        with pytest.raises(TightropeError):
            card(AgentFacts("atari/pong", "dqn", 0, 1000, None, "auto", config, damaged), "")


def test_the_shipped_agents_have_cards() -> None:
    for game, path in shipped().items():
        text = path.with_suffix(".md").read_text()
        facts = tightrope.load(path, device="cpu").facts
        assert facts.evaluation is not None
        assert f"`{game}`" in row(text, "game")
        assert f"{facts.evaluation['mean']:.4g}, 95 % interval {facts.evaluation['low']:.4g}" in row(text, "score")
        assert "paper: 30 games, epsilon 0.05, up to 30 no-ops at the start, at most 18,000 frames" in text
        assert f"{facts.evaluation['normalised_pct']:.1f} %" in row(text, "human-normalised score")


def test_the_interval_is_scipys() -> None:
    scores = tuple(np.random.default_rng(1).exponential(10, 30).tolist())
    low, high = Evaluation(scores, (1,) * 30, "paper", None).interval
    oracle = stats.bootstrap((scores,), np.mean, n_resamples=10_000, method="percentile", rng=7).confidence_interval
    width = oracle.high - oracle.low
    assert low == pytest.approx(oracle.low, abs=0.05 * width)
    assert high == pytest.approx(oracle.high, abs=0.05 * width)
    assert Evaluation((5.0,), (1,), "paper", None).interval == (5.0, 5.0)
