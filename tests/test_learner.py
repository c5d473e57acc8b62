"""The learner against formulas, a textbook loop, and Markov decision processes that are solved exactly."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tightrope.bounds import lower_bounds, upper_bounds
from tightrope.config import Config, preset
from tightrope.learner import Batch, Learner
from tightrope.network import QNetwork, build_network
from tightrope.optimisers import RMSProp
from tightrope.replay import Reach, Replay, Window
from tightrope.run import Description, RunFolder
from tightrope.trainer import Trainer, epsilon_at


def test_rmsprop_is_deepminds_formula() -> None:
    rng = np.random.default_rng(0)
    w = rng.normal(size=5)
    parameter = nn.Parameter(torch.tensor(w))
    optimiser = RMSProp([parameter], 0.95, 0.01)
    g1, g2 = np.zeros(5), np.zeros(5)
    for _ in range(20):
        g = rng.normal(size=5)
        g1 = 0.95 * g1 + 0.05 * g
        g2 = 0.95 * g2 + 0.05 * g * g
        w = w - 0.01 * g / np.sqrt(g2 - g1 * g1 + 0.01)
        parameter.grad = torch.tensor(g)
        optimiser.step(0.01)
        np.testing.assert_allclose(parameter.detach().numpy(), w, rtol=1e-12)


def test_the_papers_network() -> None:
    """Section 5 of the paper: 32 8x8/4, 64 4x4/2, 64 3x3/1, 512, one output for each action."""
    network = build_network("paper", (4, 84, 84), 18, 1 / 255, 0)
    expected = (4 * 8 * 8 * 32 + 32) + (32 * 4 * 4 * 64 + 64) + (64 * 3 * 3 * 64 + 64) + (7 * 7 * 64 * 512 + 512)
    expected += 512 * 18 + 18
    assert sum(p.numel() for p in network.parameters()) == expected == 1_693_362
    x = torch.zeros(2, 4, 84, 84, dtype=torch.uint8)
    shapes = []
    for part in network.body.children():
        x = part(x.float())
        shapes.append(tuple(x.shape[1:]))
    assert shapes[::2][:3] == [(32, 20, 20), (64, 9, 9), (64, 7, 7)]
    assert shapes[-1] == (18,)


def test_the_released_programs_initial_weights() -> None:
    network = build_network("paper", (4, 84, 84), 6, 1 / 255, 3)
    for part in network.modules():
        if isinstance(part, nn.Conv2d | nn.Linear):
            limit = math.sqrt(3 / part.weight[0].numel())
            assert part.weight.abs().max() <= limit
            assert part.weight.std().item() == pytest.approx(limit / math.sqrt(3), rel=0.1), "uniform"
            assert (part.bias == 0.1).all()


# ------------------------------------------------------------------------------------------- one update, by hand


class Table(nn.Module):
    """A Q-function that is a table: the state is its number."""

    def __init__(self, states: int, actions: int, *quantiles: int) -> None:
        super().__init__()
        self.q = nn.Parameter(torch.zeros(states, actions, *quantiles))

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return self.q[states[:, 0].long()]


def table_learner(states: int, actions: int, **fields: Any) -> tuple[Learner, torch.Tensor, torch.Tensor]:
    config = preset("maze").replace(**{"batch_size": 64} | fields)
    learner = Learner(QNetwork(Table(states, actions), 1.0), config, torch.device("cpu"), 0)
    online, target = (next(iter(net.parameters())) for net in (learner.online, learner.target))
    return learner, online, target


def filled(
    episodes: list[list[tuple[int, int, float]]],
    last: list[int],
    gamma: float,
    terminal: bool = True,
    rows: int = 4096,
    actions: int = 4,
) -> Replay:
    """A replay of one environment with these (state, action, reward) episodes and the state after each."""
    replay = Replay(rows, 1, (1,), np.dtype(np.float32), 1, actions, gamma, torch.device("cpu"))
    frame = lambda s: np.full((1, 1), s, np.float32)  # noqa: E731
    no, yes = np.array([False]), np.array([True])
    replay.start(frame(episodes[0][0][0]))
    for i, episode in enumerate(episodes):
        for t, (_, a, r) in enumerate(episode):
            end = t == len(episode) - 1
            following = last[i] if end else episode[t + 1][0]
            replay.append(np.array([a]), np.array([r]), yes, yes if end and terminal else no,
                          yes if end and not terminal else no, frame(following), no,
                          np.array([0.0 if terminal else np.nan]))  # fmt: skip
        if i + 1 < len(episodes):
            replay.append(np.array([0]), np.array([0.0]), no, no, no, frame(episodes[i + 1][0][0]), yes, np.zeros(1))
    return replay


def batch_of(learner: Learner, replay: Replay, window: Window) -> Batch:
    return Batch(window.rows_BS, window.actions_B, *learner.bounds(window, learner.values(replay, window)))


def test_one_update_by_hand() -> None:
    """Three steps, K = 1, gamma 0.5, lambda 4; every number below is worked out on paper."""
    learner, online, target = table_learner(4, 2, k=1, gamma=0.5, lam=4.0, learning_rate=1.0, rms_decay=0.0,
                                            rms_epsilon=1.0, error_clip=0.0)  # fmt: skip
    replay = filled([[(0, 0, 0.0), (1, 1, 0.0), (2, 0, 1.0)]], [3], 0.5)
    with torch.no_grad():
        target.copy_(torch.tensor([[0.2, 0.0], [0.0, 0.1], [0.4, 0.0], [9.0, 9.0]]))
        online.copy_(torch.tensor([[0.0, 0.0], [0.0, 0.0], [3.0, 0.0], [0.0, 0.0]]))
    window = replay.window(torch.tensor([0, 1, 2]), torch.tensor([0, 0, 0]), learner.reach)
    y, low, high, by_return, *_ = learner.bounds(window, learner.values(replay, window))
    # y: 0 + 0.5 * 0.1; 0 + 0.5 * 0.4; 1 (terminal).
    assert y.tolist() == pytest.approx([0.05, 0.2, 1.0])
    # L_1: 0 + 0 + 0.25 * 0.4 = 0.1; 0 + 0.5 * 1 = 0.5; none. R: 0.25, 0.5, 1.
    assert low.tolist() == pytest.approx([0.25, 0.5, 1.0])
    # R is above both y and L in the first only; in the others it is one of them.
    assert by_return.tolist() == [True, False, False]
    # U_1 of the last: (Q(s_0, a_0) - 0 - 0) / 0.25 = 0.8; the others have no predecessor two steps back.
    assert high.tolist() == pytest.approx([math.inf, math.inf, 0.8])
    learner.learn(replay, batch_of(learner, replay, window))
    # (0.05 + 4 * 0.25) / 5 = 0.21; (0.2 + 4 * 0.5) / 5 = 0.44; and Q = 3 > U: (1 + 4 * 0.8) / 5 = 0.84.
    goals = {(0, 0): 0.21, (1, 1): 0.44, (2, 0): 0.84}
    before = {(0, 0): 0.0, (1, 1): 0.0, (2, 0): 3.0}
    for at, goal in goals.items():
        gradient = before[at] - goal
        # rms_decay 0: both averages are the gradient itself, so the root is sqrt(g^2 - g^2 + 1) = 1.
        assert online[at].item() == pytest.approx(before[at] - gradient, abs=1e-6)
    told = learner.read_telemetry()
    assert told["lower_violated"] == pytest.approx(2 / 3)
    assert told["lower_gap"] == pytest.approx((0.25 + 0.5) / 2)
    assert told["upper_violated"] == pytest.approx(1 / 3)
    assert told["upper_gap"] == pytest.approx(2.2)
    assert told["return_tightest"] == pytest.approx(1 / 3)


def test_errors_are_clipped_and_summed() -> None:
    learner, online, _ = table_learner(2, 2, bounds=False, learning_rate=1.0, rms_decay=0.0, rms_epsilon=1.0)
    replay = filled([[(0, 0, 5.0)]], [1], 0.99)
    window = replay.window(torch.tensor([0, 0, 0]), torch.tensor([0, 0, 0]), learner.reach)
    learner.learn(replay, batch_of(learner, replay, window))
    # Three samples, each with an error of -5 clipped to -1: the gradient is -3, the root 1.
    assert online[0, 0].item() == pytest.approx(3.0)


def test_without_rescaling_the_gradient_grows_with_the_penalty() -> None:
    for rescale, expected in ((True, 0.2 + 0.8), (False, 1.0 + 4 * 1.0)):
        learner, online, _ = table_learner(3, 1, k=1, lam=4.0, gamma=1.0, use_return=False,
                                           rescale=rescale, learning_rate=1.0, rms_decay=0.0, rms_epsilon=1.0,
                                           error_clip=0.0)  # fmt: skip
        with torch.no_grad():
            learner.target.body.q.copy_(torch.tensor([[0.0], [1.0], [1.0]]))  # type: ignore[operator, union-attr]
        replay = filled([[(0, 0, 0.0), (1, 0, 0.0), (2, 0, 0.0)]], [2], 1.0, terminal=False)
        learner.learn(
            replay, batch_of(learner, replay, replay.window(torch.tensor([0]), torch.tensor([0]), learner.reach))
        )
        # y = 1 and L = 1, Q = 0: pulled by 1 with rescaling, by 1 + 4 without.
        assert online[0, 0].item() == pytest.approx(expected)


def test_released_end_of_episode_has_the_return_for_target_and_no_bounds() -> None:
    learner, _, target = table_learner(4, 1, k=3, gamma=0.5, upper_from=0, bounds_at_end=False,
                                       cut_return="mean_q")  # fmt: skip
    with torch.no_grad():
        target.fill_(-5.0)  # absurdly low, so that every upper bound would bind
    replay = filled([[(0, 0, 0.0), (1, 0, 0.0), (2, 0, 1.0)]], [3], 0.5)
    replay.returns[2, 0] = 7.0  # as if closed with a value
    window = replay.window(torch.tensor([1, 2]), torch.tensor([0, 0]), learner.reach)
    y, low, high, *_ = learner.bounds(window, learner.values(replay, window))
    assert y[1] == 7.0
    assert (low[1], high[1]) == (-math.inf, math.inf)
    assert low[0] == 0.5
    assert high[0] < 0


# --------------------------------------------------------------------------------------- reward reaches the start


@pytest.mark.parametrize("length", [10, 23, 40])
@pytest.mark.parametrize(
    ("fields", "sweeps"),
    [
        ({"bounds": False}, lambda p: p),
        *[({"k": k, "use_return": False}, lambda p, k=k: math.ceil(p / (k + 1))) for k in (1, 4, 8)],
        ({"k": 4, "use_return": True}, lambda p: 1),
    ],
    ids=["dqn", "K=1", "K=4", "K=8", "with R"],
)
def test_sweeps_until_reward_reaches_the_start(length: int, fields: dict[str, Any], sweeps: Any) -> None:
    """A chain of P steps, one reward at its end, a table for Q; in a sweep every state is updated once."""
    learner, online, target = table_learner(
        length + 1, 1, gamma=0.99, learning_rate=1.0, rms_decay=0.0, rms_epsilon=1.0, error_clip=0.0, **fields
    )
    replay = filled([[(s, 0, float(s == length - 1)) for s in range(length)]], [length], 0.99)
    rows = torch.arange(length)
    sweep = 0
    while online[0, 0].item() <= 1e-6:
        sweep += 1
        learner.learn(replay, batch_of(learner, replay, replay.window(rows, torch.zeros_like(rows), learner.reach)))
        with torch.no_grad():
            target.copy_(online)
    assert sweep == sweeps(length)


# ------------------------------------------------------------------------------------------- what the bounds claim


def random_mdp(rng: np.random.Generator, states: int, actions: int, branches: int) -> tuple[np.ndarray, np.ndarray]:
    """Transition probabilities [s, a, s'] with so many successors each, and rewards [s, a]."""
    p = np.zeros((states, actions, states))
    for s in range(states):
        for a in range(actions):
            to = rng.choice(states, branches, replace=False)
            p[s, a, to] = rng.dirichlet(np.ones(branches))
    return p, rng.choice([-1.0, 0.0, 0.0, 1.0], size=(states, actions))


def solve(p: np.ndarray, r: np.ndarray, gamma: float, final: int) -> np.ndarray:
    """Q* by value iteration; `final` ends the game."""
    q = np.zeros_like(r)
    for _ in range(5000):
        v = q.max(1)
        v[final] = 0.0
        q = r + gamma * p @ v
    return q


def wander(p: np.ndarray, r: np.ndarray, final: int, rng: np.random.Generator) -> list[tuple[int, int, float]]:
    s, steps = int(rng.integers(1, len(r))), []
    while s != final and len(steps) < 60:
        a = int(rng.integers(r.shape[1]))
        steps.append((s, a, float(r[s, a])))
        s = int(rng.choice(len(r), p=p[s, a]))
    return steps if s == final else []


@pytest.mark.parametrize("seed", range(5))
def test_the_optimal_values_of_a_deterministic_mdp_violate_no_bound(seed: int) -> None:
    rng = np.random.default_rng(seed)
    p, r = random_mdp(rng, 8, 3, 1)
    q = solve(p, r, 0.9, final=0)
    learner, online, target = table_learner(8, 3, k=8, gamma=0.9)
    with torch.no_grad():
        for table in (online, target):
            table.copy_(torch.tensor(q))
    episodes = [e for e in (wander(p, r, 0, rng) for _ in range(200)) if e]
    assert len(episodes) > 10
    replay = filled(episodes, [0] * len(episodes), 0.9)
    rows = torch.arange(replay.head)
    rows = rows[replay.valid_centres(rows, torch.zeros_like(rows), learner.reach)]
    window = replay.window(rows, torch.zeros_like(rows), learner.reach)
    y, low, high, *_ = learner.bounds(window, learner.values(replay, window))
    values = learner.online.taken(replay.by_row, window.rows_BS, window.actions_B)
    assert torch.isfinite(low).float().mean() > 0.5
    assert torch.isfinite(high).float().mean() > 0.2
    assert (low <= values + 1e-4).all()
    assert (high >= values - 1e-3).all()
    torch.testing.assert_close(y, values, atol=1e-4, rtol=1e-4)


def test_in_a_stochastic_mdp_returns_do_exceed_the_optimal_values() -> None:
    """What the paper is silent on: a lucky return is no lower bound. docs/stochastic.md gives the figures."""
    from stochastic import share_of_wrong_bounds

    found = share_of_wrong_bounds(seed=0, episodes=2000)
    assert found.return_above > 0.05
    assert found.lower_above > 0.05
    calm = share_of_wrong_bounds(seed=0, episodes=200, slip=0.0)
    assert (calm.return_above, calm.lower_above, calm.upper_below) == (0, 0, 0)


# -------------------------------------------------------------------------------------- the loop, whatever N is


def test_schedules_by_hand() -> None:
    config = preset("paper")
    assert epsilon_at(0, config) == 1.0
    assert epsilon_at(500_000, config) == pytest.approx(0.55)
    assert epsilon_at(1_000_000, config) == pytest.approx(0.1)
    assert epsilon_at(9_000_000, config) == pytest.approx(0.1)
    assert [config.updates_due(n) for n in (0, 3, 4, 7, 8)] == [0, 0, 1, 1, 2]
    assert config.target_every_updates == 2500
    # 10M frames are 2.5M steps: 2.45M after the start, an update for every 4.
    assert config.updates_due(config.frames // 4 - config.learn_start_steps) == 612_500


@pytest.mark.parametrize("num_envs", [1, 4, 7])
def test_updates_per_step_do_not_depend_on_the_number_of_environments(tmp_path: Path, num_envs: int) -> None:
    config = preset("classic").replace(num_envs=num_envs, frames=2000, learn_start_steps=200, update_every_steps=4,
                                       eval_every_epochs=0, save_replay=False)  # fmt: skip
    description = Description("CartPole-v1", "classic", 0, "cpu", config)
    folder = RunFolder(tmp_path / "run")
    trainer = Trainer(description, folder)
    folder.create(description)
    trainer.start()
    list(trainer.train())
    assert trainer.started_at is not None
    assert 200 <= trainer.started_at < 200 + num_envs
    assert trainer.learner.updates == (trainer.steps - trainer.started_at) // 4


def test_one_environment_is_the_textbook_loop(tmp_path: Path) -> None:
    """Plain DQN, written again with lists and no ring: the same actions, the same weights.

    Only the random draws are shared: the actor draws a coin and an action for each step, the sampler a row for each
    sample (and spare ones for rows that are not transitions).
    """
    config = preset("classic").replace(num_envs=1, frames=1500, learn_start_steps=100, bounds=False, batch_size=8,
                                       update_every_steps=4, target_every_steps=40, epsilon_decay_steps=800,
                                       eval_every_epochs=0)  # fmt: skip
    description = Description("CartPole-v1", "classic", 5, "cpu", config)
    folder = RunFolder(tmp_path / "run")
    ours = Trainer(description, folder)
    folder.create(description)
    ours.start()

    actions, weights = textbook(ours, config)

    list(ours.train())
    rows = [(int(a), bool(f & 8)) for a, f in zip(ours.replay.actions[:, 0], ours.replay.flags[:, 0], strict=True)]
    assert [a for a, transition in rows if transition] == actions
    for found, expected in zip(ours.learner.online.parameters(), weights, strict=True):
        # 350 updates of float32: sums in another order differ in the last places.
        torch.testing.assert_close(found.detach(), expected, rtol=1e-3, atol=5e-5)


def textbook(like: Trainer, config: Config) -> tuple[list[int], list[torch.Tensor]]:
    import copy

    import gymnasium

    coins = torch.Generator().manual_seed(like.sides[0].actor.generator.initial_seed())
    draws = torch.Generator().manual_seed(like.learner.generator.initial_seed())
    online = copy.deepcopy(like.learner.online)
    target = copy.deepcopy(online)
    parameters = list(online.parameters())
    g1, g2 = [torch.zeros_like(p) for p in parameters], [torch.zeros_like(p) for p in parameters]
    env = gymnasium.make("CartPole-v1")
    state, _ = env.reset(seed=like.sides[0].game._log.seed_of(0))  # type: ignore[attr-defined]
    memory: list[tuple[Any, int, float, Any, bool] | None] = []  # None: the row of a reset
    actions: list[int] = []
    updates = 0
    while len(actions) < config.frames:
        since = len(actions) - config.learn_start_steps
        epsilon = 1.0 - 0.9 * min(1.0, max(0, since) / config.epsilon_decay_steps)
        coin = torch.rand(1, generator=coins).item()
        any_action = int(torch.randint(2, (1,), generator=coins))
        with torch.no_grad():
            best = int(online(torch.tensor(state)[None]).argmax())
        action = any_action if coin < epsilon or epsilon >= 1 else best
        following, reward, terminated, truncated, _ = env.step(action)
        memory.append((state, action, float(reward), following, terminated))
        actions.append(action)
        state = following
        since += 1
        if since > 0 and since % 4 == 0:
            chances = torch.rand(2, 32, dtype=torch.float64, generator=draws)
            drawn = [memory[int(c * len(memory))] for c in chances[0]]
            batch = [row for row in drawn if row is not None][:8]
            s, a, r, s2, end = (np.array(x) for x in zip(*batch, strict=True))
            with torch.no_grad():
                ahead = target(torch.tensor(s2)).max(1).values
                y = torch.tensor(r, dtype=torch.float32) + 0.99 * ahead * torch.tensor(~end)
            error = online(torch.tensor(s))[torch.arange(8), torch.tensor(a)] - y
            # Half the squared error, clipped: the Huber loss, summed.
            loss = torch.where(error.abs() <= 1, 0.5 * error**2, error.abs() - 0.5).sum()
            gradients = torch.autograd.grad(loss, parameters)
            with torch.no_grad():
                for p, g, m, v in zip(parameters, gradients, g1, g2, strict=True):
                    m.mul_(config.rms_decay).add_((1 - config.rms_decay) * g)
                    v.mul_(config.rms_decay).add_((1 - config.rms_decay) * g * g)
                    p -= config.learning_rate * g / (v - m * m + config.rms_epsilon).sqrt()
            updates += 1
            if updates % (config.target_every_steps // 4) == 0:
                target = copy.deepcopy(online)
        if (terminated or truncated) and len(actions) < config.frames:
            # The reset is a row of its own in our ring, and our actor draws for it too.
            torch.rand(1, generator=coins)
            torch.randint(2, (1,), generator=coins)
            state, _ = env.reset()
            memory.append(None)
    return actions, [p.detach() for p in parameters]


def test_bounds_functions_take_what_the_window_gives() -> None:
    """Shapes for K = 0: nothing behind, one state ahead."""
    replay = filled([[(0, 0, 0.0), (1, 0, 1.0)]], [2], 0.9)
    window = replay.window(torch.tensor([0]), torch.tensor([0]), Reach())
    ahead = lower_bounds(window.rewards_BH, window.terminal_BH, window.ahead_exists_BA, window.ahead_offsets_BA,
                         torch.tensor([[2.0]]), 0.9)  # fmt: skip
    assert ahead.tolist() == [[pytest.approx(1.8)]]
    behind = upper_bounds(window.rewards_BM, window.behind_exists_BC, window.behind_offsets_BC, torch.zeros(1, 0), 0.9)
    assert behind.shape == (1, 0)


def test_the_target_network_follows_though_updates_come_in_other_steps_than_before() -> None:
    """A run that made single groups of 4 goes on with graphs of 20: 1,004 updates are no multiple of that."""
    learner, online, target = table_learner(3, 1, target_every_steps=10_000, update_every_steps=4, num_envs=1)
    replay = filled([[(0, 0, 0.0), (1, 0, 1.0)]] * 3, [2] * 3, 0.9)
    learner.group_size, learner.at_once = 4, 20
    made: list[int] = []
    learner.group = lambda replay: made.append(4)  # type: ignore[method-assign, assignment]
    learner.captured = lambda: made.append(20)
    learner.updates = 1_004
    with torch.no_grad():
        online.fill_(7.0)
    while learner.updates < 2_500:
        assert target[0, 0].item() == 0.0
        learner.update(replay)
    assert learner.updates == 2_500, "in step again before the target network follows"
    assert made == [4] * 4 + [20] * 74
    assert target[0, 0].item() == 7.0
