"""bounds.py and the windows of replay.py against the paper's definitions (tests/oracle.py)."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from oracle import Episode, episode_return, laid_out, lower, target, upper, upper_ahead
from tightrope.bounds import discounted_returns, lower_bounds, tighten, upper_bounds, upper_bounds_ahead
from tightrope.network import stacked
from tightrope.replay import Reach, Replay


@st.composite
def episodes(draw: st.DrawFn) -> Episode:
    length = draw(st.integers(1, 30))
    rewards = draw(st.lists(st.sampled_from([-1.0, 0.0, 0.0, 0.5, 1.0]), min_size=length, max_size=length))
    end = draw(st.sampled_from(["terminal", "terminal", "cut"]))
    return Episode(rewards, end, life=end == "terminal" and draw(st.booleans()))


lives_of_two = st.lists(st.lists(episodes(), min_size=1, max_size=6), min_size=1, max_size=3)


def values_of(states: torch.Tensor, by_frame: dict[float, tuple[float, float]], which: int) -> torch.Tensor:
    """The value of each state, recognised by its newest frame. Garbage states have garbage values."""
    newest = states[..., -1]
    flat = [by_frame.get(x, (7e7, 7e7))[which] for x in newest.flatten().tolist()]
    return torch.tensor(flat, dtype=torch.float64).reshape(newest.shape)


@settings(max_examples=700, deadline=None)
@given(lives=lives_of_two, k=st.integers(1, 12), rows=st.integers(24, 120), stack=st.integers(1, 4),
       gamma=st.sampled_from([0.9, 0.99, 1.0]), upper_from=st.integers(0, 1), seed=st.integers(0, 99))  # fmt: skip
def test_every_bound_of_every_row_is_the_papers(
    lives: list[list[Episode]], k: int, rows: int, stack: int, gamma: float, upper_from: int, seed: int
) -> None:
    replay, where, by_frame = laid_out(lives, rows, stack, gamma, seed)
    if replay.head < 1:
        return
    reach = Reach(rows=k + 1, behind_from=upper_from + 1, upper=True)
    oldest = max(0, replay.head - rows + 1)
    assert int(replay.oldest) == oldest
    times, envs = map(torch.tensor, zip(*[(t, e) for t in range(oldest, replay.head) for e in range(len(lives))],
                                        strict=True))  # fmt: skip
    valid = replay.valid_centres(times, envs, reach).tolist()
    window = replay.window(times, envs, reach)
    best, taken = (values_of(stacked(replay.by_row, window.ahead_rows_BAS), by_frame, which) for which in (0, 1))
    lowers = lower_bounds(
        window.rewards_BH.double(), window.terminal_BH, window.ahead_exists_BA, window.ahead_offsets_BA, best, gamma
    )
    ceilings = upper_bounds_ahead(lowers, best - taken, gamma)  # by the best action there is, so that none is negative
    uppers = upper_bounds(
        window.rewards_BM.double(), window.behind_exists_BC, window.behind_offsets_BC,
        values_of(stacked(replay.by_row, window.behind_rows_BCS), by_frame, 1), gamma,
    )  # fmt: skip
    for i, (t, env) in enumerate(zip(times.tolist(), envs.tolist(), strict=True)):
        if (t, env) not in where:
            assert not valid[i], "a row without a transition is never a sample"
            continue
        e, j = where[t, env]
        complete = e.first_row + max(0, j - stack + 1) >= oldest
        assert valid[i] == complete, "a sample needs its whole state, and nothing else"
        if not valid[i]:
            continue
        # The state itself: the last frames of this episode, blank before its first.
        steps = [e.first_row + s for s in range(j - stack + 1, j + 1)]
        frames = [1 + s * len(lives) + env if s >= e.first_row else 0 for s in steps]
        assert stacked(replay.by_row, window.rows_BS[i]).tolist() == frames
        assert lowers[i, 0].item() == pytest.approx(target(e, j, gamma), abs=1e-9)
        for horizon in range(1, k + 1):
            expected = lower(e, j, horizon, gamma)
            found = lowers[i, horizon].item()
            assert found == (-math.inf if expected is None else pytest.approx(expected, abs=1e-9))
            expected, found = upper_ahead(e, j, horizon, gamma), ceilings[i, horizon].item()
            assert found == (math.inf if expected is None else pytest.approx(expected, abs=1e-9))
        for column, horizon in enumerate(range(upper_from, k + 1)):
            bound = upper(e, j, horizon, gamma, oldest, stack)
            assert uppers[i, column].item() == (math.inf if bound is None else pytest.approx(bound, rel=1e-9, abs=1e-9))
        known = episode_return(e, j, gamma)
        if known is None:
            assert math.isnan(window.returns_B[i].item())
        else:
            assert window.returns_B[i].item() == pytest.approx(known, rel=1e-6, abs=1e-6)


@settings(max_examples=200, deadline=None)
@given(lives=lives_of_two, rows=st.integers(40, 120), seed=st.integers(0, 99), finished=st.booleans())
def test_sampling_is_of_valid_rows_only(lives: list[list[Episode]], rows: int, seed: int, finished: bool) -> None:
    replay, where, _ = laid_out(lives, rows, 4, 0.99, seed)
    reach = Reach(rows=5, upper=True, unfinished=not finished, skip_start_rows=3 if finished else 0)
    oldest = max(0, replay.head - rows + 1)
    allowed = {
        (t, env) for (t, env), (e, j) in where.items()
        if e.first_row + max(0, j - 3) >= oldest and not (finished and (e.end == "unfinished" or j < 3))
    }  # fmt: skip
    if not allowed or len(allowed) < 0.2 * len(where):
        return
    window = replay.sample(64, reach, replay.draw(64, reach, torch.Generator().manual_seed(seed)))
    drawn = set(zip(window.times_B.tolist(), window.envs_B.tolist(), strict=True))
    assert drawn <= allowed


def test_samples_are_uniform_over_valid_rows() -> None:
    lives = [[Episode([0.0] * n, "terminal") for n in (3, 1, 20, 2, 30)] for _ in range(2)]
    replay, where, _ = laid_out(lives, 200, 4, 0.99, 0)
    generator = torch.Generator().manual_seed(1)
    counts: dict[tuple[int, int], int] = dict.fromkeys(where, 0)
    draws = 400
    for _ in range(draws):
        window = replay.sample(32, Reach(), replay.draw(32, Reach(), generator))
        for key in zip(window.times_B.tolist(), window.envs_B.tolist(), strict=True):
            counts[key] += 1
    expected = draws * 32 / len(where)
    chi2 = sum((c - expected) ** 2 / expected for c in counts.values())
    # Mean and standard deviation of chi-squared with n - 1 degrees of freedom.
    assert abs(chi2 - (len(where) - 1)) < 5 * math.sqrt(2 * len(where))


@settings(max_examples=200, deadline=None)
@given(lives=lives_of_two, seed=st.integers(0, 99))
def test_drawn_bounds_are_among_those_that_exist(lives: list[list[Episode]], seed: int) -> None:
    """The released program's 3 of the next 2..10 and 4 of the previous 1..10, its first three rows left out."""
    replay, where, _ = laid_out(lives, 300, 4, 0.99, seed)
    reach = Reach(10, 1, True, lower_draws=3, upper_draws=4, acted_only=True, skip_start_rows=3, unfinished=False)
    centres = [(t, env) for (t, env), (e, j) in where.items() if j >= 3 and e.end != "unfinished"]
    if not centres:
        return
    times, envs = map(torch.tensor, zip(*centres, strict=True))
    chances = replay.draw(len(times), reach, torch.Generator().manual_seed(seed))
    window = replay.window(times, envs, reach, chances)
    every = replay.window(times, envs, dataclasses.replace(reach, every=True), chances)
    assert window.ahead_offsets_BA.shape[1] == 4
    assert window.behind_offsets_BC.shape[1] == 4
    for i, key in enumerate(centres):
        e, j = where[key]
        ahead = set(range(2, min(10, e.last - j) + 1))
        behind = set(range(1, min(10, j - 3) + 1))
        assert window.ahead_offsets_BA[i, 0] == 1
        assert window.ahead_exists_BA[i].tolist() == [True] + 3 * [bool(ahead)]
        assert window.behind_exists_BC[i].tolist() == 4 * [bool(behind)]
        if ahead:
            assert set(window.ahead_offsets_BA[i, 1:].tolist()) <= ahead
        # With all states ahead the same are drawn.
        assert every.ahead_offsets_BA[i].tolist() == list(range(1, 11))
        drawn = every.ahead_offsets_BA[i][every.ahead_drawn_BA[i] & every.ahead_exists_BA[i]]
        assert set(drawn.tolist()) == (set(window.ahead_offsets_BA[i, 1:].tolist()) if ahead else set())
        if behind:
            assert set(window.behind_offsets_BC[i].tolist()) <= behind


