"""Atari 2600 through ale-py's native vector environment.

What ale-py is told, and why: a life lost is signalled and the game goes on (`life_loss_info`; its `episodic_life` would
reset the whole game); rewards come unclipped, so that there is a score; no fire at the start, which the paper has not;
the time limit is kept here, because ale-py's hides behind a life lost at the same step and shows a mixed frame.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
from gymnasium.spaces import Box

from tightrope.device import cores
from tightrope.games.base import ActionLog, Game, GameInfo, GameOptions, Step

FRAMES_PER_STEP = 4
SIDE = 84
#: Seed an environment anew at the end of the first game after so many steps, so that its log stays short. Seeding
#: reloads the game (about 90 ms), so it must be rare.
RESEED_STEPS = 25_000
_NEVER = 2**31 - 1


@cache
def rom_names() -> tuple[str, ...]:
    """Every game that ale-py registers, in its own spelling. (It ships four more, for two players only.)"""
    import ale_py
    import gymnasium

    gymnasium.register_envs(ale_py)
    ids = (spec for name, spec in gymnasium.registry.items() if name.startswith("ALE/") and name.endswith("-v5"))
    return tuple(sorted(spec.kwargs["game"] for spec in ids))


def find_rom(name: str) -> str | None:
    """The game meant by any usual spelling, or None.

    >>> find_rom("ALE/MsPacman-v5"), find_rom("ms. pacman"), find_rom("PongNoFrameskip-v4"), find_rom("chess2")
    ('ms_pacman', 'ms_pacman', 'pong', None)
    """
    bare = re.sub(r"^(ALE|atari)/", "", name, flags=re.I)
    bare = re.sub(r"(-ram)?(NoFrameskip|Deterministic)?-v\d$", "", bare, flags=re.I)
    key = re.sub(r"[^a-z0-9]", "", bare.lower())
    # The paper's spellings that differ from ale-py's by more than punctuation.
    key = {"upanddown": "upndown", "montezumasrevenge": "montezumarevenge"}.get(key, key)
    by_key = {rom.replace("_", ""): rom for rom in rom_names()}
    return by_key.get(key)


def _spelt(action: str) -> str:
    """ale-py's name of an action, for people.

    >>> _spelt("UPRIGHTFIRE"), _spelt("NOOP")
    ('up right fire', 'noop')
    """
    return " ".join(re.findall("UP|DOWN|LEFT|RIGHT|FIRE|NOOP", action)).lower()


class AtariGame(Game):
    def __init__(self, rom: str, num_envs: int, seed: int, options: GameOptions) -> None:
        self.rom = rom
        self.num_envs = num_envs
        self.options = options
        # The emulators are built when the game starts: what the others must know needs one of them only.
        self._env: Any = None
        self._painter: Any = None
        self._painted: np.ndarray | None = None
        actions = tuple(_spelt(action.name) for action in self._make(1).ale.get_action_set())
        self.info = GameInfo(
            name=f"atari/{rom}",
            num_actions=len(actions),
            frame_shape=(1, SIDE, SIDE),
            frame_dtype=np.dtype(np.uint8),
            stack=4,
            scale=1 / 255,
            frames_per_step=FRAMES_PER_STEP,
            network="paper",
            observation_space=Box(0, 255, (4, SIDE, SIDE), np.uint8),
            rom=rom,
            actions=actions,
        )
        self.seed(seed)

    def seed(self, seed: int) -> None:
        num_envs = self.num_envs
        self._log = ActionLog(num_envs, seed)
        self._lives = np.zeros(num_envs, dtype=np.int64)
        self._scores = np.zeros(num_envs, dtype=np.float64)
        self._game_frames = np.zeros(num_envs, dtype=np.int64)
        self._noops_due = np.zeros(num_envs, dtype=np.int64)
        self._resetting = np.zeros(num_envs, dtype=bool)  # the next step is ale-py's own reset
        self._forced = np.zeros(num_envs, dtype=bool)  # the next step is a reset that we ask for
        self._sent = np.zeros(num_envs, dtype=np.int64)

    def _make(self, num_envs: int, colour: bool = False) -> Any:
        from ale_py.vector_env import AtariVectorEnv

        return AtariVectorEnv(
            self.rom,
            num_envs,
            stack_num=1,
            grayscale=not colour,
            img_height=210 if colour else SIDE,
            img_width=160 if colour else SIDE,
            frameskip=FRAMES_PER_STEP,
            num_threads=min(num_envs, max(1, cores() // self.options.sides)),
            maxpool=True,
            # ale-py draws 0 .. noop_max - 1.
            noop_max=self.options.noop_max + 1,
            repeat_action_probability=self.options.sticky,
            full_action_space=False,
            use_fire_reset=False,
            reward_clipping=False,
            episodic_life=False,
            life_loss_info=True,
            max_num_frames_per_episode=_NEVER,
            autoreset_mode="NextStep",
        )

    def bare(self) -> Any:
        """ale-py's vector environment by itself, for measurements."""
        return self._make(self.num_envs)

    def _build(self) -> None:
        if self._env is None:
            self._env = self._make(self.num_envs)
            self._painter = self._make(self.num_envs, colour=True) if self.options.render else None

    def reset(self) -> np.ndarray:
        self._build()
        seeds = np.array([self._log.reseed(env) for env in range(self.num_envs)])
        frames, info = self._env.reset(seed=seeds)
        if self._painter is not None:
            self._painted = self._painter.reset(seed=seeds)[0][0, 0]
        self._lives[:] = info["lives"]
        return np.asarray(frames)

    def send(self, actions: np.ndarray) -> None:
        self._sent = np.where(self._noops_due > 0, 0, actions).astype(np.int64)
        self._env.send(self._sent)

    def _receive(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Frames, rewards, terminated, lives; resets that were asked for are done and logged."""
        frames, rewards, terminated, _, info = self._env.recv()
        lives = info["lives"].astype(np.int64)
        if self._painter is not None:
            self._painted = self._painter.step(self._sent)[0][0, 0]
        self._log.append(self._sent, self._forced)
        if self._forced.any():
            # Those environments were stepped with the others; what came of it is dropped.
            long = self._log.lengths > RESEED_STEPS
            for reseed in (False, True):
                mask = self._forced & (long == reseed)
                if mask.any():
                    frames, lives = self._reset_some(mask, reseed, frames, lives)
            rewards = np.where(self._forced, 0, rewards)
            terminated = terminated & ~self._forced
        return frames, rewards.astype(np.float64), terminated, lives

    def _reset_some(
        self, mask: np.ndarray, reseed: bool, frames: np.ndarray, lives: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        (envs,) = np.nonzero(mask)
        seeds = np.array([self._log.reseed(int(env)) for env in envs]) if reseed else None
        fresh, info = self._env.reset(seed=seeds, options={"reset_mask": mask})
        if self._painter is not None:
            self._painted = self._painter.reset(seed=seeds, options={"reset_mask": mask})[0][0, 0]
        frames, lives = frames.copy(), lives.copy()
        frames[mask], lives[mask] = fresh[mask], info["lives"][mask]
        return frames, lives

    def receive(self) -> Step:
        frames, rewards, terminated, lives = self._receive()
        reset = self._resetting | self._forced
        self._scores[reset] = 0.0
        self._game_frames[reset] = 0
        waiting = ~reset & (self._noops_due > 0)
        self._noops_due[self._noops_due > 0] -= 1
        self._noops_due[reset] = 0

        played = ~reset
        self._scores += np.where(played, rewards, 0.0)
        self._game_frames[played] += FRAMES_PER_STEP
        life_lost = played & terminated & (lives > 0) & (lives < self._lives)
        over = played & terminated & ~life_lost
        self._lives = lives

        limit = self.options.max_game_frames
        late = played & ~over & (self._game_frames >= limit) if limit else np.zeros_like(over)
        life_lost &= self.options.life_ends
        # A life lost while waiting for the next one to begin (two lives in a row) ends nothing: nothing was stored.
        terminal = (over | life_lost) & ~waiting
        cut = late & ~terminal & ~waiting
        self._noops_due[life_lost & ~late] = self.options.life_noops
        still_waiting = self._noops_due > 0
        begins = (reset | waiting | life_lost) & ~over & ~late & ~still_waiting

        # A game that ends with a long log is started by us, with a new seed, instead of by ale-py.
        long = self._log.lengths > RESEED_STEPS
        self._forced = late | (over & long)
        self._resetting = over & ~long
        return Step(
            frames=frames,
            rewards=np.where(played, rewards, 0.0),
            transition=played & ~waiting,
            terminal=terminal,
            cut=cut,
            begins=begins,
            game_over=over | late,
            scores=self._scores.copy(),
        )

    def cut_off(self) -> None:
        self._forced |= ~self._resetting
        self._noops_due[:] = 0

    def save(self) -> dict[str, np.ndarray]:
        return self._log.save() | {
            "lives": self._lives.copy(),
            "scores": self._scores.copy(),
            "game_frames": self._game_frames.copy(),
            "noops_due": self._noops_due.copy(),
            "resetting": self._resetting.copy(),
            "forced": self._forced.copy(),
        }

    def restore(self, saved: dict[str, np.ndarray]) -> None:
        self._build()
        self._log.restore(saved)
        self._lives = saved["lives"].astype(np.int64).copy()
        self._scores = saved["scores"].copy()
        self._game_frames = saved["game_frames"].copy()
        self._noops_due = saved["noops_due"].copy()
        self._resetting = saved["resetting"].astype(bool).copy()
        self._forced = saved["forced"].astype(bool).copy()
        # Logs differ in length and end now: each environment is seeded when its own log begins, and before that it is
        # merely kept company.
        lengths = self._log.lengths
        longest = int(lengths.max())
        seeds = np.array([self._log.seed_of(env) for env in range(self.num_envs)])
        told = np.zeros((longest, self.num_envs), dtype=np.int64)
        for env in range(self.num_envs):
            told[longest - lengths[env] :, env] = self._log.told(env)
        self._env.reset(seed=seeds)
        for time in range(longest):
            starting = lengths == longest - time
            if time > 0 and starting.any():
                self._env.reset(seed=seeds[starting], options={"reset_mask": starting})
            resets = told[time] < 0
            self._env.step(np.where(resets, -1 - told[time], told[time]))
            if resets.any():
                self._env.reset(options={"reset_mask": resets})
        unplayed = lengths == 0
        if longest > 0 and unplayed.any():
            self._env.reset(seed=seeds[unplayed], options={"reset_mask": unplayed})

    def picture(self) -> np.ndarray:
        assert self._painted is not None, "made without GameOptions.render"
        return self._painted
