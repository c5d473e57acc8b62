"""What the target network has said of rows of the replay, kept until it changes.

The target network stays the same for thousands of updates, which look at the same rows again and again: a bound of one
sample is the bound of its neighbours. On a CPU, where valuing a state is what an update mostly costs, each is valued
once. (On a GPU an update has fixed shapes, and valuing a state again costs less than asking whether it is known.)
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tightrope.network import QNetwork
from tightrope.replay import Replay

#: States valued at once: more do not fit a processor's cache.
AT_ONCE = 128


class Memory:
    def __init__(self, rows: int, *outputs: int) -> None:
        self.values = torch.zeros(rows, *outputs)  # a network's outputs: actions, or actions and quantiles
        # What a row's values were made of: which target network, and which time, for rows are used again.
        self.networks = torch.full((rows,), -1, dtype=torch.int32)
        self.times = torch.full((rows,), -1, dtype=torch.int64)

    @staticmethod
    def needed_bytes(rows: int, *outputs: int) -> int:
        return rows * (4 * math.prod(outputs) + 4 + 8)

    @torch.no_grad()
    def look_up(self, replay: Replay, rows: Tensor, target: QNetwork, network: int) -> Tensor:
        """Outputs for the states [..., stack] by the target network of that number."""
        stacks = rows.reshape(-1, rows.shape[-1])
        own = stacks[:, -1]  # a state is known by its newest frame
        times = replay.time_of(own)
        new = (self.networks[own] != network) | (self.times[own] != times)
        if new.any():
            missing, first = _distinct(own[new])
            for part, where in zip(torch.split(missing, AT_ONCE), torch.split(first, AT_ONCE), strict=True):
                self.values[part] = target.at(replay.by_row, stacks[new][where])
            self.networks[missing] = network
            self.times[missing] = times[new][first]
        return self.values[own].view(*rows.shape[:-1], *self.values.shape[1:])


def _distinct(numbers: Tensor) -> tuple[Tensor, Tensor]:
    """Each number once, ascending, and where it is first found."""
    ordered, order = torch.sort(numbers, stable=True)
    first = torch.ones_like(ordered, dtype=torch.bool)
    first[1:] = ordered[1:] != ordered[:-1]
    return ordered[first], order[first]
