"""What is counted of the samples while learning: sums for the log, and the sample with which a loss went wrong.

All of it stays on the device, in tensors of fixed shape, so that a captured update counts too and nobody waits.
"""

from __future__ import annotations

import torch
from torch import Tensor

#: What is summed up over the samples; who reads it divides and begins anew.
SUMMED = (
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


class Telemetry:
    def __init__(self, batch_size: int, device: torch.device) -> None:
        def column() -> Tensor:
            return torch.zeros(batch_size, dtype=torch.float64, device=device)

        # A sum for each place in a batch: added up only when somebody looks. Tensors of their own, not rows of one, so
        # that the compiler can fuse what writes to them.
        self.sums = {name: column() for name in SUMMED}
        # For each place in a batch the newest sample, or the first one whose loss was no number: see `suspects`.
        self._suspects = {name: column() for name in (*SUMMED, *SUSPECT)}

    def state(self) -> dict[str, Tensor]:
        return {f"telemetry.{name}": tensor for name, tensor in self.sums.items()}

    def count(
        self,
        q_B: Tensor,
        error_B: Tensor,
        y_B: Tensor,
        lower_B: Tensor,
        upper_B: Tensor,
        by_return_B: Tensor,
        rows_B: Tensor,
        slack: float,
    ) -> None:
        """One batch: its values, errors towards the tightened target, targets and bounds."""
        low_gap_B, high_gap_B = (lower_B - q_B).clamp(min=0), (q_B - upper_B).clamp(min=0)
        columns = {
            "samples": torch.ones_like(q_B),
            "loss": error_B.square(),
            "q": q_B,
            "lower_violated": (low_gap_B > slack).to(q_B.dtype),
            "lower_gap": torch.where(low_gap_B > slack, low_gap_B, 0.0),
            "upper_violated": (high_gap_B > slack).to(q_B.dtype),
            "upper_gap": torch.where(high_gap_B > slack, high_gap_B, 0.0),
            "return_tightest": by_return_B.to(q_B.dtype),
        }
        # What is no number stays so in a sum: from then on the sample that began it is kept, and nobody has to wait for
        # the device meanwhile.
        sound_B = self.sums["loss"][: len(q_B)].isfinite()
        columns |= {
            "update": self.sums["samples"][: len(q_B)], "row": rows_B, "y": y_B, "lower": lower_B, "upper": upper_B,
        }  # fmt: skip
        for name, kept in self._suspects.items():
            kept[: len(q_B)] = torch.where(sound_B, columns[name].double(), kept[: len(q_B)])
        for name, total in self.sums.items():
            total[: len(q_B)] += columns[name]

    def read(self) -> dict[str, float]:
        """Means since the last reading, by name, and a fresh start. Gaps are means over the violations."""
        sums = torch.stack(list(self.sums.values())).sum(1).tolist()
        total = dict(zip(self.sums, sums, strict=True))
        for column in self.sums.values():
            column.zero_()
        samples = total.pop("samples")
        if samples == 0:
            return {}
        means = {name: value / samples for name, value in total.items()}
        for side in ("lower", "upper"):
            count = total[f"{side}_violated"]
            means[f"{side}_gap"] = total[f"{side}_gap"] / count if count else 0.0
        return means

    def suspects(self) -> dict[str, Tensor]:
        """After a loss that was no number: for each place in a batch the sample with which it began there.

        `update` counts the updates before it since the telemetry was last read: where it is smallest, it began.
        """
        return {name: tensor.clone() for name, tensor in self._suspects.items()}
