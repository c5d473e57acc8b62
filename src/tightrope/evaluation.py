"""How good an agent is: the paper's protocol, and the modern one with sticky actions."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from tightrope.actor import Actor
from tightrope.config import Config
from tightrope.errors import TightropeError
from tightrope.games import EnvMaker, GameOptions, make_game
from tightrope.scores import normalised

#: Environments at once in an evaluation.
WIDTH = 32


@dataclass(frozen=True)
class Protocol:
    """How the games of an evaluation are played."""

    name: str
    epsilon: float
    options: GameOptions
    episodes: int = 30
    steps: int = 0  # play so many steps in all instead of a number of games


def protocol(name: str, config: Config, game: str) -> Protocol:
    """The protocol of that name.

    `paper`: up to 30 no-ops, epsilon 0.05, at most 18,000 frames, 30 games, as the run's own numbers say. `sticky`:
    actions repeated with probability 0.25, no no-ops, epsilon 0.001, 108,000 frames (Machado et al., 2018).
    """
    ours = Protocol(
        "paper",
        config.eval_epsilon,
        GameOptions(max_game_frames=config.eval_max_game_frames, noop_max=config.noop_max, sticky=config.sticky),
        config.eval_episodes,
        config.eval_steps,
    )
    if name == "paper":
        return ours
    if name == "sticky":
        if not game.startswith("atari/"):
            raise TightropeError(f"protocol sticky is for Atari games; {game} is none")
        return replace(
            ours, name="sticky", epsilon=0.001, options=GameOptions(max_game_frames=108_000, sticky=0.25), steps=0
        )
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


def evaluate(
    network: nn.Module,
    game_name: str,
    how: Protocol,
    seed: int,
    device: torch.device,
    env: EnvMaker | None = None,
) -> Evaluation:
    """Plays and scores. Each environment plays its own share of the games, so that short ones are not over-counted."""
    shares = [how.episodes // WIDTH + (i < how.episodes % WIDTH) for i in range(min(WIDTH, how.episodes))]
    if how.steps:
        shares = [how.steps] * WIDTH  # more games than can be played: steps end it
    num_envs = len(shares)
    game = make_game(game_name, num_envs, seed, how.options, env)
    info = game.info
    actor = Actor(network, num_envs, info, device, seed)
    left = np.array(shares)
    started = np.zeros(num_envs, dtype=np.int64)
    scores: list[list[float]] = [[] for _ in shares]
    lengths: list[list[int]] = [[] for _ in shares]
    unfinished = np.zeros(num_envs)
    steps = 0
    try:
        actor.observe(game.reset(), np.ones(num_envs, dtype=bool))
        while left.any() and not (how.steps and steps >= how.steps):
            game.send(actor.act(how.epsilon))
            step = game.receive()
            actor.observe(step.frames, step.begins)
            started += step.transition
            steps += int(step.transition.sum())
            unfinished = step.scores
            for e in np.nonzero(step.game_over & (left > 0))[0]:
                scores[e].append(float(step.scores[e]))
                lengths[e].append(int(started[e]) * info.frames_per_step)
                left[e] -= 1
            started[step.game_over] = 0
    finally:
        game.close()
    flat = [s for part in scores for s in part]
    frames = [f for part in lengths for f in part]
    if not flat:  # no game ended within the steps given: what was reached so far is all there is
        flat, frames = unfinished.tolist(), (started * info.frames_per_step).tolist()
    return Evaluation(tuple(flat), tuple(frames), how.name, normalised(info.rom, float(np.mean(flat))))
