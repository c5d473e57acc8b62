"""The fast path against the plain one. What needs a GPU is skipped where there is none, and says so."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tightrope.config import preset
from tightrope.fast import CapturedUpdates, captured, compile_optimiser, compile_parts, speed_up, speed_up_actor
from tightrope.learner import Learner
from tightrope.memory import Memory
from tightrope.network import Form, QNetwork, build_network, stacked
from tightrope.replay import Replay

# ------------------------------------------------------------------------------------------------- the fused kernels


def compare_fused(states: int, device: str, dtype: torch.dtype) -> tuple[float, list[float]]:
    """Fused against plain PyTorch in float32: the largest difference of values, and of each gradient, by its length."""
    from tightrope.fused import FusedNetwork

    draw = torch.Generator().manual_seed(states)
    plain = build_network("paper", (4, 84, 84), 6, 1 / 255, 3).to(device)
    fused = FusedNetwork(plain, dtype)
    frames = torch.randint(0, 256, (40, 1, 84, 84), dtype=torch.uint8, generator=draw).to(device)
    rows = torch.randint(0, 40, (states, 4), generator=draw).to(device)
    rows[0, :2] = -1  # an episode's second state: two frames are blank
    actions = torch.randint(0, 6, (states,), generator=draw).to(device)
    pull = torch.randn(states, generator=draw).to(device)
    seen = stacked(frames, rows)
    with torch.no_grad():
        # `forward` takes states as they are, as the actor does.
        found, expected = torch.cat([fused.at(frames, rows), fused(seen)]), plain(seen).repeat(2, 1)
    return differences(found, expected, plain, fused, lambda net: net.taken(frames, rows, actions).backward(pull))


def differences(
    found: torch.Tensor,
    expected: torch.Tensor,
    plain: QNetwork,
    quick: QNetwork,
    learn: Callable[[QNetwork], None],
) -> tuple[float, list[float]]:
    """The largest one of the values, and that of each gradient by its length."""
    gradients = []
    for network in (plain, quick):
        network.zero_grad()
        learn(network)
        gradients.append([p.grad.clone() for p in network.parameters() if p.grad is not None])
    assert len(gradients[0]) == len(gradients[1]) == len(list(plain.parameters()))
    assert all(tensor.isfinite().all() for tensor in (found, *gradients[1]))
    apart = float((found - expected).abs().max())
    return apart, [float((a - b).norm() / a.norm()) for a, b in zip(*gradients, strict=True)]


def test_the_kernels_are_the_papers_network() -> None:
    """Run by Triton's interpreter, on the CPU in float32: the same values and gradients to rounding.

    Three states: fewer than a block of any kernel, more than one, and no power of two.
    """
    values, gradients = interpreted("compare_fused(3, 'cpu', torch.float32)")
    assert values < 1e-5
    assert max(gradients) < 1e-5


@pytest.mark.gpu
@pytest.mark.parametrize("states", [1, 32, 100])
def test_the_kernels_are_the_papers_network_on_a_gpu(states: int) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    values, gradients = compare_fused(states, "cuda", torch.float32)
    assert values < 1e-4
    assert max(gradients) < 1e-4
    # bfloat16 has 8 bits: a value rounds by 1 part in 256, and a unit near zero may be off instead of on.
    values, gradients = compare_fused(states, "cuda", torch.bfloat16)
    assert values < 0.02
    assert max(gradients) < 0.2


@pytest.mark.gpu
def test_many_states_at_once() -> None:
    """As many as a group's bounds ask for."""
    from tightrope.fused import FusedNetwork

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    plain = build_network("paper", (4, 84, 84), 6, 1 / 255, 3).cuda()
    frames = torch.randint(0, 256, (500, 1, 84, 84), dtype=torch.uint8, device="cuda")
    rows = torch.randint(0, 500, (1152, 4), device="cuda")
    with torch.no_grad():
        found = FusedNetwork(plain).at(frames, rows)
        assert (found - plain(stacked(frames, rows))).abs().max() < 0.02


