"""Bounds across trajectories: against value iteration over all that was ever tried, written plainly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from test_learner import filled, random_mdp, solve, table_learner, wander
from tightrope.bounds import worth_of_actions
from tightrope.config import preset
from tightrope.constraints import needed_notes
from tightrope.crossings import Crossings
from tightrope.learner import Learner
from tightrope.network import stacked
from tightrope.replay import Replay, Window

CPU = torch.device("cpu")
LOWER: dict[str, Any] = {"horizon": "crossings", "use_upper": False, "use_return": False}
Steps = list[tuple[int, int, float]]


def all_rows(learner: Learner, replay: Replay) -> Window:
    times = torch.arange(replay.head)
    nowhere = torch.zeros_like(times)
    times = times[replay.valid_centres(times, nowhere, learner.reach)]
    return replay.window(times, torch.zeros_like(times), learner.reach)


def known_of(learner: Learner, window: Window) -> torch.Tensor:
    """What is kept of the samples' own actions."""
    crossings = learner.crossings
    assert crossings is not None
    keys = crossings.replay.state_keys(window.rows_BS)
    return crossings.known(keys).gather(1, window.actions_B[:, None])[:, 0]


def game(rng: np.random.Generator, states: int) -> tuple[np.ndarray, np.ndarray]:
    """A deterministic one, as `random_mdp`; one action in each state leads to the next, so that all games can end."""
    p, r = random_mdp(rng, states, 4, 1)
    for s in range(states - 1):
        p[s, rng.integers(4)] = np.eye(states)[s + 1]
    return p, r


def games(p: np.ndarray, r: np.ndarray, rng: np.random.Generator, count: int) -> list[Steps]:
    found: list[Steps] = []
    while len(found) < count:
        if steps := wander(p, r, len(p) - 1, rng):
            found.append(steps)
    return found


def value_iteration(
    episodes: list[Steps], last: list[int], terminal: bool, q: np.ndarray, gamma: float
) -> dict[tuple[int, int], float]:
    """What each action that was tried is worth where all others are worth `q`: of a deterministic game."""
    came: dict[tuple[int, int], tuple[float, int | None]] = {}
    for episode, final in zip(episodes, last, strict=True):
        for t, (s, a, r) in enumerate(episode):
            ends = t == len(episode) - 1
            came[s, a] = (r, (None if terminal else final) if ends else episode[t + 1][0])
    worth = dict.fromkeys(came, 0.0)
    for _ in range(400):
        for (s, a), (r, s2) in came.items():
            best = 0.0 if s2 is None else max(worth.get((s2, b), q[s2, b]) for b in range(q.shape[1]))
            worth[s, a] = r + gamma * best
    return worth


def test_what_another_trajectory_found_is_a_bound_for_all_who_come_there() -> None:
    """0 -> 1 -> 2, which pays nothing, and 3 -> 1 -> 4, which pays 1: so from 0 by way of 1 one can have 1 as well."""
    found = {}
    for horizon in ("window", "episode", "crossings"):
        replay = filled([[(0, 0, 0.0), (1, 0, 0.0)], [(3, 0, 0.0), (1, 1, 1.0)]], [2, 4], 0.5)
        learner, *_ = table_learner(5, 4, gamma=0.5, k=1, use_upper=False, horizon=horizon)
        learner.keep_notes(replay)
        window = all_rows(learner, replay)
        for _ in range(3):
            _, lower, *_ = learner.bounds(window, learner.values(replay, window))
        found[horizon] = lower.tolist()
    # In the last step the episode's own R_j is all that the first two know of.
    assert found["window"] == found["episode"] == pytest.approx([0.0, 0.0, 0.5, 1.0])
    assert found["crossings"] == pytest.approx([0.5, 0.0, 0.5, 1.0])


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), k=st.integers(0, 4), n_step=st.integers(1, 3), terminal=st.booleans())
def test_it_is_value_iteration_over_all_that_was_tried(seed: int, k: int, n_step: int, terminal: bool) -> None:
    """However far a window looks; what was never tried is worth what the target network says."""
    gamma, states = 0.8, 9
    rng = np.random.default_rng(seed)
    p, r = game(rng, states)
    # A game ends in its last state alone, and may be cut off anywhere.
    episodes = [steps if terminal else steps[: rng.integers(1, 12)] for steps in games(p, r, rng, 6)]
    last = [int(p[s, a].argmax()) for s, a, _ in (episode[-1] for episode in episodes)]
    replay = filled(episodes, last, gamma, terminal)
    learner, _, target = table_learner(states, 4, gamma=gamma, k=k, n_step=n_step, **LOWER)
    q = rng.normal(size=(states, 4))
    with torch.no_grad():
        target.copy_(torch.tensor(q))
    learner.keep_notes(replay)
    window = all_rows(learner, replay)
    for _ in range(150):
        learner.bounds(window, learner.values(replay, window))
    expected = value_iteration(episodes, last, terminal, q, gamma)
    steps = [(s, a) for episode in episodes for s, a, _ in episode]
    assert len(steps) == len(window.actions_B)
    assert known_of(learner, window).tolist() == pytest.approx([expected[step] for step in steps], abs=1e-4)


