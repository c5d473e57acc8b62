"""What is said to have no effect has none, and has one once its switch is on."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import tightrope
from test_switches import played
from tightrope.config import preset
from tightrope.idle import RULES, remarks, why_idle
from tightrope.learner import Learner
from tightrope.network import Form, build_network

Fields = dict[str, Any]

#: Of preset `paper`: a switch off, the same on, and values of what belongs to it that are not the preset's.
SWITCHES: list[tuple[Fields, Fields, Fields]] = [
    (
        {"bounds": False},
        {},
        {"k": 2, "lower_draws": 1, "horizon": "episode", "use_return": False, "bound_on": "state", "lam": 1.0,
         "lam_schedule": "excess", "penalty": "absolute", "margin": 1.0, "expectile": 0.7, "slack": 0.3,
         "rescale": False, "bounds_at_end": False},
    ),
    (
        {"use_upper": False},
        {},
        {"upper_from": 0, "upper_draws": 1, "upper_by": "ahead", "upper_settled": 0.5, "both_violated": "mean"},
    ),
    ({"upper_by": "ahead", "k": 0}, {"upper_by": "ahead"}, {"use_upper": False, "upper_settled": 0.5}),
    ({"upper_by": "ahead"}, {}, {"upper_from": 0, "upper_draws": 1}),
    ({}, {"horizon": "crossings"}, {"crossing_step": 0.3}),
    ({"horizon": "crossings"}, {}, {"lower_draws": 2}),
    ({"draw": "random", "lower_draws": 2}, {"draw": "slide", "lower_draws": 2}, {"slide_steps": 100}),
    ({}, {"lower_draws": 2}, {"draw": "slide"}),
    ({}, {"lam_schedule": "annealed"}, {"lam_end": 1.0, "lam_steps": 100}),
    ({}, {"lam_schedule": "multipliers", "lam": 1.0}, {"multiplier_step": 0.1, "multiplier_max": 0.01}),
    ({}, {"penalty": "huber"}, {"penalty_width": 0.01}),
    ({}, {"margin": 1.0}, {"margin_updates": 3}),
    (
        {},
        {"priority": "error"},
        {"priority_exponent": 1.0, "priority_floor": 0.3, "priority_beta_start": 0.9, "priority_beta_end": 0.5,
         "priority_beta_steps": 100},
    ),
    ({}, {"munchausen": 0.9}, {"munchausen_temperature": 0.3, "munchausen_floor": -0.01}),
    ({"optimiser": "adam"}, {}, {"rms_decay": 0.5, "rms_epsilon": 0.1}),
    ({}, {"optimiser": "adam"}, {"adam_mean_decay": 0.5, "adam_square_decay": 0.9, "adam_epsilon": 0.1}),
]  # fmt: skip
CASES = [(off, on, {name: value}) for off, on, fields in SWITCHES for name, value in fields.items()]


@cache
def weights_after(fields: tuple[tuple[str, Any], ...]) -> torch.Tensor:
    """After 40 updates; the target network follows after every 10."""
    small = {"num_envs": 4, "batch_size": 16, "replay_rows": 600, "learn_start_steps": 50, "target_every_steps": 40,
             "update_group": 1, "learning_rate": 0.01}  # fmt: skip
    config = preset("paper").replace(**small | dict(fields))
    network = build_network("small", (2, 6, 6), 3, 1.0, 5, Form.of(config))
    replay = played(4, 120, 0)
    learner = Learner(network, config, torch.device("cpu"), 1)
    learner.keep_notes(replay)
    for _ in range(40):
        learner.update(replay)
    return torch.cat([part.detach().flatten() for part in network.parameters()])


def weights(fields: Fields) -> torch.Tensor:
    return weights_after(tuple(sorted(fields.items())))


def named(case: Fields) -> str:
    return ",".join(f"{name}={value}" for name, value in case.items()) or "paper"


@pytest.mark.parametrize(("off", "on", "changed"), CASES, ids=named)
def test_a_field_has_an_effect_where_its_switch_is_on_and_nowhere_else(
    off: Fields, on: Fields, changed: Fields
) -> None:
    (name,) = changed
    assert why_idle(name, preset("paper").replace(**off | changed)) is not None
    assert torch.equal(weights(off), weights(off | changed))
    assert why_idle(name, preset("paper").replace(**on | changed)) is None
    assert not torch.equal(weights(on), weights(on | changed))


def test_no_field_of_a_rule_is_left_untried() -> None:
    ruled = {name for rule in RULES for name in rule.fields}
    # `quantile_margin` is refused without quantiles, `overlap` is no matter of the update.
    assert ruled - {name for *_, fields in SWITCHES for name in fields} == {"quantile_margin", "overlap"}


def test_a_run_says_which_of_the_numbers_it_was_given_have_no_effect(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    fields: Fields = {"bounds": False, "lam": 2, "gamma": 0.9, "k": 4, "overlap": True}
    tightrope.train("maze", frames=300, learn_start_steps=100, out=tmp_path / "run", **fields)
    said = capfd.readouterr().err
    assert "lam: no effect with bounds = False" in said, "k is as the preset has it"
    assert "overlap: no effect with num_envs = 1" in said
    assert "gamma:" not in said
    assert remarks(["lam_end", "lam_steps"], preset("paper")) == [
        "lam_end, lam_steps: no effect with lam_schedule = 'constant'"
    ]