def compare_impala(
    states: int, shape: tuple[int, int], device: str, dtype: torch.dtype, width: int = 2, parts: int = 0
) -> tuple[float, list[float]]:
    """As `compare_fused`, of IMPALA's network with all that it can have."""
    from tightrope import entrance, stages

    if parts:
        entrance.PARTS, stages.MOST_PARTS = parts, 2 * parts
        stages.PROCESSORS = 0  # as if the images were large
    draw = torch.Generator().manual_seed(states)
    form = Form(dueling=True, quantiles=8, width=width, spectral_norm=True, implicit=True)
    plain = build_network("impala", (4, *shape), 6, 1 / 255, 3, form).to(device)
    frames = torch.randint(0, 256, (40, 1, *shape), dtype=torch.uint8, generator=draw).to(device)
    frames[7] = 100  # of one colour: many corners are equally large
    rows = torch.randint(0, 40, (2, states, 4), generator=draw).to(device).transpose(0, 1)  # which do not lie in a line
    rows[0, 0, :2] = -1
    rows[-1, 0] = 7
    assert stages.fits(plain, tuple(frames.shape[1:]), frames.dtype, 4)
    quick = stages.StagedNetwork(plain, dtype, backend="eager")
    actions = torch.randint(0, 6, (states,), generator=draw).to(device)
    pull = torch.randn(states, 8, generator=draw).to(device)
    levels = torch.rand(states, 8, generator=draw).to(device)
    with torch.no_grad():
        seen = stacked(frames, rows[:, 0])
        found = torch.cat([quick.at(frames, rows).flatten(), quick(seen).flatten()])
        expected = torch.cat([plain.at(frames, rows).flatten(), plain(seen).flatten()])
    rows = rows[:, 0]
    return differences(
        found, expected, plain, quick, lambda net: net.taken(frames, rows, actions, levels).backward(pull)
    )


def interpreted(call: str) -> Any:
    """What a comparison finds when Triton's interpreter runs the kernels, on the CPU."""
    pytest.importorskip("triton", reason="Triton is for Linux")
    code = f"from test_fast import *; torch.set_num_threads(1); print({call})"
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": os.path.dirname(__file__)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return eval(done.stdout)


@pytest.mark.parametrize(
    ("shape", "width", "parts"),
    [((16, 22), 1, 0), ((13, 10), 1, 3), ((9, 12), 2, 2), ((8, 8), 1, 0)],  # few parts go around more than once
)
def test_the_stages_are_impalas(shape: tuple[int, int], width: int, parts: int) -> None:
    """In float32 the same values and gradients to rounding, for sides that pooling halves evenly and not."""
    values, gradients = interpreted(f"compare_impala(3, {shape}, 'cpu', torch.float32, {width}, {parts})")
    assert values < 1e-5
    assert max(gradients) < 1e-5


def compare_relu() -> tuple[bool, bool]:
    """The kernels' against PyTorch's, in bfloat16 and float32; and not a number stays one."""
    from relu import relu

    same, nan = [], []
    for dtype in (torch.bfloat16, torch.float32):
        numbers = torch.tensor([-torch.inf, -2.5, -1e-30, -0.0, 0.0, 1e-30, 2.5, torch.nan], dtype=dtype)
        out = torch.full_like(numbers, 7)
        relu[1,](numbers, out, 8)
        same.append(torch.equal(out[:7], numbers[:7].relu()))
        nan.append(bool(out[7].isnan()))
    return all(same), all(nan)


def test_a_relu_of_bfloat16_is_one_of_integers() -> None:
    """Triton's interpreter cannot multiply bfloat16, so that all else is seen in float32."""
    assert interpreted("compare_relu()") == (True, True)


