"""Every pair of switches trains together: a few hundred updates on a small game, without error and with finite numbers.

There are too many combinations of all switches to train; but few runs are enough for every *pair* of settings to occur
in one of them. Most switches say something of the bounds: all pairs occur with bounds, and those of the others without
them too, where the former would do nothing.
"""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from tightrope.config import preset
from tightrope.run import Description, RunFolder
from tightrope.trainer import Trainer

#: Each switch with its settings; the first is the paper's. These act with bounds and without.
LEARNING: dict[str, list[dict[str, Any]]] = {
    "double": [{}, {"double": True}],
    "dueling": [{}, {"dueling": True}],
    "quantiles": [{}, {"quantiles": 5}, {"quantiles": 3, "implicit": True}],
    "n-step": [{}, {"n_step": 3}, {"n_step": 7}],
    "priority": [{}, {"priority": "error"}],
    "munchausen": [{}, {"munchausen": 0.9}],
    "optimiser": [{}, {"optimiser": "adam"}],
    "gradient": [{}, {"gradient_norm": 10.0}],
    "network": [{}, {"network": "impala", "spectral_norm": True}, {"network": "impala"}],
    "updates": [{}, {"updates_when_due": 2}],
    "end": [{}, {"bounds_at_end": False}],
    "cut": [{}, {"cut_return": "mean_q"}, {"cut_return": "sum"}],
    "samples": [{}, {"sample_unfinished": False}],
    "environments": [
        {},
        {"num_envs": 1, "update_group": 1},
        {"overlap": True},
        {"overlap": True, "asynchronous": True},
    ],
}
#: And these with bounds alone.
BOUNDS: dict[str, list[dict[str, Any]]] = {
    "quantiles": [
        *LEARNING["quantiles"],
        {"quantiles": 5, "quantile_margin": 0.5},
        {"quantiles": 3, "implicit": True, "quantile_margin": 1.0},
    ],
    "priority": [*LEARNING["priority"], {"priority": "violation"}],
    "lambda": [
        {},
        {"lam_schedule": "annealed", "lam_end": 0.5, "lam_steps": 200},
        {"lam_schedule": "multipliers", "multiplier_max": 0.5},
        {"lam_schedule": "excess", "margin_updates": 50},
    ],
    "bounds on": [{}, {"bound_on": "state"}],
    "expectile": [{}, {"expectile": 0.8}],
    "penalty": [{}, {"penalty": "absolute"}, {"penalty": "huber", "penalty_width": 0.1}],
    "choice": [
        {},
        {"k": 0, "upper_from": 0},  # R_j, and an upper bound of one step
        {"lower_draws": 1, "upper_draws": 2},
        {"k": 9, "upper_from": 0, "lower_draws": 2, "upper_draws": 2, "draw": "slide", "slide_steps": 200},
    ],
    "horizon": [{}, {"horizon": "episode"}, {"horizon": "crossings", "crossing_step": 0.5}],
    "upper": [{}, {"use_upper": False}, {"upper_by": "ahead"}],
    "settled": [{}, {"upper_settled": 5.0}],
    "both": [{}, {"both_violated": "mean"}],
    "slack": [{}, {"slack": 0.1}],
    "margin": [{}, {"margin": 1.0, "margin_updates": 50}],
    "return": [{}, {"use_return": False}],
    "rescale": [{}, {"rescale": False}],
}


Pair = frozenset[tuple[str, int]]


def merged(bounds: bool, run: dict[str, int]) -> dict[str, Any]:
    fields: dict[str, Any] = {"bounds": bounds}
    for name, setting in run.items():
        fields |= SWITCHES[bounds][name][setting]
    return fields


def pairs(run: dict[str, int]) -> set[Pair]:
    return {frozenset(pair) for pair in combinations(run.items(), 2)}


def bounds_none(run: dict[str, int]) -> bool:
    """Whether there is no bound at all, though there are bounds: with K = 0 those of the steps ahead are none."""
    fields = merged(True, run)
    upper = fields.get("use_upper", True) and fields.get("upper_by") != "ahead"
    return not upper and not fields.get("use_return", True) and fields.get("k") == 0


def covering(bounds: bool, seed: int) -> list[dict[str, int]]:
    """Runs, each a setting of every switch, such that every pair of settings occurs: one after another the best of a
    few, each made better switch by switch."""
    rng = np.random.default_rng(seed)
    sizes = {name: len(settings) for name, settings in SWITCHES[bounds].items()}
    names = list(sizes)
    missing = {
        frozenset({(a, i), (b, j)}) for a, b in combinations(names, 2) for i in range(sizes[a]) for j in range(sizes[b])
    }
    runs = []
    while missing:
        wanted = dict(min(missing, key=sorted))  # so that every run covers something
        best = wanted
        for _ in range(5):
            run = {name: int(rng.integers(size)) for name, size in sizes.items()} | wanted
            for name in rng.permutation([name for name in names if name not in wanted]):
                others = [item for item in run.items() if item[0] != name]
                gains = [
                    -1
                    if bounds and bounds_none(run | {name: setting})
                    else sum(frozenset({(name, setting), other}) in missing for other in others)
                    for setting in range(sizes[name])
                ]
                run[name] = int(np.argmax(gains))
            if len(best) < len(run) or len(pairs(run) & missing) > len(pairs(best) & missing):
                best = run
        runs.append(best)
        missing -= pairs(best)
    return runs


