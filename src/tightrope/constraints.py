"""What the paper leaves open about its constraints, one class each; learner.py has those that a run asks for.

`Multipliers`: an augmented Lagrangian in place of a constant penalty. `Luck`: a margin where the game is random.
`Excess`: a penalty only while bounds are violated more often than luck explains.
`Settling`: upper bounds only once Q has settled. `EpisodeBounds`: lower bounds over the whole episode.

All that they keep are tensors that stay in place, so that an update can be captured.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from tightrope.bounds import noise_growth
from tightrope.config import Config
from tightrope.crossings import Crossings
from tightrope.replay import Replay, Window

#: Steps of a return whose length is not kept: its noise has stopped growing long before, unless gamma is 1.
LONG = 10_000


class Multipliers:
    """One for each bound of each row.

    With a multiplier mu the loss mu (L-Q) + lam/2 (L-Q)^2 pulls as the penalty alone pulls towards a bound that is
    mu / lam higher. That is what is kept: it grows while the bound is violated, and shrinks while it is not.
    """

    def __init__(self, replay: Replay, config: Config) -> None:
        fresh = torch.zeros((), device=replay.device)
        self.lower = replay.note("lower_multiplier", fresh)
        self.upper = replay.note("upper_multiplier", fresh)
        self.step = config.multiplier_step
        self.largest = config.multiplier_max

    def apply(self, rows_B: Tensor, q_B: Tensor, lower_B: Tensor, upper_B: Tensor) -> tuple[Tensor, Tensor]:
        """The bounds with their multipliers; these then take a step of their own."""
        low_B, high_B = self.lower[rows_B], self.upper[rows_B]
        self.lower[rows_B] = (low_B + self.step * (lower_B - q_B)).clamp(0, self.largest)
        self.upper[rows_B] = (high_B + self.step * (q_B - upper_B)).clamp(0, self.largest)
        return lower_B + low_B, upper_B - high_B

    def means(self) -> dict[str, float]:
        """Of each kind, over the rows that have one. Waits for the device."""
        return {name: float(kept[kept > 0].mean()) if (kept > 0).any() else 0.0 for name, kept in self.state().items()}

    def state(self) -> dict[str, Tensor]:
        return {"lower_multiplier": self.lower, "upper_multiplier": self.upper}


class Luck:
    """By how much a return may exceed its value by luck: `margin` standard deviations.

    The noise of one step is taken from the error |Q - y|, which in a deterministic game vanishes as Q becomes right,
    and the margin with it; where the game is random the noise is what is left of the error.
    """

    def __init__(self, config: Config, device: torch.device) -> None:
        self.margin, self.gamma, self.n_step = config.margin, config.gamma, config.n_step
        self.kept = 1 - 1 / config.margin_updates
        self.seen = torch.zeros(2, device=device)  # running sum of squared errors, and of their number

    def see(self, error_B: Tensor) -> None:
        square = error_B.square().mean()
        self.seen.mul_(self.kept).add_(torch.stack([square, torch.ones_like(square)]))

    @property
    def noise(self) -> Tensor:
        """Standard deviation of the error of one step."""
        squares, count = self.seen
        target = noise_growth(torch.full_like(count, self.n_step), self.gamma)  # the error is that of n steps
        noise: Tensor = (squares / count.clamp(min=1e-6)).sqrt() / target
        return noise

    def of(self, steps: Tensor) -> Tensor:
        """The margin of returns over so many steps."""
        noise = self.noise
        return self.margin * noise * noise_growth(steps.to(noise.dtype), self.gamma)

    def state(self) -> dict[str, Tensor]:
        return {"noise": self.seen}


class Excess:
    """The share of the violations that luck does not explain, of lower and of upper bounds.

    Say that a part p of the samples is where reward has yet to travel, so that their bounds are violated, and that the
    others' are as often as luck has it, by `chance`. Then p + (1 - p) chance are violated, and p of them for a reason.
    So bounds let go when Q has risen to where it belongs, and take hold again when it is left behind.
    """

    def __init__(self, config: Config, device: torch.device) -> None:
        self.chance = chance_of_violation(config)
        self.kept = 1 - 1 / config.margin_updates
        self.seen = torch.zeros(2, 2, device=device)  # running numbers of violations and of bounds; lower and upper

    def see(self, q_B: Tensor, lower_B: Tensor, upper_B: Tensor, drawn_B: Tensor) -> None:
        """`drawn` is the share by which a sample was drawn: priorities seek out what is violated."""
        violated = torch.stack([lower_B > q_B, upper_B < q_B])
        exists = torch.stack([lower_B > -torch.inf, upper_B < torch.inf])
        self.seen.mul_(self.kept).add_((torch.stack([violated, exists]) / drawn_B).sum(-1))

    @property
    def shares(self) -> Tensor:
        """1 before any bound was seen, 0 where no more are violated than luck explains."""
        violations, bounds = self.seen
        unexplained = (violations - self.chance * bounds).clamp(min=0) / (1 - self.chance)
        return torch.where(bounds > 0, unexplained / violations.clamp(min=1e-30), 1.0)

    def state(self) -> dict[str, Tensor]:
        return {"excess": self.seen}


def chance_of_violation(config: Config) -> float:
    """The share of returns that luck puts beyond their margins where Q is right and luck symmetric: half where there
    are none; the tail of a normal distribution beyond `margin` deviations; 1/(2N), where the outermost of N quantiles
    lies, beyond that, and an exponential tail's share elsewhere. Of both margins the product.

    >>> from tightrope.config import preset
    >>> chance_of_violation(preset("paper"))
    0.5
    >>> chance_of_violation(preset("paper").replace(quantiles=8, quantile_margin=1))
    0.0625
    """
    normal = 0.5 * math.erfc(config.margin / math.sqrt(2))
    return normal * math.pow(max(1, config.quantiles), -config.quantile_margin)


class Settling:
    """Q has settled while its mean over the samples changes by less than a share of itself from one target network to
    the next. So it never has at first, nor while it is zero everywhere; and it may become unsettled again."""

    def __init__(self, share: float, device: torch.device) -> None:
        self.share = share
        self.sums = torch.zeros(2, device=device)  # of Q and of samples since the last target network
        self.before = torch.full((), torch.nan, device=device)  # mean Q under the one before
        self.settled = torch.zeros((), dtype=torch.bool, device=device)

    def see(self, q_B: Tensor) -> None:
        self.sums += torch.stack([q_B.sum(), torch.ones_like(q_B).sum()])

    def follow(self) -> None:
        """The target network becomes another."""
        mean = self.sums[0] / self.sums[1]
        self.settled.copy_((mean - self.before).abs() < self.share * self.before.abs())
        self.before.copy_(mean)
        self.sums.zero_()

    def state(self) -> dict[str, Tensor]:
        return {"settling_sums": self.sums, "settling_before": self.before, "settled": self.settled}


class EpisodeBounds:
    """The largest lower bound over all horizons up to the episode's end.

    It is r_j + gamma max(V(s_(j+1)), the largest of row j+1): so each row keeps the largest that was found for it, and
    those before build on that. What a row keeps is replaced, not raised, whenever it is sampled: a value that was too
    high does not stay. The price of one number a row is that it may be old.
    """

    def __init__(self, replay: Replay) -> None:
        self.kept = replay.note("episode_bound", torch.full((), -torch.inf, device=replay.device))

    def ahead(self, window: Window) -> Tensor:
        """What is kept of the rows ahead: of those that were acted from. After an episode's end there is none."""
        return torch.where(window.ahead_acted_BA, self.kept[window.ahead_rows_BAS[..., -1]], -torch.inf)

    def keep(self, window: Window, largest_B: Tensor) -> None:
        self.kept[window.rows_BS[:, -1]] = largest_B

    def state(self) -> dict[str, Tensor]:
        return {"episode_bound": self.kept}


def needed_notes(config: Config, num_actions: int) -> int:
    """How many numbers a row are kept, of 4 bytes each, priorities included."""
    numbers = int(config.priority != "none")
    if config.bounds and config.lam_schedule == "multipliers":
        numbers += 2
    if config.bounds and config.horizon == "episode":
        numbers += 1
    if config.bounds and config.horizon == "crossings":
        numbers += Crossings.numbers_per_row(num_actions)
    return numbers
