"""Each switch against its paper's formula or a case worked out by hand; test_pairs.py trains them together."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import tightrope
from oracle import Episode, PaperUpdate, laid_out, largest_bound, n_step_target
from test_bounds import lives_of_two, values_of
from test_learner import Table, filled, table_learner
from tightrope.bounds import lower_bounds, noise_growth, tighten
from tightrope.config import ADDED_LATER, Config, learning, preset
from tightrope.constraints import Excess, Luck, Settling, chance_of_violation
from tightrope.errors import TightropeError
from tightrope.impala import ResidualBlocks
from tightrope.learner import Batch, Learner
from tightrope.network import Dueling, Form, Implicit, QNetwork, build_network, stacked
from tightrope.optimisers import Adam, limit_gradient
from tightrope.priorities import Priorities, importance
from tightrope.replay import FINISHED, Reach, Replay
from tightrope.targets import quantile_gradient, ramp

CPU = torch.device("cpu")


# --------------------------------------------------------------------------------------- no switch: nothing has changed


def played(num_envs: int, steps: int, seed: int) -> Replay:
    """Made-up experience of small images: episodes of every length that end, are cut off, or go on."""
    rng = np.random.default_rng(seed)
    replay = Replay(600, num_envs, (1, 6, 6), np.dtype(np.uint8), 2, 3, 0.99, CPU)
    frames = lambda: rng.integers(0, 5, (num_envs, 1, 6, 6), dtype=np.uint8)  # noqa: E731
    replay.start(frames())
    for _ in range(steps):
        terminal = rng.random(num_envs) < 0.06
        cut = ~terminal & (rng.random(num_envs) < 0.02)
        # An episode that ends here loses a life: the next begins at the very next row.
        replay.append(
            rng.integers(0, 3, num_envs), rng.choice([0.0, 0.0, 1.0, -1.0], num_envs), np.ones(num_envs, dtype=bool),
            terminal, cut, frames(), terminal | cut, np.where(cut, np.nan, 0.0),
        )  # fmt: skip
    return replay


@pytest.mark.parametrize("name", ["paper", "dqn", "released", "released-close"])
def test_without_switches_the_update_is_bit_for_bit_what_it_was(name: str) -> None:
    config = preset(name).replace(num_envs=4, batch_size=16, replay_rows=600, learn_start_steps=50, skip_start_rows=0,
                                  target_every_steps=80, learning_rate=0.01)  # fmt: skip
    replay = played(4, 200, 0)  # one and a third times round the ring
    network = build_network("small", (2, 6, 6), 3, 1.0, 5)
    before = PaperUpdate(network.body, config)
    learner = Learner(network, config, CPU, 1)
    learner.keep_notes(replay)
    draws = torch.Generator().manual_seed(1)
    start = [p.detach().clone() for p in network.parameters()]
    for update in range(1, 301):
        learner.update(replay)
        before.update(replay, replay.sample(16, learner.reach, replay.draw(16, learner.reach, draws)))
        if update % 20 == 0:
            before.follow()
    for found, expected, first in zip(network.body.parameters(), before.online.parameters(), start, strict=True):
        assert torch.equal(found, expected)
        assert (found - first).abs().max() > 0.01
    for found, expected in zip(learner.target.body.parameters(), before.target.parameters(), strict=True):
        assert torch.equal(found, expected)


def test_a_configuration_from_before_the_switches_is_the_paper() -> None:
    old = {name: value for name, value in preset("paper").to_dict().items() if name not in ADDED_LATER}
    assert learning(Config.stored(old).to_dict()) == learning(preset("paper").to_dict())


# ------------------------------------------------------------------------------------------------------- double DQN


def test_double_the_online_network_picks_and_the_target_network_values() -> None:
    """In y and in L; in U the action is the one that was taken, valued by the target network, double or not."""
    replay = filled([[(0, 0, 0.0), (1, 1, 0.0), (2, 0, 1.0)]], [3], 0.5)
    found = {}
    for double in (False, True):
        learner, online, target = table_learner(4, 2, k=1, gamma=0.5, double=double, use_return=False, upper_from=0)
        with torch.no_grad():
            target.copy_(torch.tensor([[0.2, 0.0], [0.8, 0.1], [0.4, 0.6], [9.0, 9.0]]))
            online.copy_(torch.tensor([[0.0, 0.0], [1.0, 2.0], [7.0, 5.0], [0.0, 0.0]]))
        window = replay.window(torch.tensor([0, 1]), torch.tensor([0, 0]), learner.reach)
        picks = learner.picks(replay, window) if double else None
        y, low, high, *_ = learner.bounds(window, learner.values(replay, window), picks)
        found[double] = (y.tolist(), low.tolist(), high.tolist())
    # Plain: the target network's largest, 0.8 at state 1 and 0.6 at state 2. Double: online prefers 1 and 0, worth 0.1
    # and 0.4 there. L of sample 0 is 0.25 V(2); that of sample 1 ends the episode: 0.5 * 1.
    assert found[False][0] == pytest.approx([0.5 * 0.8, 0.5 * 0.6])
    assert found[True][0] == pytest.approx([0.5 * 0.1, 0.5 * 0.4])
    assert found[False][1] == pytest.approx([0.25 * 0.6, 0.5])
    assert found[True][1] == pytest.approx([0.25 * 0.4, 0.5])
    # U of sample 1: (Q-(0, 0) - 0) / 0.5.
    assert found[False][2] == found[True][2] == pytest.approx([math.inf, 0.4])


# -------------------------------------------------------------------------------------------------- upper bounds ahead


def test_the_bound_ahead_adds_what_the_steps_after_the_first_lost() -> None:
    """Against the best action, with Double DQN the online network's pick; who did better than that lost nothing."""
    replay = filled([[(0, 0, 0.0), (1, 1, 0.0), (2, 0, 0.0), (3, 0, 1.0)]], [4], 0.5)
    for double in (False, True):
        learner, online, target = table_learner(5, 3, k=2, gamma=0.5, double=double, use_return=False, upper_by="ahead")
        with torch.no_grad():
            target.copy_(torch.tensor([[9.0] * 3, [0.8, 0.1, 0.5], [0.4, 0.6, 0.0], [0.2, 0.3, 0.0], [9.0] * 3]))
            online.copy_(torch.tensor([[0.0] * 3, [0.0, 0.0, 1.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0], [0.0] * 3]))
        window = replay.window(torch.tensor([0, 2, 3]), torch.tensor([0, 0, 0]), learner.reach)
        picks = learner.picks(replay, window) if double else None
        _, low, high, *_ = learner.bounds(window, learner.values(replay, window), picks)
        # The best of states 1, 2 and 3 are 0.8, 0.6 and 0.3; with Double DQN those picked, 0.5, 0.0 and 0.2. What was
        # taken is worth 0.1, 0.4 and 0.2 there.
        near, far = (0.25 * 0.0, 0.125 * 0.2) if double else (0.25 * 0.6, 0.125 * 0.3)
        lost_near, lost_far = (0.5 * 0.4, 0.5 * 0.4) if double else (0.5 * 0.7, 0.5 * 0.7 + 0.25 * 0.2)
        assert low[0].item() == pytest.approx(max(near, far))
        assert high[0].item() == pytest.approx(min(near + lost_near, far + lost_far))
        # Of row 2: 2 steps on the game is over: its reward, and what state 3 lost. Of row 3 none.
        assert low[1:].tolist() == pytest.approx([0.5, -math.inf])
        assert high[1:].tolist() == pytest.approx([0.5 + (0.0 if double else 0.5 * 0.1), math.inf])


def test_beside_n_step_targets_no_bound_ahead_is_of_one_step_or_of_the_targets() -> None:
    """One step ahead nothing could have been lost, and the target is a bound on neither side: so 2 steps and 4."""
    replay = filled([[(0, 0, 0.0), (1, 1, 0.0), (2, 0, 0.0), (3, 0, 0.0), (4, 0, 0.0)]], [5], 0.5)
    learner, _, target = table_learner(6, 2, k=3, n_step=3, gamma=0.5, use_return=False, upper_by="ahead")
    with torch.no_grad():
        target.copy_(torch.tensor([[9.0, 9.0], [0.1, 0.0], [2.0, 0.8], [1.0, 0.5], [6.0, 3.0], [9.0, 9.0]]))
    window = replay.window(torch.tensor([0]), torch.tensor([0]), learner.reach)
    y, low, high, *_ = learner.bounds(window, learner.values(replay, window))
    assert y.item() == pytest.approx(0.125 * 1.0)
    assert low.item() == pytest.approx(max(0.5 * 0.1, 0.25 * 2.0, 0.0625 * 6.0))  # 1, 2 and 4 steps
    # State 1 lost 0.1 - 0.0, the others nothing. One step would be 0.05, three 0.175: the least of all.
    assert high.item() == pytest.approx(min(0.25 * 2.0 + 0.5 * 0.1, 0.0625 * 6.0 + 0.5 * 0.1))


