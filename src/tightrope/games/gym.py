"""Any Gymnasium environment with discrete actions, N of them stepped one after the other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.spaces.utils import flatdim, flatten

from tightrope.errors import GameError, TightropeError
from tightrope.games.base import ActionLog, Game, GameInfo, GameOptions, Step
from tightrope.games.patience import HangsError, Patience

#: Rebuild and seed an environment anew at the end of the first game after so many steps, so that its log stays short.
RESEED_STEPS = 10_000
#: The paper's network needs at least this many pixels a side; smaller images get the 3x3 network.
LEAST_SIDE = 36
SIDE = 84

EnvMaker = Callable[[], "gymnasium.Env[Any, Any]"]
Answer = TypeVar("Answer")

LARGEST = float(np.finfo(np.float32).max)


class Observations:
    """How a space's observations become frames: vectors as they are, small images by channel, others grey 84x84."""

    def __init__(self, space: Space[Any]) -> None:
        self.space = space
        self.stack = 1
        self.scale = 1.0
        self.dtype: np.dtype = np.dtype(np.float32)
        self.frame_shape: tuple[int, ...]
        if isinstance(space, Box) and len(space.shape) in (2, 3):
            shape = space.shape if len(space.shape) == 3 else (*space.shape, 1)
            # Channels stand where the shorter of the outer sides is.
            self._channels_last = shape[2] <= shape[0]
            height, width = shape[:2] if self._channels_last else shape[1:]
            channels = shape[2] if self._channels_last else shape[0]
            bytes_like = space.dtype in (np.uint8, np.bool_)
            self.dtype = np.dtype(np.uint8) if bytes_like else np.dtype(np.float32)
            if min(height, width) < LEAST_SIDE:
                if min(height, width) < 3:
                    raise TightropeError(f"images of {height}x{width} are too small: at least 3x3")
                self.kind, self.frame_shape = "small", (channels, height, width)
                # Bits (MinAtar) are 0 and 1 already; bytes are not.
                self.scale = 1 / 255 if space.dtype == np.uint8 else 1.0
            else:
                self.kind, self.frame_shape = "paper", (1, SIDE, SIDE)
                self.stack = 4
                self.dtype = np.dtype(np.uint8)
                self.scale = 1 / 255
                # Floats are taken to span the space's own bounds.
                low, high = float(np.min(space.low)), float(np.max(space.high))
                self._low, self._span = (
                    (0.0, 255.0) if bytes_like or not math.isfinite(high - low) else (low, high - low)
                )
        else:
            try:
                features = flatdim(space)
            except NotImplementedError:
                raise TightropeError(f"observations of {space} cannot be made into a vector") from None
            self.kind, self.frame_shape = "mlp", (features,)

    def check(self, observation: Any) -> None:
        """Refuses what the space does not promise, where it would be learned from as if it were something else."""
        space = self.space
        if isinstance(space, Box):
            given = np.asarray(observation)
            if given.shape != space.shape:
                raise GameError(f"gave an observation of shape {given.shape}, not {space.shape}")
            assert space.dtype is not None
            # Another type is no matter as long as nothing is lost in it: 3.0 for 3 is, 0.5 for a byte is not.
            if not np.can_cast(given.dtype, space.dtype, "same_kind") and not (
                given.dtype.kind in "biuf" and np.array_equal(given.astype(space.dtype), given)
            ):
                raise GameError(f"gave an observation of type {given.dtype}, not {space.dtype}")
            if given.dtype.kind == "f" and not np.isfinite(given).all():
                raise GameError("gave an observation that is not a number")
        elif not space.contains(observation):
            raise GameError(f"gave an observation that is not in {space}")

    def frame(self, observation: Any) -> np.ndarray:
        """One observation as a frame."""
        if self.kind == "mlp":
            vector = np.asarray(flatten(self.space, observation), dtype=np.float32)
            return vector.reshape(self.frame_shape)
        image = np.asarray(observation)
        image = image.reshape(*image.shape, 1) if image.ndim == 2 else image
        image = np.moveaxis(image, 2, 0) if self._channels_last else image
        if self.kind == "small":
            return np.ascontiguousarray(image, dtype=self.dtype)
        import torch  # only here, and late: naming a game must not take the seconds that PyTorch needs

        grey = (image.astype(np.float32).mean(0) - self._low) * (255.0 / self._span)
        small = torch.nn.functional.interpolate(torch.from_numpy(grey)[None, None], (SIDE, SIDE), mode="area")
        return small[0].round().clamp(0, 255).to(torch.uint8).numpy()

    @property
    def given_space(self) -> Space[Any]:
        """What a person hands to Agent.act: one observation, or the last four where states are stacks."""
        if self.stack == 1:
            return self.space
        assert isinstance(self.space, Box)
        return Box(
            np.stack([self.space.low] * self.stack), np.stack([self.space.high] * self.stack), dtype=self.space.dtype
        )


