"""One gradient step: sample, value the neighbours with the target network, bound, pull Q towards the tightened target.

Plain DQN is this code with no bounds: the window then has one state ahead and none behind.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from tightrope.bounds import lower_bounds, tighten, upper_bounds
from tightrope.config import Config
from tightrope.network import QNetwork
from tightrope.replay import Reach, Replay, Window

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


class RMSProp:
    """DeepMind's centred RMSProp: w -= lr * g / sqrt(E[g^2] - E[g]^2 + eps), the epsilon inside the root."""

    def __init__(self, parameters: list[nn.Parameter], learning_rate: float, decay: float, epsilon: float) -> None:
        self.parameters = parameters
        self.learning_rate = learning_rate
        self.decay = decay
        self.epsilon = epsilon
        self.mean = [torch.zeros_like(p) for p in parameters]
        self.square = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self) -> None:
        gradients = [p.grad if p.grad is not None else torch.zeros_like(p) for p in self.parameters]
        torch._foreach_lerp_(self.mean, gradients, 1 - self.decay)
        torch._foreach_mul_(self.square, self.decay)
        torch._foreach_addcmul_(self.square, gradients, gradients, 1 - self.decay)
        root = torch._foreach_mul(self.mean, self.mean)
        torch._foreach_neg_(root)
        torch._foreach_add_(root, self.square)
        torch._foreach_add_(root, self.epsilon)
        torch._foreach_sqrt_(root)
        torch._foreach_addcdiv_(list(self.parameters), gradients, root, -self.learning_rate)


class Learner:
    def __init__(self, network: QNetwork, config: Config, device: torch.device, seed: int) -> None:
        self.config = config
        self.device = device
        self.online = network.to(device)
        self.target = copy.deepcopy(self.online).requires_grad_(False)
        self.optimiser = RMSProp(
            list(self.online.parameters()), config.learning_rate, config.rms_decay, config.rms_epsilon
        )
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
        self.telemetry = torch.zeros(len(TELEMETRY), dtype=torch.float64, device=device)

    def update(self, replay: Replay) -> None:
        """One update; the target network follows every `target_every_updates`."""
        window = replay.sample(self.config.batch_size, self.reach, self.generator)
        self.learn(window)
        self.updates += 1
        if self.updates % self.config.target_every_updates == 0:
            self.target.load_state_dict(self.online.state_dict())

    def learn(self, window: Window) -> None:
        """One gradient step on this batch."""
        config = self.config
        y_B, lower_B, upper_B, by_return_B = self.bounds(window)
        q_B = self.online(window.states).gather(1, window.actions_B[:, None])[:, 0]
        target_B, weight_B, low_B, high_B = tighten(
            q_B.detach(), y_B, lower_B, upper_B, config.lam, config.slack, config.both_violated == "mean"
        )
        error_B = q_B.detach() - target_B
        gradient_B = error_B if config.rescale else error_B * weight_B
        if config.error_clip:
            gradient_B = gradient_B.clamp(-config.error_clip, config.error_clip)
        # Summed over the batch, not averaged, and without the square's factor 2: as the released program.
        self.online.zero_grad(set_to_none=True)
        q_B.backward(gradient_B)  # type: ignore[no-untyped-call]
        self.optimiser.step()
        self._record(q_B.detach(), error_B, lower_B, upper_B, low_B, high_B, by_return_B)

    @torch.no_grad()
    def bounds(self, window: Window) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """y, L_max, U_min, and where R_j is the tightest lower bound. Without bounds L is -inf and U is inf."""
        config = self.config
        batch = len(window.actions_B)
        ahead = window.ahead_offsets_BA.shape[1]
        # All neighbours in one forward pass.
        neighbours = torch.cat([window.ahead_states, window.behind_states], dim=1)
        values = self.target(neighbours.flatten(0, 1)).unflatten(0, (batch, -1))
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
            by_return_B = (returns_B >= lower_B) & (returns_B > -torch.inf)
            lower_B = torch.maximum(lower_B, returns_B)
        upper_B = never_B
        if window.behind_offsets_BC.shape[1]:
            taken_BC = values[:, ahead:].gather(2, window.behind_actions_BC[..., None])[..., 0]
            upper_B = upper_bounds(
                window.rewards_BM, window.behind_exists_BC, window.behind_offsets_BC, taken_BC, config.gamma
            ).amin(1)
        if config.bounds and not config.bounds_at_end:
            # As the released program: an episode's last step has the target R_j, and no bounds.
            known_B = window.ended_B & ~window.returns_B.isnan()
            y_B = torch.where(known_B, window.returns_B, y_B)
            lower_B = torch.where(window.ended_B, -never_B, lower_B)
            upper_B = torch.where(window.ended_B, never_B, upper_B)
            by_return_B &= ~window.ended_B
        return y_B, lower_B, upper_B, by_return_B

    def _record(
        self,
        q_B: Tensor,
        error_B: Tensor,
        lower_B: Tensor,
        upper_B: Tensor,
        low_B: Tensor,
        high_B: Tensor,
        by_return_B: Tensor,
    ) -> None:
        sums = [
            torch.full_like(q_B, 1.0),
            error_B.square(),
            q_B,
            low_B,
            torch.where(low_B, lower_B - q_B, 0.0),
            high_B,
            torch.where(high_B, q_B - upper_B, 0.0),
            by_return_B,
        ]
        self.telemetry += torch.stack([s.to(torch.float64).sum() for s in sums])

    def read_telemetry(self) -> dict[str, float]:
        """Means since the last reading, by name, and a fresh start. Gaps are means over the violations."""
        total = dict(zip(TELEMETRY, self.telemetry.tolist(), strict=True))
        self.telemetry.zero_()
        samples = total.pop("samples")
        if samples == 0:
            return {}
        means = {name: value / samples for name, value in total.items()}
        for side in ("lower", "upper"):
            count = total[f"{side}_violated"]
            means[f"{side}_gap"] = total[f"{side}_gap"] / count if count else 0.0
        return means
