"""One gradient step: sample, value the neighbours with the target network, bound, pull Q towards the tightened target.

Plain DQN is this code with no bounds: the window then has one state ahead and none behind.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor, nn

from tightrope.bounds import lower_bounds, tighten, upper_bounds
from tightrope.config import Config
from tightrope.memory import Memory
from tightrope.network import QNetwork
from tightrope.replay import Chances, Reach, Replay, Window

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
#: What is kept beside that of a sample whose loss was no number.
SUSPECT = ("update", "row", "y", "lower", "upper")


class Batch(NamedTuple):
    """Samples with what the target network says of them."""

    rows_BS: Tensor  # where the frames of their states lie
    actions_B: Tensor
    y_B: Tensor
    lower_B: Tensor  # L_max, R_j included; -inf where there is none
    upper_B: Tensor  # U_min; inf where there is none
    by_return_B: Tensor  # R_j is the tightest: above y and every L


class RMSProp:
    """DeepMind's centred RMSProp: w -= lr * g / sqrt(E[g^2] - E[g]^2 + eps), the epsilon inside the root."""

    def __init__(self, parameters: list[nn.Parameter], decay: float, epsilon: float) -> None:
        self.parameters = parameters
        self.decay = decay
        self.epsilon = epsilon
        self.mean = [torch.zeros_like(p) for p in parameters]
        self.square = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self, learning_rate: float | Tensor) -> None:
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        torch._foreach_lerp_(self.mean, gradients, 1 - self.decay)
        torch._foreach_mul_(self.square, self.decay)
        torch._foreach_addcmul_(self.square, gradients, gradients, 1 - self.decay)
        root = torch._foreach_mul(self.mean, self.mean)
        torch._foreach_neg_(root)
        torch._foreach_add_(root, self.square)
        torch._foreach_add_(root, self.epsilon)
        torch._foreach_sqrt_(root)
        change = torch._foreach_div(gradients, root)
        torch._foreach_mul_(change, learning_rate)
        torch._foreach_sub_(list(self.parameters), change)


