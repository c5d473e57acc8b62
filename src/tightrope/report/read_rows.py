"""Runs known from rows alone, one for each evaluation: how runs that were made elsewhere are reported."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

from tightrope.config import Config, preset
from tightrope.errors import TightropeError, counted
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
from tightrope.study.rows import TELEMETRY

#: Without these columns a CSV file is something else than rows of runs (results/maze.csv has its own).
ROW_COLUMNS = dict.fromkeys(("game", "preset", "changed", "seed", "frames", "epoch", "score", "games", "protocol",
                         "run_frames", "run_seconds", "device", "commit"))  # fmt: skip

#: One run's rows agree in all of these.
SAME_RUN = ("game", "preset", "changed", "seed", "device", "commit")


def from_rows(files: list[Path], title: str) -> Collection:
    runs: list[list[dict[str, str]]] = []
    newest: dict[tuple[str, ...], list[dict[str, str]]] = {}
    unscored: list[dict[str, str]] = []
    read = []
    for path in files:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if set(ROW_COLUMNS) - set(reader.fieldnames or ()):
                continue
            read.append(path.name)
            for row in reader:
                if not row["score"]:  # it ended before its first evaluation
                    unscored.append(row)
                    continue
                # A run's evaluations stand in order: one that does not come later belongs to another run of that seed.
                key = tuple(row[name] for name in SAME_RUN)
                if key not in newest or _whole(row, "frames") <= _whole(newest[key][-1], "frames"):
                    newest[key] = []
                    runs.append(newest[key])
                newest[key].append(row)
    if not runs:
        raise TightropeError(
            f"no rows of runs in {', '.join(map(str, files))}: the columns are {' '.join(ROW_COLUMNS)}"
        )
    every = _short_names([_run_of(rows) for rows in runs])
    found = _one_for_each_seed(every)
    again = [run for run in every if run not in found]
    missing = [
        Missing(title_of(r.game), r.arm.name, str(r.seed), f"stopped {r.unfinished}") for r in found if not r.finished
    ]
    missing += [
        Missing(
            title_of(row["game"]), row.get("arm") or row["preset"], row["seed"], row.get("state") or "no evaluation"
        )
        for row in unscored
    ]
    source = "result rows in " + ", ".join(read)
    if again:
        source += f" ({counted(len(again), 'run')} of seeds that were run more than once: listed, not counted)"
    return Collection(title, source, found, missing, again, from_rows=True)


def _one_for_each_seed(runs: list[Run]) -> list[Run]:
    """A seed that was run again, as by another version of the code, is no second seed: of its runs those that came to
    their end, of these the one that was evaluated most often, of these the newest. No score has a say in it."""
    chosen: dict[tuple[str, Arm, int], Run] = {}
    for run in runs:
        cell = (run.game, run.arm, run.seed)
        if cell not in chosen or _thorough(run) >= _thorough(chosen[cell]):
            chosen[cell] = run
    return [run for run in runs if chosen[run.game, run.arm, run.seed] is run]


def _thorough(run: Run) -> tuple[bool, int]:
    return run.finished, len(run.evaluations)


def _whole(row: dict[str, str], name: str) -> int:
    try:
        return int(row[name])
    except (TypeError, ValueError):
        raise TightropeError(
            f"a row of {row['game']}, seed {row['seed']}: {name} = {row[name]!r} is no number"
        ) from None


def _run_of(rows: list[dict[str, str]]) -> Run:
    first, last = rows[0], rows[-1]
    try:
        evaluations = tuple(
            Evaluated(int(r["epoch"]), int(r["frames"]), float(r["score"]), int(r["games"]), r["protocol"])
            for r in rows
        )
        frames = int(last["run_frames"] or last["frames"])
        return Run(
            first["game"], _arm_of(first, frames), int(first["seed"]), evaluations, frames,
            float(last["run_seconds"]) if last["run_seconds"] else None, first["device"], first["commit"],
            telemetry=tuple(_telemetry(row) for row in rows if row.get(TELEMETRY[0])),
        )  # fmt: skip
    except (TypeError, ValueError) as problem:
        raise TightropeError(f"a row of {first['game']}, seed {first['seed']} cannot be read: {problem}") from None


def _telemetry(row: dict[str, str]) -> dict[str, float]:
    return {"frames": int(row["frames"])} | {name: float(row[name]) for name in TELEMETRY}


def _arm_of(row: dict[str, str], run_frames: int) -> Arm:
    preset_name, words = row["preset"], row["changed"].split()
    pairs = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=False)}
    config: Config | None
    try:
        config = preset(preset_name).replace(**pairs)
    except TightropeError:
        config = None  # a preset or field of another version: the row stands, with the budget that it reached
    changes = changes_in_words(pairs.items())
    return Arm(
        row.get("arm") or f"{preset_name} {changes}", preset_name, changes,
        not config.bounds if config else preset_name.startswith("dqn"), config.frames if config else run_frames,
        settings_of(config) if config else frozenset(),
    )  # fmt: skip


def _short_names(runs: list[Run]) -> list[Run]:
    """Arms by the name that their study gave them; else by their preset and by what tells them from the others of that
    preset: all of a study's common settings in every name would hide it."""
    by_preset: dict[str, dict[Arm, set[str]]] = {}
    named = {}
    for run in runs:
        if run.arm.name == f"{run.arm.preset} {run.arm.changed}":  # no study has named it
            by_preset.setdefault(run.arm.preset, {})[run.arm] = set(run.arm.changed.split())
        else:
            named[run.arm] = run.arm
    for name, arms in by_preset.items():
        common = set.intersection(*arms.values())
        for arm, changes in arms.items():
            own = " ".join(change for change in arm.changed.split() if change in changes - common)
            named[arm] = replace(arm, name=f"{name} ({own})" if own else name)
    named = _told_apart(named)
    return [replace(run, arm=named[run.arm]) for run in runs]


def _told_apart(named: dict[Arm, Arm]) -> dict[Arm, Arm]:
    """Two studies, or two versions of one, may give one name to two things: those go by their budgets too, if these
    differ, else by what each has changed that not all of that name have."""
    taken: dict[str, list[Arm]] = {}
    for arm in named.values():
        taken.setdefault(arm.name, []).append(arm)
    names: dict[Arm, str] = {}
    for name, arms in taken.items():
        budgets = {arm.frames for arm in arms}
        common = set.intersection(*(set(arm.changed.split()) for arm in arms))
        for number, arm in enumerate(arms, 1):
            own = " ".join(change for change in arm.changed.split() if change not in common)
            if len(arms) == 1:
                names[arm] = name
            elif len(budgets) == len(arms):
                names[arm] = f"{name}, {frames_in_words(arm.frames)}"
            else:
                names[arm] = f"{name} ({own})" if own else name
            if names[arm] in [names[other] for other in arms[: number - 1]]:
                names[arm] += f" #{number}"
    return {key: replace(arm, name=names[arm]) for key, arm in named.items()}