def test_what_an_episode_keeps_is_of_the_bounds_that_were_drawn() -> None:
    """Though upper bounds from the steps ahead value the states on the way to them as well."""
    found = {}
    for upper_by in ("behind", "ahead"):
        replay = filled([[(0, 0, 0.0), (1, 0, 7.0), (2, 0, -9.0), (3, 0, 0.0)]], [4], 1.0)
        fields = {"k": 2, "lower_draws": 1, "gamma": 1.0, "horizon": "episode", "use_return": False}
        learner, *_ = table_learner(5, 2, upper_by=upper_by, **fields)
        learner.keep_notes(replay)
        assert learner.episode is not None
        chances = replay.draw(1, learner.reach, learner.generator)._replace(lower=torch.tensor([[0.9]]))
        window = replay.window(torch.tensor([0]), torch.tensor([0]), learner.reach, chances)
        learner.bounds(window, learner.values(replay, window))
        found[upper_by] = learner.episode.state()["episode_bound"].view(-1)[0].item()
    # One step on there is nothing, two steps on a 7, which was not drawn; three steps on 7 - 9.
    assert found == {"behind": 0.0, "ahead": 0.0}


def test_where_the_values_are_right_the_bound_ahead_is_the_value_itself() -> None:
    """In a deterministic game what a step loses is all that keeps a lower bound from being the value."""
    from stochastic import GAMMA, SIDE, games

    q, played = games(0, 40, 0.0)
    goal = SIDE * SIDE - 1
    replay = filled(played, [goal] * len(played), GAMMA)
    learner, _, target = table_learner(SIDE * SIDE, 4, k=6, gamma=GAMMA, use_return=False, upper_by="ahead")
    with torch.no_grad():
        target.copy_(torch.tensor(q))
    rows = torch.arange(replay.head)
    rows = rows[replay.valid_centres(rows, torch.zeros_like(rows), learner.reach)]
    window = replay.window(rows, torch.zeros_like(rows), learner.reach)
    _, low, high, *_ = learner.bounds(window, learner.values(replay, window))
    exist = low.isfinite()
    states = stacked(replay.by_row, window.rows_BS)[:, 0].long()
    value = torch.tensor(q)[states, window.actions_B].to(high.dtype)
    assert exist.sum() > 100
    assert (low < value - 0.01)[exist].sum() > 50, "half of the steps are random, and many of them lose something"
    assert torch.allclose(high[exist], value[exist], atol=1e-5)
    assert high[~exist].isinf().all()


def test_bounds_on_both_sides_of_the_same_steps_keep_the_head_start_and_make_no_gambler() -> None:
    """What luck adds to the one it adds to the other."""
    from stochastic import gamble, learned

    both: dict[str, Any] = {"use_return": False, "upper_by": "ahead"}
    assert learned(0, 0.0, 260, **both).reached
    assert not learned(0, 0.0, 260, bounds=False).reached
    # The risky way is worth 0.4: two steps, so that three-step targets are those to its end.
    for n_step in (1, 3):
        safe, risky = gamble(2_000, n_step=n_step, **both)
        assert safe == pytest.approx(0.5, abs=0.01)
        assert 0.37 < risky < 0.45


# ----------------------------------------------------------------------------------------------------- n-step targets


@settings(max_examples=400, deadline=None)
@given(lives=lives_of_two, n=st.integers(1, 9), k=st.integers(0, 6), rows=st.integers(24, 120), bounds=st.booleans(),
       draws=st.booleans(), gamma=st.sampled_from([0.9, 1.0]), seed=st.integers(0, 99))  # fmt: skip
def test_n_step_targets_are_exact_at_every_end_and_cut(
    lives: list[list[Episode]], n: int, k: int, rows: int, bounds: bool, draws: bool, gamma: float, seed: int
) -> None:
    replay, where, by_frame = laid_out(lives, rows, 2, gamma, seed)
    reach = Reach(k + 1 if bounds else 1, 2, upper=bounds, lower_draws=2 if bounds and draws and k else 0, n_step=n,
                  bounds=bounds)  # fmt: skip
    oldest = max(0, replay.head - rows + 1)
    centres = [(t, env) for (t, env), (e, j) in where.items() if e.first_row + max(0, j - 1) >= oldest]
    if not centres:
        return
    times, envs = map(torch.tensor, zip(*centres, strict=True))
    window = replay.window(times, envs, reach, replay.draw(len(times), reach, torch.Generator().manual_seed(seed)))
    bounds_BA = lower_bounds(
        window.rewards_BH.double(), window.terminal_BH, window.ahead_exists_BA, window.ahead_offsets_BA,
        values_of(stacked(replay.by_row, window.ahead_rows_BAS), by_frame, 0), gamma,
    )  # fmt: skip
    if not bounds:
        assert window.ahead_offsets_BA.shape[1] == 1, "one state is asked for, however far"
    for i, key in enumerate(centres):
        e, j = where[key]
        y = bounds_BA[i, window.target_B[i]].item()
        assert y == pytest.approx(n_step_target(e, j, n, replay.head - e.first_row, gamma), abs=1e-6)


def test_with_n_steps_the_one_step_target_is_a_bound_and_the_target_is_none() -> None:
    """Three steps, no reward but at the end, gamma 1: y over two steps, bounds over one and three."""
    learner, _, target = table_learner(4, 1, k=2, gamma=1.0, n_step=2, use_return=False, use_upper=False)
    with torch.no_grad():
        target.copy_(torch.tensor([[0.0], [5.0], [3.0], [9.0]]))
    replay = filled([[(0, 0, 0.0), (1, 0, 0.0), (2, 0, 1.0)]], [3], 1.0)
    window = replay.window(torch.arange(3), torch.zeros(3, dtype=torch.long), learner.reach)
    y, low, *_ = learner.bounds(window, learner.values(replay, window))
    assert y.tolist() == [3.0, 1.0, 1.0]
    # Sample 0: one step gives 5, three give the 1 at the end. Sample 1: one step gives 3. Sample 2: nothing beside y.
    assert low.tolist() == [5.0, 3.0, -math.inf]


def test_without_horizons_the_return_is_the_only_bound() -> None:
    """The same game with K = 0: no one-step bound of 5 and 3, and one state is asked for beside the sample."""
    learner, _, target = table_learner(4, 1, k=0, gamma=1.0, n_step=2, use_upper=False)
    with torch.no_grad():
        target.copy_(torch.tensor([[0.0], [5.0], [3.0], [9.0]]))
    replay = filled([[(0, 0, 0.0), (1, 0, 0.0), (2, 0, 1.0)]], [3], 1.0)
    window = replay.window(torch.arange(3), torch.zeros(3, dtype=torch.long), learner.reach)
    assert window.ahead_rows_BAS.shape[1] == 1
    y, low, *_ = learner.bounds(window, learner.values(replay, window))
    assert y.tolist() == [3.0, 1.0, 1.0]
    assert low.tolist() == [1.0, 1.0, 1.0]


# ------------------------------------------------------------------------------------------------------- the networks


def test_dueling_is_value_plus_advantage_less_its_mean() -> None:
    head = Dueling(5, 7, 3, 0)
    features = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    value, advantage = head.value(features), head.advantage(features)
    assert value.shape == (4, 1)
    v, a = value.tolist(), advantage.tolist()
    expected = [[v[b][0] + a[b][i] - sum(a[b]) / 3 for i in range(3)] for b in range(4)]
    torch.testing.assert_close(head(features), torch.tensor(expected))
    # So the mean over the actions is the state's value, whatever the advantages are.
    torch.testing.assert_close(head(features).mean(1), value[:, 0])
    with torch.no_grad():
        head.advantage[-1].bias += 100.0  # type: ignore[index, operator]
    torch.testing.assert_close(head(features), torch.tensor(expected), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["paper", "small", "mlp", "impala"])