@pytest.mark.parametrize(
    ("network", "bound_on", "online", "target"),
    [
        ("paper", "action", "FusedNetwork", "FusedNetwork"),
        ("paper", "state", "QNetwork", "FusedNetwork"),  # the fused kernels know the gradient of one action alone
        ("impala", "action", "StagedNetwork", "StagedNetwork"),
        ("impala", "state", "StagedNetwork", "StagedNetwork"),
        ("small", "action", "QNetwork", "QNetwork"),
    ],
)
def test_each_network_gets_its_faster_form(
    monkeypatch: pytest.MonkeyPatch, network: str, bound_on: str, online: str, target: str
) -> None:
    pytest.importorskip("triton", reason="Triton is for Linux")
    monkeypatch.setattr(torch, "compile", lambda work, **_: work)
    learner, replay = made("cpu", network, bound_on=bound_on)
    compile_parts(learner, replay)
    assert (type(learner.online).__name__, type(learner.target).__name__) == (online, target)


@pytest.mark.parametrize(
    ("kind", "width", "frame_shape", "dtype", "stack", "expected"),
    [
        ("impala", 1, (1, 84, 84), torch.uint8, 4, True),
        ("impala", 1, (1, 83, 84), torch.uint8, 4, True),
        ("impala", 1, (1, 84, 83), torch.uint8, 4, False),  # pixels are loaded in pairs
        ("impala", 2, (1, 84, 84), torch.uint8, 4, True),
        ("impala", 3, (1, 84, 84), torch.uint8, 4, False),  # 48 channels: blocks of kernels are powers of two
        ("impala", 4, (1, 84, 84), torch.uint8, 4, False),  # 128 channels: too many for a processor
        ("impala", 2, (1, 84, 84), torch.float32, 4, False),
        ("impala", 2, (3, 84, 84), torch.uint8, 4, False),
        ("impala", 2, (1, 84, 84), torch.uint8, 2, False),
        ("paper", 1, (1, 84, 84), torch.uint8, 4, False),
    ],
)
def test_what_the_stages_are_for(
    kind: str, width: int, frame_shape: tuple[int, ...], dtype: torch.dtype, stack: int, expected: bool
) -> None:
    pytest.importorskip("triton", reason="Triton is for Linux")
    from tightrope.stages import fits

    network = build_network(kind, (stack * frame_shape[0], 84, 84), 6, 1 / 255, 3, Form(width=width))
    assert fits(network, frame_shape, dtype, stack) is expected


@pytest.mark.gpu
@pytest.mark.parametrize(("states", "shape"), [(1, (84, 84)), (64, (84, 84)), (5, (17, 22)), (3, (8, 8))])
def test_the_stages_are_impalas_on_a_gpu(states: int, shape: tuple[int, int]) -> None:
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    values, gradients = compare_impala(states, shape, "cuda", torch.float32)
    assert values < 1e-4
    assert max(gradients) < 1e-3
    values, gradients = compare_impala(states, shape, "cuda", torch.bfloat16)
    assert values < 0.05
    assert max(gradients) < 0.3


# --------------------------------------------------------------------------------------------- compiled and captured


#: Every switch that an update has, as far as one can have them at once.
EVERYTHING: dict[str, Any] = {
    "double": True, "n_step": 3, "dueling": True, "quantiles": 8, "munchausen": 0.9, "priority": "violation",
    "optimiser": "adam", "gradient_norm": 10.0, "penalty": "huber", "lower_draws": 2,
    "upper_draws": 2, "draw": "slide", "horizon": "episode", "upper_settled": 0.5, "margin": 0.5,
    "quantile_margin": 0.5, "expectile": 0.8,
}  # fmt: skip
#: What excludes each other, and what has another path, in two parts.
PARTS: dict[str, dict[str, Any]] = {
    "multipliers": {"lam_schedule": "multipliers", "bound_on": "state"},
    "excess": {
        "lam_schedule": "excess",
        "bound_on": "action",
        "upper_by": "ahead",
        "horizon": "crossings",
        "crossing_step": 0.5,
    },
}


#: A tenth of the paper's learning rate. At the paper's own, learning from noise magnifies rounding to a tenth of
#: the way and more within 20 updates, on some seeds; at this one to a few thousandths (experiments/rounding.py).
CALM = 0.000025


