"""The paper's definitions over whole episodes, in float64 and nothing else: no windows, no ring, no masks.

An environment's life is a list of episodes; each knows its states' values, so every bound can be written down as the
paper writes it. `laid_out` puts the same experience into a Replay.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field

import numpy as np
import torch

from tightrope.config import Config
from tightrope.replay import Replay, Window

ACTIONS = 4


@dataclass
class Episode:
    """Steps 0..T. `values[t]` is max_a Q-(s_t, a), one more than steps where the final observation counts."""

    rewards: list[float]
    end: str  # "terminal", "cut", "unfinished"
    life: bool = False  # a lost life: the next episode begins at the very next row
    first_row: int = 0  # time of its first row
    values: list[float] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)  # Q-(s_t, a_t)
    q: list[list[float]] = field(default_factory=list)  # Q-(s_t, a)
    actions: list[int] = field(default_factory=list)

    @property
    def last(self) -> int:
        return len(self.rewards) - 1


def target(e: Episode, j: int, gamma: float) -> float:
    """y_j = r_j + gamma max_a Q-(s_(j+1), a), without the second term at a terminal step."""
    if j == e.last and e.end == "terminal":
        return e.rewards[j]
    return e.rewards[j] + gamma * e.values[j + 1]


def lower(e: Episode, j: int, k: int, gamma: float) -> float | None:
    """L_(j,k), or None where it does not exist."""
    if j + k > e.last:
        return None
    total = math.fsum(gamma**i * e.rewards[j + i] for i in range(k + 1))
    if j + k == e.last and e.end == "terminal":
        return total
    return total + gamma ** (k + 1) * e.values[j + k + 1]


def upper(e: Episode, j: int, k: int, gamma: float, oldest: int, stack: int) -> float | None:
    """U_(j,k), or None where a row it needs is another episode's or has been overwritten."""
    p = j - k - 1
    if p < 0:
        return None
    # The predecessor's own frames: back to the episode's first step, at most stack - 1 rows before it.
    first_frame = max(0, p - stack + 1)
    if e.first_row + first_frame < oldest:
        return None
    total = math.fsum(gamma**i * e.rewards[p + i] for i in range(k + 1))
    return (e.taken[p] - total) / gamma ** (k + 1)


def upper_ahead(e: Episode, j: int, k: int, gamma: float) -> float | None:
    """L_(j,k), and at each step after the first what it lost: V(s) - Q-(s, a_taken), V as in L, or nothing where Q-
    holds the action for better than that."""
    bound = lower(e, j, k, gamma)
    if bound is None:
        return None
    return bound + math.fsum(gamma**i * max(0.0, e.values[j + i] - e.taken[j + i]) for i in range(1, k + 1))


def episode_return(e: Episode, j: int, gamma: float) -> float | None:
    """R_j of a finished episode; unknown while it runs and where it was cut off."""
    if e.end != "terminal":
        return None
    return math.fsum(gamma ** (t - j) * e.rewards[t] for t in range(j, e.last + 1))


def laid_out(
    lives: list[list[Episode]], rows: int, stack: int, gamma: float, seed: int
) -> tuple[Replay, dict[tuple[int, int], tuple[Episode, int]], dict[float, tuple[float, float]]]:
    """Experience in a replay, which episode and step each (time, environment) is, and the values by frame.

    Each row's frame is a number that occurs once, so that a state can be recognised, and with it its values.
    """
    rng = np.random.default_rng(seed)
    num_envs = len(lives)
    # Per environment one entry a row: (episode, step) for a transition, (episode, None) for the row after a game's end.
    timelines: list[list[tuple[Episode, int | None]]] = []
    for episodes in lives:
        rows_of: list[tuple[Episode, int | None]] = []
        for e in episodes:
            e.first_row = len(rows_of)
            e.q = rng.normal(size=(len(e.rewards) + 1, ACTIONS)).tolist()
            e.actions = rng.integers(ACTIONS, size=len(e.rewards) + 1).tolist()
            e.values = [max(q) for q in e.q]
            e.taken = [q[a] for q, a in zip(e.q, e.actions, strict=True)]
            rows_of += [(e, step) for step in range(len(e.rewards))]
            if e.end != "unfinished" and not e.life:
                rows_of.append((e, None))
        timelines.append(rows_of)
    length = min(map(len, timelines))
    # An episode that does not end within the common length has not ended.
    replay = Replay(rows * num_envs, num_envs, (1,), np.dtype(np.float32), stack, ACTIONS, gamma, torch.device("cpu"))
    frame = lambda time, env: float(1 + time * num_envs + env)  # noqa: E731
    where: dict[tuple[int, int], tuple[Episode, int]] = {}
    by_frame: dict[float, tuple[float, float]] = {}

    def frames_at(time: int) -> np.ndarray:
        return np.array([[frame(time, env)] for env in range(num_envs)], dtype=np.float32)

    replay.start(frames_at(0))
    for time in range(length - 1):
        now = [timelines[env][time] for env in range(num_envs)]
        after = [timelines[env][time + 1] for env in range(num_envs)]
        transition = np.array([step is not None for _, step in now])
        is_last = np.array([step == e.last for e, step in now])
        terminal = np.array([e.end == "terminal" for e, _ in now]) & is_last
        cut = np.array([e.end == "cut" for e, _ in now]) & is_last
        begins = np.array([step == 0 for _, step in after])
        rewards = np.array([e.rewards[step] if step is not None else 99.0 for e, step in now])
        actions = np.array([e.actions[step] if step is not None else 0 for e, step in now])
        replay.append(
            actions, rewards, transition, terminal, cut, frames_at(time + 1), begins,
            np.where(cut, np.nan, 0.0),
        )  # fmt: skip
    for env in range(num_envs):
        for time in range(length):
            e, step = timelines[env][time]
            at = e.last + 1 if step is None else step
            by_frame[frame(time, env)] = (e.values[at], e.taken[at])
            if step is not None and time < length - 1:
                where[(time, env)] = (e, step)
        # What had not ended when the recording stopped is unfinished, for the oracle too.
        for e in lives[env]:
            if e.first_row + e.last >= length - 1:
                e.end = "unfinished"
                e.rewards = e.rewards[: max(0, length - 1 - e.first_row)]
    return replay, where, by_frame


