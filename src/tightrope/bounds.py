"""The paper's idea and nothing else: bounds on Q(s_j, a_j) that the neighbours of sample j give.

Shapes: B samples; H rows ahead (column i is row j+i); M rows behind (column i is row j-1-i); A and C bounds ahead and
behind. A bound is named by its *offset*: how many steps lie between the sample and the state it is taken from. The
paper's horizon k is offset k+1. A bound that does not exist is minus (lower) or plus (upper) infinity.
"""

from __future__ import annotations

import torch
from torch import Tensor


def lower_bounds(
    rewards_BH: Tensor,
    terminal_BH: Tensor,
    exists_BA: Tensor,
    offsets_BA: Tensor,
    values_BA: Tensor,
    gamma: float,
) -> Tensor:
    """L at offset n: r_j + ... + gamma^(n-1) r_(j+n-1) + gamma^n V(s_(j+n));
    the last term is absent after a terminal step.

    `values` are max_a Q-(s_(j+n), a). Offset 1 is the ordinary target y.
    """
    powers_H = gamma ** torch.arange(rewards_BH.shape[1], device=rewards_BH.device, dtype=rewards_BH.dtype)
    sums_BH = torch.cumsum(rewards_BH * powers_H, dim=1)
    last_BA = offsets_BA - 1
    goes_on_BA = ~terminal_BH.gather(1, last_BA)
    bootstrap_BA = torch.where(goes_on_BA, gamma ** offsets_BA.to(values_BA.dtype) * values_BA, 0.0)
    bounds_BA = sums_BH.gather(1, last_BA) + bootstrap_BA
    return torch.where(exists_BA, bounds_BA, -torch.inf)


def upper_bounds(rewards_BM: Tensor, exists_BC: Tensor, offsets_BC: Tensor, values_BC: Tensor, gamma: float) -> Tensor:
    """U at offset m: gamma^-m (Q-(s_(j-m), a_(j-m)) - r_(j-m) - ... - gamma^(m-1) r_(j-1)).

    `values` are Q- of the actions that were taken. Dividing first turns the sum into one running sum backwards from j:
    gamma^-m (r_(j-m) + ... + gamma^(m-1) r_(j-1)) = gamma^-1 r_(j-1) + ... + gamma^-m r_(j-m).
    """
    steps_M = torch.arange(1, rewards_BM.shape[1] + 1, device=rewards_BM.device, dtype=rewards_BM.dtype)
    sums_BM = torch.cumsum(rewards_BM * gamma**-steps_M, dim=1)
    bounds_BC = gamma ** -offsets_BC.to(values_BC.dtype) * values_BC - sums_BM.gather(1, offsets_BC - 1)
    return torch.where(exists_BC, bounds_BC, torch.inf)


def upper_bounds_ahead(lower_BH: Tensor, lost_BH: Tensor, gamma: float) -> Tensor:
    """U at offset n: L at offset n + gamma lost_(j+1) + ... + gamma^(n-1) lost_(j+n-1); offset i is column i - 1.

    `lost` are V(s_(j+i)) - Q-(s_(j+i), a_(j+i)): by how much the action taken there is worse than the best, V as in L.
    """
    powers_H = gamma ** torch.arange(1, lost_BH.shape[1] + 1, device=lost_BH.device, dtype=lost_BH.dtype)
    before_BH = torch.cumsum(lost_BH * powers_H, dim=1).roll(1, 1)
    before_BH[:, 0] = 0.0
    return torch.where(lower_BH.isfinite(), lower_BH + before_BH, torch.inf)


def worth_of_actions(
    rewards_BH: Tensor,
    terminal_BH: Tensor,
    exists_BH: Tensor,
    actions_BX: Tensor,
    known_BXA: Tensor,
    values_BHA: Tensor,
    picks_BHA: Tensor,
    gamma: float,
    step: float = 1.0,
) -> Tensor:
    """What the actions of rows j, j+1, ... are worth, [B, H]: the reward, and then the best action of the next state.

    An action that is known counts for what is known of it, the one that was taken for what came of it, and any other
    for its value. So no reward ahead is missed, none counts where a better action is known, and of several estimates of
    one action no largest is taken. Of what came of an action that was known before, `step` joins what was known.

    `known` has one state more than `values` and `picks`: the sample's own comes first. A row that does not exist is
    worth nothing that is known, and of its action the same holds as of any other's. `picks` pick the best action.
    """
    is_known_BXA = known_BXA.isfinite()
    values_BHA = torch.where(is_known_BXA[:, 1:], known_BXA[:, 1:], values_BHA)
    picks_BHA = torch.where(is_known_BXA[:, 1:], known_BXA[:, 1:], picks_BHA)
    worth: list[Tensor] = []
    best_B = _picked(values_BHA[:, -1], picks_BHA[:, -1])
    for i in reversed(range(rewards_BH.shape[1])):
        came_B = rewards_BH[:, i] + torch.where(terminal_BH[:, i], 0.0, gamma * best_B)
        taken_B1 = actions_BX[:, i : i + 1]
        before_B = known_BXA[:, i].gather(1, taken_B1)[:, 0]
        came_B = torch.where(before_B.isfinite(), before_B + step * (came_B - before_B), came_B)
        worth.append(torch.where(exists_BH[:, i], came_B, -torch.inf))
        if i:
            seen_B1 = exists_BH[:, i : i + 1]
            values_BA, picks_BA = (
                options.scatter(1, taken_B1, torch.where(seen_B1, came_B[:, None], options.gather(1, taken_B1)))
                for options in (values_BHA[:, i - 1], picks_BHA[:, i - 1])
            )
            best_B = _picked(values_BA, picks_BA)
    return torch.stack(worth[::-1], dim=1)