def made(where: str, network: str = "paper", seed: int = 1, **fields: Any) -> tuple[Learner, Replay]:
    """A learner and a replay with made-up experience in it."""
    fields = {"learning_rate": CALM} | fields
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device = torch.device(where)
    shape = (1, 84, 84) if network == "paper" else (1, 10, 10)
    config = preset("paper").replace(network=network, replay_rows=5_000, learn_start_steps=1000, num_envs=80, **fields)
    replay = Replay(5_000, 16, shape, np.dtype(np.uint8), 4, 6, config.gamma, device)
    rng = np.random.default_rng(0)
    frames = lambda: rng.integers(0, 256, (16, *shape), dtype=np.uint8)  # noqa: E731
    replay.start(frames())
    ends = np.zeros(16, dtype=bool)
    for _ in range(300):
        ends = rng.random(16) < 0.03
        replay.append(rng.integers(0, 6, 16), (rng.random(16) < 0.1).astype(float), np.ones(16, dtype=bool), ends,
                      np.zeros(16, dtype=bool), frames(), ends, np.zeros(16))  # fmt: skip
    built = build_network(network, (4, *shape[1:]), 6, 1 / 255, 3, Form.of(config))
    learner = Learner(built, config, device, seed)
    learner.keep_notes(replay)
    return learner, replay


def moved(learner: Learner, network: str = "paper") -> torch.Tensor:
    """How far the weights are from where they started, as one vector."""
    shape = (4, 84, 84) if network == "paper" else (4, 10, 10)
    start = build_network(network, shape, 6, 1 / 255, 3, Form.of(learner.config))
    pairs = zip(start.parameters(), learner.online.parameters(), strict=True)
    return torch.cat([(b.detach().cpu() - a.detach()).flatten() for a, b in pairs])


def graphs() -> int:
    """That were traced since the last look."""
    counters = torch._dynamo.utils.counters["stats"]
    found = int(counters["unique_graphs"])
    counters.clear()
    return found


#: The three pure parts, the target network, and the online one with and without gradients.
TRACED = 6


def test_the_compiled_update_equals_the_plain_one() -> None:
    """On the CPU, from the same state with the same random numbers, in float32: equal to rounding."""
    plain, replay = made("cpu", update_group=4)
    compiled, _ = made("cpu", update_group=4)
    compile_parts(compiled, replay, fuse=False)
    graphs()
    for _ in range(3):
        plain.update(replay)
        compiled.update(replay)
    assert graphs() >= TRACED - 1, "double asks the online network without gradients, this does not"
    expected = moved(plain)
    assert expected.norm() > 0.01
    assert (moved(compiled) - expected).norm() < 1e-4 * expected.norm()
    told = plain.read_telemetry()
    for name, value in compiled.read_telemetry().items():
        assert value == pytest.approx(told[name], rel=1e-4), name


