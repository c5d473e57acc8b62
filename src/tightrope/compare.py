"""Ordinary runs beside each other. Many runs over games and seeds are a study, with a report of its own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Column, Table

from tightrope.errors import printable
from tightrope.progress import time_left
from tightrope.run import Description, RunFolder


@dataclass
class Compared:
    """What is said of one run."""

    run: str
    game: str
    numbers: dict[str, Any]  # preset, seed, and every field of its config
    evaluations: list[tuple[int, float]]  # frames, score
    frames: int  # trained so far
    seconds: float  # that took

    def at(self, frames: int) -> float | None:
        """The score of the last evaluation by then, or a thousandth later: many environments end an epoch together."""
        scores = [score for when, score in self.evaluations if when <= 1.001 * frames]
        return scores[-1] if scores else None


def read(path: Path) -> Compared:
    description, folder = Description.from_toml(path / "config.toml"), RunFolder(path)
    newest = folder.metrics()[-1:]
    return Compared(
        run=str(path),
        game=printable(description.game),
        numbers={"preset": printable(description.preset), "seed": description.seed, **description.config.to_dict()},
        evaluations=[(int(row["frames"]), float(row["score"])) for row in folder.evaluations()],
        frames=int(newest[0]["frames"]) if newest else 0,
        seconds=float(newest[0]["seconds"]) if newest else 0.0,
    )


def differences(runs: list[Compared]) -> dict[str, list[Any]]:
    """The numbers that are not the same in all runs, each run's in their order."""
    names = runs[0].numbers
    found = {name: [run.numbers[name] for run in runs] for name in names}
    return {name: values for name, values in found.items() if any(value != values[0] for value in values)}


def common_frames(runs: list[Compared]) -> int:
    """Up to where all have been evaluated: what is fair to compare."""
    return min((run.evaluations[-1][0] if run.evaluations else 0) for run in runs)


def show(runs: list[Compared]) -> None:
    """A table for each game, and below it what differs."""
    console = Console(highlight=False)
    for game in dict.fromkeys(run.game for run in runs):
        mine = [run for run in runs if run.game == game]
        frames = common_frames(mine)
        heads = ("frames", f"score by {frames:,}", "best", "last", "last 5", "took")
        # Under numbers, so that long names of folders do not squeeze the scores.
        table = Table("", *(Column(head, justify="right") for head in heads), title=game, title_justify="left")
        for number, run in enumerate(mine, 1):
            scores = [score for _, score in run.evaluations]
            told = [run.at(frames), max(scores), scores[-1], _mean(scores[-5:])] if scores else [None] * 4
            table.add_row(str(number), f"{run.frames:,}", *map(_said, told), time_left(run.seconds))
        console.print(table)
        for number, run in enumerate(mine, 1):
            console.print(f"  {number}  {run.run}", soft_wrap=True, markup=False)
        for name, values in differences(mine).items():
            console.print(f"  {name}: {', '.join(map(str, values))}", soft_wrap=True, markup=False)


def _mean(scores: list[float]) -> float:
    return sum(scores) / len(scores)


def _said(score: float | None) -> str:
    return "none" if score is None else f"{score:.4g}"