def _promised(answer: Any, call: str, parts: tuple[str, ...]) -> Any:
    """An answer of so many parts. (Gym before 0.26 gave fewer.)"""
    if not isinstance(answer, tuple) or len(answer) != len(parts):
        given = f"{len(answer)} values" if isinstance(answer, tuple) else f"a {type(answer).__name__}"
        raise GameError(f"gave {given} from {call}, not {len(parts)}: {', '.join(parts)}")
    return answer


class GymGame(Game):
    def __init__(self, name: str, make: EnvMaker, num_envs: int, seed: int, options: GameOptions) -> None:
        self._make = make
        self.num_envs = num_envs
        self.options = options
        self._patience = Patience(options.patience)
        self._envs = [make() for _ in range(num_envs)]
        self._used = [False] * num_envs
        actions = self._envs[0].action_space
        if not isinstance(actions, Discrete):
            raise TightropeError(f"{name} has actions {actions}: only discrete actions are supported")
        self._first_action = int(actions.start)
        self._observations = Observations(self._envs[0].observation_space)
        seen = self._observations
        self.info = GameInfo(
            name=name,
            num_actions=int(actions.n),
            frame_shape=seen.frame_shape,
            frame_dtype=seen.dtype,
            stack=seen.stack,
            scale=seen.scale,
            frames_per_step=1,
            network=seen.kind,
            observation_space=seen.given_space,
            actions=tuple(getattr(self._envs[0].unwrapped, "get_action_meanings", tuple)()),
        )
        self.seed(seed)

    def seed(self, seed: int) -> None:
        num_envs = self.num_envs
        self._log = ActionLog(num_envs, seed)
        self._scores = np.zeros(num_envs, dtype=np.float64)
        self._game_frames = np.zeros(num_envs, dtype=np.int64)
        self._resetting = np.zeros(num_envs, dtype=bool)  # the next step is a reset
        self._sent = np.zeros(num_envs, dtype=np.int64)

    def _ask(self, env: int, what: Callable[[], Answer]) -> Answer:
        """What an environment answers; whatever it does wrong is said in one sentence, with where it was."""
        self._patience.calls += 1
        try:
            return what()
        except HangsError:
            done = f"has not answered for {self.options.patience:g} s (step_timeout_seconds)"
        except GameError as problem:
            done = str(problem)
        except TightropeError:
            raise
        except (Exception, SystemExit) as problem:  # one that asks Python to exit is no reason to lose the run
            done = f"raised {type(problem).__name__}: {' '.join(str(problem).split())[:300]}"
        raise GameError(f"{self.info.name} {done}: {self.place(env)}") from None

    def _start(self, env: int) -> np.ndarray:
        """A new game; after a long log in an environment built and seeded anew."""
        if self._log.lengths[env] > RESEED_STEPS or self._log.seedings[env] == 0:
            if self._used[env]:
                self._envs[env].close()
                self._envs[env] = self._make()
            self._used[env] = True
            answer = self._envs[env].reset(seed=self._log.reseed(env))
        else:
            answer = self._envs[env].reset()
        observation, _ = _promised(answer, "reset", ("observation", "info"))
        self._observations.check(observation)
        return self._observations.frame(observation)

    def _step(self, env: int) -> tuple[np.ndarray, float, bool, bool]:
        answer = self._envs[env].step(self._first_action + int(self._sent[env]))
        parts = ("observation", "reward", "terminated", "truncated", "info")
        observation, reward, terminated, truncated, _ = _promised(answer, "step", parts)
        self._observations.check(observation)
        # As the replay keeps it, in float32: beyond 3.4e38 it is infinite there.
        if np.shape(reward) not in ((), (1,)) or not (np.abs(np.asarray(reward, dtype=np.float64)) < LARGEST).all():
            raise GameError(f"gave the reward {reward}")
        reward = np.asarray(reward, dtype=np.float64).item()
        return self._observations.frame(observation), reward, bool(terminated), bool(truncated)

    def reset(self) -> np.ndarray:
        with self._patience.watching():
            return np.stack([self._ask(env, lambda: self._start(env)) for env in range(self.num_envs)])  # noqa: B023

    def send(self, actions: np.ndarray) -> None:
        self._sent = np.asarray(actions, dtype=np.int64)

    def receive(self) -> Step:
        before = self._log.mark()
        try:
            with self._patience.watching():
                return self._receive()
        except GameError:
            # As if the step had not begun: whoever saves now saves what was whole.
            self._log.back_to(before)
            raise

    def _receive(self) -> Step:
        n = self.num_envs
        frames = np.empty((n, *self.info.frame_shape), dtype=self.info.frame_dtype)
        rewards = np.zeros(n, dtype=np.float64)
        over, cut = np.zeros(n, dtype=bool), np.zeros(n, dtype=bool)
        reset = self._resetting.copy()
        self._log.append(self._sent, reset)
        for env in range(n):
            if reset[env]:
                frames[env] = self._ask(env, lambda: self._start(env))  # noqa: B023
            else:
                frames[env], rewards[env], over[env], cut[env] = self._ask(env, lambda: self._step(env))  # noqa: B023
        self._scores = np.where(reset, 0.0, self._scores + rewards)
        self._game_frames = np.where(reset, 0, self._game_frames + 1)
        if limit := self.options.max_game_frames:
            cut |= ~reset & (self._game_frames >= limit)
        cut &= ~over
        self._resetting = over | cut
        return Step(
            frames=frames,
            rewards=rewards,
            transition=~reset,
            terminal=over,
            cut=cut,
            begins=reset,
            game_over=over | cut,
            scores=self._scores.copy(),
        )

    def cut_off(self) -> None:
        self._resetting[:] = True

    def save(self) -> dict[str, np.ndarray]:
        return self._log.save() | {
            "scores": self._scores.copy(),
            "game_frames": self._game_frames.copy(),
            "resetting": self._resetting.copy(),
        }

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        self._log.restore(saved)
        self._scores = saved["scores"].copy()
        self._game_frames = saved["game_frames"].astype(np.int64)
        self._resetting = saved["resetting"].astype(bool)
        with self._patience.watching():
            for env in range(self.num_envs):
                self._ask(env, lambda: self._play_again(env))  # noqa: B023

    def _play_again(self, env: int) -> None:
        """What the log says, in an environment as it was made."""
        self._used[env] = True
        self._envs[env].reset(seed=self._log.seed_of(env))
        for told in self._log.told(env).tolist():
            self._patience.calls += 1
            if told < 0:
                self._envs[env].reset()
            else:
                self._envs[env].step(self._first_action + told)

    def picture(self) -> np.ndarray:
        try:
            image: Any = self._envs[0].render()
        except gymnasium.error.DependencyNotInstalled as missing:
            raise TightropeError(f"{self.info.name} cannot be drawn: {missing}") from None
        except NotImplementedError:
            raise TightropeError(f"{self.info.name} cannot be drawn: its environment has no render method") from None
        if not isinstance(image, np.ndarray) or image.ndim != 3:
            raise TightropeError(f"{self.info.name} cannot be drawn: its render gives no picture")
        if image.dtype != np.uint8:
            image = (image * 255).round().astype(np.uint8)
        picture: np.ndarray = image
        return picture

    def close(self) -> None:
        for env in self._envs:
            env.close()
