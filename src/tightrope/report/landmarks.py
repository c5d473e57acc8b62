"""What the paper's own and other agents score, as marks beside ours: their protocols differ, and the page says so."""

from __future__ import annotations

import csv
import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib import resources

from tightrope.scores import normalised, references

#: The agent of the paper's own tables.
PAPER = "the paper's own"


@dataclass(frozen=True)
class Landmark:
    rom: str
    agent: str
    frames: int
    score: float
    source: str
    protocol: str


@cache
def landmarks() -> tuple[Landmark, ...]:
    """What the paper says of itself, and what others say of theirs."""
    own = "best of 40 evaluations, ε 0.05; of 10M frames by its text, most likely of 40M by its program"
    text = (resources.files("tightrope") / "data" / "landmarks.csv").read_text("utf-8")
    return (
        *(Landmark(rom, PAPER, 10_000_000, row.paper, "He et al., 2017", own) for rom, row in references().items()),
        *(
            Landmark(row["rom"], row["agent"], int(row["frames"]), float(row["score"]), row["source"], row["protocol"])
            for row in csv.DictReader(text.splitlines())
        ),
    )


@dataclass(frozen=True)
class LandmarkSummary:
    """One agent at one budget over some games."""

    agent: str
    frames: int
    games: int
    mean: float
    median: float
    source: str
    protocol: str


def protocols(agents: Iterable[str]) -> str:
    """How these agents were scored, in words: agents of one protocol together."""
    by_protocol: dict[str, list[str]] = {}
    for agent in agents:
        protocol = next(mark.protocol for mark in landmarks() if mark.agent == agent)
        by_protocol.setdefault(protocol, []).append(agent)
    return " ".join(f"{', '.join(names)}: {protocol}." for protocol, names in by_protocol.items())


def summaries(roms: Iterable[str]) -> list[LandmarkSummary]:
    """For these games, the agents that have them all: a mean over other games would not compare."""
    wanted = set(roms)
    found: dict[tuple[str, int], dict[str, Landmark]] = {}
    for mark in landmarks():
        if mark.rom in wanted:
            found.setdefault((mark.agent, mark.frames), {})[mark.rom] = mark
    rows = []
    for (agent, frames), by_rom in found.items():
        if set(by_rom) != wanted:
            continue
        percents = [percent for rom, m in by_rom.items() if (percent := normalised(rom, m.score)) is not None]
        sample = next(iter(by_rom.values()))
        mean, median = statistics.fmean(percents), statistics.median(percents)
        rows.append(LandmarkSummary(agent, frames, len(percents), mean, median, sample.source, sample.protocol))
    return sorted(rows, key=lambda row: (row.frames, row.median))