@pytest.mark.parametrize("seed", range(3))
def test_where_the_target_network_is_right_so_is_the_bound(seed: int) -> None:
    gamma, states = 0.9, 12
    rng = np.random.default_rng(seed)
    p, r = game(rng, states)
    q = solve(p, r, gamma, states - 1)
    episodes = games(p, r, rng, 20)
    learner, _, target = table_learner(states, 4, gamma=gamma, **LOWER)
    with torch.no_grad():
        target.copy_(torch.tensor(q))
    replay = filled(episodes, [states - 1] * len(episodes), gamma)
    learner.keep_notes(replay)
    window = all_rows(learner, replay)
    for _ in range(3):
        _, lower, *_ = learner.bounds(window, learner.values(replay, window))
    value = torch.tensor(q)[stacked(replay.by_row, window.rows_BS)[:, 0].long(), window.actions_B]
    assert lower.tolist() == pytest.approx(value.tolist(), abs=1e-4)


def test_with_double_the_online_network_picks_among_what_nobody_tried() -> None:
    """In state 1, action 0 was tried and brought 0.25; of 1, 2 and 3 the online network prefers 2."""
    for preferred, picked in ((9.0, 0.1), (0.2, 0.25)):
        replay = filled([[(0, 0, 0.0), (1, 0, 0.25)]], [2], 1.0)
        learner, online, target = table_learner(3, 4, gamma=1.0, k=1, double=True, **LOWER)
        with torch.no_grad():
            target.copy_(torch.tensor([[0.0] * 4, [7.0, 0.8, 0.1, 0.3], [0.0] * 4]))
            online.copy_(torch.tensor([[0.0] * 4, [8.0, 0.0, preferred, 0.1], [0.0] * 4]))
        learner.keep_notes(replay)
        window = all_rows(learner, replay)
        _, lower, *_ = learner.bounds(window, learner.values(replay, window), learner.picks(replay, window))
        # The action that was tried counts for what came of it, for either network: neither 7 nor 8.
        assert lower.tolist() == pytest.approx([picked, 0.25])


def test_a_row_that_does_not_exist_is_not_known_and_its_state_is_worth_its_values() -> None:
    nothing = torch.zeros(1, 2, dtype=torch.bool)
    values, known = torch.tensor([[[0.5, 2.0], [9.0, 9.0]]]), torch.full((1, 3, 2), -np.inf)
    exists, taken = torch.tensor([[True, False]]), torch.tensor([[0, 1, 0]])
    worth = worth_of_actions(torch.tensor([[1.0, 5.0]]), nothing, exists, taken, known, values, values, 0.5)
    assert worth.tolist() == [[2.0, -np.inf]]


def test_what_is_found_on_the_way_is_kept_of_the_steps_ahead_too() -> None:
    """As far as they are of the same episode: of row 0's window, K = 2, rows 0 to 2, and not row 3, where none is."""
    replay = filled([[(0, 0, 0.0), (1, 1, 0.0), (2, 2, 1.0)], [(4, 3, 0.0)]], [3, 5], 0.5)
    learner, *_ = table_learner(6, 4, gamma=0.5, k=2, **LOWER)
    learner.keep_notes(replay)
    window = replay.window(torch.tensor([0]), torch.tensor([0]), learner.reach)
    learner.bounds(window, learner.values(replay, window))
    assert known_of(learner, all_rows(learner, replay)).tolist() == pytest.approx([0.25, 0.5, 1.0, -np.inf])
    assert learner.crossings is not None
    assert int(learner.crossings.worth[:-1].isfinite().sum()) == 3


def test_a_step_mixes_what_is_found_with_what_was_known() -> None:
    """What came of (0, 0) is 4, and later 0: of the sample itself and of a step ahead."""
    for rows in ([0], [3]):
        replay = filled([[(0, 0, 4.0)], [(1, 0, 0.0), (0, 0, 0.0)]], [2, 2], 1.0)
        learner, *_ = table_learner(3, 4, gamma=1.0, k=2, crossing_step=0.25, **LOWER)
        learner.keep_notes(replay)
        first = replay.window(torch.tensor(rows), torch.tensor([0]), learner.reach)
        again = replay.window(torch.tensor([2]), torch.tensor([0]), learner.reach)
        learner.bounds(first, learner.values(replay, first))
        _, lower, *_ = learner.bounds(again, learner.values(replay, again))
        assert lower.item() == pytest.approx(3.0 if rows == [0] else 0.0)
        assert known_of(learner, all_rows(learner, replay)).tolist() == pytest.approx([lower.item()] * 3)


