"""The sparse-reward maze of the paper's section 4: one reward, at the end of a path of given length."""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

MOVES = ((-1, 0), (0, 1), (1, 0), (0, -1))  # up, right, down, left


def carve(side: int, rng: np.random.Generator) -> np.ndarray:
    """A perfect maze of side x side cells: open[row, column, move]."""
    open_ = np.zeros((side, side, 4), dtype=bool)
    seen = np.zeros((side, side), dtype=bool)
    path = [(0, 0)]
    seen[0, 0] = True
    while path:
        row, column = path[-1]
        ways = [
            (move, row + dr, column + dc)
            for move, (dr, dc) in enumerate(MOVES)
            if 0 <= row + dr < side and 0 <= column + dc < side and not seen[row + dr, column + dc]
        ]
        if not ways:
            path.pop()
            continue
        move, r, c = ways[rng.integers(len(ways))]
        open_[row, column, move] = open_[r, c, (move + 2) % 4] = True
        seen[r, c] = True
        path.append((r, c))
    return open_


def distances(open_: np.ndarray, start: tuple[int, int] = (0, 0)) -> np.ndarray:
    """Steps from the start to every cell."""
    steps = np.full(open_.shape[:2], -1)
    steps[start] = 0
    queue = [start]
    for row, column in queue:
        for move, (dr, dc) in enumerate(MOVES):
            r, c = row + dr, column + dc
            if open_[row, column, move] and steps[r, c] < 0:
                steps[r, c] = steps[row, column] + 1
                queue.append((r, c))
    return steps


class MazeEnv(gymnasium.Env[np.int64, np.int64]):
    """A maze whose shortest path from start to goal takes exactly `shortest_path` steps.

    Reward 1 at the goal, which ends the game, and 0 before. The observation is the number of the cell. Deterministic:
    the same maze in every game, laid out from `layout_seed`.

    >>> env = MazeEnv(shortest_path=12)
    >>> int(distances(env.open)[env.goal])
    12
    """

    metadata = {"render_modes": ["rgb_array"], "render_fps": 15}  # noqa: RUF012

    def __init__(
        self,
        shortest_path: int = 24,
        layout_seed: int = 0,
        max_steps: int = 0,
        render_mode: str | None = None,
    ) -> None:
        if shortest_path < 1:
            raise ValueError(f"shortest_path = {shortest_path}: must be at least 1")
        self.shortest_path = shortest_path
        self.render_mode = render_mode
        rng = np.random.default_rng(layout_seed)
        side = 2
        while True:  # the smallest maze that is deep enough
            self.open = carve(side, rng)
            steps = distances(self.open)
            if steps.max() >= shortest_path:
                break
            side += 1
        self.side = side
        goals = np.argwhere(steps == shortest_path)
        self.goal: tuple[int, int] = tuple(map(int, goals[rng.integers(len(goals))]))  # type: ignore[assignment]
        self.max_steps = max_steps or 50 * shortest_path
        self.action_space = Discrete(4)
        self.observation_space = Discrete(side * side)
        self.cell = (0, 0)
        self._steps = 0

    def get_action_meanings(self) -> list[str]:
        return ["up", "right", "down", "left"]

    def _observe(self) -> np.int64:
        return np.int64(self.cell[0] * self.side + self.cell[1])

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.int64, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell, self._steps = (0, 0), 0
        return self._observe(), {}

    def step(self, action: int | np.int64) -> tuple[np.int64, float, bool, bool, dict[str, Any]]:
        row, column = self.cell
        if self.open[row, column, action]:
            self.cell = (row + MOVES[action][0], column + MOVES[action][1])
        self._steps += 1
        there = self.cell == self.goal
        return self._observe(), float(there), there, not there and self._steps >= self.max_steps, {}

    def render(self) -> np.ndarray:  # type: ignore[override]
        """Walls dark, start blue, goal green, the agent orange."""
        grid = np.zeros((2 * self.side + 1, 2 * self.side + 1, 3), dtype=np.uint8)
        grid[:] = (45, 50, 60)
        for row in range(self.side):
            for column in range(self.side):
                y, x = 2 * row + 1, 2 * column + 1
                grid[y, x] = 245
                for move, (dr, dc) in enumerate(MOVES):
                    if self.open[row, column, move]:
                        grid[y + dr, x + dc] = 245
        grid[1, 1] = (120, 170, 230)
        grid[2 * self.goal[0] + 1, 2 * self.goal[1] + 1] = (60, 170, 90)
        grid[2 * self.cell[0] + 1, 2 * self.cell[1] + 1] = (235, 130, 30)
        scale = max(4, 320 // len(grid))
        return grid.repeat(scale, 0).repeat(scale, 1)
