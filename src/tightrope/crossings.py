"""Lower bounds that other trajectories give: what came of each action that was ever tried in a state.

The paper's bounds look along the sample's own trajectory. But trajectories cross: in a deterministic game whatever was
achieved from a state can be achieved by all who come there. So what is kept here is kept by state and action, not by
row, and found again by the state's frames. A backup over the graph of all transitions is Jiang et al.'s (Graph Backup,
2022), a memory of the best return of each state Lin et al.'s (Episodic Memory Deep Q-Networks, 2018).
"""

from __future__ import annotations

import torch
from torch import Tensor

from tightrope.replay import Replay

#: Places for states, for each row of the replay: two states that share one drive each other out.
PLACES_PER_ROW = 2


class Crossings:
    """What is known of actions, in a table with a place for each state, which its key tells.

    Of two states with the same place the newer one stays. What was not found anew for as long as the replay remembers
    is forgotten: nobody can look at it again. Everything has a fixed shape and asks the host nothing.
    """

    def __init__(self, replay: Replay) -> None:
        rows = replay.length * replay.num_envs
        self.replay = replay
        self.num_actions, self.places = replay.num_actions, PLACES_PER_ROW * rows
        replay.keep_keys()
        # The last cell is nobody's: there goes what is not to be kept.
        cells = self.places * self.num_actions + 1
        self.keys = torch.zeros(cells, dtype=torch.int64, device=replay.device)
        self.times = torch.zeros(cells, dtype=torch.int32, device=replay.device)
        self.worth = torch.full((cells,), -torch.inf, device=replay.device)
        # States ahead that were looked up, and those of which another action was known than the one that was taken.
        self.seen = torch.zeros(2, device=replay.device)

    @staticmethod
    def numbers_per_row(num_actions: int) -> int:
        """Of 4 bytes each, for each row of the replay: a frame's key, and a cell's key, time and worth."""
        return 2 + (2 + 1 + 1) * PLACES_PER_ROW * num_actions

    def known(self, keys: Tensor) -> Tensor:
        """What is kept of each action of these states [..., actions]; minus infinity where nothing is."""
        cells = self._first_cell(keys)[..., None] + torch.arange(self.num_actions, device=keys.device)
        remembered = self.replay.clock - self.times[cells] < self.replay.length
        return torch.where((self.keys[cells] == keys[..., None]) & remembered, self.worth[cells], -torch.inf)

    def keep(self, keys: Tensor, actions: Tensor, worth: Tensor) -> None:
        """What these actions were found to be worth, as far as it is finite."""
        cells = torch.where(worth.isfinite(), self._first_cell(keys) + actions, len(self.keys) - 1).flatten()
        # Several want the same cell at once: the last of them gets it, whichever order they are written in.
        cells, order = torch.sort(cells, stable=True)
        last = torch.ones_like(cells, dtype=torch.bool)
        last[:-1] = cells[:-1] != cells[1:]
        cells = torch.where(last, cells, len(self.keys) - 1)
        self.keys[cells] = keys.flatten()[order]
        self.times[cells] = self.replay.clock.to(torch.int32)
        self.worth[cells] = worth.flatten()[order]

    def count(self, known: Tensor, taken: Tensor, acted: Tensor) -> None:
        """Where trajectories cross: another action is known than the one that was taken. Of states acted from."""
        others = known.isfinite().scatter(-1, taken[..., None], False).any(-1) & acted
        self.seen += torch.stack([acted.sum(), others.sum()])

    def share(self) -> float:
        """The share of the states ahead, since the last time, where trajectories cross. Waits for the device."""
        looked_up, crossed = self.seen.tolist()
        self.seen.zero_()
        return float(crossed) / max(1.0, float(looked_up))

    def state(self) -> dict[str, Tensor]:
        return {
            "crossing_keys": self.keys,
            "crossing_times": self.times,
            "crossing_worth": self.worth,
            "crossings_seen": self.seen,
        }

    def _first_cell(self, keys: Tensor) -> Tensor:
        # By the upper bits: sums of products with odd numbers are mixed there, and not in the lowest.
        return ((keys >> 20) & (2**43 - 1)) % self.places * self.num_actions
