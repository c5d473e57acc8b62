"""What there is to report: runs in a study's folder, or rows of runs that were made elsewhere."""

from __future__ import annotations

import csv
import json
import statistics
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from tightrope.config import Config, preset
from tightrope.errors import TightropeError
from tightrope.run import Description, RunFolder
from tightrope.scores import references

#: Fields that say how a run was recorded. They do not make another method of it, and so no other arm.
BOOKKEEPING = ("eval_every_epochs", "checkpoint_frames", "save_replay", "log_frames")

#: Without these columns a CSV file is something else than rows of runs (results/maze.csv has its own).
ROW_COLUMNS = dict.fromkeys(("game", "preset", "changed", "seed", "frames", "epoch", "score", "games", "protocol",
                         "run_frames", "run_seconds", "device", "commit"))  # fmt: skip

#: One run's rows agree in all of these.
SAME_RUN = ("game", "preset", "changed", "seed", "device", "commit")

#: The three ways to make one score of a run, in the order in which they are shown.
KINDS = {"best": "best", "last": "last", "last_five": "last five"}


@dataclass(frozen=True)
class Evaluated:
    """One evaluation during a run."""

    epoch: int
    frames: int
    score: float
    games: int
    protocol: str


@dataclass(frozen=True)
class Arm:
    """One method in the comparison: a preset and what was changed of it."""

    name: str
    preset: str
    changed: str
    plain: bool  # no bounds: DQN
    frames: int  # the budget

    @property
    def about(self) -> str:
        return f"preset {self.preset}" + (f" with {self.changed}" if self.changed else "")


@dataclass(frozen=True, eq=False)
class Run:
    """One arm on one game with one seed."""

    game: str
    arm: Arm
    seed: int
    evaluations: tuple[Evaluated, ...]
    frames: int  # played so far
    seconds: float | None  # wall-clock, evaluations included
    device: str
    commit: str
    folder: Path | None = None  # None: known from rows alone
    telemetry: tuple[dict[str, float], ...] = ()

    @property
    def finished(self) -> bool:
        return self.frames >= self.arm.frames

    @property
    def best(self) -> float:
        return max(e.score for e in self.evaluations)

    @property
    def last(self) -> float:
        return self.evaluations[-1].score

    @property
    def last_five(self) -> float:
        return statistics.fmean(e.score for e in self.evaluations[-5:])

    def score(self, kind: str) -> float:
        return float(getattr(self, kind))


@dataclass(frozen=True)
class Missing:
    """A run that was planned and is not there, or not whole."""

    game: str
    arm: str
    seed: str
    why: str


@dataclass
class Collection:
    """All runs of a report, in the order of their games and arms."""

    title: str
    source: str  # what was read, in words
    runs: list[Run]
    missing: list[Missing] = field(default_factory=list)
    from_rows: bool = False

    @cached_property
    def arms(self) -> list[Arm]:
        """Tightened before plain, larger budgets later, else in the order of first appearance."""
        return sorted(dict.fromkeys(run.arm for run in self.runs), key=lambda arm: (arm.frames, arm.plain))

    @cached_property
    def games(self) -> list[str]:
        return sorted({run.game for run in self.runs}, key=lambda game: (rom_of(game) is None, title_of(game).lower()))

    def of(self, game: str, arm: Arm) -> list[Run]:
        return [run for run in self._by_cell.get((game, arm), []) if run.evaluations]

    def finished(self, game: str, arm: Arm) -> list[Run]:
        return [run for run in self.of(game, arm) if run.finished]

    def settled(self, game: str, arm: Arm) -> list[Run]:
        """The finished runs of a cell; while there is none, those under way."""
        return self.finished(game, arm) or self.of(game, arm)

    def baseline(self, game: str, arm: Arm) -> Arm | None:
        """The plain arm to compare with on this game: of the same budget, the one with the fewest changes."""
        plain = [a for a in self.arms if a.plain and a.frames == arm.frames and a != arm and self.finished(game, a)]
        return min(plain, key=lambda a: len(a.changed.split()), default=None)

    @cached_property
    def _by_cell(self) -> dict[tuple[str, Arm], list[Run]]:
        cells: dict[tuple[str, Arm], list[Run]] = {}
        for run in sorted(self.runs, key=lambda run: run.seed):
            cells.setdefault((run.game, run.arm), []).append(run)
        return cells


def rom_of(game: str) -> str | None:
    """ale-py's name where the game has a human reference.

    >>> rom_of("atari/ms_pacman"), rom_of("minatar/breakout"), rom_of("atari/adventure")
    ('ms_pacman', None, None)
    """
    family, _, rom = game.partition("/")
    return rom if family == "atari" and rom in references() else None


def title_of(game: str) -> str:
    """
    >>> title_of("atari/ms_pacman"), title_of("minatar/space_invaders"), title_of("CartPole-v1")
    ('Ms. Pacman', 'MinAtar Space Invaders', 'CartPole-v1')
    """
    rom = rom_of(game)
    if rom is not None:
        return references()[rom].game
    family, _, name = game.partition("/")
    spoken = name.replace("_", " ").title()
    return {"minatar": f"MinAtar {spoken}", "atari": spoken}.get(family, game)


def collect(path: Path) -> Collection:
    """The runs of a study's folder, of a folder of CSV files, or of one CSV file."""
    if path.is_file():
        return _from_rows([path], path.stem)
    if (path / "cells").is_dir() or (path / "study.toml").is_file():
        return _from_study(path)
    files = sorted(path.glob("*.csv")) if path.is_dir() else []
    if not files:
        raise TightropeError(f"{path} is no study: it has neither cells/ nor CSV files of result rows")
    return _from_rows(files, path.resolve().name)


