"""One gradient step: sample, value the neighbours with the target network, bound, pull Q towards the tightened target.

Plain DQN is this code with no bounds: the window then has one state ahead and none behind. Every other switch (double,
n-step, quantiles, priorities, multipliers ...) is a line or two on the same path; what they do is in targets.py,
constraints.py, priorities.py and optimisers.py.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from tightrope.bounds import (
    beyond_quantiles,
    lower_bounds,
    tighten,
    upper_bounds,
    upper_bounds_ahead,
    worth_of_actions,
)
from tightrope.config import Config
from tightrope.constraints import LONG, EpisodeBounds, Excess, Luck, Multipliers, Settling, needed_notes
from tightrope.crossings import Crossings
from tightrope.memory import Memory
from tightrope.network import QNetwork
from tightrope.optimisers import limit_gradient, make_optimiser
from tightrope.priorities import Priorities, importance
from tightrope.replay import Chances, Reach, Replay, Window
from tightrope.targets import (
    best_values,
    for_all_actions,
    munchausen_bonus,
    of_actions,
    quantile_gradient,
    ramp,
    soft_values,
    spread,
)
from tightrope.telemetry import Telemetry


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
    levels_BN: Tensor = torch.zeros(0, 0)  # at which its quantiles are asked for; N = 0 where these are fixed


class Learner:
    """The online network, the target network that follows it, and how the one learns from the other's bounds."""

    def __init__(self, network: QNetwork, config: Config, device: torch.device, seed: int) -> None:
        self.config = config
        self.device = device
        self.online = network.to(device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.parameters = list(self.online.parameters())
        self.optimiser = make_optimiser(self.parameters, config)
        behind = config.bounds and config.use_upper and config.upper_by == "behind"
        self.bounds_ahead = config.bounds and config.use_upper and config.upper_by == "ahead"
        crossing = config.bounds and config.horizon == "crossings"
        self.reach = Reach(
            rows=config.bound_reach,
            n_step=config.n_step,
            # With K = 0 the return is the only lower bound, and it needs no state ahead.
            bounds=config.bounds and (config.k > 0 or config.horizon != "window"),
            behind_from=config.upper_from + 1,
            upper=behind,
            lower_draws=config.lower_draws if config.bounds and not crossing else 0,
            # A drawn one adds up what all steps on the way to it lost.
            every=self.bounds_ahead,
            upper_draws=config.upper_draws if behind else 0,
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

        def scalar(value: float) -> Tensor:
            return torch.tensor(value, device=device)

        # Tensors, so that a captured update sees them change.
        self.lam = scalar(config.lam)
        self.learning_rate = scalar(config.learning_rate)
        self.beta = scalar(config.priority_beta_start)
        self.slide = scalar(1.0)
        self.luck = Luck(config, device) if config.bounds and config.margin else None
        self.excess = Excess(config, device) if config.bounds and config.lam_schedule == "excess" else None
        self.settling = Settling(config.upper_settled, device) if config.upper_settled else None
        #: Whether the gradient is that of all actions of a state, and not of the one that was taken alone.
        self.moves_all = config.bounds and config.bound_on == "state"
        #: Whether a group's samples and targets depend on nothing that the group before it changes.
        self.prepares_ahead = not (config.double or config.priority != "none" or self.luck is not None)
        # By `keep_notes`, where a switch asks for them.
        self.lacks_notes = needed_notes(config, 1) > 0
        self.priorities: Priorities | None = None
        self.multipliers: Multipliers | None = None
        self.episode: EpisodeBounds | None = None
        self.crossings: Crossings | None = None
        self.memory: Memory | None = None  # of what the target network said: by the trainer, on a CPU
        self.captured: Callable[[], None] | None = None  # by fast.py
        self.telemetry = Telemetry(config.batch_size, device)

    # ------------------------------------------------------------------------- an update, from its beginning to its end

    def update(self, replay: Replay, steps: int | None = None) -> None:
        """At most `at_once` updates; the target network follows every `target_every_updates`.

        `steps` of learning have been played so far, by which the schedules go: without it those that call for the
        updates so far.
        """
        if self.lacks_notes:
            raise ValueError("keep_notes comes before the first update")
        before = self.updates // self.config.target_every_updates
        self.schedule(self.config.steps_taken(self.updates) if steps is None else steps)
        # Out of step with the graph only after a resume from where the steps were smaller: single groups until in step.
        if self.captured is not None and self.updates % self.at_once == 0:
            self.captured()
            self.updates += self.at_once
        else:
            self.group(replay)
            self.updates += self.group_size
        if self.updates // self.config.target_every_updates > before:
            self.follow()

    def group(self, replay: Replay) -> None:
        """Updates that share one sampling and one pass of the target network, which does not change between them."""
        self.learn_all(replay, self.prepare(replay, self.draw(replay)))

    @torch.no_grad()
    def prepare(self, replay: Replay, chances: Chances) -> Batch:
        """Samples with their targets and bounds. Only what `prepares_ahead` names depends on the online network."""
        window = self.sample(replay, chances)
        picks = self.picks(replay, window) if self.config.double else None
        levels_BN = window.rewards_BH[:, :0] if chances.levels is None else chances.levels
        values = self.values(replay, window)
        return Batch(window.rows_BS, window.actions_B, *self.bounds(window, values, picks), levels_BN)

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

    @torch.no_grad()
    def bounds(
        self, window: Window, outputs: Tensor, picks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """y, L_max, U_min, where R_j is above y and every L, the spread of the target, and the samples' shares.

        Without bounds L is -inf and U is inf. `outputs` are the neighbours' by the target network [B, ahead and behind
        (and here), actions (, quantiles)]; `picks` the online network's values where that picks the best action.
        """
        values = self.means(outputs)
        best_BA = best_values(values, picks, window.ahead_offsets_BA.shape[1])
        worth_BA = self.through(window, best_BA)
        y_B, spread_BN = self.target_of(window, outputs, values, picks, worth_BA)
        lower_B, by_return_B = self.lower(window, worth_BA, y_B, values, picks)
        upper_B = self.upper(window, values, best_BA, worth_BA)
        if not self.config.bounds_at_end:
            # As the released program: an episode's last step has the target R_j, and no bounds.
            known_B = window.ended_B & ~window.returns_B.isnan()
            y_B = torch.where(known_B, window.returns_B, y_B)
            lower_B = torch.where(window.ended_B, -torch.inf, lower_B)
            upper_B = torch.where(window.ended_B, torch.inf, upper_B)
            by_return_B = by_return_B & ~window.ended_B
        share_B = torch.ones_like(y_B)
        if self.priorities is not None:
            share_B = self.priorities.shares[window.rows_BS[:, -1]]
        return y_B, lower_B, upper_B, by_return_B, spread_BN, share_B

    def through(self, window: Window, values_BA: Tensor) -> Tensor:
        """What the sample is worth by way of each state ahead, if those are worth this."""
        return lower_bounds(
            window.rewards_BH,
            window.terminal_BH,
            window.ahead_exists_BA,
            window.ahead_offsets_BA,
            values_BA,
            self.config.gamma,
        )

    def target_of(
        self, window: Window, outputs: Tensor, values: Tensor, picks: Tensor | None, worth_BA: Tensor
    ) -> tuple[Tensor, Tensor]:
        """y, and how its quantiles lie around it."""
        config = self.config
        sample_B = torch.arange(len(outputs), device=outputs.device)
        at = (sample_B, window.target_B)  # the state it bootstraps from
        choosing = values if picks is None else picks
        y_B, policy_BX = worth_BA[at], None
        if config.munchausen:
            temperature = config.munchausen_temperature
            log_policy = torch.log_softmax(choosing / temperature, -1)
            policy_BX = log_policy[at].exp()
            ahead = worth_BA.shape[1]
            y_B = self.through(window, soft_values(values[:, :ahead], log_policy[:, :ahead], temperature))[at]
            y_B = y_B + munchausen_bonus(
                log_policy[:, -1], window.actions_B, config.munchausen, temperature, config.munchausen_floor
            )
        if not config.quantiles:
            return y_B, outputs.new_zeros(len(outputs), 0)
        offset_B = window.ahead_offsets_BA[at]
        goes_on_B = ~window.terminal_BH[sample_B, offset_B - 1]
        return y_B, spread(outputs[at], choosing[at], policy_BX, goes_on_B, config.gamma**offset_B)

    def lower(
        self, window: Window, worth_BA: Tensor, y_B: Tensor, values: Tensor, picks: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        """L_max, and where R_j makes it."""
        config, offsets_BA = self.config, window.ahead_offsets_BA
        if not config.bounds:
            return torch.full_like(y_B, -torch.inf), torch.zeros_like(window.ended_B)
        lower_BA = worth_BA
        if self.luck is not None:
            lower_BA = lower_BA - self.luck.of(offsets_BA)
        lower_B = torch.where(self.bounding(window), lower_BA, -torch.inf).amax(1)
        returns_B = torch.full_like(y_B, -torch.inf)
        if config.use_return:
            returns_B = window.returns_B.nan_to_num(nan=-torch.inf)
        beyond_B = torch.full_like(y_B, -torch.inf)
        if self.episode is not None:
            seen_BA = window.ahead_drawn_BA | self.targeted(window)
            beyond_BA = self.through(window, self.episode.ahead(window))
            beyond_B = torch.where(window.ahead_acted_BA & seen_BA, beyond_BA, -torch.inf).amax(1)
            found_B = torch.where(seen_BA, worth_BA, -torch.inf).amax(1)
            # Kept as it was found: a margin comes off when it is used, not once for every row that hands it on.
            self.episode.keep(window, torch.maximum(returns_B, torch.maximum(beyond_B, found_B)))
        if self.crossings is not None:
            # The sample's own steps are among those that it knows of.
            lower_B = torch.full_like(lower_B, -torch.inf)
            beyond_B = self.across(window, values, picks, self.crossings)
        if self.luck is not None:
            long_B = self.luck.of(torch.full_like(returns_B, LONG))
            returns_B, beyond_B = returns_B - long_B, beyond_B - long_B
        lower_B = torch.maximum(lower_B, beyond_B)
        # By more than rounding: near an episode's end L, y and R are the same number, summed in another order.
        others_B = torch.maximum(lower_B, y_B)
        by_return_B = returns_B > others_B + 1e-4 * others_B.abs().clamp(min=1)
        return torch.maximum(lower_B, returns_B), by_return_B

    def across(self, window: Window, values: Tensor, picks: Tensor | None, crossings: Crossings) -> Tensor:
        """What the sample is worth by all that is known of the states ahead, whoever was there; and what is found out
        on the way is kept, of the steps ahead too."""
        rows_BXS = torch.cat([window.rows_BS[:, None], window.ahead_rows_BAS], dim=1)
        actions_BX = torch.cat([window.actions_B[:, None], window.ahead_actions_BA], dim=1)
        keys_BX = crossings.replay.state_keys(rows_BXS)
        known_BXA = crossings.known(keys_BX)
        crossings.count(known_BXA[:, 1:], window.ahead_actions_BA, window.ahead_acted_BA)
        exists_BH = window.ahead_exists_BA
        if self.reach.acted_only:
            # What is stored as an episode's end may be a cut: only R_j speaks for that.
            exists_BH = exists_BH & ~window.terminal_BH
        ahead = exists_BH.shape[1]
        worth_BH = worth_of_actions(
            window.rewards_BH, window.terminal_BH, exists_BH, actions_BX, known_BXA, values[:, :ahead],
            (values if picks is None else picks)[:, :ahead], self.config.gamma, self.config.crossing_step,
        )  # fmt: skip
        worth_B = worth_BH[:, 0]
        if self.config.use_return:
            returns_BH = crossings.replay.returns.view(-1)[rows_BXS[:, :-1, -1]].nan_to_num(nan=-torch.inf)
            worth_BH = torch.where(exists_BH, torch.maximum(worth_BH, returns_BH), -torch.inf)
        crossings.keep(keys_BX[:, :-1], actions_BX[:, :-1], worth_BH)
        return worth_B

    def upper(self, window: Window, values: Tensor, best_BA: Tensor, worth_BA: Tensor) -> Tensor:
        """U_min."""
        upper_B = torch.full_like(worth_BA[:, 0], torch.inf)
        if self.reach.upper and window.behind_offsets_BC.shape[1]:
            upper_B = self.upper_behind(window, values)
        elif self.bounds_ahead:
            upper_B = self.upper_ahead(window, values, best_BA, worth_BA)
        return upper_B if self.settling is None else torch.where(self.settling.settled, upper_B, torch.inf)

    def upper_behind(self, window: Window, values: Tensor) -> Tensor:
        """What the states behind can afford, by the actions that were taken there: nobody picks one."""
        gamma, offsets_BC = self.config.gamma, window.behind_offsets_BC
        ahead = window.ahead_offsets_BA.shape[1]
        behind = values[:, ahead : ahead + offsets_BC.shape[1]]
        taken_BC = of_actions(behind.flatten(0, 1), window.behind_actions_BC.flatten()).view_as(offsets_BC)
        upper_BC = upper_bounds(window.rewards_BM, window.behind_exists_BC, offsets_BC, taken_BC, gamma)
        if self.luck is not None:
            upper_BC = upper_BC + self.luck.of(offsets_BC) * gamma ** -offsets_BC.to(taken_BC.dtype)
        return upper_BC.amin(1)

    def upper_ahead(self, window: Window, values: Tensor, best_BA: Tensor, worth_BA: Tensor) -> Tensor:
        """What the steps ahead would have brought, had all after the first been the best: those that y and L pick too.
        An action that is worth more than what was picked has lost nothing."""
        offsets_BA = window.ahead_offsets_BA
        ahead = values[:, : offsets_BA.shape[1]]
        taken_BA = of_actions(ahead.flatten(0, 1), window.ahead_actions_BA.flatten()).view_as(worth_BA)
        upper_BA = upper_bounds_ahead(worth_BA, (best_BA - taken_BA).clamp(min=0), self.config.gamma)
        if self.luck is not None:
            upper_BA = upper_BA + self.luck.of(offsets_BA)
        # One step ahead no step is left that could have lost: that is the one-step target and no bound.
        return torch.where(self.bounding(window) & (offsets_BA > 1), upper_BA, torch.inf).amin(1)

    def bounding(self, window: Window) -> Tensor:
        """Which of the states ahead give bounds: K + 1 steps ahead at most, which a target may exceed; as drawn,
        whatever else was valued; and not the target's, which is y and no bound on either side."""
        return window.ahead_drawn_BA & (window.ahead_offsets_BA <= self.reach.rows) & ~self.targeted(window)

    def targeted(self, window: Window) -> Tensor:
        """Which of the states ahead is the target's."""
        return window.ahead_offsets_BA == window.ahead_offsets_BA.gather(1, window.target_B[:, None])

    def learn_all(self, replay: Replay, batch: Batch) -> None:
        """One gradient step for each part of the group's batch."""
        for part in zip(*(torch.split(column, self.config.batch_size) for column in batch), strict=True):
            self.learn(replay, Batch(*part))

    def learn(self, replay: Replay, batch: Batch) -> None:
        """One gradient step."""
        levels_BN = batch.levels_BN if self.config.implicit else None
        if self.moves_all:
            outputs = self.online.at(replay.by_row, batch.rows_BS, levels_BN)
        else:
            outputs = self.online.taken(replay.by_row, batch.rows_BS, batch.actions_B, levels_BN)
        gradient = self.pull(outputs.detach(), batch)
        self.online.zero_grad(set_to_none=True)
        outputs.backward(gradient)  # type: ignore[no-untyped-call]
        if self.config.gradient_norm:
            # Not a part of `advance`: compiled, the norm of every tensor would be kernels of its own.
            limit_gradient(self.parameters, self.config.gradient_norm)
        self.advance()

    def pull(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The gradient of the loss with respect to the outputs, of the actions that were taken or (`moves_all`) of all;
        and telemetry and notes are told.

        Summed over the batch, not averaged, and without the square's factor 2: as the released program.
        """
        config, everything = self.config, outputs
        if self.moves_all:
            outputs = of_actions(everything, batch.actions_B)
        q_B, best = self.means(outputs), outputs
        if self.moves_all:
            # The best action must be above the lower bound: the one taken, then, above one that is as much lower.
            best = of_actions(everything, self.means(everything).argmax(1))
            batch = batch._replace(lower_B=batch.lower_B - (self.means(best) - q_B))
        if config.quantile_margin:
            eased = beyond_quantiles(batch.lower_B, batch.upper_B, best, outputs, config.quantile_margin)
            batch = batch._replace(lower_B=eased[0], upper_B=eased[1])
        lower_B, upper_B, rows_B = batch.lower_B, batch.upper_B, batch.rows_BS[:, -1]
        if self.multipliers is not None:
            lower_B, upper_B = self.multipliers.apply(rows_B, q_B, lower_B, upper_B)
        target_B, gradient = self.towards(outputs, lower_B, upper_B, batch)
        if self.moves_all:
            # The action learns from y and its upper bound; what the lower one adds is the state's, and moves all alike.
            _, own = self.towards(outputs, torch.full_like(lower_B, -torch.inf), upper_B, batch)
            gradient = for_all_actions(own, gradient - own, batch.actions_B, everything.shape[1])
        if self.priorities is not None:
            weights_B = importance(batch.share_B, self.beta)
            gradient = gradient * weights_B.view(-1, *[1] * (gradient.dim() - 1))
            priority_B = (q_B - batch.y_B).abs()
            if config.priority == "violation":
                priority_B = priority_B + (batch.lower_B - q_B).clamp(min=0) + (q_B - batch.upper_B).clamp(min=0)
            self.priorities.update(rows_B, priority_B)
        if self.luck is not None:
            self.luck.see(q_B - batch.y_B)
        if self.excess is not None:
            self.excess.see(q_B, lower_B, upper_B, batch.share_B)
        if self.settling is not None:
            self.settling.see(q_B)
        self.telemetry.count(
            q_B, q_B - target_B, batch.y_B, batch.lower_B, batch.upper_B, batch.by_return_B, rows_B, config.slack
        )
        return gradient

    def towards(self, outputs: Tensor, lower_B: Tensor, upper_B: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """The target that y and these bounds make, and the gradient of its loss with respect to the outputs."""
        config, q_B = self.config, self.means(outputs)
        target_B, weight_B, _, _ = tighten(
            q_B, batch.y_B, lower_B, upper_B, self.lam, config.slack, config.both_violated == "mean",
            config.penalty, config.penalty_width, None if self.excess is None else self.excess.shares, config.expectile,
        )  # fmt: skip
        if config.quantiles:
            # The bounds move the target's mean; its shape goes with it.
            targets_BN = target_B[:, None] + batch.spread_BN
            levels_BN = batch.levels_BN if config.implicit else None
            gradient = quantile_gradient(outputs, targets_BN, config.error_clip, levels_BN)
            if not config.rescale:
                gradient = gradient * weight_B[:, None]
        else:
            error_B = q_B - target_B
            gradient = error_B if config.rescale else error_B * weight_B
            if config.error_clip:
                gradient = gradient.clamp(-config.error_clip, config.error_clip)
        return target_B, gradient

    def advance(self) -> None:
        """From gradients to weights."""
        self.optimiser.step(self.learning_rate)
        self.online.refresh()

    @torch.no_grad()
    def follow(self) -> None:
        """The target network becomes the online one."""
        self.target.follow(self.online)
        if self.settling is not None:
            self.settling.follow()

    # --------------------------------------------------------------------------------------------- what it needs beside

    def keep_notes(self, replay: Replay) -> None:
        """What some switches keep of each row of the replay. Must be called once, before the first update."""
        config, self.lacks_notes = self.config, False
        if config.priority != "none":
            self.priorities = Priorities(replay, config.priority_exponent, config.priority_floor)
        if config.bounds and config.lam_schedule == "multipliers":
            self.multipliers = Multipliers(replay, config)
        if config.bounds and config.horizon == "episode":
            self.episode = EpisodeBounds(replay)
        if config.bounds and config.horizon == "crossings":
            self.crossings = Crossings(replay)

    def state(self) -> dict[str, Tensor]:
        """Everything that learning changes, by the names it has in a checkpoint."""
        state = {
            **{f"online.{name}": tensor for name, tensor in self.online.state_dict().items()},
            **{f"target.{name}": tensor for name, tensor in self.target.state_dict().items()},
            **self.optimiser.state(),
            **self.telemetry.state(),
        }
        parts = (
            self.luck, self.excess, self.settling, self.priorities, self.multipliers, self.episode, self.crossings
        )  # fmt: skip
        for part in parts:
            if part is not None:
                state |= part.state()
        return state

    def schedule(self, steps: int) -> None:
        """Numbers that change with the steps of learning."""
        config = self.config
        if config.lam_schedule == "annealed":
            self.lam.fill_(ramp(config.lam, config.lam_end, steps / config.lam_steps))
        if config.priority != "none":
            done = steps / config.priority_beta_steps
            self.beta.fill_(ramp(config.priority_beta_start, config.priority_beta_end, done))
        if config.draw == "slide":
            self.slide.fill_(ramp(1.0, 0.0, steps / config.slide_steps))

    def draw(self, replay: Replay) -> Chances:
        """The random numbers of a group."""
        chances = replay.draw(self.config.batch_size * self.group_size, self.reach, self.generator)
        if not self.config.implicit:
            return chances._replace(slide=self.slide)
        # One in each of N equal parts: as any level is as likely as any other, and their mean is near that of all.
        size = (self.config.batch_size * self.group_size, self.config.quantiles)
        steps = torch.arange(size[1], device=self.device)
        levels = (steps + torch.rand(size, generator=self.generator, device=self.device)) / size[1]
        return chances._replace(slide=self.slide, levels=levels)

    def means(self, outputs: Tensor) -> Tensor:
        """From a network's outputs to values."""
        return outputs.mean(-1) if self.config.quantiles else outputs

    @torch.no_grad()
    def sound(self) -> bool:
        """Whether all that was learned is numbers. Waits for the device."""
        learned = [
            *self.telemetry.sums.values(),
            *self.parameters,
            *self.target.parameters(),
            *self.optimiser.state().values(),
        ]
        return bool(torch.stack([tensor.isfinite().all() for tensor in learned]).all())

    def read_telemetry(self) -> dict[str, float]:
        """What was counted since the last reading."""
        means = self.telemetry.read()
        if means and self.luck is not None:
            means["noise"] = float(self.luck.noise)
        if means and self.multipliers is not None:
            means |= self.multipliers.means()
        if means and self.excess is not None:
            means["lower_excess"], means["upper_excess"] = self.excess.shares.tolist()
        if means and self.settling is not None:
            means["settled"] = float(self.settling.settled)
        if means and self.crossings is not None:
            means["crossings"] = self.crossings.share()
        return means
