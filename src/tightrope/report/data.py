"""What there is to report: runs, of arms, on games."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from tightrope.config import Config
from tightrope.scores import references

#: Fields that say how a run was recorded. They do not make another method of it, and so no other arm.
BOOKKEEPING = ("eval_every_epochs", "checkpoint_frames", "save_replay", "log_frames")

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
    settings: frozenset[tuple[str, str]] = frozenset()  # all of them but the bookkeeping, where they are known

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
    spacing: float = 0.0  # frames between evaluations of the run, of all it is compared with, that has most of them

    @property
    def finished(self) -> bool:
        """At its end, and not cut off in its last evaluation."""
        return self.frames >= self.arm.frames and (not self.evaluations or self.evaluations[-1].frames == self.frames)

    @property
    def unfinished(self) -> str:
        """Where one that is not finished was cut off, in words."""
        if self.frames >= self.arm.frames:
            return "in its last evaluation"
        return f"at {self.frames:,} of {self.arm.frames:,} frames"

    @property
    def best(self) -> float:
        return max(e.score for e in self.evaluations)

    @property
    def last(self) -> float:
        return self.evaluations[-1].score

    def recent(self, spacings: int, until: int | None = None) -> list[Evaluated]:
        """The evaluations of so many spacings up to that frame, or to the end: so many of them, and fewer of a run that
        was evaluated less often than others, so that one arm's mean does not reach further back than another's."""
        until = self.evaluations[-1].frames if until is None else until
        since = until - (spacings - 0.5) * self.spacing  # half: a step's frames more or less
        return [e for e in self.evaluations if since <= e.frames <= until]

    @property
    def last_five(self) -> float:
        return statistics.fmean(e.score for e in self.recent(5))

    @property
    def own_spacing(self) -> float:
        """Frames between its evaluations; its end, which may come early, does not count where there are others."""
        gaps = [later - earlier for earlier, later in pairwise([0, *(e.frames for e in self.evaluations)])]
        return statistics.median(gaps[:-1] or gaps or [0])

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
    again: list[Run] = field(default_factory=list)  # of a seed for which another run counts: listed, no more
    from_rows: bool = False

    def __post_init__(self) -> None:
        """Runs learn how often the others of their game and budget were evaluated; one that was cut off has no say,
        unless there are no others."""
        rivals: dict[tuple[str, int], list[Run]] = {}
        for run in self.runs:
            if run.evaluations:
                rivals.setdefault((run.game, run.arm.frames), []).append(run)
        finest = {
            key: min(run.own_spacing for run in [r for r in runs if r.finished] or runs) for key, runs in rivals.items()
        }
        for runs in (self.runs, self.again):
            runs[:] = [replace(run, spacing=finest.get((run.game, run.arm.frames), run.own_spacing)) for run in runs]

    @cached_property
    def arms(self) -> list[Arm]:
        """Smaller budgets first, tightened before plain, many games before few; else in order of appearance."""
        arms = dict.fromkeys(run.arm for run in self.runs)
        games = {arm: len({run.game for run in self.runs if run.arm == arm}) for arm in arms}
        return sorted(arms, key=lambda arm: (arm.frames, arm.plain, -games[arm]))

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
        """The plain arm to compare with on this game: of the same budget, the one whose settings differ least."""
        plain = [a for a in self.arms if a.plain and a.frames == arm.frames and a != arm and self.finished(game, a)]
        return min(plain, key=lambda a: (len(a.settings ^ arm.settings), len(a.changed.split())), default=None)

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


def settings_of(config: Config) -> frozenset[tuple[str, str]]:
    return frozenset((name, str(value)) for name, value in config.to_dict().items() if name not in BOOKKEEPING)


def changes_in_words(pairs: Iterable[tuple[str, Any]]) -> str:
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
