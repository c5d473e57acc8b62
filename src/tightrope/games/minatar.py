"""MinAtar's five games as Gymnasium environments, with and without sticky actions."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from tightrope.errors import TightropeError

GAMES = ("asterix", "breakout", "freeway", "seaquest", "space_invaders")
STICKY = 0.1  # MinAtar's own default


def find_minatar(name: str) -> str | None:
    """The game meant by MinAtar/Breakout-v1, minatar/breakout, minatar-breakout ..., or None.

    >>> find_minatar("MinAtar/SpaceInvaders-v1"), find_minatar("breakout")
    ('space_invaders', None)
    """
    key = "".join(c for c in name.lower() if c.isalnum())
    for game in GAMES:
        bare = "minatar" + game.replace("_", "")
        if key in (bare, bare + "v0", bare + "v1"):
            return game
    return None


class MinAtarEnv(gymnasium.Env[np.ndarray, np.int64]):
    """One MinAtar game. Unlike MinAtar's own wrapper, a new game forgets the last action of the old one."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(self, game: str, sticky: float = STICKY, render_mode: str | None = None) -> None:
        try:
            from minatar import Environment
        except ImportError:
            raise TightropeError("MinAtar is not installed: pip install minatar") from None
        self._game = Environment(game, sticky_action_prob=sticky)
        self._actions = self._game.minimal_action_set()
        self.render_mode = render_mode
        self.action_space = Discrete(len(self._actions))
        self.observation_space = Box(0, 1, tuple(self._game.state_shape()), bool)

    def get_action_meanings(self) -> list[str]:
        names = ("none", "left", "up", "right", "down", "fire")  # in MinAtar's own order: n, l, u, r, d, f
        return [names[action] for action in self._actions]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        if seed is not None:
            self._game.seed(seed)
        self._game.last_action = 0
        self._game.reset()
        return self._game.state(), {}

    def step(self, action: int | np.int64) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        reward, over = self._game.act(self._actions[action])
        return self._game.state(), float(reward), bool(over), False, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        state = self._game.state()
        colours = np.array(
            [
                [0, 0, 0],
                [86, 180, 233],
                [230, 159, 0],
                [213, 94, 0],
                [0, 158, 115],
                [240, 228, 66],
                [204, 121, 167],
                [0, 114, 178],
                [255, 255, 255],
                [150, 150, 150],
                [90, 90, 90],
            ],
            dtype=np.uint8,
        )
        top = (state * np.arange(1, state.shape[2] + 1)).max(2)
        picture: np.ndarray = colours[top].repeat(16, 0).repeat(16, 1)
        return picture