@pytest.mark.parametrize(("network", "part"), [("small", "multipliers"), ("impala", "excess")])
def test_with_every_switch_the_compiled_update_equals_the_plain_one(
    monkeypatch: pytest.MonkeyPatch, network: str, part: str
) -> None:
    """Traced as whole graphs, which nothing that asks the host can be, and run as traced: no code is made of them, for
    that takes a minute. Each has its own replay, for an update leaves notes there."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="aot_eager"))
    torch._dynamo.reset()  # what was traced before would not be traced again, and is counted
    fields = EVERYTHING | {"spectral_norm": network == "impala"} | PARTS[part]
    plain, replay = made("cpu", network, **fields)
    compiled, own = made("cpu", network, **fields)
    compile_parts(compiled, own, fuse=False)
    graphs()
    for _ in range(3):
        plain.update(replay)
        compiled.update(own)
    assert graphs() >= TRACED
    expected = moved(plain, network)
    assert expected.norm() > 0.01
    assert (moved(compiled, network) - expected).norm() < 1e-3 * expected.norm()
    told = plain.read_telemetry()
    for name, value in compiled.read_telemetry().items():
        assert value == pytest.approx(told[name], rel=1e-3), name
    for name, note in replay.notes.items():
        torch.testing.assert_close(own.notes[name], note, rtol=1e-3, atol=1e-4)


def test_what_training_on_a_cpu_runs_equals_the_plain_update() -> None:
    """A compiled optimiser and remembered target values against neither, over three target networks."""
    fields = {"update_group": 1, "target_every_steps": 8}  # two updates
    plain, replay = made("cpu", "small", **fields)
    quick, _ = made("cpu", "small", **fields)
    assert plain.config.target_every_updates == 2
    quick.memory = Memory(replay.length * replay.num_envs, 6)
    assert compile_optimiser(quick)
    graphs()
    for _ in range(6):
        plain.update(replay)
        quick.update(replay)
    assert graphs() >= 1
    assert (quick.memory.networks == 2).any(), "values of the third target network are remembered"
    expected = moved(plain, "small")
    assert expected.norm() > 0.001
    assert (moved(quick, "small") - expected).norm() < 1e-4 * expected.norm()


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("network", "part"),
    [("small", "multipliers"), ("small", "excess"), ("impala", "multipliers"), ("impala", "excess")],
)
def test_with_every_switch_the_captured_update_equals_the_plain_one(network: str, part: str) -> None:
    """As below; each with its own replay, for an update leaves notes there."""
    impala = network == "impala"
    fields = EVERYTHING | {"spectral_norm": impala, "implicit": impala} | PARTS[part]
    plain, replay = made("cuda", network, **fields)
    fast, own = made("cuda", network, **fields)
    speed_up(fast, own, torch.float32)
    assert isinstance(fast.captured, CapturedUpdates)
    assert not fast.prepares_ahead
    fast.update(own)
    plain.schedule()
    for chances in fast.captured.chances:
        plain.learn_all(replay, plain.prepare(replay, chances))
    expected = moved(plain, network)
    assert (moved(fast, network) - expected).norm() < 0.01 * expected.norm()
    told = plain.read_telemetry()
    for name, value in fast.read_telemetry().items():
        assert value == pytest.approx(told[name], rel=0.05, abs=0.02), name


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("network", "dtype", "tolerance", "bound_on"),
    [
        ("paper", torch.float32, 0.02, "action"),
        ("paper", torch.float32, 0.02, "state"),  # which the fused kernels do not know
        ("small", torch.float32, 0.02, "action"),
        ("paper", torch.bfloat16, 0.1, "action"),
    ],
)
def test_the_captured_update_equals_the_plain_one(
    network: str, dtype: torch.dtype, tolerance: float, bound_on: str
) -> None:
    """From the same state on the same samples: one call of the graph against the same groups in plain PyTorch.

    The ways travelled differ by rounding. On a CPU weights that differ by 1 part in 10 million, as float32's do, end up
    to 2 thousandths of the way apart; by 1 in 1,000, as bfloat16's do, 2 %; with other samples it is 30 %.
    """
    plain, replay = made("cuda", network, bound_on=bound_on)
    other, _ = made("cuda", network, seed=2, bound_on=bound_on)
    fast, _ = made("cuda", network, bound_on=bound_on)
    speed_up(fast, replay, dtype)
    assert isinstance(fast.captured, CapturedUpdates)
    assert fast.at_once == 20, "several groups in one graph"
    fast.update(replay)
    for chances in fast.captured.chances:
        plain.learn_all(replay, plain.prepare(replay, chances))
        other.group(replay)
    expected = moved(plain, network)
    apart, far = ((moved(learner, network) - expected).norm() / expected.norm() for learner in (fast, other))
    assert apart < tolerance < 0.2 < far, "with other samples it is far"
    told = plain.read_telemetry()
    for name, value in fast.read_telemetry().items():
        assert value == pytest.approx(told[name], rel=0.05, abs=0.02), name


@pytest.mark.gpu
def test_samples_differ_from_replay_to_replay_of_the_graph() -> None:
    fast, replay = made("cuda", learning_rate=0.0)
    speed_up(fast, replay)
    seen = []
    for _ in range(5):
        fast.update(replay)
        seen.append(fast.read_telemetry()["q"])
    assert len(set(seen)) == 5, "with frozen weights only the samples can differ"


@pytest.mark.gpu
def test_numbers_really_change_inside_the_graph() -> None:
    """Learning rate and lambda are schedules in some runs."""
    fast, replay = made("cuda")
    speed_up(fast, replay)
    weights = [p.detach().clone() for p in fast.online.parameters()]
    fast.learning_rate.fill_(0.0)
    fast.update(replay)
    assert all(torch.equal(a, b) for a, b in zip(weights, fast.online.parameters(), strict=True))
    fast.learning_rate.fill_(0.00025)
    fast.update(replay)
    assert not torch.equal(weights[0], next(iter(fast.online.parameters())))
    # lambda: with an enormous one the error towards the tightened target differs from the one without.
    losses = []
    fast.learning_rate.fill_(0.0)
    for lam in (0.0, 1e6, 0.0):
        fast.lam.fill_(lam)
        fast.generator.manual_seed(5)
        fast.read_telemetry()
        fast.update(replay)
        losses.append(fast.read_telemetry()["loss"])
    assert losses[0] == pytest.approx(losses[2], rel=1e-6), "the same samples"
    assert losses[0] != pytest.approx(losses[1], rel=0.01)


@pytest.mark.gpu
def test_capturing_learns_nothing() -> None:
    fast, replay = made("cuda")
    weights = [p.detach().clone() for p in fast.online.parameters()]
    state = fast.generator.get_state()
    speed_up(fast, replay)
    assert all(torch.equal(a, b) for a, b in zip(weights, fast.online.parameters(), strict=True))
    assert torch.equal(state, fast.generator.get_state())
    assert fast.read_telemetry() == {}


# ------------------------------------------------------------------------------------------------- the captured actor


@pytest.mark.gpu
def test_the_captured_actor_explores_anew_each_time_and_by_the_epsilon_of_the_moment() -> None:
    from tightrope.actor import Actor
    from tightrope.fused import FusedNetwork
    from tightrope.games import GameOptions, make_game

    game = make_game("pong", 256, 0, GameOptions())
    info, device = game.info, torch.device("cuda")
    network = build_network("paper", (4, 84, 84), 6, 1 / 255, 3).to(device)
    plain, fast = (Actor(network, 256, info, device, 7) for _ in range(2))
    rng = np.random.default_rng(0)
    frames = [rng.integers(0, 256, (256, 1, 84, 84), dtype=np.uint8) for _ in range(6)]
    begins = [rng.random(256) < 0.3 for _ in range(6)]
    speed_up_actor(fast, FusedNetwork(network, torch.float32))
    for i in range(6):
        for actor in (plain, fast):
            actor.observe(frames[i], begins[i])
            actor.act(1.0)
        assert torch.equal(plain.states, fast.states), "the stacks, blanked where an episode begins"
    best = plain.act(0.0)
    assert (fast.act(0.0) == best).mean() > 0.99, "ties aside"
    assert fast.start_values.tolist() == pytest.approx(plain.start_values.tolist(), rel=1e-4)
    tosses = np.array([fast.act(0.6) for _ in range(100)])
    assert len({tuple(t) for t in tosses}) == 100
    # 0.6 of the tosses are random, five sixths of which differ from the best: 0.5, give or take 5 standard errors.
    assert abs((tosses != best).mean() - 0.5) < 5 * 0.5 / np.sqrt(25_600)
    assert (np.array([fast.act(0.06) for _ in range(100)]) != best).mean() == pytest.approx(0.05, abs=0.01)


@pytest.mark.gpu
def test_a_graph_of_random_numbers_goes_on_where_the_generator_is() -> None:
    draw = torch.Generator("cuda").manual_seed(3)
    toss = captured(lambda: torch.rand(4, generator=draw, device="cuda"), draw)
    found = []
    for _ in range(3):
        numbers = toss()
        assert numbers is not None
        found.append(numbers.clone())
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[1], found[2])
