"""What the target network said, remembered: the same values, each asked for once."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from tightrope.memory import Memory
from tightrope.network import QNetwork, stacked
from tightrope.replay import Replay


class Counting(nn.Module):
    """Values a state by its frames and by a weight that changes; counts the states it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = 1.0
        self.asked = 0

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        self.asked += len(states)
        return self.weight * torch.stack([states.sum(1), states[:, -1]], dim=1)


def test_values_are_the_networks_and_each_state_is_asked_for_once_while_neither_changes() -> None:
    rng = np.random.default_rng(0)
    replay = Replay(40, 2, (1,), np.dtype(np.float32), 2, 2, 0.99, torch.device("cpu"))  # 20 rows of 2 environments
    body = Counting()
    network, memory = QNetwork(body, 1.0), Memory(40, 2)
    no, frame = np.zeros(2, dtype=bool), lambda: rng.random((2, 1), dtype=np.float32)
    replay.start(frame())
    version = 0
    asked_of: dict[tuple[int, int, int], int] = {}
    for time in range(60):  # three times round the ring
        replay.append(np.zeros(2), np.zeros(2), ~no, no, no, frame(), no, np.zeros(2))
        if time % 17 == 16:
            version, body.weight = version + 1, body.weight + 1.0
        oldest, newest = max(1, replay.head - 18), replay.head
        times, envs = rng.integers(oldest, newest + 1, (8, 3)), rng.integers(0, 2, (8, 3))
        rows = torch.from_numpy(np.stack([(times - age) % 20 * 2 + envs for age in (1, 0)], axis=-1))
        before = body.asked
        found = memory.look_up(replay, rows, network, version)
        new = {(int(t), int(e), version) for t, e in zip(times.flat, envs.flat, strict=True)} - asked_of.keys()
        assert body.asked - before == len(new)
        asked_of |= dict.fromkeys(new, 1)
        torch.testing.assert_close(found, network(stacked(replay.by_row, rows.flatten(0, 1))).view(8, 3, 2))
        body.asked = before