def test_a_target_network_that_changes_is_followed() -> None:
    gamma, states = 0.8, 9
    rng = np.random.default_rng(3)
    p, r = game(rng, states)
    episodes = games(p, r, rng, 4)
    replay = filled(episodes, [states - 1] * 4, gamma)
    learner, _, target = table_learner(states, 4, gamma=gamma, k=1, **LOWER)
    learner.keep_notes(replay)
    window = all_rows(learner, replay)
    for scale in (9.0, 1.0):
        q = scale * rng.normal(size=(states, 4))
        with torch.no_grad():
            target.copy_(torch.tensor(q))
        for _ in range(150):
            learner.bounds(window, learner.values(replay, window))
        expected = value_iteration(episodes, [states - 1] * 4, True, q, gamma)
        steps = [step[:2] for episode in episodes for step in episode]
        assert known_of(learner, window).tolist() == pytest.approx([expected[step] for step in steps], abs=1e-4)


def test_of_a_cut_that_is_stored_as_an_end_only_the_return_speaks() -> None:
    """One step costs 1, and what follows is unknown: from 0 by way of 1 one has what Q- says."""
    replay = filled([[(1, 0, -1.0)], [(0, 0, -1.0), (1, 0, -1.0), (2, 0, 0.0)]], [2, 3], 1.0)
    learner, _, target = table_learner(4, 4, gamma=1.0, k=0, cut_return="mean_q", **LOWER)
    with torch.no_grad():
        target.fill_(-10.0)
    learner.keep_notes(replay)
    _, lower, *_ = learner.bounds(*(window := all_rows(learner, replay), learner.values(replay, window)))
    assert lower.tolist() == pytest.approx([-np.inf, -11.0, -11.0, -np.inf])


def test_the_return_is_kept_of_the_steps_ahead_too() -> None:
    """In whatever order they are asked."""
    for order in ([0, 1], [1, 0]):
        replay = filled([[(0, 0, 0.0), (1, 0, 0.0), (2, 0, 0.0), (3, 0, 1.0)]], [4], 1.0)
        learner, *_ = table_learner(5, 4, gamma=1.0, k=1, **LOWER | {"use_return": True})
        learner.keep_notes(replay)
        for row in order:
            window = replay.window(torch.tensor([row]), torch.tensor([0]), learner.reach)
            learner.bounds(window, learner.values(replay, window))
        assert known_of(learner, all_rows(learner, replay))[:3].tolist() == [1.0] * 3


def test_the_return_is_kept_where_it_is_a_bound() -> None:
    """And with it all who come there have it at once."""
    for use_return, expected in ((True, 0.25), (False, 0.0)):
        replay = filled([[(0, 0, 0.0), (1, 0, 0.0), (2, 0, 1.0)]], [3], 0.5)
        learner, *_ = table_learner(4, 4, gamma=0.5, k=0, **LOWER | {"use_return": use_return})
        learner.keep_notes(replay)
        _, lower, *_ = learner.bounds(*(window := all_rows(learner, replay), learner.values(replay, window)))
        assert lower[0].item() == pytest.approx(expected)
        assert known_of(learner, window)[0].item() == pytest.approx(expected)


