"""How wrong the paper's bounds are in a stochastic game, what that does to what is learned, and what a margin gives.

Run as a program it prints the tables of docs/stochastic.md, some minutes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tightrope.config import Config, preset
from tightrope.learner import Learner
from tightrope.network import Form, QNetwork

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


def games(seed: int, episodes: int, slip: float) -> tuple[np.ndarray, list[list[tuple[int, int, float]]]]:
    """Q*, and games of an agent that is half greedy, half random: good enough to arrive, bad enough to be lucky and
    unlucky."""
    from test_learner import solve

    rng = np.random.default_rng(seed)
    p, r = slippery_grid(slip)
    goal = SIDE * SIDE - 1
    q = solve(p, r, GAMMA, goal)
    played = []
    for _ in range(episodes):
        s, steps = 0, []
        while s != goal and len(steps) < 400:
            a = int(q[s].argmax()) if rng.random() < 0.5 else int(rng.integers(4))
            s2 = int(rng.choice(SIDE * SIDE, p=p[s, a]))
            steps.append((s, a, float(s2 == goal)))
            s = s2
        if s == goal:
            played.append(steps)
    return q, played


@dataclass
class Learned:
    """A table that the learner has learned, against Q*."""

    bias: float  # mean of Q - Q* over the samples, in parts of the mean of Q*
    reached: int  # updates until the start was worth 90 % of what it is worth; 0 for never


def on_a_table(states: int, actions: int, config: Config, seed: int) -> Learner:
    """A learner whose network is a table of values, or of their quantiles."""
    from test_learner import Table

    body = Table(states, actions, config.quantiles) if config.quantiles else Table(states, actions)
    network = QNetwork(body, 1.0, form=Form(quantiles=config.quantiles))
    return Learner(network, config, torch.device("cpu"), seed)


def learned(seed: int, slip: float, updates: int, episodes: int = 800, **fields: Any) -> Learned:
    """Learns from a fixed replay, so that what differs is the method and not the experience."""
    from test_learner import filled

    q, played = games(seed, episodes, slip)
    goal = SIDE * SIDE - 1
    rows = sum(map(len, played)) + len(played) + 8
    replay = filled(played, [goal] * len(played), GAMMA, rows=rows)
    numbers = {"gamma": GAMMA, "target_every_steps": 50, "update_every_steps": 1, "learning_rate": 0.02}
    config = preset("maze").replace(**numbers | fields)
    learner = on_a_table(SIDE * SIDE, 4, config, seed)
    learner.keep_notes(replay)
    table = learner.online.body.q
    assert isinstance(table, torch.Tensor)
    reached = 0
    for update in range(1, updates + 1):
        # Down to a tenth, so that at the end it rests.
        learner.learning_rate.fill_(config.learning_rate * (1 - 0.9 * update / updates))
        learner.update(replay)
        if not reached and learner.means(table[0]).max().item() > 0.9 * q[0].max():
            reached = update
    states, actions = (np.array([step[i] for steps in played for step in steps]) for i in (0, 1))
    bias = (learner.means(table).detach().numpy() - q)[states, actions].mean() / q[states, actions].mean()
    return Learned(float(bias), reached)


def gamble(updates: int, sure: float = 0.5, wins: int = 2, every: int = 1, **fields: Any) -> tuple[float, float]:
    """Two ways from the start, each two steps long: one pays 0.5 at its end, the other 1 in two games of five, so 0.4.
    What the learner holds each to be worth. The first is taken once for `every` time that the second is."""
    from test_learner import filled

    played = []
    for i in range(100):
        if i % every == 0:
            played.append([(0, 0, 0.0), (1, 0, sure)])
        played.append([(0, 1, 0.0), (2, 0, float(i % 5 < wins))])
    replay = filled(played, [3] * len(played), 1.0, actions=2)
    numbers = {"gamma": 1.0, "target_every_steps": 50, "update_every_steps": 1, "learning_rate": 0.02}
    config = preset("maze").replace(**numbers | fields)
    learner = on_a_table(4, 2, config, 0)
    learner.keep_notes(replay)
    for update in range(1, updates + 1):
        learner.learning_rate.fill_(0.02 * (1 - 0.9 * update / updates))
        learner.update(replay)
    table = learner.online.body.q
    assert isinstance(table, torch.Tensor)
    safe, risky = learner.means(table[0]).tolist()
    return safe, risky


ACROSS: dict[str, Any] = {"horizon": "crossings", "use_upper": False, "use_return": False}
ARMS: dict[str, dict[str, Any]] = {
    "no bounds": {"bounds": False},
    "no bounds, three-step targets": {"bounds": False, "n_step": 3},
    "no bounds, five-step targets": {"bounds": False, "n_step": 5},
    "the paper's (λ = 4, K = 4)": {},
    "λ = 0.25": {"lam": 0.25},
    "margin 1": {"margin": 1.0},
    "margin 2": {"margin": 2.0},
    "the paper's, no upper bounds": {"use_upper": False},
    "margin 2, no upper bounds": {"margin": 2.0, "use_upper": False},
    "λ = 1, no upper bounds": {"lam": 1.0, "use_upper": False},
    "λ = 0.25, no upper bounds": {"lam": 0.25, "use_upper": False},
    "excess (λ = 4)": {"lam_schedule": "excess"},
    "excess, no upper bounds": {"lam_schedule": "excess", "use_upper": False},
    "expectile 0.9, no upper bounds": {"expectile": 0.9, "use_upper": False},
    "expectile 0.7, no upper bounds": {"expectile": 0.7, "use_upper": False},
    "expectile 0.5, no upper bounds": {"expectile": 0.5, "use_upper": False},
    "on the state (λ = 4)": {"bound_on": "state"},
    "on the state, no upper bounds": {"bound_on": "state", "use_upper": False},
    "on the state, excess, no upper bounds": {"bound_on": "state", "lam_schedule": "excess", "use_upper": False},
    "no upper bounds, without R_j": {"use_upper": False, "use_return": False},
    "upper bounds ahead": {"upper_by": "ahead"},
    "upper bounds ahead, without R_j": {"upper_by": "ahead", "use_return": False},
    "across trajectories": ACROSS,
    "… expectile 0.5": ACROSS | {"expectile": 0.5},
    "… step 0.1": ACROSS | {"crossing_step": 0.1},
    "… step 0.1, expectile 0.5": ACROSS | {"crossing_step": 0.1, "expectile": 0.5},
    "… step 0.1, upper bounds ahead": ACROSS | {"crossing_step": 0.1, "use_upper": True, "upper_by": "ahead"},
}
# Preset tightrope's bounds, where they are switched on.
RETURNS: dict[str, Any] = {"quantiles": 8, "k": 0, "use_upper": False, "lam": 1.0}
QUANTILE_ARMS: dict[str, dict[str, Any]] = {
    "no bounds": {"quantiles": 8, "bounds": False},
    "R_j, λ = 1": RETURNS,
    "… `quantile_margin` 1": RETURNS | {"quantile_margin": 1.0},
    "… `quantile_margin` 2": RETURNS | {"quantile_margin": 2.0},
    "… 1, λ gone after 800 updates: preset `tightrope`'s with `--bounds True`": RETURNS
    | {"quantile_margin": 1.0, "lam_schedule": "annealed", "lam_end": 0.0, "lam_steps": 800},
    "… 1, excess": RETURNS | {"quantile_margin": 1.0, "lam_schedule": "excess"},
    "R_j, excess": RETURNS | {"lam_schedule": "excess"},
    "R_j on the state, λ = 1": RETURNS | {"bound_on": "state"},
    "R_j on the state, λ = 4": RETURNS | {"bound_on": "state", "lam": 4.0},
}


def share_of_wrong_bounds(seed: int, episodes: int, slip: float = 0.3, **fields: Any) -> Shares:
    """Q* itself is the target network, so whatever is violated is the bound's fault and not the learner's."""
    from test_learner import Table, filled

    q, played = games(seed, episodes, slip)
    goal = SIDE * SIDE - 1
    found = np.zeros(4)
    count = 0
    for start in range(0, len(played), 50):
        part = played[start : start + 50]
        replay = filled(part, [goal] * len(part), GAMMA)
        config = preset("maze").replace(**{"k": 4, "gamma": GAMMA, "use_return": False} | fields)
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


def print_table(title: str, arms: dict[str, dict[str, Any]]) -> None:
    print(f"\n| {title} | slip 0.0 | 0.1 | 0.25 | 0.5 | the gamble: safe, risky |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name, fields in arms.items():
        cells = []
        for slip in (0.0, 0.1, 0.25, 0.5):
            found = [learned(seed, slip, 2_000, **fields) for seed in range(2)]
            cells.append(f"{np.mean([f.bias for f in found]):+.1%}")
            if slip == 0:
                cells[-1] += "; " + " and ".join(f"{f.reached:,}" if f.reached else "never" for f in found)
        cells.append("{:.2f}, {:.2f}".format(*gamble(2_000, **fields)))
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    print("| slip | R_j above Q* | by (mean) | L_max above Q* (K = 4) | U_min below Q* (K = 4) | from ahead |")
    print("| --- | --- | --- | --- | --- | --- |")
    for slip in (0.0, 0.1, 0.25, 0.5):
        s = share_of_wrong_bounds(0, 2000, slip)
        ahead = share_of_wrong_bounds(0, 2000, slip, upper_by="ahead").upper_below
        shares = [f"{share:.1%}" for share in (s.lower_above, s.upper_below, ahead)]
        print(f"| {slip} | {s.return_above:.1%} | {s.return_excess:.3f} | {' | '.join(shares)} |")
    print_table("bounds", ARMS)
    print_table("8 quantiles", QUANTILE_ARMS)
