"""A study's folder: what is in it, and how far its cells are."""

from __future__ import annotations

import json
import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tightrope.errors import TightropeError
from tightrope.files import check_readable, parse_toml, read_text
from tightrope.lock import is_held
from tightrope.study.cell import LOG, Status
from tightrope.study.plan import Cell, Study, is_study, read


def prepare(study: Study, path: Path, part: Study) -> None:
    """Puts the study into its folder, beside what was run there before; what is left of the part is planned anew."""
    from tightrope.checkpoint import write_bytes

    for cell in study.cells:
        refuse_if_changed(cell, path)
    write_bytes(path / "study.toml", study.text.encode())
    for cell in part.cells:
        status = Status.read(path / cell.folder)
        if status.state != "done":
            Status(seconds=status.seconds).write(path / cell.folder)


def refuse_if_changed(cell: Cell, path: Path) -> None:
    """A cell that was begun goes on with the numbers it began with, or not at all."""
    file = path / cell.folder / "config.toml"
    if not file.exists():
        return
    try:
        began = parse_toml(read_text(file))
        had: dict[str, Any] = {"preset": began["preset"]} | began["config"]
    except (OSError, ValueError, KeyError, TypeError) as problem:
        raise TightropeError(f"{file} is damaged: {problem}") from None
    for name, value in ({"preset": cell.arm.preset} | cell.config.to_dict()).items():
        if had.get(name, value) != value:
            raise TightropeError(
                f"arm {cell.arm.name} was run in {path} with {name} = {had[name]}, and the study now says {value}; "
                "give the changed arm another name, or the study another --out"
            )


@dataclass(frozen=True)
class Seen:
    """A cell as its files tell."""

    cell: Cell
    folder: Path
    state: str  # as in Status, or "interrupted"
    frames: int
    rate: float  # frames per second, evaluations included
    seconds: float
    error: str

    @property
    def log(self) -> Path:
        return self.folder / LOG


@dataclass(frozen=True)
class Survey:
    """All cells of a study at one moment."""

    cells: list[Seen]

    def of(self, state: str) -> list[Seen]:
        return [seen for seen in self.cells if seen.state == state]

    @property
    def rate(self) -> float:
        """Frames per second of all running cells; one that has not said yet counts as the others do."""
        running = self.of("running")
        known = [seen.rate for seen in running if seen.rate]
        return sum(known) / len(known) * len(running) if known else 0.0

    @property
    def seconds_left(self) -> float | None:
        """At the present rate; unknown while nothing runs."""
        left = sum(s.cell.config.frames - s.frames for s in self.cells if s.state not in ("done", "failed"))
        return left / self.rate if self.rate else None


def survey(path: Path, study: Study | None = None) -> Survey:
    """How far the study in a folder is. A cell that says it runs while nobody runs the study was interrupted."""
    if not is_study(path):
        raise TightropeError(f"{path} is not a study: it has no study.toml")
    study, runs = study or read(path), is_held(path)
    found = []
    for cell in study.cells:
        folder = path / cell.folder
        status, last = Status.read(folder), last_line(folder / "metrics.jsonl")
        frames = last.get("frames", 0)
        state = status.state
        if (state == "running" and not runs) or (state == "planned" and frames):
            state = "interrupted"
        rate = frames / last["seconds"] if frames and last["seconds"] else 0.0
        found.append(Seen(cell, folder, state, frames, rate, status.seconds, status.error))
    return Survey(found)


def last_line(path: Path) -> dict[str, Any]:
    """The newest whole line of metrics; {} where there is none."""
    try:
        check_readable(path, math.inf)
        with open(path, "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 16_384))
            whole = file.read().rpartition(b"\n")[0]
        line: dict[str, Any] = json.loads(whole.rpartition(b"\n")[2])
    except (OSError, ValueError, RecursionError, TightropeError):
        return {}
    return line if isinstance(line, dict) else {}
