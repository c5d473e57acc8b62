"""The value's rope: Q of the actions taken, between the bounds that the same game gives (bounds.py)."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tightrope.bounds import discounted_returns, lower_bounds, upper_bounds
from tightrope.config import Config


class Rope(NamedTuple):
    """For each step of a game."""

    q: np.ndarray
    lower: np.ndarray  # the highest of the L and of R; -inf where there is none
    upper: np.ndarray  # the lowest of the U; inf where there is none


def rope(values_TA: Tensor, actions_T: Tensor, rewards_T: Tensor, terminal_T: Tensor, config: Config) -> Rope:
    """The paper's bounds with all their horizons, whether the agent learned from them or not.

    `values` are Q of every action in every state, the one after the last step included: one more than there are steps.
    A terminal step ends an episode; a game whose last step is none was cut off, and has no return.
    """
    steps, gamma = len(actions_T), config.gamma
    time_T = torch.arange(steps)
    best_T = values_TA.amax(1)
    taken_T = values_TA[:-1].gather(1, actions_T[:, None])[:, 0]
    ends = [*(t for t in time_T[terminal_T].tolist() if t < steps - 1), steps - 1]
    first_T, last_T = torch.zeros_like(time_T), torch.zeros_like(time_T)
    returns_T = torch.empty_like(rewards_T)
    first = 0
    for end in ends:
        episode = slice(first, end + 1)
        first_T[episode], last_T[episode] = first, end
        tail = torch.tensor([0.0 if terminal_T[end] else torch.nan], dtype=torch.float64)
        returns_T[episode] = discounted_returns(rewards_T[episode, None], tail, gamma)[:, 0]
        first = end + 1

    def offsets(least: int) -> Tensor:
        return torch.arange(least, config.k + 2).expand(steps, -1)

    # Rows beyond the game's ends are never used: their bounds do not exist.
    ahead_TH = (time_T[:, None] + torch.arange(config.k + 1)).clamp(max=steps - 1)
    behind_TM = (time_T[:, None] - 1 - torch.arange(config.k + 1)).clamp(min=0)
    lower_T = returns_T.nan_to_num(nan=-torch.inf)[:, None]
    if config.k > 0:
        ahead_TA = offsets(2)  # the paper's horizon k is offset k + 1
        exists_TA = time_T[:, None] + ahead_TA - 1 <= last_T[:, None]
        values = best_T[(time_T[:, None] + ahead_TA).clamp(max=steps)]
        found = lower_bounds(rewards_T[ahead_TH], terminal_T[ahead_TH], exists_TA, ahead_TA, values, gamma)
        lower_T = torch.cat([lower_T, found], dim=1)
    upper_T = torch.full((steps, 1), torch.inf, dtype=torch.float64)
    behind_TC = offsets(config.upper_from + 1)
    if behind_TC.shape[1]:
        at_TC = time_T[:, None] - behind_TC
        found = upper_bounds(
            rewards_T[behind_TM], at_TC >= first_T[:, None], behind_TC, taken_T[at_TC.clamp(min=0)], gamma
        )
        upper_T = torch.cat([upper_T, found], dim=1)
    return Rope(taken_T.numpy(), lower_T.amax(1).numpy(), upper_T.amin(1).numpy())
