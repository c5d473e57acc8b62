"""Prioritised replay, proportional (Schaul et al., 2016): what there is more to learn from is sampled more.

A number for each row of the replay, p^alpha, and the running sum over all of them in place of a tree: on a GPU one scan
over a million rows takes microseconds, has a fixed shape and asks the host nothing, so that it can be captured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from tightrope.replay import Replay


class Priorities:
    def __init__(self, replay: Replay, exponent: float, floor: float) -> None:
        # The largest so far is what a new row starts with, so that each is soon looked at once.
        self.largest = torch.ones((), device=replay.device)
        self.shares = replay.note("priority", self.largest)  # p^alpha by row, 0 where there is no transition
        self.exponent = exponent
        self.floor = floor

    def draw(self, chance_C: Tensor, eligible: Tensor | None = None) -> Tensor:
        """Rows, each with a probability in proportion to its share; `chance` are uniform in [0, 1).

        Rows that are not `eligible` have none: new ones have the largest share, and would crowd all others out until
        they are.
        """
        # In float64: a million float32 shares would not add up to the last row's.
        shares = self.shares if eligible is None else self.shares * eligible
        sums = torch.cumsum(shares, 0, dtype=torch.float64)
        # The first row whose running sum is above: never one whose own share is 0.
        return torch.searchsorted(sums, chance_C * sums[-1], right=True).clamp(max=len(sums) - 1)

    def update(self, rows_B: Tensor, priority_B: Tensor) -> None:
        """What was found out about these rows."""
        shares_B = (priority_B + self.floor) ** self.exponent
        self.shares[rows_B] = shares_B
        self.largest.copy_(torch.maximum(self.largest, shares_B.amax()))

    def state(self) -> dict[str, Tensor]:
        return {"priority": self.shares, "largest_priority": self.largest}


def importance(shares_B: Tensor, beta: Tensor) -> Tensor:
    """Weights that undo the priorities, (N P(i))^-beta, divided by the largest of the batch.

    That division cancels N and the sum of all shares: what is left is (share / smallest share)^-beta.
    """
    return (shares_B / shares_B.amin()) ** -beta