def test_tightened_target_by_hand() -> None:
    q = torch.tensor([1.0, 1.0, 1.0, 1.0])
    y = torch.tensor([2.0, 2.0, 2.0, 2.0])
    low = torch.tensor([0.5, 3.0, 0.0, 3.0])
    high = torch.tensor([1.5, 4.0, 0.5, 0.5])
    target_, weight, *_ = tighten(q, y, low, high, 4.0)
    # None violated; the lower; the upper; both.
    assert target_.tolist() == pytest.approx([2.0, (2 + 4 * 3) / 5, (2 + 4 * 0.5) / 5, (2 + 4 * 3 + 4 * 0.5) / 9])
    assert weight.tolist() == [1.0, 5.0, 5.0, 9.0]
    # The released program: 0.8 on y and 0.2 on the bound, or on the mean of both.
    target_, *_ = tighten(q, y, low, high, 0.25, mean_of_both=True)
    assert target_.tolist() == pytest.approx([2.0, 0.8 * 2 + 0.2 * 3, 0.8 * 2 + 0.2 * 0.5, 0.8 * 2 + 0.2 * 1.75])
    # Its slack: a bound counts only beyond 0.1.
    near = tighten(torch.ones(2), torch.ones(2), torch.tensor([1.09, 1.11]), torch.full((2,), 9.0), 1.0, slack=0.1)
    assert near[2].tolist() == [False, True]


