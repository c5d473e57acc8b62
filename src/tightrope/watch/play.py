"""Plays one game and shows it."""

from __future__ import annotations

import os
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from tightrope.actor import Actor
from tightrope.agent import Agent
from tightrope.config import Config
from tightrope.device import threads
from tightrope.errors import TightropeError, counted
from tightrope.evaluation import protocol
from tightrope.games import make_game
from tightrope.watch import screens
from tightrope.watch.rope import Rope, rope
from tightrope.watch.scene import Scene

STEPS_PER_SECOND = 15  # Atari's 60 frames a second, 4 to a step


@dataclass
class Moment:
    """A state of the game, what the agent thought of it, did, and what came of that."""

    picture: np.ndarray
    score: float  # so far
    values: np.ndarray  # Q of each action
    action: int = -1  # none after the end
    reward: float = 0.0  # as it is learned from
    terminal: bool = False  # its episode ended here: the game, or a life where those end episodes


def moments(agent: Agent, seed: int) -> Iterator[Moment]:
    """One game under the paper's protocol; the last moment is the one after its end."""
    config = Config.stored(agent.facts.config)
    plan = protocol("paper", config, agent.facts.game)
    # Lives end episodes only for the bounds: the agent plays on as in an evaluation, its frames are not blanked.
    options = replace(plan.options, render=True, life_ends=config.life_ends)
    game = make_game(agent.facts.game, 1, seed, options, agent.env)
    actor = Actor(agent.network, 1, agent.info, agent.device, seed)
    clip = config.clip_rewards and agent.info.rom is not None
    try:
        actor.observe(game.reset(), np.ones(1, dtype=bool))
        score, over = 0.0, False
        while not over:
            moment = Moment(game.picture(), score, _values(actor))
            actions = actor.act(plan.epsilon)
            game.send(actions)
            step = game.receive()
            actor.observe(step.frames, np.zeros(1, dtype=bool))
            reward, score, over = float(step.rewards[0]), float(step.scores[0]), bool(step.game_over[0])
            moment.action, moment.terminal = int(actions[0]), bool(step.terminal[0])
            moment.reward = max(-1.0, min(1.0, reward)) if clip else reward
            yield moment
        yield Moment(game.picture(), score, _values(actor))
    finally:
        game.close()


@torch.no_grad()
def _values(actor: Actor) -> np.ndarray:
    values: np.ndarray = actor.network(actor.states)[0].cpu().numpy()
    return values


class Played:
    """A whole game, remembered: only its end tells the returns. Pictures are kept compressed."""

    def __init__(self, agent: Agent, seed: int) -> None:
        self.moments: list[Moment] = []
        self._pictures: list[tuple[tuple[int, ...], bytes]] = []
        for moment in moments(agent, seed):
            picture = np.ascontiguousarray(moment.picture)
            self._pictures.append((picture.shape, zlib.compress(picture.tobytes(), 1)))
            self.moments.append(replace(moment, picture=picture[:0]))

    def __len__(self) -> int:
        return len(self.moments)

    def picture(self, time: int) -> np.ndarray:
        shape, packed = self._pictures[time]
        return np.frombuffer(zlib.decompress(packed), np.uint8).reshape(shape)

    def rope(self, config: Config) -> Rope:
        steps = self.moments[:-1]
        return rope(
            torch.from_numpy(np.stack([moment.values for moment in self.moments])).double(),
            torch.tensor([moment.action for moment in steps]),
            torch.tensor([moment.reward for moment in steps], dtype=torch.float64),
            torch.tensor([moment.terminal for moment in steps]),
            config,
        )


def watch(
    agent: Agent,
    seed: int = 0,
    video: Path | None = None,
    *,
    speed: float = 1.0,
    seconds: float = 0.0,
    plain: bool = False,
) -> str:
    """Shows one game; returns a sentence on it.

    To the video; without one to a window, where there is no screen to the terminal, and without that to watch.gif.
    """
    if seed < 0:
        raise TightropeError(f"seed = {seed}: must be a whole number of at least 0")
    if not 0.01 <= speed <= 100:
        raise TightropeError(f"speed = {speed:g}: must be a number from 0.01 to 100")
    if not 0 <= seconds <= 1e6:
        raise TightropeError(f"seconds = {seconds:g}: must be a number from 0 to 1000000")
    if video is not None and video.suffix not in (".mp4", ".gif"):
        raise TightropeError(f"video = {str(video)!r}: must end in .mp4 or .gif")
    screen = screens.choose(video)
    if not isinstance(screen, screens.Window):
        # Games that draw with pygame draw in memory: they need no screen, and need not complain of one.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
        os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    screen.say("playing the whole game: only its end tells the returns ...")
    with threads(1):  # one state at a time is no work for many
        played = Played(agent, seed)
    scene = Scene(agent, seed, played, None if plain else played.rope(Config.stored(agent.facts.config)))
    count = min(len(played), max(1, round(seconds * STEPS_PER_SECOND))) if seconds else len(played)
    shown = screen.show(scene, range(count), STEPS_PER_SECOND * speed)
    score = played.moments[-1].score
    return f"{shown}score {score:g} after {counted(len(played) - 1, 'step')}"


def pictures(agent: Agent, seed: int, count: int) -> Iterator[np.ndarray]:
    """The first pictures of a game, as they are."""
    return (moment.picture for moment in islice(moments(agent, seed), count))