def _picked(values_BA: Tensor, picks_BA: Tensor) -> Tensor:
    return values_BA.gather(1, picks_BA.argmax(1, keepdim=True))[:, 0]


def tighten(
    q_B: Tensor,
    y_B: Tensor,
    lower_B: Tensor,
    upper_B: Tensor,
    lam: float | Tensor,
    slack: float = 0.0,
    mean_of_both: bool = False,
    penalty: str = "quadratic",
    width: float = 1.0,
    shares: Tensor | None = None,
    expectile: float = 1.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Where the penalised loss pulls Q, and how hard; and which bounds are violated.

    The gradient of (Q-y)^2 + lam (L-Q)+^2 + lam (Q-U)+^2 is 2 (1 + lam n) (Q - target), where n bounds are violated and
    target = (y + lam * sum of the violated bounds) / (1 + lam n). Returns target, 1 + lam n, and the two masks.

    Another penalty pulls as a quadratic one pulls towards a nearer bound: Huber's to one at most `width` away, the
    absolute one to one that is always `width` away. `shares` are how much of lam is for lower and for upper bounds.
    With an `expectile` t below 1 bounds that are not violated pull too, by (1 - t) / t of lam.
    """
    low_B = lower_B > q_B + slack
    high_B = upper_B < q_B - slack
    by_lower_B, by_upper_B = low_B.to(q_B.dtype), high_B.to(q_B.dtype)
    if expectile < 1:
        back = (1 - expectile) / expectile
        by_lower_B = torch.where(low_B, 1.0, back * lower_B.isfinite().to(q_B.dtype))
        by_upper_B = torch.where(high_B, 1.0, back * upper_B.isfinite().to(q_B.dtype))
    if penalty == "huber":
        lower_B = torch.clamp(lower_B, q_B - width, q_B + width)
        upper_B = torch.clamp(upper_B, q_B - width, q_B + width)
    elif penalty == "absolute":
        lower_B = torch.where(low_B, q_B + width, q_B - width)
        upper_B = torch.where(high_B, q_B - width, q_B + width)
    if mean_of_both:
        violated_B = (by_lower_B + by_upper_B).clamp(min=1)
        by_lower_B, by_upper_B = by_lower_B / violated_B, by_upper_B / violated_B
    if shares is not None:
        by_lower_B, by_upper_B = by_lower_B * shares[0], by_upper_B * shares[1]
    pull_B = torch.where(by_lower_B > 0, by_lower_B * lower_B, 0.0)
    pull_B = pull_B + torch.where(by_upper_B > 0, by_upper_B * upper_B, 0.0)
    weight_B = 1 + lam * (by_lower_B + by_upper_B)
    return (y_B + lam * pull_B) / weight_B, weight_B, low_B, high_B


def beyond_quantiles(
    lower_B: Tensor, upper_B: Tensor, above_BN: Tensor, below_BN: Tensor, margin: float
) -> tuple[Tensor, Tensor]:
    """Bounds that only returns beyond what the agent itself holds possible can violate, with a margin of 1.

    A return among the quantiles is luck that they know of; one above them all is reward that has not travelled yet.
    `above` are the quantiles that a lower bound must exceed, `below` those that an upper one must undercut.
    """
    highest_B, lowest_B = above_BN.amax(1) - above_BN.mean(1), below_BN.mean(1) - below_BN.amin(1)
    return lower_B - margin * highest_B, upper_B + margin * lowest_B


def noise_growth(steps: Tensor, gamma: float) -> Tensor:
    """Standard deviation of a return of so many steps, in units of one step's.

    A return minus the value it should have is the sum of its steps' errors, e_0 + gamma e_1 + ...; where the game is
    random and the values are right, these are uncorrelated, so that their variances add up.
    """
    square = gamma * gamma
    if square == 1:
        return steps.sqrt()
    return ((1 - square**steps) / (1 - square)).sqrt()


def discounted_returns(rewards_TE: Tensor, tails_E: Tensor, gamma: float) -> Tensor:
    """R_t = r_t + gamma R_(t+1) for every row of every column, the row after the last having the value `tails`.

    Done by doubling: sums over 1, 2, 4, ... rows, so there is no loop over steps. A not-a-number tail (return unknown)
    makes the whole column unknown.
    """
    returns_TE = rewards_TE.to(torch.float64, copy=True)
    returns_TE[-1] += gamma * tails_E
    span = 1
    while span < len(returns_TE):
        ahead_TE = returns_TE[span:] * gamma**span
        returns_TE[:-span] += ahead_TE
        span *= 2
    return returns_TE
