"""How often a bound from experience lies above Q* in a stochastic game: the paper's bounds hold for deterministic ones.

Run as a program it prints the table of docs/stochastic.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from tightrope.config import preset
from tightrope.learner import Learner
from tightrope.network import QNetwork

GAMMA, SIDE = 0.95, 5


@dataclass
class Shares:
    """Shares of the samples whose bound is on the wrong side of Q*, and by how much R_j is, where it is."""

    return_above: float
    return_excess: float
    lower_above: float
    upper_below: float


def slippery_grid(slip: float) -> tuple[np.ndarray, np.ndarray]:
    """A 5x5 grid, reward 1 at the far corner; with probability `slip` a move goes in a random direction."""
    states = SIDE * SIDE
    p = np.zeros((states, 4, states))
    r = np.zeros((states, 4))
    goal = states - 1
    for s in range(states):
        y, x = divmod(s, SIDE)
        ways = []
        for dy, dx in ((-1, 0), (0, 1), (1, 0), (0, -1)):
            ways.append(min(max(y + dy, 0), SIDE - 1) * SIDE + min(max(x + dx, 0), SIDE - 1))
        for a in range(4):
            p[s, a, ways[a]] += 1 - slip
            for way in ways:
                p[s, a, way] += slip / 4
            r[s, a] = p[s, a, goal] if s != goal else 0.0
    return p, r


def share_of_wrong_bounds(seed: int, episodes: int, slip: float = 0.3, k: int = 4) -> Shares:
    """Q* itself is the target network, so whatever is violated is the bound's fault and not the learner's."""
    from test_learner import Table, filled, solve

    rng = np.random.default_rng(seed)
    p, r = slippery_grid(slip)
    goal = SIDE * SIDE - 1
    q = solve(p, r, GAMMA, goal)
    played = []
    for _ in range(episodes):
        s, steps = 0, []
        while s != goal and len(steps) < 400:
            # Half greedy, half random: good enough to arrive, bad enough to be lucky and unlucky.
            a = int(q[s].argmax()) if rng.random() < 0.5 else int(rng.integers(4))
            s2 = int(rng.choice(SIDE * SIDE, p=p[s, a]))
            steps.append((s, a, float(s2 == goal)))
            s = s2
        if s == goal:
            played.append(steps)
    found = np.zeros(4)
    count = 0
    for start in range(0, len(played), 50):
        part = played[start : start + 50]
        replay = filled(part, [goal] * len(part), GAMMA)
        config = preset("maze").replace(k=k, gamma=GAMMA, use_return=False)
        learner = Learner(QNetwork(Table(SIDE * SIDE, 4), 1.0), config, torch.device("cpu"), 0)
        for net in (learner.online, learner.target):
            net.body.q.data.copy_(torch.tensor(q))  # type: ignore[operator, union-attr]
        rows = torch.arange(replay.head)
        rows = rows[replay.valid_centres(rows, torch.zeros_like(rows), learner.reach)]
        window = replay.window(rows, torch.zeros_like(rows), learner.reach)
        _, low, high, *_ = learner.bounds(window, learner.values(replay, window))
        value = learner.online.taken(replay.by_row, window.rows_BS, window.actions_B).detach()
        above = window.returns_B > value + 1e-5
        found[0] += above.sum().item()
        found[1] += torch.where(above, window.returns_B - value, 0).sum().item()
        found[2] += (low > value + 1e-5).sum().item()
        found[3] += (high < value - 1e-5).sum().item()
        count += len(rows)
    return Shares(found[0] / count, found[1] / max(1, found[0]), found[2] / count, found[3] / count)


if __name__ == "__main__":
    print("| slip | R_j above Q* | by (mean) | L_max above Q* (K = 4) | U_min below Q* (K = 4) |")
    print("| --- | --- | --- | --- | --- |")
    for slip in (0.0, 0.1, 0.25, 0.5):
        s = share_of_wrong_bounds(0, 2000, slip)
        print(f"| {slip} | {s.return_above:.1%} | {s.return_excess:.3f} | {s.lower_above:.1%} | {s.upper_below:.1%} |")
