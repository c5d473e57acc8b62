"""Runs in a study's folder: cells/<game>/<arm>/seed-<n>/, each a run folder, and what the study planned."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from tightrope.config import preset
from tightrope.errors import TightropeError
from tightrope.files import parse_toml, read_text
from tightrope.report.data import (
    Arm,
    Collection,
    Evaluated,
    Missing,
    Run,
    changes_in_words,
    frames_in_words,
    settings_of,
    title_of,
)
from tightrope.run import Description, RunFolder
from tightrope.study.plan import read


def from_study(path: Path) -> Collection:
    games = _plan(path)  # by cell; what the plan does not say, other runs of the same folder do
    cells = dict.fromkeys(games, "not begun")
    runs = []
    for folder in sorted((path / "cells").glob("*/*/seed-*")):
        slug, arm, seed = folder.relative_to(path / "cells").parts
        cell = slug, arm, seed.removeprefix("seed-")
        failure = _failure(folder)
        if not (folder / "config.toml").exists():
            cells[cell] = failure or "not begun"
            continue
        try:
            run = _read_run(folder, arm)
        except TightropeError as problem:
            cells[cell] = str(problem).replace(str(path), ".")
            continue
        runs.append(run)
        games[cell] = run.game
        if not run.finished:
            cells[cell] = f"{failure or 'unfinished'}: {run.unfinished}"
        else:
            cells[cell] = "" if run.evaluations else "finished without an evaluation"
    if not any(run.evaluations for run in runs):
        raise TightropeError(f"{path} has nothing to report yet: no run of it has been evaluated")
    by_slug = {cell[0]: title_of(game) for cell, game in games.items()}
    missing = [
        Missing(by_slug.get(slug, slug), arm, seed, state) for (slug, arm, seed), state in cells.items() if state
    ]
    order = _order_of_arms(path)
    runs.sort(key=lambda run: order.index(run.arm.name) if run.arm.name in order else len(order))
    return Collection(path.resolve().name, "run folders of a study", _one_arm_for_each_name(runs), missing)


def _plan(path: Path) -> dict[tuple[str, str, str], str]:
    """The games of the cells that study.toml plans, by (game's folder, arm, seed); none where it cannot be read, for
    what was run is worth a report all the same."""
    try:
        return {(c.folder.parts[1], c.arm.name, str(c.seed)): c.game for c in read(path).cells}
    except TightropeError:
        return {}


def _failure(folder: Path) -> str:
    """What the study says of a cell that failed, '' of any other."""
    try:
        status = json.loads(read_text(folder / "status.json"))
        return f"failed ({status['error']})" if status["state"] == "failed" else ""
    except (OSError, KeyError, TypeError, ValueError, RecursionError, TightropeError):
        return ""


def _order_of_arms(path: Path) -> list[str]:
    """As study.toml lists them, which is how its author thinks of them."""
    try:
        return list(parse_toml(read_text(path / "study.toml"))["arms"])
    except (OSError, KeyError, TypeError, ValueError, TightropeError):
        return []


def _read_run(folder: Path, arm_name: str) -> Run:
    description = Description.from_toml(folder / "config.toml")
    config, base = description.config, preset(description.preset).to_dict()
    changed = {name: value for name, value in config.to_dict().items() if value != base[name]}
    changes = changes_in_words(changed.items())
    arm = Arm(arm_name, description.preset, changes, not config.bounds, config.frames, settings_of(config))
    try:
        rows = RunFolder(folder).evaluations()
        evaluations = tuple(
            Evaluated(int(r["epoch"]), int(r["frames"]), float(r["score"]), int(r["games"]), r["protocol"])
            for r in rows
        )
        metrics = RunFolder(folder).metrics()
    except (OSError, KeyError, TypeError, ValueError) as problem:
        raise TightropeError(f"{folder} is damaged: {type(problem).__name__} {problem}") from None
    reached = [line["frames"] for line in metrics[-1:]] + [e.frames for e in evaluations[-1:]]
    return Run(
        description.game, arm, description.seed, evaluations, int(max(reached, default=0)),
        metrics[-1]["seconds"] if metrics else None, description.device,
        description.made_with.get("commit", "unknown"), folder, tuple(metrics),
    )  # fmt: skip


def _one_arm_for_each_name(runs: list[Run]) -> list[Run]:
    """A study's arm is its name, though on some games its settings differ (sticky actions outside Atari, say)."""
    arms: dict[tuple[str, int], Arm] = {}
    budgets: dict[str, set[int]] = {}
    for run in runs:
        budgets.setdefault(run.arm.name, set()).add(run.arm.frames)
    unified = []
    for run in runs:
        arm = arms.setdefault((run.arm.name, run.arm.frames), run.arm)
        if len(budgets[arm.name]) > 1:  # one name, two budgets: never one row of a table
            arm = replace(arm, name=f"{arm.name}, {frames_in_words(arm.frames)}")
        unified.append(replace(run, arm=arm))
    return unified