#: Whether there are bounds, and the switches that act then.
SWITCHES = {True: LEARNING | BOUNDS, False: LEARNING}
RUNS = [(bounds, run) for bounds in SWITCHES for run in covering(bounds, 0)]  # of a few seeds the shortest list


class Corridor(gymnasium.Env[np.ndarray, int]):
    """Eight cells in an image of 8x8, four actions: one goes on, one back, one pays a little and ends the game."""

    observation_space = gymnasium.spaces.Box(0, 255, (8, 8), np.uint8)
    action_space = gymnasium.spaces.Discrete(4)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = self.steps = 0
        return self.seen(), {}

    def seen(self) -> np.ndarray:
        image = np.zeros((8, 8), np.uint8)
        image[self.place] = 255
        return image

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        self.steps += 1
        self.place = min(7, max(0, self.place + (action == 1) - (action == 2)))
        reward = 1.0 if self.place == 7 else 0.1 * (action == 3)
        return self.seen(), reward, self.place == 7 or action == 3, self.steps == 15, {}


def test_every_pair_of_settings_is_in_some_run_where_both_act() -> None:
    for bounds, switches in SWITCHES.items():
        runs = [run for has_bounds, run in RUNS if has_bounds == bounds]
        for (a, first), (b, second) in combinations(switches.items(), 2):
            for i in range(len(first)):
                for j in range(len(second)):
                    assert any(run[a] == i and run[b] == j for run in runs), (a, first[i], b, second[j])
    assert not any(has_bounds and bounds_none(run) for has_bounds, run in RUNS)


@pytest.mark.parametrize("number", range(len(RUNS)))
def test_pairs_train(tmp_path: Path, number: int) -> None:
    trains(tmp_path, "minatar", {"network": "small"} | merged(*RUNS[number]))


@pytest.mark.parametrize(
    ("name", "fields"),
    [("tightrope", {}), ("tightrope", {"bounds": True}), ("tightrope-small", {}), ("tightrope-minatar", {}),
     ("released", {}), ("released-close", {}), ("crossings", {})],
)  # fmt: skip
def test_presets_train(tmp_path: Path, name: str, fields: dict[str, Any]) -> None:
    """With all that a preset combines, in smaller numbers."""
    small = {"gradient_norm": 80.0} if name == "tightrope" else {}
    trains(tmp_path, name, small | fields)


def trains(tmp_path: Path, name: str, fields: dict[str, Any]) -> None:
    frames = 100 + 900 // fields.get("updates_when_due", 1)  # as many updates in all
    config = preset(name).replace(**{
        "num_envs": 4, "frames": frames, "learn_start_steps": 100, "replay_rows": 600, "batch_size": 8, "sticky": 0.0,
        "target_every_steps": 40, "update_every_steps": 4, "epsilon_decay_steps": 400, "update_group": 2,
        "priority_beta_steps": 200, "eval_every_epochs": 0, "save_replay": False, "max_game_frames": 0,
        "skip_start_rows": 0, "life_noops": 0,
    } | fields)  # fmt: skip
    description = Description("custom", name, 0, "cpu", config)
    trainer = Trainer(description, RunFolder(tmp_path / "run"), env=Corridor)
    trainer.folder.create(description)
    trainer.start()
    before = [p.detach().clone() for p in trainer.network.parameters()]
    lines = list(trainer.train())
    trainer.close()
    assert trainer.started_at is not None
    due = config.updates_due(trainer.steps - trainer.started_at)
    assert due - trainer.learner.at_once < trainer.learner.updates
    assert trainer.learner.updates <= due or config.asynchronous
    assert trainer.learner.updates > 200
    for part, tensor in trainer.learner.state().items():
        if not part.startswith("telemetry.") and tensor.is_floating_point():
            assert not tensor.isnan().any()
            assert not (tensor == torch.inf).any()
            # A row that was never sampled has no bound of its episode yet, and of most places nothing is known.
            assert part in ("episode_bound", "crossing_worth") or not (tensor == -torch.inf).any()
    for weights, start in zip(trainer.network.parameters(), before, strict=True):
        assert weights.isfinite().all()
        assert weights.abs().max() < 100
        assert not torch.equal(weights, start) or not weights.requires_grad
    told = lines[-1]
    assert all(np.isfinite(told[name]) for name in ("loss", "q", "lower_gap", "upper_gap"))