def test_heads_of_every_network(kind: str) -> None:
    shape = (2, 40, 40) if kind in ("paper", "impala") else (2, 8, 8)
    states = torch.randint(0, 256, (3, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    implicit = Form(quantiles=7, implicit=True), Form(dueling=True, quantiles=7, implicit=True)
    for form in (Form(), Form(dueling=True), Form(quantiles=7), Form(dueling=True, quantiles=7), *implicit):
        network = build_network(kind, shape, 4, 1 / 255, 0, form)
        outputs = network.outputs(states)
        assert outputs.shape == ((3, 4, 7) if form.quantiles else (3, 4))
        assert network(states).shape == (3, 4)
        if form.quantiles:
            torch.testing.assert_close(network(states), outputs.mean(-1))
        if kind in ("small", "mlp"):
            assert (outputs == 0).all(), "these start at zero everywhere, so that reward is seen travelling"
        else:
            assert outputs.std() > 0
        taken = network.taken(states, torch.arange(3)[:, None], torch.tensor([0, 3, 1]))
        assert torch.equal(taken, outputs[torch.arange(3), torch.tensor([0, 3, 1])])


def test_impala_by_its_paper() -> None:
    """Espeholt et al., 2018, figure 3: three stages of a convolution, a pool and two residual blocks of two
    convolutions each, 16, 32 and 32 channels; then, as its successors have it, 6x6 and a layer of 512."""

    def count(width: int) -> int:
        total, channels = 0, 4
        for outputs in (16 * width, 32 * width, 32 * width):
            total += (9 * channels + 1) * outputs + 4 * (9 * outputs + 1) * outputs
            channels = outputs
        return total + (36 * channels + 1) * 512 + 513 * 6

    for width in (1, 2):
        network = build_network("impala", (4, 84, 84), 6, 1 / 255, 0, Form(width=width, spectral_norm=True))
        assert sum(p.numel() for p in network.parameters()) == count(width)
        assert sum(blocks.count for blocks in network.spectral) == 12, "the convolutions of the residual blocks"
    x = torch.zeros(1, 4, 84, 84)
    sides = [x.shape[-1] for part in network.body if (x := part(x)).dim() == 4]
    assert sides == [84, 42, 42, 42, 21, 21, 21, 11, 11, 11, 6]


def test_residual_blocks_by_their_paper() -> None:
    """Two blocks, each the images and what two convolutions of them add, a ReLU before each."""
    blocks = ResidualBlocks(3, spectral=False)
    blocks.initialise(torch.Generator().manual_seed(0))
    with torch.no_grad():
        blocks.bias.copy_(torch.linspace(-1, 1, 12))
    images = torch.randn(2, 3, 7, 7, generator=torch.Generator().manual_seed(1))
    x = images
    layers = []
    for i in range(4):
        layers.append(nn.Conv2d(3, 3, 3, padding=1))
        layers[i].weight = nn.Parameter(blocks.weight[3 * i : 3 * i + 3])
        layers[i].bias = nn.Parameter(blocks.bias[3 * i : 3 * i + 3])
    x = x + layers[1](layers[0](x.relu()).relu())
    x = x + layers[3](layers[2](x.relu()).relu())
    torch.testing.assert_close(blocks(images), x)


def test_spectral_normalisation_divides_by_the_largest_singular_value() -> None:
    blocks = ResidualBlocks(6, spectral=True)
    # Singular values of our choice, the largest well above the next: the iteration comes near by their ratio.
    largest = torch.tensor([3.0, 2.0, 5.0, 0.7])
    rng = np.random.default_rng(0)
    with torch.no_grad():
        for weight, norm in zip(blocks.each(), largest.tolist(), strict=True):
            left, right = (np.linalg.qr(rng.normal(size=(side, 6)))[0] for side in (6, 54))
            matrix = left @ np.diag(norm * np.array([0.5, 1.0, 0.3, 0.2, 0.1, 0.0])) @ right.T
            weight.copy_(torch.from_numpy(matrix).view_as(weight))
    for _ in range(100):
        blocks.iterate()
    torch.testing.assert_close(blocks.norms(), largest, rtol=1e-4, atol=0)
    plain = ResidualBlocks(6, spectral=False)
    with torch.no_grad():
        plain.weight.copy_((blocks.each() / largest[:, None, None, None, None]).flatten(0, 1))
    images = torch.randn(2, 6, 7, 7, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(blocks(images), plain(images), rtol=1e-3, atol=1e-4)
    # A weight that is scaled is the same layer, so the gradient has no part along the weight (Miyato et al., 2018).
    blocks(images).square().sum().backward()
    assert blocks.weight.grad is not None
    for gradient, weight in zip(blocks.weight.grad.chunk(4), blocks.each(), strict=True):
        assert (gradient * weight).sum().abs() < 1e-3 * gradient.norm() * weight.norm()


def test_spectral_normalisation_moves_with_the_weights_and_not_with_the_looks() -> None:
    network = build_network("impala", (1, 8, 8), 2, 1.0, 0, Form(spectral_norm=True))
    states = torch.rand(2, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    first = network(states)
    assert torch.equal(network(states), first)
    before = network.spectral[0].left.clone()
    with torch.no_grad():
        network.spectral[0].weight[0] *= 3
    network.refresh()
    assert not torch.equal(network.spectral[0].left, before)


def test_only_the_papers_own_network_goes_through_the_fused_kernels() -> None:
    fused = pytest.importorskip("tightrope.fused", reason="Triton is for Linux")
    for form, fits in ((Form(), True), (Form(dueling=True), False), (Form(quantiles=8), False)):
        network = build_network("paper", (4, 84, 84), 6, 1 / 255, 0, form)
        assert fused.fits(network, 32, (1, 84, 84), torch.uint8, 4) == fits
    network = build_network("impala", (4, 84, 84), 6, 1 / 255, 0)
    assert not fused.fits(network, 32, (1, 84, 84), torch.uint8, 4)


def test_an_agent_with_another_head_is_saved_and_loaded(tmp_path: Path) -> None:
    agent = tightrope.train("maze", frames=400, learn_start_steps=100, dueling=True, quantiles=4, n_step=3,
                            eval_every_epochs=0, out=tmp_path / "run", quiet=True, device="cpu")  # fmt: skip
    loaded = tightrope.load(tmp_path / "run", device="cpu")
    cells = list(range(5))
    assert agent.q_values(cells).any()
    assert np.array_equal(loaded.q_values(cells), agent.q_values(cells))


def test_a_network_of_ones_own_has_its_own_head() -> None:
    with pytest.raises(TightropeError, match="a network of your own has a head of its own"):
        build_network(lambda shape, actions: Table(3, actions), (1,), 2, 1.0, 0, Form(dueling=True))


# ------------------------------------------------------------------------------------------------ quantiles of a return


@pytest.mark.parametrize("implicit", [False, True])
@pytest.mark.parametrize("width", [1.0, 0.3, 0.0])
def test_the_quantile_gradient_is_that_of_the_quantile_huber_loss(width: float, implicit: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    theta = torch.randn(3, 5, generator=draw, dtype=torch.float64, requires_grad=True)
    targets = torch.randn(3, 4, generator=draw, dtype=torch.float64)
    levels = torch.rand(3, 5, generator=draw, dtype=torch.float64) if implicit else None
    loss = torch.zeros((), dtype=torch.float64)
    for b in range(3):
        for i in range(5):
            for j in range(4):
                u = targets[b, j] - theta[b, i]
                tau = (2 * i + 1) / 10 if levels is None else levels[b, i].item()
                if width == 0:
                    huber = u.abs()
                elif u.abs() <= width:
                    huber = 0.5 * u * u / width
                else:
                    huber = u.abs() - 0.5 * width
                loss = loss + abs(tau - float(u < 0)) * huber / 4
    (expected,) = torch.autograd.grad(loss, theta)
    torch.testing.assert_close(quantile_gradient(theta.detach(), targets, width, levels), expected)


def test_quantiles_find_the_distribution_of_a_random_reward() -> None:
    """One step, reward 0, 1, 2 or 3: the quantiles at 1/8, 3/8, 5/8, 7/8 are these numbers."""
    theta = torch.full((1, 4), 1.5)
    for i in range(4000):
        reward = torch.tensor([[float((i * 7) % 4)]])
        theta -= 0.02 * (1 - i / 4000) * quantile_gradient(theta, reward, 0.0)
    assert theta[0].tolist() == pytest.approx([0, 1, 2, 3], abs=0.05)


def test_implicit_quantiles_by_their_formula() -> None:
    """Dabney et al., 2018, equation 4, and the head behind it."""
    head = Implicit(6, nn.Linear(6, 2), 3)
    draw = torch.Generator().manual_seed(0)
    features, levels = torch.randn(4, 6, generator=draw), torch.rand(4, 3, generator=draw)
    found = head(features, levels)
    assert found.shape == (4, 2, 3)
    weight, bias = (p.detach().numpy().astype(np.float64) for p in head.embedding.parameters())
    for b in range(4):
        for i in range(3):
            cosines = np.array([math.cos(math.pi * n * levels[b, i].item()) for n in range(64)])
            embedded = np.maximum(weight @ cosines + bias, 0)
            expected = head.head(torch.tensor(features[b].numpy() * embedded, dtype=torch.float32))
            torch.testing.assert_close(found[b, :, i], expected, rtol=1e-4, atol=1e-4)
    even = torch.tensor([[1 / 6, 3 / 6, 5 / 6]]).expand(4, -1)
    torch.testing.assert_close(head(features), head(features, even))


def test_levels_are_drawn_anew_one_in_each_part() -> None:
    replay = played(4, 60, 0)
    config = preset("minatar").replace(quantiles=4, implicit=True, batch_size=500)
    learner = Learner(build_network("small", (2, 6, 6), 3, 1.0, 0, Form.of(config)), config, CPU, 0)
    first, second = (learner.draw(replay).levels for _ in range(2))
    assert first is not None
    assert second is not None
    assert not torch.equal(first, second)
    for i in range(4):
        assert i / 4 <= first[:, i].min() < i / 4 + 0.01
        assert (i + 1) / 4 - 0.01 < first[:, i].max() <= (i + 1) / 4
    with pytest.raises(TightropeError, match="needs quantiles"):
        preset("paper").replace(implicit=True)


def quantile_learner(**fields: Any) -> tuple[Learner, torch.Tensor, torch.Tensor]:
    config = preset("maze").replace(**{"quantiles": 3, "batch_size": 64, "gamma": 0.5} | fields)
    network = QNetwork(Table(4, 2, 3), 1.0, form=Form(quantiles=3))
    learner = Learner(network, config, CPU, 0)
    online, target = (next(iter(net.parameters())) for net in (learner.online, learner.target))
    return learner, online, target


@pytest.mark.parametrize("double", [False, True])
def test_the_targets_quantiles_are_the_next_states_and_the_bounds_move_their_mean(double: bool) -> None:
    learner, online, target = quantile_learner(k=1, use_return=False, use_upper=False, double=double, lam=1.0,
                                               error_clip=0.0)  # fmt: skip
    with torch.no_grad():
        target[1] = torch.tensor([[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]])  # means 3 and 1
        target[2] = torch.tensor([[8.0, 8.0, 8.0], [0.0, 40.0, 80.0]])  # means 8 and 40
        online[1] = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]])  # prefers the second
        online[2] = torch.tensor([[1.0, 1.0, 1.0], [0.0, 0.0, 0.0]])  # prefers the first
    replay = filled([[(0, 0, 1.0), (1, 0, 0.0), (2, 0, 4.0)]], [3], 0.5)
    window = replay.window(torch.tensor([0, 2]), torch.zeros(2, dtype=torch.long), learner.reach)
    picks = learner.picks(replay, window) if double else None
    batch = Batch(window.rows_BS, window.actions_B, *learner.bounds(window, learner.values(replay, window), picks))
    y, spread, low = (1.5, [0, 0, 1.5], 3.0) if double else (2.5, [0.5, 1, 3], 11.0)
    mean = sum(spread) / 3
    assert batch.y_B.tolist() == pytest.approx([y, 4.0])
    torch.testing.assert_close(batch.spread_BN, torch.tensor([[s - mean for s in spread], [0.0, 0.0, 0.0]]))
    # L of sample 0: 1 + 0.25 * 8, or by the target network's own choice 1 + 0.25 * 40. With lambda 1 the mean of the
    # target is half-way between y and that.
    assert batch.lower_B[0].item() == pytest.approx(low)
    outputs = learner.online.taken(replay.by_row, window.rows_BS, window.actions_B).detach()
    moved = torch.tensor([[(y + low) / 2 + s - mean for s in spread], [4.0, 4.0, 4.0]])
    expected = quantile_gradient(outputs, moved, 0.0)
    torch.testing.assert_close(learner.pull(outputs, batch), expected)


def test_what_the_quantiles_hold_possible_violates_no_bound() -> None:
    """Quantiles 0, 2, 7: Q is 3; they hold 4 more and 3 less possible, and half of that is 2 and 1.5."""
    learner, _, _ = quantile_learner(quantile_margin=0.5, lam=1.0, error_clip=0.0)
    low, high = torch.tensor([4.9, 5.1, -9.0, -9.0]), torch.tensor([9.0, 9.0, 1.6, 1.4])
    y, no = torch.full((4,), 3.0), torch.zeros(4, dtype=torch.bool)
    rows = torch.zeros(4, 1, dtype=torch.long)
    batch = Batch(rows, rows[:, 0], y, low, high, no, torch.zeros(4, 3), torch.ones(4))
    outputs = torch.tensor([[0.0, 2.0, 7.0]]).repeat(4, 1)
    # Violated are the second and the fourth, by 0.1: with lambda 1 the target's mean goes half of that way.
    moved = torch.tensor([3.0, 3.05, 3.0, 2.95])[:, None].expand(4, 3)
    torch.testing.assert_close(learner.pull(outputs, batch), quantile_gradient(outputs, moved, 0.0))
    told = learner.read_telemetry()
    assert (told["lower_violated"], told["upper_violated"]) == (0.25, 0.25)
    assert (told["lower_gap"], told["upper_gap"]) == pytest.approx((0.1, 0.1), abs=1e-5)
    with pytest.raises(TightropeError, match="needs quantiles"):
        preset("paper").replace(quantile_margin=1.0)


# ----------------------------------------------------------------------------------------------------------- Munchausen


@pytest.mark.parametrize("double", [False, True])
def test_munchausen_by_its_formula(double: bool) -> None:
    """Vieillard et al., 2020: r + alpha [tau log pi(a|s)] + gamma sum pi (Q - tau log pi), pi = softmax(Q / tau)."""
    learner, online, target = table_learner(4, 2, bounds=False, gamma=0.5, munchausen=0.9, munchausen_temperature=0.2,
                                            munchausen_floor=-1.0, double=double)  # fmt: skip
    with torch.no_grad():
        target.copy_(torch.tensor([[0.3, 0.1], [0.2, 0.6], [5.0, 0.0], [9.0, 9.0]]))
        online.copy_(torch.tensor([[0.1, 0.5], [0.7, 0.6], [0.0, 5.0], [9.0, 9.0]]))
    replay = filled([[(0, 0, 1.0), (1, 1, 2.0), (2, 1, 3.0)]], [3], 0.5)
    window = replay.window(torch.arange(3), torch.zeros(3, dtype=torch.long), learner.reach)
    picks = learner.picks(replay, window) if double else None
    y, *_ = learner.bounds(window, learner.values(replay, window), picks)
    q = target.detach().numpy().astype(np.float64)
    chooser = (online if double else target).detach().numpy().astype(np.float64)
    log_pi = chooser / 0.2 - np.log(np.exp(chooser / 0.2).sum(1, keepdims=True))
    for s, (action, reward) in enumerate([(0, 1.0), (1, 2.0), (1, 3.0)]):
        expected = reward + 0.9 * max(-1.0, 0.2 * log_pi[s, action])
        if s < 2:
            expected += 0.5 * (np.exp(log_pi[s + 1]) * (q[s + 1] - 0.2 * log_pi[s + 1])).sum()
        assert y[s].item() == pytest.approx(expected, rel=1e-5)
    if not double:
        assert 0.2 * log_pi[2, 1] < -1, "the floor is tested"


# --------------------------------------------------------------------------------------------------------- optimisers


def test_adam_is_pytorchs() -> None:
    rng = np.random.default_rng(0)
    start = [torch.tensor(rng.normal(size=size)) for size in (5, (3, 2))]
    ours, theirs = ([nn.Parameter(w.clone()) for w in start] for _ in range(2))
    optimiser = Adam(ours, 0.9, 0.99, 1e-3)
    reference = torch.optim.Adam(theirs, lr=0.02, betas=(0.9, 0.99), eps=1e-3)
    for _ in range(30):
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.tensor(rng.normal(size=a.shape))
            b.grad = a.grad.clone()
        optimiser.step(torch.tensor(0.02, dtype=torch.float64))
        reference.step()
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-7)  # its count of steps is a float32


def test_the_gradients_norm_is_limited_over_all_weights_together() -> None:
    weights = [nn.Parameter(torch.zeros(2)), nn.Parameter(torch.zeros(1))]
    for largest, expected in ((6.5, [[1.5, 2.0], [6.0]]), (13.0, [[3.0, 4.0], [12.0]]), (20.0, [[3.0, 4.0], [12.0]])):
        weights[0].grad, weights[1].grad = torch.tensor([3.0, 4.0]), torch.tensor([12.0])  # norm 13
        limit_gradient(weights, largest)
        assert [w.grad.tolist() for w in weights if w.grad is not None] == expected


# -------------------------------------------------------------------------------------------------- prioritised replay


def test_rows_are_sampled_in_proportion_to_their_priorities_within_binomial_error() -> None:
    replay = played(4, 200, 1)
    priorities = Priorities(replay, exponent=0.6, floor=1e-3)
    errors = torch.rand(600, generator=torch.Generator().manual_seed(0)) * 5
    priorities.update(torch.arange(600), errors)
    reach = Reach()
    draws = torch.Generator().manual_seed(2)
    counts = np.zeros(600)
    size, times = 256, 400
    for _ in range(times):
        window = replay.sample(size, reach, replay.draw(size, reach, draws), priorities)
        np.add.at(counts, window.rows_BS[:, -1].numpy(), 1)
    all_times = torch.arange(int(replay.oldest), replay.head + 1).repeat_interleave(4)
    all_envs = torch.arange(4).repeat(len(all_times) // 4)
    valid = replay.valid_centres(all_times, all_envs, reach)
    rows = (all_times % replay.length * 4 + all_envs)[valid].numpy()
    others = np.setdiff1d(np.arange(600), rows)
    assert len(others) >= 4, "the pending rows, and the oldest whose stacks are gone"
    assert (counts[others] == 0).all()
    shares = (errors.numpy()[rows] + 1e-3) ** 0.6
    expected = shares / shares.sum()
    n = size * times
    deviation = (counts[rows] - n * expected) / np.sqrt(n * expected * (1 - expected))
    assert np.abs(deviation).max() < 4.5, "of some 590 rows one beyond 4.5 standard errors is not to be expected"
    assert deviation.std() == pytest.approx(1.0, abs=0.15)


def test_where_only_finished_episodes_are_sampled_unfinished_ones_do_not_crowd_them_out() -> None:
    """New rows have the largest priority, which they cannot lose before they may be sampled."""
    replay = filled([[(0, 0, 0.0)] * 6, [(0, 0, 0.0)] * 40], [1, 1], 0.9, rows=64)
    finished = (replay.flags.view(-1) & FINISHED) > 0
    replay.flags.view(-1)[6:] &= ~FINISHED  # the second episode has not ended yet
    assert finished.sum() == 46
    priorities = Priorities(replay, exponent=1.0, floor=0.0)
    priorities.update(torch.arange(6), torch.full((6,), 1e-6))
    reach = Reach(unfinished=False)
    window = replay.sample(60, reach, replay.draw(60, reach, torch.Generator().manual_seed(0)), priorities)
    assert window.times_B.bincount(minlength=6).shape == (6,), "rows of the first episode only"
    assert (window.times_B.bincount() > 0).all(), "and all of them"


def test_a_row_is_drawn_by_where_the_chance_falls() -> None:
    replay = filled([[(0, 0, 0.0)] * 3], [1], 0.9, rows=8)
    priorities = Priorities(replay, exponent=1.0, floor=0.0)
    priorities.shares.copy_(torch.tensor([0.0, 1.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0]))
    chances = torch.tensor([0.0, 0.24, 0.25, 0.999999], dtype=torch.float64)
    assert priorities.draw(chances).tolist() == [1, 1, 3, 3], "never a row whose share is 0"


def test_importance_weights_by_their_definition() -> None:
    shares = torch.tensor([0.5, 2.0, 1.0])
    total, rows = 40.0, 50  # of all rows: both cancel
    for beta in (0.0, 0.4, 1.0):
        weights = [(rows * s / total) ** -beta for s in shares.tolist()]
        expected = [w / max(weights) for w in weights]
        assert importance(shares, torch.tensor(beta)).tolist() == pytest.approx(expected)


def test_new_rows_start_with_the_largest_priority_and_rows_without_a_transition_with_none() -> None:
    replay = filled([[(0, 0, 0.0), (1, 0, 1.0)]] * 2, [2, 2], 0.9)  # 2 transitions, a reset, 2 transitions
    priorities = Priorities(replay, exponent=0.5, floor=0.0)
    assert priorities.shares[:6].tolist() == [1, 1, 0, 1, 1, 0]
    priorities.update(torch.tensor([1, 3]), torch.tensor([16.0, 0.25]))
    assert priorities.shares[:6].tolist() == [1, 4, 0, 0.5, 1, 0]
    yes, no = np.array([True]), np.array([False])
    frame = np.zeros((1, 1), np.float32)
    replay.append(np.zeros(1), np.zeros(1), no, no, no, frame, yes, np.zeros(1))
    replay.append(np.zeros(1), np.zeros(1), yes, no, no, frame, no, np.zeros(1))
    assert priorities.shares[5:8].tolist() == [0, 4, 0]


@pytest.mark.parametrize(("source", "expected"), [("error", [2.0, 1.0]), ("violation", [2.0 + 3.0, 1.0 + 0.5])])
def test_what_makes_a_priority(source: str, expected: list[float]) -> None:
    learner, _, _ = table_learner(4, 1, priority=source, priority_exponent=1.0, priority_floor=1e-9, learning_rate=0.0,
                                  priority_beta_start=1.0)  # fmt: skip
    replay = filled([[(0, 0, 0.0), (1, 0, 0.0), (2, 0, 1.0)]], [3], 0.9)
    learner.keep_notes(replay)
    assert learner.priorities is not None
    nothing = torch.zeros(2)
    batch = Batch(torch.tensor([[0], [2]]), nothing.long(), torch.tensor([2.0, -1.0]), torch.tensor([3.0, -9.0]),
                  torch.tensor([math.inf, -0.5]), nothing.bool(), torch.zeros(2, 0),
                  torch.tensor([1.0, 4.0]))  # fmt: skip
    gradient = learner.pull(nothing, batch)
    assert learner.priorities.shares[[0, 2]].tolist() == pytest.approx(expected)
    # Q = 0. Sample 0 is pulled to (2 + 4 * 3) / 5, clipped to 1; sample 1 to (-1 - 4 * 0.5) / 5. Importance: 1 and 1/4.
    assert gradient.tolist() == pytest.approx([-1.0, 0.6 / 4])


# ------------------------------------------------------------------------------------------------ lambda and penalties


@given(q=st.floats(-3, 3), y=st.floats(-3, 3), low=st.floats(-3, 3), high=st.floats(-3, 3), lam=st.floats(0, 8),
       penalty=st.sampled_from(["quadratic", "absolute", "huber"]), width=st.floats(0.1, 2),
       expectile=st.sampled_from([1.0, 0.8, 0.5]))  # fmt: skip
def test_every_penalty_is_the_gradient_of_its_loss(
    q: float, y: float, low: float, high: float, lam: float, penalty: str, width: float, expectile: float
) -> None:
    """Half the squared error and lambda times the penalty: v^2 / 2, or width |v|, or Huber's between them. What is no
    violation counts (1 - t) / t as much, as in Newey and Powell's asymmetric loss (1987)."""

    def cost(violation: torch.Tensor) -> torch.Tensor:
        back = torch.full_like(violation, (1 - expectile) / expectile)
        share, v = torch.where(violation > 0, torch.ones_like(back), back), violation.abs()
        if penalty == "quadratic":
            return share * v * v / 2
        if penalty == "absolute":
            return share * width * v
        return share * torch.where(v <= width, v * v / 2, width * v - width * width / 2)

    x = torch.tensor([q], dtype=torch.float64, requires_grad=True)
    if min(abs(q - low), abs(q - high)) < 1e-6:
        return  # a corner of the absolute penalty
    (gradient,) = torch.autograd.grad(((x - y) ** 2 / 2 + lam * cost(low - x) + lam * cost(x - high)).sum(), x)
    as64 = lambda v: torch.tensor([v], dtype=torch.float64)  # noqa: E731
    target, weight, *_ = tighten(x.detach(), as64(y), as64(low), as64(high), lam, penalty=penalty, width=width,
                                 expectile=expectile)  # fmt: skip
    assert gradient.item() == pytest.approx((weight * (x.detach() - target)).item(), abs=1e-9)


@pytest.mark.parametrize("penalty", ["quadratic", "absolute", "huber"])
def test_a_bound_that_does_not_exist_pulls_at_no_expectile(penalty: str) -> None:
    """Q = 2, y = 1, lambda 1, an expectile of 0.8, so a quarter of it back: to (1 + 1.5 / 4) / (1 + 1/4) = 1.1 by the
    lower bound 1.5, which holds; a violated one pulls as ever."""
    absent = torch.tensor([-torch.inf]), torch.tensor([torch.inf])
    q, y = torch.tensor([2.0]), torch.tensor([1.0])
    target, weight, *_ = tighten(q, y, *absent, 1.0, penalty=penalty, expectile=0.8)
    assert (target.item(), weight.item()) == (1.0, 1.0)
    if penalty == "quadratic":
        holds, *_ = tighten(q, y, torch.tensor([1.5]), absent[1], 1.0, expectile=0.8)
        violated, *_ = tighten(q, y, torch.tensor([4.0]), absent[1], 1.0, expectile=0.8)
        assert (holds.item(), violated.item()) == (pytest.approx(1.1), pytest.approx(2.5))


def test_rescaled_an_expectile_hopes_the_less_the_larger_lambda_is() -> None:
    """Q = y = 0 and a bound at 1 or -1; of an expectile of 0.7 the latter pulls back by 3/7 of lambda. With lambda 4 Q
    moves by 4/5, or by (12/7) / (19/7) = 12/19 back: as 19 to 15, an expectile of 19/34. With lambda 1/4 by 1/5, or by
    (3/28) / (31/28) = 3/31 back: as 31 to 15. Not rescaled it is 7 to 3 for any lambda."""
    nothing, absent = torch.zeros(2), torch.full((2,), torch.inf)
    for lam, ratio in ((4.0, 19 / 15), (0.25, 31 / 15)):
        target, weight, *_ = tighten(nothing, nothing, torch.tensor([1.0, -1.0]), absent, lam, expectile=0.7)
        assert float(target[0] / -target[1]) == pytest.approx(ratio)
        plain = target * weight
        assert float(plain[0] / -plain[1]) == pytest.approx(7 / 3)


def test_schedules_run_with_the_steps_of_learning() -> None:
    assert [ramp(4.0, 1.0, done) for done in (0.0, 0.5, 1.0, 3.0)] == [4.0, 2.5, 1.0, 1.0]
    learner, *_ = table_learner(3, 1, lam_schedule="annealed", lam_end=1.0, lam_steps=1000, priority="error",
                                priority_beta_start=0.4, priority_beta_end=1.0, priority_beta_steps=500, k=4,
                                lower_draws=2, draw="slide", slide_steps=2000, update_every_steps=4, updates_when_due=2,
                                target_every_steps=100)  # fmt: skip
    replay = filled([[(0, 0, 0.0), (1, 0, 1.0)]] * 3, [2] * 3, 0.9)
    learner.keep_notes(replay)
    assert learner.config.target_every_updates == 50
    for updates, lam, beta, slide in ((0, 4.0, 0.4, 1.0), (100, 3.4, 0.64, 0.9), (5000, 1.0, 1.0, 0.0)):
        learner.updates = updates  # two updates for every four steps
        learner.update(replay)
        assert learner.lam.item() == pytest.approx(lam)
        assert learner.beta.item() == pytest.approx(beta)
        assert learner.slide.item() == pytest.approx(slide)


def test_multipliers_grow_while_a_bound_is_violated_and_shrink_while_it_is_not() -> None:
    """mu <- max(0, mu + lam * violation), kept as mu / lam; the pull is lam * violation + mu."""
    learner, *_ = table_learner(4, 1, lam=2.0, lam_schedule="multipliers", multiplier_step=0.5, multiplier_max=1.2,
                                rescale=False, error_clip=0.0)  # fmt: skip
    replay = filled([[(0, 0, 0.0), (1, 0, 0.0), (2, 0, 1.0)]], [3], 0.9)
    learner.keep_notes(replay)
    assert learner.multipliers is not None
    lower, upper = learner.multipliers.lower, learner.multipliers.upper

    def pull(q: list[float]) -> list[float]:
        """Samples 0, 1, 2 with y = 0: a lower bound of 1, an upper bound of -1, and none."""
        inf = math.inf
        batch = Batch(torch.tensor([[0], [1], [2]]), torch.zeros(3).long(), torch.zeros(3),
                      torch.tensor([1.0, -inf, -inf]), torch.tensor([inf, -1.0, inf]), torch.zeros(3).bool(),
                      torch.zeros(3, 0), torch.ones(3))  # fmt: skip
        return learner.pull(torch.tensor(q), batch).tolist()

    # No multipliers yet: (Q - y) - lam (L - Q), and the same from above.
    assert pull([0.0, 0.0, 0.5]) == pytest.approx([-2.0, 2.0, 0.5])
    assert (lower[0].item(), upper[1].item()) == pytest.approx((0.5, 0.5))
    # Violated still: mu = lam * 0.5 joins.
    assert pull([0.0, 0.0, 0.5]) == pytest.approx([-2.0 - 1.0, 2.0 + 1.0, 0.5])
    assert (lower[0].item(), upper[1].item()) == pytest.approx((1.0, 1.0))
    # Not violated any more, by 0.5 and by 4: what is left of the first still pulls, that of the second does not.
    assert pull([1.5, -5.0, 0.5]) == pytest.approx([1.5 - 2 * (1.0 - 0.5), -5.0, 0.5])
    assert (lower[0].item(), upper[1].item()) == pytest.approx((0.75, 0.0))
    lower[2] = 0.25
    told = learner.read_telemetry()
    assert told["lower_multiplier"] == pytest.approx((0.75 + 0.25) / 2), "the mean over the rows that have one"
    assert told["upper_multiplier"] == 0
    lower[2] = 0.0
    pull([-9.0, 0.0, 0.0])
    assert lower[0].item() == pytest.approx(1.2), "the largest"
    assert lower[1:3].tolist() == upper[[0, 2]].tolist() == [0, 0], "a bound that does not exist has none"
    with pytest.raises(TightropeError, match="lam = 0"):
        preset("maze").replace(lam=0, lam_schedule="multipliers")


# -------------------------------------------------------------------------------------------------- which constraints


@pytest.mark.parametrize(
    ("slide", "row", "ahead", "behind"),
    [
        # 12 steps, K = 6: offsets 2..7 ahead; behind from the state before: 1..7. Row 4 has 8 steps ahead, 4 behind.
        (1.0, 4, [6, 7], [3, 4]),
        (0.0, 4, [2, 3], [1, 2]),
        (0.5, 4, [4, 5], [2, 3]),
        # Row 8 has its own step and three more: offsets 2, 3, 4 exist. 8 behind, of which 7 are in reach.
        (1.0, 8, [3, 4], [6, 7]),
    ],
)
def test_bounds_that_slide_from_the_farthest_to_the_nearest(
    slide: float, row: int, ahead: list[int], behind: list[int]
) -> None:
    replay = filled([[(s, 0, float(s == 11)) for s in range(12)]], [12], 0.9)
    reach = Reach(7, 1, True, lower_draws=2, upper_draws=2, slide=True)
    chances = replay.draw(1, reach, torch.Generator().manual_seed(0))._replace(slide=torch.tensor(slide))
    window = replay.window(torch.tensor([row]), torch.tensor([0]), reach, chances)
    assert window.ahead_offsets_BA.tolist() == [[1, *ahead]]
    assert window.behind_offsets_BC.tolist() == [behind]
    assert window.ahead_exists_BA.all()
    assert window.behind_exists_BC.all()


def test_sliding_over_more_bounds_than_there_are_is_refused() -> None:
    with pytest.raises(TightropeError, match="lower_draws = 5: must not exceed the 4 horizons"):
        preset("paper").replace(lower_draws=5, draw="slide")


@settings(max_examples=60, deadline=None)
@given(lives=lives_of_two, k=st.integers(0, 3), seed=st.integers(0, 99), gamma=st.sampled_from([0.9, 1.0]),
       use_return=st.booleans())  # fmt: skip
def test_the_whole_episodes_bound_is_the_largest_over_all_horizons(
    lives: list[list[Episode]], k: int, seed: int, gamma: float, use_return: bool
) -> None:
    """All rows are sampled until nothing changes: then each row keeps the largest bound that there is."""
    replay, where, by_frame = laid_out(lives, 300, 1, gamma, seed)
    if not where:
        return
    values = torch.zeros(int(max(by_frame)) + 1, 1)
    for frame, (value, _) in by_frame.items():
        values[int(frame)] = value
    config = preset("maze").replace(k=k, gamma=gamma, horizon="episode", use_upper=False, use_return=use_return)
    table = Table(len(values), 1)
    table.q.data.copy_(values)
    learner = Learner(QNetwork(table, 1.0), config, CPU, 0)
    learner.keep_notes(replay)
    assert learner.episode is not None
    times, envs = map(torch.tensor, zip(*where, strict=True))
    window = replay.window(times, envs, learner.reach)
    for _ in range(31):
        _, low, *_ = learner.bounds(window, learner.values(replay, window))
    for i, key in enumerate(where):
        e, j = where[key]
        expected = largest_bound(e, j, replay.head - e.first_row, gamma)
        kept = learner.episode.kept[window.rows_BS[i, -1]].item()
        assert kept == pytest.approx(expected, abs=1e-4)
        # The target itself is no bound, unless something better lies behind the state it looks at.
        assert low[i].item() <= kept
        assert max(low[i].item(), n_step_target(e, j, 1, 99, gamma)) == pytest.approx(expected, abs=1e-4)
        if j == e.last and not use_return:
            assert low[i].item() == -math.inf


def test_a_row_that_is_written_anew_keeps_nothing_of_what_it_was() -> None:
    replay = Replay(40, 1, (1,), np.dtype(np.float32), 1, 2, 0.9, CPU)
    note = replay.note("mine", torch.tensor(7.0))
    replay.start(np.zeros((1, 1), np.float32))
    yes, no = np.array([True]), np.array([False])
    for _ in range(45):
        replay.append(np.zeros(1), np.zeros(1), yes, no, no, np.zeros((1, 1), np.float32), no, np.zeros(1))
        note[replay.head % 40] = 0.5  # of the row that comes next
    assert (note[torch.arange(40) != 45 % 40] == 7.0).all()


# ---------------------------------------------------------------------------------------------------- has Q settled?


def test_q_has_settled_while_its_mean_changes_little_from_one_target_network_to_the_next() -> None:
    settling = Settling(0.1, CPU)
    found = []
    for batches in ([[0.0, 0.0]], [[0.0, 0.0]], [[1.0, 1.0]], [[1.0, 2.0], [2.0, 1.0]], [[1.6, 1.5]], [[3.0, 0.1]],
                    [[9.0, 9.0]]):  # fmt: skip
        for q in batches:
            settling.see(torch.tensor(q))
        settling.follow()
        found.append(bool(settling.settled))
    # Nothing before; zero and zero; up from zero; 1 to 1.5; 1.5 to 1.55: settled; 1.55: settled; 9: no more.
    assert found == [False, False, False, False, True, True, False]


def test_upper_bounds_only_once_q_has_settled() -> None:
    learner, *_ = table_learner(4, 1, k=1, upper_settled=0.1)
    replay = filled([[(0, 0, 0.0), (1, 0, 0.0), (2, 0, 1.0)]], [3], 0.99)
    window = replay.window(torch.tensor([2]), torch.tensor([0]), learner.reach)
    assert learner.settling is not None
    for settled in (False, True):
        learner.settling.settled.fill_(settled)
        *_, high, _, _, _ = learner.bounds(window, learner.values(replay, window))
        assert bool(high.isfinite().all()) == settled


# ------------------------------------------------------------------------------------------------ games that are random


def test_noise_grows_as_the_root_of_the_discounted_sum_of_squares() -> None:
    for gamma in (0.9, 1.0):
        expected = [math.sqrt(sum(gamma ** (2 * i) for i in range(n))) for n in (1, 2, 5)]
        assert noise_growth(torch.tensor([1.0, 2.0, 5.0]), gamma).tolist() == pytest.approx(expected)


def test_the_margin_is_measured_from_the_error_and_eases_every_bound() -> None:
    learner, _, target = table_learner(4, 1, k=1, gamma=0.5, margin=2.0, margin_updates=2, upper_from=0)
    replay = filled([[(0, 0, 0.0), (1, 0, 0.0), (2, 0, 1.0)]], [3], 0.5)
    with torch.no_grad():
        target.copy_(torch.tensor([[0.2], [0.1], [0.4], [0.0]]))
    window = replay.window(torch.tensor([0, 2]), torch.tensor([0, 0]), learner.reach)
    _, low, high, *_ = learner.bounds(window, learner.values(replay, window))
    assert learner.luck is not None
    learner.luck.see(torch.tensor([0.3, -0.3]))
    learner.luck.see(torch.tensor([0.0, 0.6]))
    # Half of what was seen before is kept: (0.09 / 2 + 0.18) / (1 / 2 + 1).
    noise = math.sqrt((0.045 + 0.18) / 1.5)
    assert learner.luck.noise.item() == pytest.approx(noise)
    y, eased_low, eased_high, *_ = learner.bounds(window, learner.values(replay, window))
    assert y.tolist() == pytest.approx([0.05, 1.0]), "the target is no bound"
    # Sample 0: L over two steps is 0.25 * 0.4, R is 0.25 and its noise that of a long return, sqrt(1 / (1 - 0.25)).
    assert low[0].item() == pytest.approx(0.25)
    assert eased_low[0].item() == pytest.approx(
        max(0.1 - 2 * noise * math.sqrt(1.25), 0.25 - 2 * noise * math.sqrt(1 / 0.75))
    )
    # Sample 2: U from one step back 0.1 / 0.5, from two 0.2 / 0.25; their noise is divided alike.
    assert high[1].item() == pytest.approx(0.2)
    assert eased_high[1].item() == pytest.approx(min(0.2 + 2 * noise / 0.5, 0.8 + 2 * noise * math.sqrt(1.25) / 0.25))


def test_a_margin_comes_off_the_whole_episodes_bound_once() -> None:
    """However many rows hand it on: what they keep is the same as without a margin."""
    rows = [(0, 0, 0.0)] * 8 + [(0, 0, 1.0)]
    kept, low = [], []
    for margin in (0.0, 2.0):
        fields: dict[str, Any] = {"k": 1, "gamma": 0.5, "horizon": "episode", "use_return": False, "use_upper": False}
        learner, _, target = table_learner(2, 1, margin=margin, margin_updates=2, **fields)
        replay = filled([rows], [1], 0.5)
        learner.keep_notes(replay)
        with torch.no_grad():
            target.zero_()
        if learner.luck is not None:
            learner.luck.see(torch.tensor([0.001]))
        window = replay.window(torch.arange(9), torch.zeros(9, dtype=torch.int64), learner.reach)
        for _ in range(12):
            _, lower, *_ = learner.bounds(window, learner.values(replay, window))
        assert learner.episode is not None
        kept.append(learner.episode.kept[window.rows_BS[:, -1]].tolist())
        low.append(lower[0].item())
    assert kept[0] == kept[1] == [0.5**i for i in range(8, -1, -1)]
    # 2 standard deviations of a long return, as for R.
    assert low[0] - low[1] == pytest.approx(2 * 0.001 * math.sqrt(1 / 0.75), rel=1e-3)


def excess_of(low: list[float], high: list[float], drawn: list[float], **fields: Any) -> list[float]:
    """Of lower and upper bounds, for samples whose Q is 0."""
    excess = Excess(preset("paper").replace(**fields), CPU)
    assert excess.shares.tolist() == [1, 1], "nothing is known yet"
    excess.see(torch.zeros(len(low)), torch.tensor(low), torch.tensor(high), torch.tensor(drawn))
    shares: list[float] = excess.shares.tolist()
    return shares


def test_excess_is_the_share_of_violations_that_luck_does_not_explain() -> None:
    """p samples of n for a reason and half of the others by luck: of 3 in 4 that is 2, and 2/3 of the violations."""
    inf, ones = math.inf, [1.0] * 4
    assert excess_of([1, 1, 1, -1], [9] * 4, ones) == pytest.approx([2 / 3, 0])
    assert excess_of([1, 1, 1, 1], [9] * 4, ones) == [1, 0], "of lower bounds all, whatever upper bounds do"
    assert excess_of([-1] * 4, [-1, -1, -1, 1], ones) == pytest.approx([0, 2 / 3])
    assert excess_of([1, 1, -1, -1], [inf] * 4, ones) == [0, 1], (
        "as often as luck has it; and there are no upper bounds"
    )
    # A bound that does not exist is none that holds: 3 in 3.
    assert excess_of([1, 1, 1, -inf], [inf] * 4, ones) == [1, 1]
    # The one that is violated was drawn three times as often as it would be: a third in three and a third, so one in
    # ten, where luck explains one in sixteen: p + (1 - p) / 16 = 1/10, so p = 0.04, which is 0.4 of the violations.
    fields: dict[str, Any] = {"quantiles": 8, "quantile_margin": 1.0}
    assert excess_of([1, -1, -1, -1], [inf] * 4, [3.0, 1, 1, 1], **fields)[0] == pytest.approx(0.4)
    # Where luck explains nothing any more, nothing is divided by nothing.
    for hopeless in ({"margin": 40.0}, {"quantiles": 32, "quantile_margin": 40.0}):
        assert excess_of([-1] * 4, [1] * 4, ones, **hopeless) == [0, 0]
        assert excess_of([1, -1, -1, -1], [1] * 4, ones, **hopeless) == [1, 0]


def test_excess_remembers_some_updates_and_rises_again() -> None:
    excess = Excess(preset("paper").replace(margin_updates=2), CPU)
    high, ones = torch.full((4,), math.inf), torch.ones(4)
    excess.see(torch.zeros(4), torch.tensor([1.0, 1, 1, -1]), high, ones)
    excess.see(torch.zeros(4), torch.tensor([1.0, -math.inf, -math.inf, -math.inf]), high, ones)
    # Half of what was seen before is kept: (3/2 + 1) of (4/2 + 1), so 2 of 3 for a reason, 2 of 2.5 violations.
    assert excess.shares[0].item() == pytest.approx(2 / 2.5)
    for _ in range(30):
        excess.see(torch.full((4,), 5.0), torch.ones(4), high, ones)
    assert excess.shares[0].item() == 0, "Q is above all its bounds"
    for _ in range(30):
        excess.see(torch.full((4,), -5.0), torch.ones(4), high, ones)
    assert excess.shares[0].item() == pytest.approx(1), "and below them again"


@pytest.mark.parametrize("margin", [0.0, 0.5, 1.0, 2.0])
def test_chance_is_the_tail_of_the_distribution_that_a_margin_is_measured_by(margin: float) -> None:
    numbers = preset("paper")
    normal = torch.special.ndtr(torch.tensor(-margin, dtype=torch.float64)).item()
    assert chance_of_violation(numbers.replace(margin=margin)) == pytest.approx(normal)
    # An exponential tail that starts at one half and has come down to a sixteenth at a distance of one.
    at_one = 1 / 16  # the highest of 8 midpoints
    rate = math.log(0.5 / at_one)
    quantiles = numbers.replace(quantiles=8, quantile_margin=margin)
    assert chance_of_violation(quantiles) == pytest.approx(0.5 * math.exp(-rate * margin))


def test_lambda_is_the_part_that_exceeds_luck() -> None:
    """Three of four lower bounds are violated, so 2/3 of lambda is left for them; of upper bounds all are."""
    learner, *_ = table_learner(4, 1, lam=3.0, lam_schedule="excess", rescale=False, error_clip=0.0)
    inf = math.inf
    batch = Batch(torch.zeros(4, 1).long(), torch.zeros(4).long(), torch.zeros(4), torch.tensor([1.0, 1, 1, -1]),
                  torch.tensor([inf, inf, inf, -1]), torch.zeros(4).bool(), torch.zeros(4, 0),
                  torch.ones(4))  # fmt: skip
    assert learner.pull(torch.zeros(4), batch).tolist() == pytest.approx([-3, -3, -3, 3]), "all of it at first"
    assert learner.pull(torch.zeros(4), batch).tolist() == pytest.approx([-2, -2, -2, 3])
    assert learner.lam.item() == 3
    kept = 1 + 0.999
    assert learner.state()["excess"].tolist() == [pytest.approx([3 * kept, kept]), pytest.approx([4 * kept, kept])]
    told = learner.read_telemetry()
    assert (told["lower_excess"], told["upper_excess"]) == pytest.approx((2 / 3, 1))
    # Both violated, and one penalty on their mean: half of each one's part of lambda.
    target, weight, *_ = tighten(torch.zeros(1), torch.ones(1), torch.tensor([2.0]), torch.tensor([-4.0]), 6.0,
                                 mean_of_both=True, shares=torch.tensor([0.5, 1.0]))  # fmt: skip
    assert weight.item() == pytest.approx(1 + 6 * (0.25 + 0.5))
    assert target.item() == pytest.approx((1 + 6 * (0.25 * 2 - 0.5 * 4)) / weight.item())


def test_the_noise_of_one_step_is_that_of_n_steps_shared_among_them() -> None:
    luck = Luck(preset("paper").replace(margin=1.0, n_step=3, gamma=0.9), CPU)
    luck.see(torch.tensor([0.5]))
    assert luck.of(torch.tensor([3])).item() == pytest.approx(0.5)
    assert luck.of(torch.tensor([1])).item() == pytest.approx(0.5 / math.sqrt(1 + 0.81 + 0.6561))


# ---------------------------------------------------------------------------------- bounds on the state, not the action


def one_sample(action: int, y: float, lower: float = -math.inf, upper: float = math.inf, quantiles: int = 0) -> Batch:
    rows = torch.zeros(1, 1, dtype=torch.long)
    number = lambda value: torch.tensor([value])  # noqa: E731
    no = torch.zeros(1, dtype=torch.bool)
    return Batch(rows, torch.tensor([action]), number(y), number(lower), number(upper), no, torch.zeros(1, quantiles),
                 torch.ones(1))  # fmt: skip


@pytest.mark.parametrize(
    ("lower", "upper", "rescale", "expected"),
    [
        # The state is worth 3, the action 1, and y is half of that: so 0.5 pulls down, and nothing else.
        (2.9, math.inf, True, [0.5, 0.0]),
        # At least 4 is 1 more: the action's own bound is 2. Its target goes from 0.5 half-way there, to 1.25, and the
        # gradient from 0.5 to -0.25. That -0.75 is shared.
        (4.0, math.inf, True, [0.5 - 0.375, -0.375]),
        # Without rescaling all of the pull towards the bound is added.
        (4.0, math.inf, False, [0.5 - 0.5, -0.5]),
        # Upper bounds stay the action's: at most 2 is more than it has; at most 0.9 makes its target 0.7.
        (-math.inf, 2.0, True, [0.5, 0.0]),
        (-math.inf, 0.9, True, [0.3, 0.0]),
        # Both: a target of (0.5 + 2 + 0.9) / 3, from which 0.7 was the action's, and the rest is shared.
        (4.0, 0.9, True, [0.3 - (3.4 / 3 - 0.7) / 2, -(3.4 / 3 - 0.7) / 2]),
    ],
)
def test_a_bound_on_the_state_moves_its_actions_alike(
    lower: float, upper: float, rescale: bool, expected: list[float]
) -> None:
    learner, *_ = table_learner(1, 2, lam=1.0, bound_on="state", rescale=rescale, error_clip=0.0)
    gradient = learner.pull(torch.tensor([[1.0, 3.0]]), one_sample(0, 0.5, lower, upper))
    torch.testing.assert_close(gradient, torch.tensor([expected]))


def test_with_quantiles_a_bound_on_the_state_moves_those_of_all_actions() -> None:
    """Means 2 and 3; at least 5 is 2 more, so the action is to be 4, and its target half-way between y = 2 and that."""
    learner, _, _ = quantile_learner(bound_on="state", lam=1.0, error_clip=0.0)
    outputs = torch.tensor([[[1.0, 2.0, 3.0], [2.0, 3.0, 4.0]]])
    own, bounded = (quantile_gradient(outputs[:, 0], torch.full((1, 3), to), 0.0) for to in (2.0, 3.0))
    gradient = learner.pull(outputs, one_sample(0, 2.0, 5.0, quantiles=3))
    torch.testing.assert_close(gradient[0, 1], (bounded - own)[0] / 2)
    torch.testing.assert_close(gradient[0, 0], own[0] + (bounded - own)[0] / 2)
    assert not torch.allclose(own, bounded)


def test_a_bound_on_the_state_is_the_business_of_the_dueling_value_alone() -> None:
    """The advantages learn what they learn without bounds, the value what it learns with them."""
    replay = filled([[(0, 0, 0.0), (1, 1, 0.0), (2, 0, 1.0)]], [3], 0.99)
    gradients = {}
    for name, fields in (("none", {"bounds": False}), ("state", {"bound_on": "state"}), ("action", {})):
        config = preset("maze").replace(dueling=True, use_upper=False, batch_size=3, error_clip=0.0, **fields)
        network = build_network("mlp", (1,), 3, 1.0, 0, Form.of(config))
        learner = Learner(network, config, CPU, 0)
        learner.keep_notes(replay)
        times = torch.arange(3)
        window = replay.window(times, torch.zeros_like(times), learner.reach)
        batch = Batch(window.rows_BS, window.actions_B, *learner.bounds(window, learner.values(replay, window)))
        learner.advance = lambda: None  # type: ignore[method-assign]
        learner.learn(replay, batch)
        (dueling,) = (part for part in network.modules() if isinstance(part, Dueling))
        gradients[name] = [stream[-1].bias.grad.clone() for stream in (dueling.value, dueling.advantage)]  # type: ignore[index, union-attr]
        assert learner.read_telemetry().get("lower_violated", 0) == (name != "none"), "Q starts at 0, R_j is above"
    torch.testing.assert_close(gradients["state"][1], gradients["none"][1])
    assert (gradients["action"][1] - gradients["none"][1]).abs().max() > 0.1
    torch.testing.assert_close(gradients["state"][0], gradients["action"][0])
    assert (gradients["state"][0] - gradients["none"][0]).abs().max() > 0.1


def test_with_quantiles_the_best_actions_say_what_luck_a_state_holds_possible() -> None:
    """The state's best action has quantiles 2, 3, 7, so 3 above its mean of 4; the one that was taken 0, 0, 0."""
    learner, _, _ = quantile_learner(bound_on="state", quantile_margin=1.0, lam=1.0, error_clip=0.0)
    outputs = torch.tensor([[[0.0, 0.0, 0.0], [2.0, 3.0, 7.0]]])
    learner.pull(outputs, one_sample(0, 0.0, 6.9, quantiles=3))
    assert learner.read_telemetry()["lower_violated"] == 0
    learner.pull(outputs, one_sample(0, 0.0, 7.1, quantiles=3))
    told = learner.read_telemetry()
    assert (told["lower_violated"], told["lower_gap"]) == (1, pytest.approx(0.1, abs=1e-5))


def test_lucky_returns_raise_a_state_and_make_no_gambler_of_who_tries_all() -> None:
    """tests/stochastic.py's two ways: 0.5 for sure, or 1 in two games of five. The paper's bounds prefer the second."""
    from stochastic import gamble

    safe, risky = gamble(800, bound_on="state")
    assert safe > risky + 0.05
    assert safe > 0.55, "and both are overrated"
    safe, risky = gamble(800, bound_on="action")
    assert risky > safe + 0.05
    # But what is seldom tried rises with its state and is seldom brought down again.
    fields: dict[str, Any] = {"sure": 0.1, "every": 20, "use_upper": False, "bound_on": "state"}
    rare, often = gamble(800, **fields)
    assert rare > often + 0.2, "worth 0.1 and 0.4"
    rare, often = gamble(800, **fields, lam_schedule="excess")
    assert (rare, often) == pytest.approx((0.1, 0.4), abs=0.05)


def test_bounds_on_the_state_keep_the_head_start() -> None:
    from stochastic import learned

    assert learned(0, 0.0, 260, bound_on="state", use_upper=False).reached
    assert not learned(0, 0.0, 260, bounds=False).reached


# ------------------------------------------------------------------------------------------------------- one update


def test_an_update_reaches_all_that_is_kept() -> None:
    learner, _, target = table_learner(
        4, 1, double=True, n_step=2, priority="violation", optimiser="adam", lam_schedule="multipliers", margin=0.1,
        horizon="episode", gradient_norm=1.0, batch_size=16, upper_from=0,
    )  # fmt: skip
    replay = filled([[(0, 0, 0.0), (1, 0, 0.5), (2, 0, 1.0)]] * 4, [3] * 4, 0.99)
    learner.keep_notes(replay)
    with torch.no_grad():
        target.copy_(torch.tensor([[-5.0], [-5.0], [5.0], [0.0]]))  # so that bounds of both sides are violated
    before = {name: tensor.detach().clone() for name, tensor in learner.state().items()}
    learner.update(replay)
    same = {name for name, tensor in learner.state().items() if torch.equal(tensor, before[name])}
    # The target network follows later; Q is 0 at first, and nowhere is R_j the tightest.
    assert same == {"target.body.q", "telemetry.q", "telemetry.return_tightest"}


def test_lucky_returns_make_a_gambler_and_a_margin_does_not() -> None:
    """tests/stochastic.py's two ways: 0.5 for sure, or 1 in two games of five.

    With bounds the risky way is at rest where its lucky games pull it up as much as the others pull it down: at
    0.6 * 0.4 + 0.4 * (0.4 + 4 * 1) / 5 = 0.592, which is more than 0.5.
    """
    from stochastic import gamble

    safe, risky = gamble(800, bounds=False)
    assert (safe, risky) == pytest.approx((0.5, 0.4), abs=0.05)
    safe, risky = gamble(800)
    assert (safe, risky) == pytest.approx((0.5, 0.592), abs=0.05)
    safe, risky = gamble(800, margin=2.0)
    assert (safe, risky) == pytest.approx((0.5, 0.4), abs=0.05)
    # Two games of five are fewer than luck explains, so that they do not pull.
    safe, risky = gamble(800, every=10, lam_schedule="excess")
    assert (safe, risky) == pytest.approx((0.5, 0.4), abs=0.05)
    # Five quantiles of the risky way: 0, 0, 0, 1, 1.
    quantiles = {"quantiles": 5, "error_clip": 0.0}
    assert gamble(3000, **quantiles)[1] > 0.55
    safe, risky = gamble(3000, quantile_margin=1.0, **quantiles)
    assert risky < 0.45 < safe


def test_what_excess_takes_for_reward_that_is_luck() -> None:
    """A way that pays 1 in four games of five is worth 0.8, and most of its games are above that: more than half, so
    that a part of them counts, and it is taken for more than a sure 0.85. The agent's own quantiles know better."""
    from stochastic import gamble

    skewed: dict[str, Any] = {"sure": 0.85, "wins": 4, "every": 10, "lam_schedule": "excess", "use_upper": False}
    assert gamble(1000, **skewed | {"bounds": False})[1] == pytest.approx(0.8, abs=0.04)
    safe, risky = gamble(1000, **skewed)
    assert risky > safe
    _, risky = gamble(1500, **skewed, quantiles=5, error_clip=0.0, quantile_margin=1.0)
    assert risky < 0.85


def test_excess_keeps_the_head_start_of_bounds_that_are_right() -> None:
    """On tests/stochastic.py's grid without slip: the start is worth what it is worth before plain Q-learning knows."""
    from stochastic import learned

    assert learned(0, 0.0, 260, lam_schedule="excess", use_upper=False).reached
    assert not learned(0, 0.0, 260, bounds=False).reached


def test_what_is_to_be_kept_is_not_left_out_in_silence() -> None:
    learner, *_ = table_learner(3, 1, priority="error")
    with pytest.raises(ValueError, match="keep_notes"):
        learner.update(filled([[(0, 0, 0.0), (1, 0, 1.0)]] * 3, [2] * 3, 0.9))
