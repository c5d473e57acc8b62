"""What a state is worth and how a return is spread: the parts of a target that are no bound. Pure functions.

Shapes as in bounds.py; X states beside a sample, A actions, N quantiles.
"""

from __future__ import annotations

import torch
from torch import Tensor


def of_actions(outputs: Tensor, actions: Tensor) -> Tensor:
    """One action's output in each state: [states, actions (, quantiles)] -> [states (, quantiles)]."""
    index = actions.view(-1, *[1] * (outputs.dim() - 1))
    return outputs.gather(1, index.expand(-1, 1, *outputs.shape[2:]))[:, 0]


def best_values(values: Tensor, picks: Tensor | None, ahead: int) -> Tensor:
    """The value of the best action in each of the first `ahead` states.

    `picks` are the values by which the best action is picked, where that is another network's task: with Double DQN
    (van Hasselt et al., 2016) the online network's. Without them it is the largest value.
    """
    if picks is None:
        return values[:, :ahead].amax(-1)
    return values[:, :ahead].gather(-1, picks[:, :ahead].argmax(-1, keepdim=True))[..., 0]


def soft_values(values_BXA: Tensor, log_policy_BXA: Tensor, temperature: float) -> Tensor:
    """Munchausen's value of a state (Vieillard et al., 2020): the policy's mean of Q - temperature * log pi."""
    return (log_policy_BXA.exp() * (values_BXA - temperature * log_policy_BXA)).sum(-1)


def munchausen_bonus(
    log_policy_BA: Tensor, actions_B: Tensor, share: float, temperature: float, floor: float
) -> Tensor:
    """What joins the reward: share * temperature * log pi(a | s), the scaled logarithm not below `floor`."""
    scaled_B = temperature * of_actions(log_policy_BA, actions_B)
    return share * scaled_B.clamp(floor, 0.0)


def spread(
    outputs_BXN: Tensor, picks_BX: Tensor, policy_BX: Tensor | None, goes_on_B: Tensor, discount_B: Tensor
) -> Tensor:
    """How a target's quantiles lie around its mean: as those of the state it bootstraps from, discounted.

    They are those of the action that is picked, or with a policy their mean over it, quantile by quantile. A target
    that does not bootstrap is one number.
    """
    if policy_BX is None:
        quantiles_BN = of_actions(outputs_BXN, picks_BX.argmax(-1))
    else:
        quantiles_BN = (policy_BX[..., None] * outputs_BXN).sum(1)
    factor_B = torch.where(goes_on_B, discount_B, 0.0)
    return factor_B[:, None] * (quantiles_BN - quantiles_BN.mean(1, keepdim=True))


def midpoints(count: int, like: Tensor) -> Tensor:
    """The middles of so many equal parts of [0, 1]: the levels whose quantiles are nearest to a distribution."""
    dtype = torch.promote_types(like.dtype, torch.float32)
    return (torch.arange(count, device=like.device, dtype=dtype) + 0.5) / count


def quantile_gradient(
    quantiles_BN: Tensor, targets_BM: Tensor, width: float, levels_BN: Tensor | None = None
) -> Tensor:
    """Gradient of the quantile Huber loss (Dabney et al., 2018, equation 10) with respect to the quantiles.

    The loss of a sample is the sum over i of the mean over j of |tau_i - [u < 0]| H(u), u = target_j - quantile_i,
    tau_i the level of the quantile (without `levels` the midpoints), and H Huber's function of that width divided by
    it; of width 0, |u|.
    """
    taus = midpoints(quantiles_BN.shape[1], quantiles_BN) if levels_BN is None else levels_BN
    errors_BNM = targets_BM[:, None, :] - quantiles_BN[:, :, None]
    slopes_BNM = (errors_BNM / width).clamp(-1, 1) if width else errors_BNM.sign()
    weights_BNM = (taus[..., None] - (errors_BNM < 0).to(taus.dtype)).abs()
    return -(weights_BNM * slopes_BNM).mean(-1)


def for_all_actions(own: Tensor, shared: Tensor, actions_B: Tensor, count: int) -> Tensor:
    """A gradient [B, actions (, N)] of which `own` is that of the action that was taken, and `shared` that of the mean
    over all: with dueling heads the former alone reaches the advantages, and both reach the state's value."""
    gradient = (shared / count).unsqueeze(1).repeat_interleave(count, 1)
    index = actions_B.view(-1, *[1] * own.dim()).expand(-1, 1, *own.shape[1:])
    return gradient.scatter_add(1, index, own.unsqueeze(1))


def ramp(start: float, end: float, done: float) -> float:
    """From start to end in a straight line, then on at the end; `done` is the share of the way."""
    return start + min(1.0, done) * (end - start)
