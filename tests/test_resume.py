"""Train, stop, resume: the same weights, bit for bit, and the same metrics as the run that was never stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import tightrope
from tightrope import checkpoint
from tightrope.api import RunFolder
from tightrope.config import preset
from tightrope.run import Description
from tightrope.trainer import Trainer

SMALL_ATARI = {
    "num_envs": 3, "replay_rows": 600, "learn_start_steps": 60, "batch_size": 4, "target_every_steps": 40,
    "epsilon_decay_steps": 300, "max_game_frames": 400, "log_frames": 200, "epoch_frames": 800, "eval_episodes": 2,
    "eval_max_game_frames": 200, "checkpoint_frames": 10**6, "frames": 2400,
    "update_group": 2,
}  # fmt: skip
SMALL = {
    "num_envs": 3, "replay_rows": 400, "learn_start_steps": 60, "target_every_steps": 40, "log_frames": 100,
    "epoch_frames": 300, "eval_episodes": 2, "eval_max_game_frames": 60, "checkpoint_frames": 10**6, "frames": 1500,
}  # fmt: skip
SWITCHES = {
    "optimiser": "adam", "priority": "violation", "priority_beta_steps": 400, "lam_schedule": "multipliers",
    "horizon": "episode", "upper_settled": 0.5, "margin": 0.5, "quantiles": 4, "dueling": True, "double": True,
    "network": "impala", "spectral_norm": True, "lower_draws": 2, "draw": "slide", "slide_steps": 400,
    "update_every_steps": 8, "batch_size": 8, "frames": 900,
}  # fmt: skip
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("CartPole-v1", "classic", SMALL),
    # More updates than frames.
    ("CartPole-v1", "classic", SMALL | {"update_every_steps": 1, "updates_when_due": 4, "frames": 600}),
    ("minatar/breakout", "minatar", SMALL | {"sticky": 0.1}),
    ("minatar/breakout", "minatar", SMALL | {"lam_schedule": "excess", "margin_updates": 50}),
    ("minatar/breakout", "minatar", SMALL | {"horizon": "crossings", "crossing_step": 0.5}),
    # Every switch that keeps something from one update to the next.
    ("minatar/breakout", "minatar", SMALL | SWITCHES),
    ("atari/breakout", "paper", SMALL_ATARI),
    # Everything at once that an emulator's state depends on: sticky actions, no-ops after lives, cuts, drawn bounds.
    ("atari/breakout", "released", SMALL_ATARI | {"sticky": 0.25, "eval_steps": 0, "num_envs": 8}),
]


def trainer(folder: Path, game: str, name: str, fields: dict[str, Any]) -> Trainer:
    config = preset(name).replace(**fields)
    description = Description(game, name, seed=3, device="cpu", config=config)
    run = RunFolder(folder)
    made = Trainer(description, run)
    if not (folder / "config.toml").exists():
        run.create(description)
        made.start()
    else:
        made.resume()
    return made


def without_times(folder: Path) -> tuple[list[dict[str, Any]], list[dict[str, str]]]:
    run = RunFolder(folder)
    timed = ("seconds", "frames_per_second")
    metrics = [{k: v for k, v in row.items() if k not in timed} for row in run.metrics()]
    return metrics, [{k: v for k, v in row.items() if k not in timed} for row in run.evaluations()]


def everything(folder: Path) -> dict[str, torch.Tensor]:
    tensors, facts = checkpoint.read(RunFolder(folder).checkpoints.saved()[-1])
    for name in facts["segments"]:
        tensors[name] = checkpoint.read(folder / "checkpoints" / name)[0]["frames"]
    return tensors


@pytest.mark.parametrize(
    ("game", "name", "fields"),
    CASES,
    ids=["cartpole", "many-updates", "minatar", "excess", "crossings", "switches", "atari", "atari-released"],
)
def test_resumed_run_ends_as_the_unbroken_one(tmp_path: Path, game: str, name: str, fields: dict[str, Any]) -> None:
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    list(trainer(unbroken, game, name, fields).train())
    # Stopped twice, at odd moments: between two log lines, and right after the run's first third.
    for stop in (fields["frames"] // 3 + 17, 2 * fields["frames"] // 3 + 1):
        part = trainer(broken, game, name, fields)
        for _ in iter(lambda: part.frames >= stop, True):  # noqa: B023
            part.step()
            if part.crossed(part.config.log_frames):
                part.log()
            part.end_epoch()
        part.save()
        # Lines written after the checkpoint are lost with the process that wrote them.
        part.folder._append(part.folder._metrics, '{"frames": 1}\n')
    list(trainer(broken, game, name, fields).train())

    expected, found = everything(unbroken), everything(broken)
    assert expected.keys() == found.keys()
    for key, tensor in expected.items():
        assert torch.equal(tensor.nan_to_num(9e9), found[key].nan_to_num(9e9)), key
    assert without_times(unbroken) == without_times(broken)
    metrics, evaluations = without_times(broken)
    assert len(metrics) == fields["frames"] // fields["log_frames"]
    assert len(evaluations) == fields["frames"] // fields["epoch_frames"]
    assert metrics[-1]["updates"] > 50, "the run learned, so equal weights mean something"
    for which in ("best", "last"):
        a, b = (tightrope.load(folder, which=which) for folder in (unbroken, broken))
        assert a.facts == b.facts
        assert json.dumps(a.facts.config) == json.dumps(b.facts.config)


def test_a_long_log_is_reseeded_and_still_exact(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Environments seeded anew in mid-run, at different times, come back too."""
    monkeypatch.setattr("tightrope.games.atari.RESEED_STEPS", 30)
    game, name, fields = CASES[2]
    test_resumed_run_ends_as_the_unbroken_one(tmp_path, game, name, fields | {"max_game_frames": 220})


def test_a_run_stopped_before_its_first_checkpoint_starts_again(tmp_path: Path) -> None:
    game, name, fields = CASES[0]
    folder = tmp_path / "run"
    first = trainer(folder, game, name, fields)
    first.step()
    first.step()
    first.folder._append(first.folder._metrics, '{"frames": 1}\n')
    again = trainer(folder, game, name, fields)
    assert again.frames == 0
    assert RunFolder(folder).metrics() == []