@given(q=st.floats(-3, 3), y=st.floats(-3, 3), low=st.floats(-3, 3), high=st.floats(-3, 3), lam=st.floats(0, 8))
def test_the_target_is_where_the_penalised_losss_gradient_points(
    q: float, y: float, low: float, high: float, lam: float
) -> None:
    x = torch.tensor([q], dtype=torch.float64, requires_grad=True)
    loss = (x - y) ** 2 + lam * (low - x).clamp(min=0) ** 2 + lam * (x - high).clamp(min=0) ** 2
    (gradient,) = torch.autograd.grad(loss.sum(), x)
    as64 = lambda v: torch.tensor([v], dtype=torch.float64)  # noqa: E731
    target_, weight, *_ = tighten(x.detach(), as64(y), as64(low), as64(high), lam)
    assert gradient.item() == pytest.approx(2 * (weight * (x.detach() - target_)).item(), abs=1e-9)


@given(rewards=st.lists(st.floats(-2, 2), min_size=1, max_size=300), gamma=st.sampled_from([0.1, 0.9, 0.99, 1.0]),
       tail=st.floats(-5, 5))  # fmt: skip
def test_returns_by_doubling_are_the_recursion(rewards: list[float], gamma: float, tail: float) -> None:
    expected, after = [], tail
    for r in reversed(rewards):
        after = r + gamma * after
        expected.append(after)
    found = discounted_returns(
        torch.tensor(rewards, dtype=torch.float64)[:, None], torch.tensor([tail], dtype=torch.float64), gamma
    )
    np.testing.assert_allclose(found[:, 0].numpy(), expected[::-1], rtol=1e-9, atol=1e-9)


def test_return_of_an_episode_longer_than_the_ring() -> None:
    replay = Replay(20, 1, (1,), np.dtype(np.float32), 1, 2, 0.9, torch.device("cpu"))
    replay.start(np.zeros((1, 1), np.float32))
    no = np.array([False])
    rewards = np.random.default_rng(0).normal(size=50)
    for i, r in enumerate(rewards):
        replay.append(np.zeros(1, np.int64), np.array([r]), ~no, np.array([i == 49]), no, np.zeros((1, 1), np.float32),
                      no, np.zeros(1))  # fmt: skip
    expected = sum(0.9 ** (t - 35) * rewards[t] for t in range(35, 50))
    assert replay.returns[35 % 20, 0].item() == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize(("cut_tail", "expected"), [(math.nan, math.nan), (0.0, 1 + 0.5), (2.0, 1 + 0.5 + 0.25 * 2.0)])
def test_a_cut_off_episodes_return(cut_tail: float, expected: float) -> None:
    """Absent, the plain sum, or closed with a value."""
    replay = Replay(20, 1, (1,), np.dtype(np.float32), 1, 2, 0.5, torch.device("cpu"))
    replay.start(np.zeros((1, 1), np.float32))
    no = np.array([False])
    for last in (False, True):
        replay.append(np.zeros(1, np.int64), np.ones(1), ~no, no, np.array([last]), np.zeros((1, 1), np.float32), no,
                      np.array([cut_tail]))  # fmt: skip
    assert replay.returns[0, 0].item() == pytest.approx(expected, nan_ok=True)