# ------------------------------------------------------------------------------------------------ beyond the paper


def n_step_target(e: Episode, j: int, n: int, written: int, gamma: float) -> float:
    """r_j + ... + gamma^(m-1) r_(j+m-1) + gamma^m max_a Q-(s_(j+m), a), with m = n or, if that is sooner, up to the
    episode's end or the newest step that is written; without the last term after a terminal step."""
    m = min(n, e.last + 1 - j, written - j)
    total = math.fsum(gamma**i * e.rewards[j + i] for i in range(m))
    if j + m == e.last + 1 and e.end == "terminal":
        return total
    return total + gamma**m * e.values[j + m]


def largest_bound(e: Episode, j: int, written: int, gamma: float) -> float:
    """The largest of y_j, all L_(j,k) up to the last step that is written, and R_j."""
    found = [target(e, j, gamma)]
    for k in range(1, written - j):
        bound = lower(e, j, k, gamma)
        if bound is not None:
            found.append(bound)
    whole = episode_return(e, j, gamma)
    return max(found if whole is None else [*found, whole])


class PaperUpdate:
    """The update of the paper, of the released program and of plain DQN, from one end to the other and with no switch:
    what it was before there were any. In float32 and in the order of the formulas, so that it is the learner's bit for
    bit. It takes the window as the replay found it, which is held to its definition elsewhere, and computes
    the rest."""

    def __init__(self, body: torch.nn.Module, config: Config) -> None:
        self.online, self.target = copy.deepcopy(body), copy.deepcopy(body)
        self.config = config
        self.mean = [torch.zeros_like(p) for p in self.online.parameters()]
        self.square = [torch.zeros_like(p) for p in self.online.parameters()]

    def follow(self) -> None:
        self.target = copy.deepcopy(self.online)

    @staticmethod
    def images(replay: Replay, rows: torch.Tensor) -> torch.Tensor:
        """The frames of each state one behind another; row -1 is from before its episode, and black."""
        frames = replay.by_row[rows].float()
        return torch.where((rows < 0).view(*rows.shape, *[1] * (frames.dim() - 2)), 0.0, frames).flatten(1, 2)

    def update(self, replay: Replay, window: Window) -> None:
        config, gamma = self.config, self.config.gamma
        states = torch.cat([window.ahead_rows_BAS, window.behind_rows_BCS], dim=1)
        with torch.no_grad():
            values = self.target(self.images(replay, states.flatten(0, 1))).view(*states.shape[:2], -1)
        ahead = window.ahead_offsets_BA.shape[1]
        sums = (window.rewards_BH * gamma ** torch.arange(window.rewards_BH.shape[1]).float()).cumsum(1)
        last = window.ahead_offsets_BA - 1
        worth = gamma ** window.ahead_offsets_BA.float() * values[:, :ahead].amax(-1)
        lower_BA = sums.gather(1, last) + torch.where(window.terminal_BH.gather(1, last), 0.0, worth)
        lower_BA = torch.where(window.ahead_exists_BA, lower_BA, -math.inf)
        y = lower_BA[:, 0]
        low, high = torch.full_like(y, -math.inf), torch.full_like(y, math.inf)
        if config.bounds:
            low = torch.cat([low[:, None], lower_BA[:, 1:], window.returns_B.nan_to_num(nan=-math.inf)[:, None]], 1)
            low = low.amax(1)
            taken = values[:, ahead:].gather(2, window.behind_actions_BC[..., None])[..., 0]
            offsets, count = window.behind_offsets_BC, window.rewards_BM.shape[1]
            sums = (window.rewards_BM * gamma ** -torch.arange(1, count + 1).float()).cumsum(1)
            high = gamma ** -offsets.float() * taken - sums.gather(1, offsets - 1)
            high = torch.where(window.behind_exists_BC, high, math.inf).amin(1)
        if not config.bounds_at_end:
            y = torch.where(window.ended_B & ~window.returns_B.isnan(), window.returns_B, y)
            low = torch.where(window.ended_B, -math.inf, low)
            high = torch.where(window.ended_B, math.inf, high)
        values = self.online(self.images(replay, window.rows_BS))
        q = values.gather(1, window.actions_B[:, None])[:, 0]
        with torch.no_grad():
            below, above = low > q + config.slack, high < q - config.slack
            count = below.float() + above.float()
            pull = torch.where(below, low, 0.0) + torch.where(above, high, 0.0)
            if config.both_violated == "mean":
                pull, count = pull / count.clamp(min=1), count.clamp(max=1)
            lam = torch.tensor(config.lam)
            error = q - (y + lam * pull) / (1 + lam * count)
            gradient = error.clamp(-config.error_clip, config.error_clip)
        gradients = torch.autograd.grad(q, list(self.online.parameters()), gradient)
        with torch.no_grad():
            for p, g, m, s in zip(self.online.parameters(), gradients, self.mean, self.square, strict=True):
                m.lerp_(g, 1 - config.rms_decay)
                s.mul_(config.rms_decay).addcmul_(g, g, value=1 - config.rms_decay)
                p -= g / ((-(m * m) + s) + config.rms_epsilon).sqrt() * config.learning_rate