class Learner:
    """The online network, the target network that follows it, and how the one learns from the other's bounds."""

    def __init__(self, network: QNetwork, config: Config, device: torch.device, seed: int) -> None:
        self.config = config
        self.device = device
        self.online = network.to(device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.optimiser = RMSProp(list(self.online.parameters()), config.rms_decay, config.rms_epsilon)
        self.reach = Reach(
            rows=config.reach,
            behind_from=config.upper_from + 1,
            upper=config.bounds and config.use_upper,
            lower_draws=config.lower_draws if config.bounds else 0,
            upper_draws=config.upper_draws if config.bounds else 0,
            # A cut episode that is stored as terminal has no bootstrap at its end: only R_j speaks for that.
            acted_only=config.cut_return == "mean_q",
            skip_start_rows=config.skip_start_rows,
            unfinished=config.sample_unfinished,
        )
        self.generator = torch.Generator(device).manual_seed(seed)
        self.updates = 0
        # No larger than what one step of all environments makes due, and in step with the target network.
        self.due_at_once = max(1, config.num_envs // config.update_every_steps)
        self.group_size = math.gcd(config.target_every_updates, min(config.update_group, self.due_at_once))
        self.at_once = self.group_size  # updates of one call of `update`; a captured call holds several groups
        # Tensors, so that a captured update sees them change.
        self.lam = torch.tensor(config.lam, device=device)
        self.learning_rate = torch.tensor(config.learning_rate, device=device)
        self.memory: Memory | None = None  # of what the target network said: by the trainer, on a CPU
        self.captured: Callable[[], None] | None = None  # by fast.py
        # A sum for each place in a batch: added up only when somebody looks.
        self.telemetry = torch.zeros(len(TELEMETRY), config.batch_size, dtype=torch.float64, device=device)
        # For each place in a batch the newest sample, or the first one whose loss was no number: see `suspects`.
        self._suspects = torch.zeros(len(TELEMETRY + SUSPECT), config.batch_size, dtype=torch.float64, device=device)

    def update(self, replay: Replay) -> None:
        """At most `at_once` updates; the target network follows every `target_every_updates`."""
        before = self.updates // self.config.target_every_updates
        # Out of step with the graph only after a resume from where the steps were smaller: single groups until in step.
        if self.captured is not None and self.updates % self.at_once == 0:
            self.captured()
            self.updates += self.at_once
        else:
            self.group(replay)
            self.updates += self.group_size
        if self.updates // self.config.target_every_updates > before:
            self.target.follow(self.online)

    def group(self, replay: Replay) -> None:
        """Updates that share one sampling and one pass of the target network, which does not change between them."""
        self.learn_all(replay, self.prepare(replay, self.draw(replay)))

    def draw(self, replay: Replay) -> Chances:
        """The random numbers of a group."""
        return replay.draw(self.config.batch_size * self.group_size, self.reach, self.generator)

    def learn_all(self, replay: Replay, batch: Batch) -> None:
        """One gradient step for each part of the group's batch."""
        for part in zip(*(torch.split(column, self.config.batch_size) for column in batch), strict=True):
            self.learn(replay, Batch(*part))

    @torch.no_grad()
    def prepare(self, replay: Replay, chances: Chances) -> Batch:
        """Samples with their targets and bounds; nothing here depends on the online network."""
        window = self.sample(replay, chances)
        return Batch(window.rows_BS, window.actions_B, *self.bounds(window, self.values(replay, window)))

    def sample(self, replay: Replay, chances: Chances) -> Window:
        return replay.sample(self.config.batch_size * self.group_size, self.reach, chances)

    @torch.no_grad()
    def values(self, replay: Replay, window: Window) -> Tensor:
        """What the target network says of the neighbours, ahead and then behind, all in one pass."""
        neighbours = torch.cat([window.ahead_rows_BAS, window.behind_rows_BCS], dim=1)
        if self.memory is None:
            return self.target.at(replay.by_row, neighbours)
        return self.memory.look_up(replay, neighbours, self.target, self.updates // self.config.target_every_updates)

    def learn(self, replay: Replay, batch: Batch) -> None:
        """One gradient step."""
        q_B = self.online.taken(replay.by_row, batch.rows_BS, batch.actions_B)
        gradient_B = self.pull(q_B.detach(), batch)
        self.online.zero_grad(set_to_none=True)
        q_B.backward(gradient_B)  # type: ignore[no-untyped-call]
        self.advance()

    def advance(self) -> None:
        """From gradients to weights."""
        self.optimiser.step(self.learning_rate)
        self.online.refresh()

    def pull(self, q_B: Tensor, batch: Batch) -> Tensor:
        """The gradient of the loss with respect to Q; and the telemetry is told.

        Summed over the batch, not averaged, and without the square's factor 2: as the released program.
        """
        config = self.config
        target_B, weight_B, low_B, high_B = tighten(
            q_B, batch.y_B, batch.lower_B, batch.upper_B, self.lam, config.slack, config.both_violated == "mean"
        )
        error_B = q_B - target_B
        gradient_B = error_B if config.rescale else error_B * weight_B
        if config.error_clip:
            gradient_B = gradient_B.clamp(-config.error_clip, config.error_clip)
        columns = {
            "samples": torch.ones_like(q_B),
            "loss": error_B.square(),
            "q": q_B,
            "lower_violated": low_B.to(q_B.dtype),
            "lower_gap": torch.where(low_B, batch.lower_B - q_B, 0.0),
            "upper_violated": high_B.to(q_B.dtype),
            "upper_gap": torch.where(high_B, q_B - batch.upper_B, 0.0),
            "return_tightest": batch.by_return_B.to(q_B.dtype),
        }
        # What is no number stays so in a sum: from then on the sample that began it is kept, and nobody has to wait for
        # the device meanwhile.
        sums = self.telemetry[:, : len(q_B)]
        columns |= {
            "update": sums[0], "row": batch.rows_BS[:, -1].double(),
            "y": batch.y_B, "lower": batch.lower_B, "upper": batch.upper_B,
        }  # fmt: skip
        newest = torch.stack([columns[name] for name in (*TELEMETRY, *SUSPECT)])
        kept = self._suspects[:, : len(q_B)]
        kept.copy_(torch.where(sums[TELEMETRY.index("loss")].isfinite(), newest, kept))
        sums += newest[: len(TELEMETRY)]
        return gradient_B

    def suspects(self) -> dict[str, Tensor]:
        """After a loss that was no number: for each place in a batch the sample with which it began there.

        `update` counts the updates before it since the telemetry was last read: where it is smallest, it began.
        """
        return dict(zip((*TELEMETRY, *SUSPECT), self._suspects.clone(), strict=True))

    @torch.no_grad()
    def sound(self) -> bool:
        """Whether all that was learned is numbers. Waits for the device."""
        learned = [self.telemetry, *self.online.parameters(), *self.target.parameters(), *self.optimiser.square]
        return bool(torch.stack([tensor.isfinite().all() for tensor in learned]).all())

    @torch.no_grad()
    def bounds(self, window: Window, values: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """y, L_max, U_min, and where R_j is above y and every L. Without bounds L is -inf and U is inf.

        `values` are the neighbours' [B, ahead and behind, actions].
        """
        config = self.config
        ahead = window.ahead_offsets_BA.shape[1]
        lower_BA = lower_bounds(
            window.rewards_BH,
            window.terminal_BH,
            window.ahead_exists_BA,
            window.ahead_offsets_BA,
            values[:, :ahead].amax(-1),
            config.gamma,
        )
        y_B = lower_BA[:, 0]
        never_B = torch.full_like(y_B, torch.inf)
        lower_B = torch.cat([-never_B[:, None], lower_BA[:, 1:]], dim=1).amax(1)
        by_return_B = torch.zeros_like(window.ended_B)
        if config.bounds and config.use_return:
            returns_B = window.returns_B.nan_to_num(nan=-torch.inf)
            # By more than rounding: near an episode's end L, y and R are the same number, summed in another order.
            others_B = torch.maximum(lower_B, y_B)
            by_return_B = returns_B > others_B + 1e-4 * others_B.abs().clamp(min=1)
            lower_B = torch.maximum(lower_B, returns_B)
        upper_B = never_B
        if window.behind_offsets_BC.shape[1]:
            taken_BC = values[:, ahead:].gather(2, window.behind_actions_BC[..., None])[..., 0]
            upper_B = upper_bounds(
                window.rewards_BM, window.behind_exists_BC, window.behind_offsets_BC, taken_BC, config.gamma
            ).amin(1)
        if not config.bounds_at_end:
            # As the released program: an episode's last step has the target R_j, and no bounds.
            known_B = window.ended_B & ~window.returns_B.isnan()
            y_B = torch.where(known_B, window.returns_B, y_B)
            lower_B = torch.where(window.ended_B, -never_B, lower_B)
            upper_B = torch.where(window.ended_B, never_B, upper_B)
            by_return_B &= ~window.ended_B
        return y_B, lower_B, upper_B, by_return_B

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
        return means
