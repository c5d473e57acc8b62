"""How far a study is, for a person: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Column, Table
from rich.text import Text

from tightrope.errors import counted
from tightrope.progress import time_left
from tightrope.study.folder import Seen, Survey
from tightrope.study.plan import Study

STATES = ("done", "running", "interrupted", "failed", "planned")
MOST_LINES = 12  # of running cells that are listed one by one


def headline(survey: Survey) -> str:
    """All of it in one line."""
    counts = ", ".join(f"{len(survey.of(s))} {s}" for s in STATES[1:] if survey.of(s))
    done = f"{len(survey.of('done'))} of {counted(len(survey.cells), 'cell')} done"
    parts = [done + (f", {counts}" if counts else "")]
    if survey.rate:
        parts.append(f"{survey.rate:,.0f} frames/s")
    if survey.seconds_left is not None:
        parts.append(f"{time_left(survey.seconds_left)} left")
    return " · ".join(parts)


def table(survey: Survey, title: str = "") -> Group:
    """A row for each arm, a line for each cell that runs or failed."""
    numbers = [Column(head, justify="right") for head in (*STATES, "frames")]
    grid = Table("arm", *numbers, title=title or None)
    for arm in dict.fromkeys(seen.cell.arm.name for seen in survey.cells):
        mine = Survey([seen for seen in survey.cells if seen.cell.arm.name == arm])
        played, of = sum(s.frames for s in mine.cells), sum(s.cell.config.frames for s in mine.cells)
        counts = [str(len(mine.of(state)) or "") for state in STATES]
        grid.add_row(arm, *counts, f"{min(1, played / of):.0%} of {of:,}")
    lines = [Text(running(seen)) for seen in survey.of("running")]
    if len(lines) > MOST_LINES:
        lines[MOST_LINES:] = [Text(f"  ... and {len(lines) - MOST_LINES} more")]
    lines += [Text(failure(seen), style="red") for seen in survey.of("failed")]
    return Group(grid, *lines, Text(headline(survey)))


def running(seen: Seen) -> str:
    of = seen.cell.config.frames
    return f"  {seen.cell.name}: {min(1, seen.frames / of):.0%} of {of:,} frames, {seen.rate:,.0f}/s"


def failure(seen: Seen) -> str:
    return f"  {seen.cell.name} failed: {seen.error} (log: {seen.log})"


def as_json(survey: Survey, study: Study) -> dict[str, Any]:
    return {
        "study": study.name,
        "cells": [
            {
                "game": seen.cell.game,
                "arm": seen.cell.arm.name,
                "seed": seen.cell.seed,
                "state": seen.state,
                "frames": seen.frames,
                "of_frames": seen.cell.config.frames,
                "seconds": seen.seconds,
                "error": seen.error,
                "folder": str(seen.folder),
            }
            for seen in survey.cells
        ],
        **{state: len(survey.of(state)) for state in STATES},
        "frames_per_second": round(survey.rate, 1),
        "seconds_left": None if survey.seconds_left is None else round(survey.seconds_left),
    }


class Show:
    """Where the table goes while the study runs. Without a terminal: a line for each cell that begins or ends."""

    def __init__(self, study: Study, path: Path, part: Study) -> None:
        self.console = Console(highlight=False)
        self._title = f"{study.name} in {path}"
        if len(part.cells) < len(study.cells):
            self._title += f": {len(part.cells)} of its {len(study.cells)} cells"
        self._live: Live | None = None
        self._before: dict[Path, str] = {}  # states
        self._said = 0.0

    def __enter__(self) -> Show:
        if self.console.is_terminal:
            self._live = Live(console=self.console, refresh_per_second=4)
            self._live.__enter__()
        else:
            self._say(f"study {self._title}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def update(self, survey: Survey) -> None:
        if self._live is not None:
            self._live.update(table(survey, self._title))
            return
        for seen in survey.cells:
            before = self._before.get(seen.folder)
            if seen.state == "running" and before != "running":
                self._say(f"{seen.cell.name}: " + ("goes on" if before == "interrupted" else "began"))
            if before is not None and seen.state != before and seen.state in ("done", "failed"):
                how = f"done in {time_left(seen.seconds)}" if seen.state == "done" else f"failed: {seen.error}"
                self._say(f"{seen.cell.name}: {how}" + (f" (log: {seen.log})" if seen.state == "failed" else ""))
                self._said = 0.0
            self._before[seen.folder] = seen.state
        if time.monotonic() > self._said + 60:
            self._said = time.monotonic()
            self._say(headline(survey))

    def _say(self, text: str) -> None:
        self.console.print(time.strftime("%Y-%m-%d %H:%M:%S ") + text, soft_wrap=True, markup=False)
