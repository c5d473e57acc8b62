"""Evaluation protocols, and what an agent takes and gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

import tightrope
from tightrope.agent import shipped
from tightrope.config import preset
from tightrope.errors import TightropeError
from tightrope.evaluation import WIDTH, Evaluator, Protocol, evaluate, protocol, training_protocol
from tightrope.games import GameOptions
from tightrope.network import build_network
from tightrope.scores import references


def test_the_protocols_numbers() -> None:
    """Paper 5.1; and Machado et al. 2018 for the sticky one."""
    paper = protocol("paper", preset("paper"), "atari/pong")
    assert (paper.episodes, paper.epsilon, paper.steps) == (30, 0.05, 0)
    assert paper.options == GameOptions(max_game_frames=18_000, noop_max=30, sticky=0.0)
    sticky = protocol("sticky", preset("paper"), "atari/pong")
    assert (sticky.epsilon, sticky.steps) == (0.001, 0)
    assert sticky.options == GameOptions(max_game_frames=108_000, noop_max=0, sticky=0.25)
    # What a run calls the paper's protocol is the paper's; other numbers have another name.
    assert training_protocol(preset("paper"), "atari/pong") == paper
    released = training_protocol(preset("released"), "atari/pong")
    assert (released.name, released.steps, released.options.max_game_frames) == ("run", 125_000, 0)
    assert training_protocol(preset("paper").replace(sticky=0.25), "atari/pong").name == "run"
    assert protocol("paper", preset("released"), "atari/pong") == paper


class Countdown(gymnasium.Env[np.ndarray, np.int64]):
    """The i-th environment's games last i + 1 steps, each step scoring 1: short games must not be over-counted."""

    made = 0
    observation_space = gymnasium.spaces.Box(0, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.length = Countdown.made + 1
        Countdown.made += 1

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        self.left = self.length
        return np.zeros(1, np.float32), {}

    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        return np.zeros(1, np.float32), 1.0, self.left == 0, False, {}


@pytest.mark.parametrize("episodes", [3, WIDTH, WIDTH + 5])
def test_each_environment_plays_its_own_share(episodes: int) -> None:
    Countdown.made = 0
    network = nn.Linear(1, 2)
    result = evaluate(
        network, "custom", Protocol("paper", 0.0, GameOptions(), episodes), 0, torch.device("cpu"), Countdown
    )
    lengths = list(range(1, min(episodes, WIDTH) + 1)) + list(range(1, episodes - WIDTH + 1))
    assert sorted(result.scores) == sorted(map(float, lengths))
    assert sorted(result.game_frames) == sorted(lengths)


def test_an_evaluation_does_not_depend_on_those_before_it() -> None:
    """Games and actor are kept; what they remember is not."""
    network = build_network("mlp", (4,), 2, 1.0, 3)
    how = Protocol("run", 0.5, GameOptions(), 3)
    kept = Evaluator("CartPole-v1", how, torch.device("cpu"))
    first, _, again = (kept.play(network, seed) for seed in (1, 2, 1))
    assert first is not None
    assert first == again == evaluate(network, "CartPole-v1", how, 1, torch.device("cpu"))
    assert len(set(first.scores)) > 1


class LongOrShort(Countdown):
    """Games of 10 or of 150 steps, at even odds: the mean is 80."""

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        super(Countdown, self).reset(seed=seed)
        self.left = 150 if self.np_random.random() < 0.5 else 10
        return np.zeros(1, np.float32), {}


def test_evaluation_by_steps_does_not_favour_short_games() -> None:
    how = Protocol("run", 0.0, GameOptions(), steps=100 * WIDTH)
    means = [evaluate(nn.Linear(1, 2), "custom", how, seed, torch.device("cpu"), LongOrShort).mean for seed in range(8)]
    # The standard error of each is about 70 / sqrt(70).
    assert abs(np.mean(means) - 80) < 10


def test_a_game_that_never_ends_does_not_hold_an_evaluation_by_steps_up() -> None:
    how = Protocol("run", 1.0, GameOptions(), steps=20 * WIDTH)
    result = evaluate(nn.Linear(1, 2), "custom", how, 0, torch.device("cpu"), Endless)
    assert result.scores == (40.0,) * WIDTH


class Endless(Countdown):
    def step(self, action: np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.zeros(1, np.float32), 1.0, False, False, {}


def test_a_life_lost_does_not_end_an_evaluation_game() -> None:
    """Breakout's score of five lives under random play is far above one life's."""
    how = Protocol("paper", 1.0, GameOptions(max_game_frames=18_000, noop_max=30), 30)
    result = evaluate(nn.Identity(), "breakout", how, 0, torch.device("cpu"))
    assert len(result.scores) == 30
    # Mnih et al. 2015 give random play 1.7; single lives would score a fifth of it.
    assert 0.8 < result.mean < 2.8
    assert result.normalised_pct == pytest.approx(100 * (result.mean - 1.7) / 30.1)


def test_act_takes_one_observation_or_a_batch(tmp_path: Path) -> None:
    short = {"frames": 200, "learn_start_steps": 100, "quiet": True, "device": "cpu", "eval_every_epochs": 0}
    agent = tightrope.train("minatar/breakout", out=tmp_path / "a", **short)
    one = np.zeros((10, 10, 4), dtype=bool)
    assert agent.observation_space.contains(one)
    assert isinstance(agent.act(one), int)
    batch = agent.act(np.stack([one, ~one, one]))
    assert batch.shape == (3,)
    assert batch[0] == batch[2] == agent.act(one)
    assert agent.q_values(one).shape == (3,)
    with pytest.raises(TightropeError, match=r"must be \(10, 10, 4\)"):
        agent.act(np.zeros((4, 10, 10)))
    # A cell's number, as the maze's space says.
    maze = tightrope.train("maze", out=tmp_path / "b", **short)
    assert maze.act(3) in range(4)
    assert maze.act(np.array([1, 2, 3])).shape == (3,)


def test_an_environment_and_network_of_ones_own(tmp_path: Path) -> None:
    def network(shape: tuple[int, ...], actions: int) -> nn.Module:
        assert shape == (4,)
        return nn.Linear(4, actions)

    def make() -> gymnasium.Env[Any, Any]:
        return gymnasium.make("CartPole-v1", max_episode_steps=50)

    with pytest.raises(TightropeError, match=r"shape \(2, 3\); custom needs \(2, 2\)"):
        tightrope.train(env=make, network=lambda shape, actions: nn.Linear(4, 3), out=tmp_path / "bad", quiet=True)
    with pytest.raises(TightropeError, match="does not take states"):
        tightrope.train(env=make, network=lambda shape, actions: nn.Linear(5, 2), out=tmp_path / "bad", quiet=True)
    with pytest.raises(TightropeError, match="function that makes an environment"):
        tightrope.train(env=make(), quiet=True)  # type: ignore[arg-type]
    with pytest.raises(TightropeError, match="not a module"):
        tightrope.train(env=make, network=nn.Linear(4, 2), quiet=True)
    assert not (tmp_path / "bad").exists()
    fields = {"frames": 400, "learn_start_steps": 100, "epoch_frames": 200, "eval_episodes": 2}
    agent = tightrope.train(env=make, network=network, out=tmp_path / "own", quiet=True, device="cpu", **fields)
    assert sum(p.numel() for p in agent.network.parameters()) == 10
    assert max(agent.evaluate(3).scores) <= 50
    with pytest.raises(TightropeError, match="env="):
        tightrope.load(tmp_path / "own")
    with pytest.raises(TightropeError, match="network="):
        tightrope.load(tmp_path / "own", env=make)
    again = tightrope.load(tmp_path / "own", which="last", env=make, network=network)
    observation = np.array([0.1, -0.2, 0.03, 0.4], np.float32)
    np.testing.assert_array_equal(agent.q_values(observation), again.q_values(observation))
    with pytest.raises(TightropeError, match="env="):
        tightrope.resume(tmp_path / "own", quiet=True)
    assert tightrope.resume(tmp_path / "own", env=make, network=network, quiet=True).facts.frames == agent.facts.frames


def test_the_shipped_agents_play_as_their_files_say() -> None:
    for game, path in shipped().items():
        assert path.stat().st_size < 4_000_000
        agent = tightrope.load(game.removeprefix("atari/"), device="cpu")
        assert agent.facts.game == game
        assert agent.facts.score is not None
        result = agent.evaluate(4)
        # Four games: the mean of 30 and this one differ by chance, but not by half the way to a random player.
        random = references()[game.removeprefix("atari/")].random
        assert result.mean - random > 0.5 * (agent.facts.score - random)


def test_a_game_without_a_shipped_agent_is_refused_with_those_that_have_one() -> None:
    with pytest.raises(TightropeError, match=r"tetris2 does not exist: .* shipped agent \(alien, breakout, pong"):
        tightrope.load("tetris2")
    with pytest.raises(TightropeError, match="no shipped agent"):
        tightrope.load("adventure")
