"""How good an agent is: the paper's protocol, and the modern one with sticky actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from tightrope.actor import Actor
from tightrope.config import Config
from tightrope.errors import GameError, TightropeError
from tightrope.games import EnvMaker, GameOptions, make_game
from tightrope.network import QNetwork
from tightrope.scores import normalised

#: Environments at once in an evaluation.
WIDTH = 32
#: Steps after which a game that nothing cuts off is said to have no end: thirty times the field's longest.
ENDLESS = 1_000_000


@dataclass(frozen=True)
class Protocol:
    """How the games of an evaluation are played."""

    name: str
    epsilon: float
    options: GameOptions
    episodes: int = 30
    steps: int = 0  # play so many steps in all instead of a number of games


def training_protocol(config: Config, game: str) -> Protocol:
    """How a run evaluates itself; called "paper" where it is the paper's protocol to the letter, else "run"."""
    own = Protocol(
        "paper",
        config.eval_epsilon,
        GameOptions(
            max_game_frames=config.eval_max_game_frames,
            noop_max=config.noop_max,
            sticky=config.sticky,
            patience=config.step_timeout_seconds,
        ),
        config.eval_episodes,
        config.eval_steps,
    )
    return own if own == protocol("paper", config, game) else replace(own, name="run")


def protocol(name: str, config: Config, game: str) -> Protocol:
    """The protocol of that name.

    `paper` (its section 5.1): 30 games, up to 30 no-ops, epsilon 0.05, at most 18,000 frames. `sticky` (Machado et al.,
    2018): actions repeated with probability 0.25, no no-ops, epsilon 0.001, 108,000 frames. Outside Atari there are no
    no-ops and no cap of the paper's: the run's own limit and stickiness hold.
    """
    atari = game.startswith("atari/")
    if name == "paper" and atari:
        return Protocol("paper", 0.05, GameOptions(max_game_frames=18_000, noop_max=30))
    if name == "paper":
        limit, patience = config.eval_max_game_frames, config.step_timeout_seconds
        return Protocol("paper", 0.05, GameOptions(max_game_frames=limit, sticky=config.sticky, patience=patience))
    if name == "sticky":
        if not atari:
            raise TightropeError(f"protocol sticky is for Atari games; {game} is none")
        return Protocol("sticky", 0.001, GameOptions(max_game_frames=108_000, sticky=0.25))
    raise TightropeError(f"unknown protocol {name!r}: paper or sticky")


@dataclass(frozen=True)
class Evaluation:
    """The outcome: the score of every game, and what is usually said of them."""

    scores: tuple[float, ...]
    game_frames: tuple[int, ...]
    protocol: str
    normalised_pct: float | None

    @property
    def mean(self) -> float:
        return float(np.mean(self.scores))

    @property
    def std(self) -> float:
        return float(np.std(self.scores))

    @property
    def interval(self) -> tuple[float, float]:
        """In which the mean lies with 95 %, were as many games played again: a bootstrap's percentiles, reproducible.

        >>> Evaluation((3.0, 3.0), (1, 1), "paper", None).interval
        (3.0, 3.0)
        """
        random = np.random.default_rng(0)
        means = random.choice(self.scores, (10_000, len(self.scores))).mean(1)
        low, high = np.percentile(means, (2.5, 97.5))
        return float(low), float(high)

    def facts(self, frames: int) -> dict[str, Any]:
        """What is kept of it with an agent that had trained for so many frames."""
        low, high = self.interval
        return {
            "frames": frames,
            "protocol": self.protocol,
            "games": len(self.scores),
            "mean": self.mean,
            "std": self.std,
            "low": low,
            "high": high,
            "normalised_pct": self.normalised_pct,
        }


class Evaluator:
    """Plays and scores, keeping its games and its actor for the next time: building 30 emulators takes seconds.

    `quicken` may make a new actor faster (fast.py).
    """

    def __init__(
        self,
        game_name: str,
        how: Protocol,
        device: torch.device,
        env: EnvMaker | None = None,
        quicken: Callable[[Actor], None] = lambda actor: None,
    ) -> None:
        self.how, self.device, self.quicken = how, device, quicken
        self._actor: Actor | None = None
        width = WIDTH if how.steps else min(WIDTH, how.episodes)
        self.game = make_game(game_name, width, 0, how.options, env)

    def play(
        self,
        network: QNetwork,
        seed: int,
        stop: Callable[[], bool] = lambda: False,
        told: Callable[[int], None] = lambda games: None,
    ) -> Evaluation | None:
        """One evaluation; None if it was stopped. `told` hears after each step how many games have ended.

        Each environment plays its own share of the games, so that short ones are not over-counted. By steps: games are
        begun until so many steps are played, and those begun are ended, for the same reason; one that still runs after
        as many steps again counts as it stands.
        """
        how, game = self.how, self.game
        info, num_envs = game.info, game.num_envs
        if self._actor is None or self._actor.network is not network:
            self._actor = Actor(network, num_envs, info, self.device, seed)
            self.quicken(self._actor)
        actor = self._actor
        actor.restart(seed)
        shares = [how.episodes // num_envs + (i < how.episodes % num_envs) for i in range(num_envs)]
        left = np.full(num_envs, np.iinfo(np.int64).max) if how.steps else np.array(shares)
        lengths = np.zeros(num_envs, dtype=np.int64)
        scores: list[list[float]] = [[] for _ in range(num_envs)]
        game_frames: list[list[int]] = [[] for _ in range(num_envs)]
        steps = 0
        game.seed(seed)
        actor.observe(game.reset(), np.ones(num_envs, dtype=bool))
        while left.any():
            if stop():
                return None
            game.send(actor.act(how.epsilon))
            step = game.receive()
            actor.observe(step.frames, step.begins)
            lengths += step.transition
            steps += int(step.transition.sum())
            ended = step.game_over & (left > 0)
            if not how.steps and not how.options.max_game_frames and lengths.max() >= ENDLESS:
                where = game.place(int(lengths.argmax()))
                raise GameError(
                    f"{info.name} has not ended a game in {ENDLESS:,} steps: {where}; set eval_max_game_frames"
                )
            if how.steps and steps >= 2 * how.steps:
                ended = left > 0
            for env in np.nonzero(ended)[0]:
                scores[env].append(float(step.scores[env]))
                game_frames[env].append(int(lengths[env]) * info.frames_per_step)
            left[ended] -= 1
            lengths[step.game_over] = 0
            told(sum(map(len, scores)))
            if how.steps and steps >= how.steps:
                left = np.where(ended, 0, np.minimum(left, 1))
        flat = tuple(score for own in scores for score in own)
        frames = tuple(count for own in game_frames for count in own)
        return Evaluation(flat, frames, how.name, normalised(info.rom, float(np.mean(flat))))

    def close(self) -> None:
        self.game.close()


def evaluate(
    network: QNetwork,
    game_name: str,
    how: Protocol,
    seed: int,
    device: torch.device,
    env: EnvMaker | None = None,
    told: Callable[[int], None] = lambda games: None,
) -> Evaluation:
    """One evaluation, from nothing to nothing."""
    evaluator = Evaluator(game_name, how, device, env)
    try:
        result = evaluator.play(network, seed, told=told)
        assert result is not None
        return result
    finally:
        evaluator.close()
