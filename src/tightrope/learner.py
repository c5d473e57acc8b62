"""One gradient step: sample, value the neighbours with the target network, bound, pull Q towards the tightened target.

Plain DQN is this code with no bounds: the window then has one state ahead and none behind. Every other switch (double,
n-step, quantiles, priorities, multipliers ...) is a line or two on the same path; what they compute is in bounds.py,
targets.py, priorities.py and optimisers.py.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tightrope.bounds import lower_bounds, noise_growth, tighten, upper_bounds
from tightrope.config import Config
from tightrope.memory import Memory
from tightrope.network import QNetwork
from tightrope.optimisers import limit_gradient, make_optimiser
from tightrope.priorities import Priorities, importance
from tightrope.replay import Chances, Reach, Replay, Window
from tightrope.targets import best_values, munchausen_bonus, quantile_gradient, ramp, soft_values

#: What the learner sums up over the samples it sees; the trainer divides and resets.
TELEMETRY = (
    "samples",
    "loss",
    "q",
    "lower_violated",
    "lower_gap",
    "upper_violated",
    "upper_gap",
    "return_tightest",
)


#: Steps of a return whose length is not kept: its noise has stopped growing long before, unless gamma is 1.
LONG = 10_000


class Batch(NamedTuple):
    """Samples with what the target network says of them."""

    rows_BS: Tensor  # where the frames of their states lie
    actions_B: Tensor
    y_B: Tensor
    lower_B: Tensor  # L_max, R_j included; -inf where there is none
    upper_B: Tensor  # U_min; inf where there is none
    by_return_B: Tensor  # R_j is the tightest: above y and every L
    spread_BN: Tensor  # the target's quantiles around its mean; N = 0 without a head for them
    share_B: Tensor  # by which the sample was drawn, 1 where all are drawn alike


class Learner:
    """The online network, the target network that follows it, and how the one learns from the other's bounds."""

    def __init__(self, network: QNetwork, config: Config, device: torch.device, seed: int) -> None:
        self.config = config
        self.device = device
        self.online = network.to(device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.parameters = list(self.online.parameters())
        self.optimiser = make_optimiser(self.parameters, config)
        self.reach = Reach(
            rows=config.bound_reach,
            n_step=config.n_step,
            bounds=config.bounds,
            behind_from=config.upper_from + 1,
            upper=config.bounds and config.use_upper,
            lower_draws=config.lower_draws if config.bounds else 0,
            upper_draws=config.upper_draws if config.bounds else 0,
            slide=config.draw == "slide",
            # A cut episode that is stored as terminal has no bootstrap at its end: only R_j speaks for that.
            acted_only=config.cut_return == "mean_q",
            skip_start_rows=config.skip_start_rows,
            unfinished=config.sample_unfinished,
        )
        self.generator = torch.Generator(device).manual_seed(seed)
        self.updates = 0
        # No larger than what one step of all environments makes due, and in step with the target network.
        self.due_at_once = max(1, config.updates_due(config.num_envs))
        self.group_size = math.gcd(config.target_every_updates, min(config.update_group, self.due_at_once))
        self.at_once = self.group_size  # updates of one call of `update`; a captured call holds several groups
        #: Whether a group's samples and targets depend on nothing that the group before it changes.
        self.prepares_ahead = not (config.double or config.priority != "none" or config.margin)

        def scalar(value: float) -> Tensor:
            return torch.tensor(value, device=device)

        # Tensors, so that a captured update sees them change.
        self.lam = scalar(config.lam)
        self.learning_rate = scalar(config.learning_rate)
        self.beta = scalar(config.priority_beta_start)
        self.slide = scalar(1.0)
        self.largest_share = scalar(1.0)
        self.noise = torch.zeros(2, device=device)  # running sum of squared errors, and of their number
        self.level = torch.zeros(2, device=device)  # sum of Q and number of samples since the target network followed
        self.level_before = scalar(math.nan)  # mean Q under the target network before
        self.settled = torch.tensor(config.upper_settled == 0, device=device)
        self.notes: dict[str, Tensor] = {}  # by `keep_notes`
        self.priorities: Priorities | None = None
        self.memory: Memory | None = None  # of what the target network said: by the trainer, on a CPU
        self.captured: Callable[[], None] | None = None  # by fast.py
        # A sum for each place in a batch: added up only when somebody looks.
        self.telemetry = torch.zeros(len(TELEMETRY), config.batch_size, dtype=torch.float64, device=device)

    @staticmethod
    def needed_notes(config: Config) -> list[str]:
        """What the learner keeps of each row of the replay."""
        needed = ["priority"] if config.priority != "none" else []
        if config.bounds and config.lam_schedule == "multipliers":
            needed += ["lower_multiplier", "upper_multiplier"]
        if config.bounds and config.horizon == "episode":
            needed.append("episode_bound")
        return needed

    def keep_notes(self, replay: Replay) -> None:
        """Must be called once, before the first update; nothing is kept where no switch asks for it."""
        fresh = {"priority": self.largest_share, "episode_bound": torch.full_like(self.lam, -torch.inf)}
        for name in self.needed_notes(self.config):
            self.notes[name] = replay.note(name, fresh.get(name, torch.zeros_like(self.lam)))
        if "priority" in self.notes:
            self.priorities = Priorities(
                self.notes["priority"], self.largest_share, self.config.priority_exponent, self.config.priority_floor
            )

    def state(self) -> dict[str, Tensor]:
        """Everything that learning changes, by the names it has in a checkpoint."""
        state = {
            **{f"online.{name}": tensor for name, tensor in self.online.state_dict().items()},
            **{f"target.{name}": tensor for name, tensor in self.target.state_dict().items()},
            **self.optimiser.state(),
            **{f"note.{name}": tensor for name, tensor in self.notes.items()},
            "telemetry": self.telemetry,
        }
        if self.priorities is not None:
            state["largest_share"] = self.largest_share
        if self.config.margin:
            state["noise"] = self.noise
        if self.config.upper_settled:
            state |= {"level": self.level, "level_before": self.level_before, "settled": self.settled}
        return state

    def update(self, replay: Replay) -> None:
        """At most `at_once` updates; the target network follows every `target_every_updates`."""
        before = self.updates // self.config.target_every_updates
        self.schedule()
        # Out of step with the graph only after a resume from where the steps were smaller: single groups until in step.
        if self.captured is not None and self.updates % self.at_once == 0:
            self.captured()
            self.updates += self.at_once
        else:
            self.group(replay)
            self.updates += self.group_size
        if self.updates // self.config.target_every_updates > before:
            self.follow()

    def schedule(self) -> None:
        """Numbers that change with the steps of learning."""
        config, steps = self.config, self.config.steps_taken(self.updates)
        if config.lam_schedule == "annealed":
            self.lam.fill_(ramp(config.lam, config.lam_end, steps / config.lam_steps))
        if config.priority != "none":
            done = steps / config.priority_beta_steps
            self.beta.fill_(ramp(config.priority_beta_start, config.priority_beta_end, done))
        if config.draw == "slide":
            self.slide.fill_(ramp(1.0, 0.0, steps / config.slide_steps))

    def group(self, replay: Replay) -> None:
        """Updates that share one sampling and one pass of the target network, which does not change between them."""
        self.learn_all(replay, self.prepare(replay, self.draw(replay)))

    def draw(self, replay: Replay) -> Chances:
        """The random numbers of a group."""
        chances = replay.draw(self.config.batch_size * self.group_size, self.reach, self.generator)
        return chances._replace(slide=self.slide)

    def learn_all(self, replay: Replay, batch: Batch) -> None:
        """One gradient step for each part of the group's batch."""
        for part in zip(*(torch.split(column, self.config.batch_size) for column in batch), strict=True):
            self.learn(replay, Batch(*part))

    @torch.no_grad()
    def follow(self) -> None:
        """The target network becomes the online one; and has Q settled since the last time?"""
        self.target.follow(self.online)
        if self.config.upper_settled:
            # By less than a share of itself: never true of the first one, nor of a Q that is still zero everywhere.
            level = self.level[0] / self.level[1]
            change = (level - self.level_before).abs()
            self.settled.copy_(change < self.config.upper_settled * self.level_before.abs())
            self.level_before.copy_(level)
            self.level.zero_()

    @torch.no_grad()
    def prepare(self, replay: Replay, chances: Chances) -> Batch:
        """Samples with their targets and bounds. Only what `prepares_ahead` names depends on the online network."""
        window = self.sample(replay, chances)
        picks = self.picks(replay, window) if self.config.double else None
        return Batch(window.rows_BS, window.actions_B, *self.bounds(window, self.values(replay, window), picks))

    def sample(self, replay: Replay, chances: Chances) -> Window:
        return replay.sample(self.config.batch_size * self.group_size, self.reach, chances, self.priorities)

    @torch.no_grad()
    def values(self, replay: Replay, window: Window) -> Tensor:
        """The target network's outputs for the neighbours, ahead, behind and (for Munchausen) here, in one pass."""
        neighbours = torch.cat([window.ahead_rows_BAS, window.behind_rows_BCS], dim=1)
        if self.config.munchausen:
            neighbours = torch.cat([neighbours, window.rows_BS[:, None]], dim=1)
        if self.memory is None:
            return self.target.at(replay.by_row, neighbours)
        return self.memory.look_up(replay, neighbours, self.target, self.updates // self.config.target_every_updates)

    @torch.no_grad()
    def picks(self, replay: Replay, window: Window) -> Tensor:
        """The online network's values of the states ahead and (for Munchausen) here."""
        states = window.ahead_rows_BAS
        if self.config.munchausen:
            states = torch.cat([states, window.rows_BS[:, None]], dim=1)
        return self.means(self.online.at(replay.by_row, states))

    def means(self, outputs: Tensor) -> Tensor:
        """From a network's outputs to values."""
        return outputs.mean(-1) if self.config.quantiles else outputs

    def learn(self, replay: Replay, batch: Batch) -> None:
        """One gradient step."""
        outputs = self.online.taken(replay.by_row, batch.rows_BS, batch.actions_B)
        gradient = self.pull(outputs.detach(), batch)
        self.online.zero_grad(set_to_none=True)
        outputs.backward(gradient)  # type: ignore[no-untyped-call]
        self.advance()

    def advance(self) -> None:
        """From gradients to weights."""
        if self.config.gradient_norm:
            limit_gradient(self.parameters, self.config.gradient_norm)
        self.optimiser.step(self.learning_rate)
        self.online.refresh()

    def pull(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The gradient of the loss with respect to the outputs; and telemetry and notes are told.

        Summed over the batch, not averaged, and without the square's factor 2: as the released program.
        """
        config = self.config
        q_B = self.means(outputs)
        lower_B, upper_B = self.multiplied(q_B, batch)
        target_B, weight_B, _, _ = tighten(
            q_B, batch.y_B, lower_B, upper_B, self.lam, config.slack, config.both_violated == "mean",
            config.penalty, config.penalty_width,
        )  # fmt: skip
        error_B = q_B - target_B
        if config.quantiles:
            # The bounds move the target's mean; its shape goes with it.
            targets_BN = target_B[:, None] + batch.spread_BN
            gradient = quantile_gradient(outputs, targets_BN, config.error_clip)
            if not config.rescale:
                gradient = gradient * weight_B[:, None]
        else:
            gradient = error_B if config.rescale else error_B * weight_B
            if config.error_clip:
                gradient = gradient.clamp(-config.error_clip, config.error_clip)
        if self.priorities is not None:
            weights_B = importance(batch.share_B, self.beta)
            gradient = gradient * (weights_B[:, None] if config.quantiles else weights_B)
        low_gap_B, high_gap_B = (batch.lower_B - q_B).clamp(min=0), (q_B - batch.upper_B).clamp(min=0)
        self.take_note(q_B, batch, low_gap_B, high_gap_B)
        columns = {
            "samples": torch.ones_like(q_B),
            "loss": error_B.square(),
            "q": q_B,
            "lower_violated": (low_gap_B > config.slack).to(q_B.dtype),
            "lower_gap": torch.where(low_gap_B > config.slack, low_gap_B, 0.0),
            "upper_violated": (high_gap_B > config.slack).to(q_B.dtype),
            "upper_gap": torch.where(high_gap_B > config.slack, high_gap_B, 0.0),
            "return_tightest": batch.by_return_B.to(q_B.dtype),
        }
        self.telemetry[:, : len(q_B)] += torch.stack([columns[name] for name in TELEMETRY])
        return gradient

    def multiplied(self, q_B: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The bounds as the augmented Lagrangian sees them, and the multipliers' own step.

        With a multiplier mu, mu (L-Q) + lam/2 (L-Q)^2 pulls as the penalty alone pulls towards a bound that is mu / lam
        higher; mu / lam is what is kept. While the bound is violated it grows, and while it is not it shrinks.
        """
        if "lower_multiplier" not in self.notes:
            return batch.lower_B, batch.upper_B
        config, rows_B = self.config, batch.rows_BS[:, -1]
        moved = []
        for name, excess_B in (
            ("lower_multiplier", batch.lower_B - q_B),
            ("upper_multiplier", q_B - batch.upper_B),
        ):
            kept_B = self.notes[name][rows_B]
            moved.append(kept_B)
            self.notes[name][rows_B] = (kept_B + config.multiplier_step * excess_B).clamp(0, config.multiplier_max)
        return batch.lower_B + moved[0], batch.upper_B - moved[1]

    def take_note(self, q_B: Tensor, batch: Batch, low_gap_B: Tensor, high_gap_B: Tensor) -> None:
        """What later updates want to know of these samples."""
        config = self.config
        error_B = (q_B - batch.y_B).abs()
        if self.priorities is not None:
            priority_B = error_B + low_gap_B + high_gap_B if config.priority == "violation" else error_B
            self.priorities.update(batch.rows_BS[:, -1], priority_B)
        if config.margin:
            kept = 1 - 1 / config.margin_updates
            self.noise.mul_(kept).add_(torch.stack([error_B.square().mean(), torch.ones_like(self.lam)]))
        if config.upper_settled:
            self.level += torch.stack([q_B.sum(), torch.ones_like(q_B).sum()])

    def margins(self, steps: Tensor) -> Tensor:
        """By how much a return of so many steps may exceed its value by luck. One step's noise is that of the error."""
        step = torch.ones_like(self.lam)
        noise = (self.noise[0] / self.noise[1].clamp(min=1e-6)).sqrt()
        # The error is that of n steps.
        noise = noise / noise_growth(step * self.config.n_step, self.config.gamma)
        return self.config.margin * noise * noise_growth(steps.to(noise.dtype), self.config.gamma)

    @torch.no_grad()
    def bounds(
        self, window: Window, outputs: Tensor, picks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """y, L_max, U_min, where R_j is above y and every L, the spread of the target, and the samples' shares.

        Without bounds L is -inf and U is inf. `outputs` are the neighbours' by the target network [B, ahead and behind
        (and here), actions (, quantiles)]; `picks` the online network's values where that picks the best action.
        """
        config = self.config
        ahead = window.ahead_offsets_BA.shape[1]
        values = self.means(outputs)
        values_BAX, picks_BAX = values[:, :ahead], picks[:, :ahead] if picks is not None else None

        def through(values_BA: Tensor) -> Tensor:
            return lower_bounds(
                window.rewards_BH,
                window.terminal_BH,
                window.ahead_exists_BA,
                window.ahead_offsets_BA,
                values_BA,
                config.gamma,
            )

        lower_BA = through(best_values(values_BAX, picks_BAX))
        y_B = lower_BA.gather(1, window.target_B[:, None])[:, 0]
        log_policy: Tensor | None = None
        if config.munchausen:
            log_policy = torch.log_softmax((values if picks is None else picks) / config.munchausen_temperature, -1)
            soft_BA = soft_values(values_BAX, log_policy[:, :ahead], config.munchausen_temperature)
            y_B = through(soft_BA).gather(1, window.target_B[:, None])[:, 0] + munchausen_bonus(
                log_policy[:, -1], window.actions_B, config.munchausen, config.munchausen_temperature,
                config.munchausen_floor,
            )  # fmt: skip
        never_B = torch.full_like(y_B, torch.inf)
        if config.margin:
            lower_BA = lower_BA - self.margins(window.ahead_offsets_BA)
        # All that are no farther than K + 1 steps, but the target itself.
        offset_B1 = window.ahead_offsets_BA.gather(1, window.target_B[:, None])
        others_BA = (window.ahead_offsets_BA != offset_B1) & (window.ahead_offsets_BA <= self.reach.rows)
        lower_B = torch.where(others_BA, lower_BA, -torch.inf).amax(1)
        returns_B = window.returns_B.nan_to_num(nan=-torch.inf)
        if config.margin:
            returns_B = returns_B - self.margins(torch.full_like(returns_B, LONG))
        if config.bounds and config.horizon == "episode":
            lower_B = self.on_to_the_end(window, lower_BA, lower_B, returns_B, through)
        by_return_B = torch.zeros_like(window.ended_B)
        if config.bounds and config.use_return:
            # By more than rounding: near an episode's end L, y and R are the same number, summed in another order.
            others_B = torch.maximum(lower_B, y_B)
            by_return_B = returns_B > others_B + 1e-4 * others_B.abs().clamp(min=1)
            lower_B = torch.maximum(lower_B, returns_B)
        upper_B = never_B
        behind = window.behind_offsets_BC.shape[1]
        if behind:
            taken_BC = values[:, ahead : ahead + behind].gather(2, window.behind_actions_BC[..., None])[..., 0]
            upper_BC = upper_bounds(
                window.rewards_BM, window.behind_exists_BC, window.behind_offsets_BC, taken_BC, config.gamma
            )
            if config.margin:
                scale_BC = config.gamma ** -window.behind_offsets_BC.to(taken_BC.dtype)
                upper_BC = upper_BC + self.margins(window.behind_offsets_BC) * scale_BC
            upper_B = upper_BC.amin(1)
            if config.upper_settled:
                upper_B = torch.where(self.settled, upper_B, torch.inf)
        if not config.bounds_at_end:
            # As the released program: an episode's last step has the target R_j, and no bounds.
            known_B = window.ended_B & ~window.returns_B.isnan()
            y_B = torch.where(known_B, window.returns_B, y_B)
            lower_B = torch.where(window.ended_B, -never_B, lower_B)
            upper_B = torch.where(window.ended_B, never_B, upper_B)
            by_return_B &= ~window.ended_B
        spread_BN = self.spread(window, outputs, values, picks_BAX, log_policy)
        rows_B = window.rows_BS[:, -1]
        share_B = torch.ones_like(y_B) if self.priorities is None else self.priorities.shares[rows_B]
        return y_B, lower_B, upper_B, by_return_B, spread_BN, share_B

    def on_to_the_end(
        self,
        window: Window,
        lower_BA: Tensor,
        lower_B: Tensor,
        returns_B: Tensor,
        through: Callable[[Tensor], Tensor],
    ) -> Tensor:
        """L_max over all horizons up to the episode's end, by way of what was found for the rows ahead.

        The largest bound over all horizons is r_j + gamma max(V(s_(j+1)), the largest bound of row j+1): so each row
        keeps the largest that was found for it, and hands it back to the rows before. What a row keeps is replaced, not
        raised, whenever it is sampled: values that were too high go away.
        """
        bounds = self.notes["episode_bound"]
        kept_BA = torch.where(window.ahead_acted_BA, bounds[window.ahead_rows_BAS[..., -1]], -torch.inf)
        farther_BA = torch.where(window.ahead_acted_BA, through(kept_BA), -torch.inf)
        if self.config.margin:
            farther_BA = farther_BA - self.margins(window.ahead_offsets_BA)
        lower_B = torch.maximum(lower_B, farther_BA.amax(1))
        own_B = torch.maximum(lower_B, lower_BA.amax(1))
        if self.config.use_return:
            own_B = torch.maximum(own_B, returns_B)
        bounds[window.rows_BS[:, -1]] = own_B
        return lower_B

    def spread(
        self, window: Window, outputs: Tensor, values: Tensor, picks_BAX: Tensor | None, log_policy: Tensor | None
    ) -> Tensor:
        """How the target's quantiles lie around its mean: as those of the state it bootstraps from, discounted."""
        if not self.config.quantiles:
            return outputs.new_zeros(len(outputs), 0)
        column_B = window.target_B
        sample_B = torch.arange(len(column_B), device=column_B.device)
        outputs_BXN = outputs[sample_B, column_B]
        if log_policy is not None:
            outputs_BN = (log_policy[sample_B, column_B].exp()[..., None] * outputs_BXN).sum(1)
        else:
            picks_BX = values[sample_B, column_B] if picks_BAX is None else picks_BAX[sample_B, column_B]
            outputs_BN = outputs_BXN[sample_B, picks_BX.argmax(-1)]
        offset_B = window.ahead_offsets_BA[sample_B, column_B]
        ends_B = window.terminal_BH[sample_B, offset_B - 1]
        factor_B = torch.where(ends_B, 0.0, self.config.gamma ** offset_B.to(outputs.dtype))
        return factor_B[:, None] * (outputs_BN - outputs_BN.mean(1, keepdim=True))

    def read_telemetry(self) -> dict[str, float]:
        """Means since the last reading, by name, and a fresh start. Gaps are means over the violations."""
        total = dict(zip(TELEMETRY, self.telemetry.sum(1).tolist(), strict=True))
        self.telemetry.zero_()
        samples = total.pop("samples")
        if samples == 0:
            return {}
        means = {name: value / samples for name, value in total.items()}
        for side in ("lower", "upper"):
            count = total[f"{side}_violated"]
            means[f"{side}_gap"] = total[f"{side}_gap"] / count if count else 0.0
        if self.config.margin:
            means["noise"] = float((self.noise[0] / self.noise[1].clamp(min=1e-6)).sqrt())
        if self.config.upper_settled:
            means["settled"] = float(self.settled)
        return means
