"""What every game gives the rest of the house: send actions, receive a step.

A game is N environments in lockstep. The step after a game's end is a *reset*: its action is ignored, it is no
transition, and the frame before it (the final one) stays in its own row. Scores are those of whole games, unclipped;
losing a life ends an episode for learning only.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from gymnasium import Space


@dataclass(frozen=True)
class GameInfo:
    """What the others must know of a game, and all that they may know."""

    name: str  # canonical: "atari/ms_pacman", "CartPole-v1"
    num_actions: int
    frame_shape: tuple[int, ...]  # one frame: (channels, height, width) or (features,)
    frame_dtype: np.dtype
    stack: int  # frames in a state
    scale: float  # what the network multiplies frames by
    frames_per_step: int
    network: str  # the body that suits it
    observation_space: Space[Any]  # what a person hands to Agent.act
    rom: str | None = None  # Atari: the row of the reference table
    actions: tuple[str, ...] = ()  # what they are called, where the game says so

    @property
    def action_names(self) -> tuple[str, ...]:
        return self.actions or tuple(f"action {number}" for number in range(self.num_actions))

    @property
    def state_shape(self) -> tuple[int, ...]:
        """A state is the last `stack` frames, their channels together."""
        return (self.stack * self.frame_shape[0], *self.frame_shape[1:])


@dataclass(frozen=True)
class GameOptions:
    """How a game is played. Atari knows them all; other games know the time limit, MinAtar sticky actions too."""

    max_game_frames: int = 0  # 0: no limit but the game's own
    noop_max: int = 0
    sticky: float = 0.0
    life_ends: bool = False
    life_noops: int = 0
    sides: int = 1  # games like this that play in turn: each has its share of the cores
    render: bool = False  # keep pictures for `picture`
    patience: float = field(
        default=0.0, compare=False
    )  # seconds that a step may take before it is said to hang; 0: any


@dataclass
class Step:
    """What came of one action in each environment. Arrays of length N."""

    frames: np.ndarray  # the frame that followed
    rewards: np.ndarray  # unclipped
    transition: np.ndarray  # False: this was a reset or a no-op after a lost life, the action was ignored
    terminal: np.ndarray  # the episode ended, for learning: game over or, with life_ends, a life lost
    cut: np.ndarray  # the episode was cut off by a time limit
    begins: np.ndarray  # an episode begins at the frame that followed
    game_over: np.ndarray  # the whole game ended or was cut off
    scores: np.ndarray  # score of the whole game so far, this step included


class Game(ABC):
    """N environments in lockstep."""

    info: GameInfo
    num_envs: int
    _log: ActionLog

    def place(self, env: int) -> str:
        """Where an environment is, in words from which it can be had again."""
        return f"environment {env}, {self._log.lengths[env]:,} steps after seed {self._log.seed_of(env)}"

    @abstractmethod
    def seed(self, seed: int) -> None:
        """What the next `reset` starts from: the same seed, the same games."""

    @abstractmethod
    def reset(self) -> np.ndarray:
        """Starts all games anew; their first frames."""

    @abstractmethod
    def send(self, actions: np.ndarray) -> None:
        """Starts a step. Other work may be done before `receive`."""

    @abstractmethod
    def receive(self) -> Step:
        """Ends the step that `send` started."""

    @abstractmethod
    def cut_off(self) -> None:
        """Cuts all running games off after the step just received; the next step resets them."""

    @abstractmethod
    def save(self) -> dict[str, np.ndarray]:
        """All that `restore` needs to continue exactly here: seeds and the actions since, and counters."""

    @abstractmethod
    def restore(self, saved: dict[str, np.ndarray]) -> None:
        """Continues where `save` was called, by playing the actions again."""

    @abstractmethod
    def picture(self) -> np.ndarray:
        """The first environment as a colour picture, [height, width, 3] uint8. Needs GameOptions.render."""

    def close(self) -> None:  # noqa: B027
        """Frees what the game holds; nothing, for most."""


class ActionLog:
    """What each environment was told since it was last seeded, so that its state can be had back.

    An emulator's state is not always to be had as data, and a pickled environment is code; a seed and the actions since
    are plain numbers and exact. A negative entry, -1 - action, marks a reset.
    """

    def __init__(self, num_envs: int, seed: int) -> None:
        self.seed = seed
        self.seedings = np.zeros(num_envs, dtype=np.int64)  # how often each environment was seeded
        self.lengths = np.zeros(num_envs, dtype=np.int64)
        self._told = np.zeros((num_envs, 256), dtype=np.int16)
        self._all = np.arange(num_envs)

    def seed_of(self, env: int) -> int:
        """The seed of this environment's present stretch."""
        entropy = np.random.SeedSequence((self.seed, env, int(self.seedings[env])))
        return int(entropy.generate_state(1)[0] >> 1)  # 31 bits: the emulator takes a C int

    def reseed(self, env: int) -> int:
        """Opens a new stretch and returns its seed."""
        self.seedings[env] += 1
        self.lengths[env] = 0
        return self.seed_of(env)

    def append(self, actions: np.ndarray, reset: np.ndarray) -> None:
        """One action for each environment, and which of them were reset after it."""
        if self.lengths.max() == self._told.shape[1]:
            self._told = np.concatenate([self._told, np.zeros_like(self._told)], axis=1)
        self._told[self._all, self.lengths] = np.where(reset, -1 - actions, actions)
        self.lengths += 1

    def mark(self) -> tuple[np.ndarray, np.ndarray]:
        """What `back_to` needs to undo the step that comes."""
        return self.seedings.copy(), self.lengths.copy()

    def back_to(self, mark: tuple[np.ndarray, np.ndarray]) -> None:
        self.seedings, self.lengths = mark

    def told(self, env: int) -> np.ndarray:
        return self._told[env, : self.lengths[env]]

    def save(self) -> dict[str, np.ndarray]:
        flat = np.concatenate([self.told(env) for env in range(len(self._all))])
        return {"log_seedings": self.seedings.copy(), "log_lengths": self.lengths.copy(), "log_actions": flat}

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        seedings, lengths = (saved[f"log_{name}"].astype(np.int64) for name in ("seedings", "lengths"))
        whole = (seedings.shape, lengths.shape, int(lengths.sum())) == (
            self._all.shape, self._all.shape, len(saved["log_actions"])
        )  # fmt: skip
        if not whole or lengths.min() < 0 or seedings.min() < 0:
            raise ValueError("its log of actions is not whole")
        self.seedings, self.lengths = seedings, lengths
        self._told = np.zeros((len(self._all), max(256, int(self.lengths.max()))), dtype=np.int16)
        starts = np.cumsum(self.lengths) - self.lengths
        for env, start, length in zip(self._all, starts, self.lengths, strict=True):
            self._told[env, :length] = saved["log_actions"][start : start + length]
