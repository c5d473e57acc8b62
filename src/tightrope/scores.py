"""Human-normalised scores and the paper's metrics, from the paper's own tables."""

from __future__ import annotations

import csv
import statistics
from dataclasses import dataclass
from functools import cache
from importlib import resources


@dataclass(frozen=True)
class Reference:
    """One row of the paper's table S1 and S2."""

    game: str  # as the paper spells it
    rom: str  # as ale-py spells it
    random: float
    human: float
    dqn_200m: float
    paper: float  # "Ours 10M"
    dqn_200m_printed_pct: float
    paper_printed_pct: float


@cache
def references() -> dict[str, Reference]:
    """The paper's 49 games by ale-py's name."""
    text = (resources.files("tightrope") / "data" / "paper_scores.csv").read_text("utf-8")
    rows = csv.reader(text.splitlines()[1:])
    found = [Reference(row[0], row[1], *map(float, row[2:])) for row in rows]
    return {row.rom: row for row in found}


def normalised(rom: str | None, score: float) -> float | None:
    """Human-normalised score in percent (paper eq. 6), None for a game without a human reference.

    >>> round(normalised("breakout", 229.79), 2)
    757.77
    """
    if rom is None or rom not in references():
        return None
    row = references()[rom]
    return 100 * (score - row.random) / abs(row.human - row.random)


def improvement(rom: str, score: float, baseline: float) -> float:
    """Improvement over a baseline in percent (paper eq. 5): of max(human, baseline) - random.

    >>> round(improvement("frostbite", 3974.11, 328.3), 1)
    85.4
    """
    row = references()[rom]
    return 100 * (score - baseline) / (max(row.human, baseline) - row.random)


def summary(scores: dict[str, float]) -> tuple[float, float]:
    """Mean and median normalised score in percent of games that have a reference."""
    values = [value for rom, score in scores.items() if (value := normalised(rom, score)) is not None]
    return statistics.fmean(values), statistics.median(values)