# -------------------------------------------------------------------------------------------------- a study's folder


def _from_study(path: Path) -> Collection:
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
            cells[cell] = f"{failure or 'unfinished'}: {run.frames:,} of {run.arm.frames:,} frames"
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
        from tightrope.study.plan import read  # type: ignore[import-not-found]

        return {(c.folder.parts[1], c.arm.name, str(c.seed)): c.game for c in read(path).cells}
    except (ImportError, TightropeError):
        return {}


def _failure(folder: Path) -> str:
    """What the study says of a cell that failed, '' of any other."""
    try:
        status = json.loads((folder / "status.json").read_text("utf-8"))
        return f"failed ({status['error']})" if status["state"] == "failed" else ""
    except (OSError, KeyError, TypeError, ValueError):
        return ""


def _order_of_arms(path: Path) -> list[str]:
    """As study.toml lists them, which is how its author thinks of them."""
    try:
        return list(tomllib.loads((path / "study.toml").read_text("utf-8"))["arms"])
    except (OSError, KeyError, TypeError, ValueError):
        return []


def _read_run(folder: Path, arm_name: str) -> Run:
    description = Description.from_toml(folder / "config.toml")
    config, base = description.config, preset(description.preset).to_dict()
    changed = {name: value for name, value in config.to_dict().items() if value != base[name]}
    arm = Arm(arm_name, description.preset, _changes(changed.items()), not config.bounds, config.frames)
    try:
        rows = RunFolder(folder).evaluations()
        evaluations = tuple(
            Evaluated(int(r["epoch"]), int(r["frames"]), float(r["score"]), int(r["games"]), r["protocol"])
            for r in rows
        )
        metrics = list(_lines(folder / "metrics.jsonl"))
    except (OSError, KeyError, TypeError, ValueError) as problem:
        raise TightropeError(f"{folder} is damaged: {type(problem).__name__} {problem}") from None
    reached = [line["frames"] for line in metrics[-1:]] + [e.frames for e in evaluations[-1:]]
    return Run(
        description.game, arm, description.seed, evaluations, int(max(reached, default=0)),
        metrics[-1]["seconds"] if metrics else None, description.device,
        description.made_with.get("commit", "unknown"), folder, tuple(metrics),
    )  # fmt: skip


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """Lines of metrics. The last may be half written: the run may be going on at this moment."""
    lines = path.read_text("utf-8").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            yield json.loads(line)
        except ValueError:
            if number < len(lines):
                raise


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
            arm = Arm(f"{arm.name}, {frames_in_words(arm.frames)}", arm.preset, arm.changed, arm.plain, arm.frames)
        unified.append(replace(run, arm=arm))
    return unified


# -------------------------------------------------------------------------------------------------------------- rows


def _from_rows(files: list[Path], title: str) -> Collection:
    runs: list[list[dict[str, str]]] = []
    newest: dict[tuple[str, ...], list[dict[str, str]]] = {}
    read = []
    for path in files:
        with open(path, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            if set(ROW_COLUMNS) - set(reader.fieldnames or ()):
                continue
            read.append(path.name)
            for row in reader:
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
    found = _short_names([_run_of(rows) for rows in runs])
    missing = [
        Missing(title_of(r.game), r.arm.name, str(r.seed), f"stopped at {r.frames:,} of {r.arm.frames:,} frames")
        for r in found
        if not r.finished
    ]
    return Collection(title, "result rows in " + ", ".join(read), found, missing, from_rows=True)


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
            first["game"], _arm_of(first["preset"], first["changed"], frames), int(first["seed"]), evaluations, frames,
            float(last["run_seconds"]) if last["run_seconds"] else None, first["device"], first["commit"],
        )  # fmt: skip
    except (TypeError, ValueError) as problem:
        raise TightropeError(f"a row of {first['game']}, seed {first['seed']} cannot be read: {problem}") from None


def _arm_of(preset_name: str, changed: str, run_frames: int) -> Arm:
    words = changed.split()
    pairs = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=False)}
    config: Config | None
    try:
        config = preset(preset_name).replace(**pairs)
    except TightropeError:
        config = None  # a preset or field of another version: the row stands, with the budget that it reached
    changes = _changes(pairs.items())
    return Arm(
        f"{preset_name} {changes}", preset_name, changes,
        not config.bounds if config else preset_name.startswith("dqn"), config.frames if config else run_frames,
    )  # fmt: skip


def _short_names(runs: list[Run]) -> list[Run]:
    """Arms by their preset and by what tells them from the others of that preset: all of a study's common settings in
    every name would hide it."""
    by_preset: dict[str, dict[Arm, set[str]]] = {}
    for run in runs:
        by_preset.setdefault(run.arm.preset, {})[run.arm] = set(run.arm.changed.split())
    named = {}
    for name, arms in by_preset.items():
        common = set.intersection(*arms.values())
        for arm, changes in arms.items():
            own = " ".join(change for change in arm.changed.split() if change in changes - common)
            named[arm] = replace(arm, name=f"{name} ({own})" if own else name)
    return [replace(run, arm=named[run.arm]) for run in runs]


def _changes(pairs: Iterable[tuple[str, Any]]) -> str:
    return " ".join(f"{name}={value}" for name, value in pairs if name not in BOOKKEEPING)


def frames_in_words(frames: float) -> str:
    """
    >>> frames_in_words(10_000_088), frames_in_words(16_000), frames_in_words(250)
    ('10M', '16k', '250')
    """
    for size, letter in ((1e6, "M"), (1e3, "k")):
        if frames >= size:
            return f"{frames / size:.3g}{letter}"
    return f"{frames:g}"