# ------------------------------------------------------------------------------------------------------------- the keys


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), stack=st.integers(1, 4), dtype=st.sampled_from(["uint8", "float32", "bool"]))
def test_two_states_have_the_same_key_if_and_only_if_they_are_the_same(seed: int, stack: int, dtype: str) -> None:
    """Round the ring and more, with blank frames before a life began, and frames of nothing but 0."""
    rng = np.random.default_rng(seed)
    replay = Replay(60, 2, (1, 2, 1), np.dtype(dtype), stack, 3, 0.9, CPU)
    frames = lambda: rng.integers(0, 2, (2, 1, 2, 1)).astype(dtype)  # noqa: E731
    late = Replay(60, 2, (1, 2, 1), np.dtype(dtype), stack, 3, 0.9, CPU)
    replay.keep_keys()
    first = frames()
    for each in (replay, late):
        each.start(first)
    for _ in range(int(rng.integers(1, 70))):
        ends = rng.random(2) < 0.2
        step = (rng.integers(0, 3, 2), np.zeros(2), ends == ends, ends, ends & ~ends, frames(), ends, np.zeros(2))
        for each in (replay, late):
            each.append(*step)
    late.keep_keys()
    times = torch.arange(int(replay.oldest), replay.head).repeat_interleave(2)
    envs = torch.arange(2).repeat(len(times) // 2)
    learner, *_ = table_learner(1, 1)
    window = replay.window(times, envs, learner.reach)
    rows = torch.cat([window.rows_BS[:, None], window.ahead_rows_BAS[:, :1]], 1).flatten(0, 1)
    contents = replay.by_row.flatten(1)[rows.clamp(min=0)].double()
    states = torch.where(rows[..., None] >= 0, contents, -1.0).flatten(1)
    same = (states[:, None] == states[None]).all(-1)
    keys = replay.state_keys(rows)
    assert torch.equal(keys[:, None] == keys[None], same)
    assert torch.equal(keys, late.state_keys(rows)), "made at once of what the ring holds"
    assert replay._keys is not None
    replay._keys.keys.zero_()
    replay.reread()
    assert torch.equal(keys, replay.state_keys(rows))


# ------------------------------------------------------------------------------------------------------------ the table


def table(places: int | None = None) -> Crossings:
    replay = Replay(100, 1, (1,), np.dtype(np.uint8), 1, 3, 0.9, CPU)
    replay.start(np.zeros((1, 1), np.uint8))
    crossings = Crossings(replay)
    crossings.places = places or crossings.places
    return crossings


def kept(crossings: Crossings, key: int) -> list[float]:
    return crossings.known(torch.tensor([key]))[0].tolist()


def put(crossings: Crossings, *entries: tuple[int, int, float]) -> None:
    crossings.keep(*map(torch.tensor, zip(*entries, strict=True)))


def test_a_table_knows_what_it_was_told_and_nothing_else() -> None:
    crossings, no = table(), -np.inf
    put(crossings, (7 << 30, 1, 0.5), (7 << 30, 2, 0.25), (9 << 30, 0, no))
    assert kept(crossings, 7 << 30) == [no, 0.5, 0.25]
    assert kept(crossings, 9 << 30) == kept(crossings, 0) == kept(crossings, -1) == [no] * 3
    put(crossings, (7 << 30, 1, 0.125), (7 << 30, 2, no))
    assert kept(crossings, 7 << 30) == [no, 0.125, 0.25], "replaced, not raised, and not by nothing"


def test_of_two_states_with_one_place_the_newer_stays_and_inherits_nothing() -> None:
    crossings, no = table(places=1), -np.inf
    put(crossings, (5, 0, 1.0), (5, 1, 2.0))
    put(crossings, (6, 1, 3.0))
    assert kept(crossings, 6) == [no, 3.0, no]
    assert kept(crossings, 5) == [1.0, no, no], "an action that the other has not tried is still there"
    put(crossings, (8, 2, 8.5), (9, 2, 9.5), (8, 1, 1.5))
    assert (kept(crossings, 8), kept(crossings, 9)) == ([no, 1.5, no], [no, no, 9.5]), "of several at once the last"


def test_what_the_replay_forgets_is_forgotten() -> None:
    """Nobody could look at it again: what was once thought of it would never be mended."""
    crossings, no = table(), -np.inf
    put(crossings, (7, 0, 1.0), (7, 1, 2.0))
    crossings.replay.clock += 60
    put(crossings, (7, 1, 3.0))
    crossings.replay.clock += 39
    assert kept(crossings, 7) == [1.0, 3.0, no]
    crossings.replay.clock += 1
    assert kept(crossings, 7) == [no, 3.0, no]


def test_trajectories_cross_where_another_action_is_known_than_the_one_that_was_taken() -> None:
    crossings = table()
    put(crossings, (1 << 40, 1, 4.0), (2 << 40, 0, 4.0), (2 << 40, 2, 4.0))
    known = crossings.known(torch.tensor([[1 << 40, 2 << 40, 2 << 40], [1 << 40, 3 << 40, 1 << 40]]))
    acted = torch.tensor([[True, True, False], [True, True, False]])
    crossings.count(known, torch.tensor([[1, 2, 2], [0, 0, 0]]), acted)
    assert crossings.share() == pytest.approx(2 / 4)
    assert crossings.share() == 0.0, "since the last time"


def test_what_it_takes_is_what_is_reckoned_with() -> None:
    crossings = table()
    taken = sum(tensor.nbytes for tensor in crossings.state().values()) + 100 * 8  # and the frames' keys
    config = preset("crossings").replace(priority="none")
    assert needed_notes(config, 3) == Crossings.numbers_per_row(3)
    assert taken == pytest.approx(4 * Crossings.numbers_per_row(3) * 100, abs=100)


# -------------------------------------------------------------------------------------------------------- what it gives


def test_reward_travels_in_fewer_updates_than_along_one_trajectory() -> None:
    """On the grid of docs/stochastic.md, where trajectories cross at every step."""
    from stochastic import learned

    assert 0 < learned(0, 0.0, 100, **LOWER).reached < 80
    assert not learned(0, 0.0, 100, **LOWER | {"horizon": "window"}).reached
