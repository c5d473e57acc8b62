"""The first minutes with Tightrope: tightened against plain DQN, on a CPU."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from tightrope.api import load
from tightrope.errors import TightropeError
from tightrope.run import RunFolder

METHODS = {"tightened": True, "DQN": False}


@dataclass(frozen=True)
class Act:
    """One game of the demo, played by both methods side by side."""

    game: str
    title: str
    fields: dict[str, Any]

    def run(self, out: Path, method: str) -> Path:
        """Where a method's run of this game is kept."""
        return out / f"{self.game.replace('/', '-')}-{method}"


ACTS = (
    Act("maze", "the paper's maze", {"frames": 12_000}),
    Act("minatar/breakout", "MinAtar Breakout", {"frames": 60_000, "epoch_frames": 10_000}),
)


def _play(game: str, fields: dict[str, Any], out: Path) -> None:
    """One run, in a process of its own with a core of its own."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import tightrope

    with contextlib.suppress(KeyboardInterrupt):
        tightrope.train(game, device="cpu", out=out, quiet=True, **fields)


def demo(out: Path) -> None:
    """Runs both acts, prints the table, writes the picture."""
    number, wanted = 2, out
    while out.exists():
        out, number = wanted.with_name(f"{wanted.name}-{number}"), number + 1
    console = Console()
    console.print(f"tightened and DQN side by side, some minutes on 2 cores; runs go to {out}/", soft_wrap=True)
    began = time.monotonic()
    spawn = multiprocessing.get_context("spawn")
    columns = (TextColumn("{task.description:<28}"), BarColumn(40), TextColumn("{task.percentage:>3.0f} %"),
               TextColumn("{task.fields[note]:<22}"), TimeRemainingColumn())  # fmt: skip
    with Progress(*columns, console=console) as progress:
        for act in ACTS:
            runs = {name: act.run(out, name) for name in METHODS}
            bars = {
                name: progress.add_task(f"{act.title}, {name}", total=act.fields["frames"], note="") for name in METHODS
            }
            workers = {
                name: spawn.Process(target=_play, args=(act.game, act.fields | {"bounds": bounds}, runs[name]))
                for name, bounds in METHODS.items()
            }
            for worker in workers.values():
                worker.start()
            if not console.is_terminal:
                console.print(f"{act.title}: {act.fields['frames']:,} frames ...")
            while any(worker.is_alive() for worker in workers.values()):
                try:
                    time.sleep(0.3)
                except KeyboardInterrupt:
                    for worker in workers.values():
                        worker.terminate()
                    raise
                for name, path in runs.items():
                    if not (path / "metrics.jsonl").exists():
                        continue
                    rows = RunFolder(path).metrics()
                    if rows:
                        score = rows[-1]["score"]
                        note = "" if score is None else f"training score {score:.2f}"
                        progress.update(bars[name], completed=rows[-1]["frames"], note=note)
            for name, worker in workers.items():
                if worker.exitcode:
                    raise TightropeError(f"the run in {runs[name]} failed")
                progress.update(bars[name], completed=act.fields["frames"])
    console.print(table(out))
    picture = out / "demo.png"
    draw(out, picture)
    console.print(f"{time.monotonic() - began:.0f} s. The picture: {picture}", soft_wrap=True)
    console.print(trained(), soft_wrap=True, highlight=False)
    command = "tightrope" if shutil.which("tightrope") else ".venv/bin/tightrope"
    console.print(
        f"\nNext:\n"
        f"  {command} watch {out}/minatar-breakout-tightened --video breakout.gif   # see it play\n"
        f"  {command} watch pong --video pong.mp4                                   # and the trained one\n"
        f"  {command} train breakout        # Atari; 10M frames want a GPU\n"
        f"  {command} train CartPole-v1     # any Gymnasium game\n"
        f"  {command} --help",
        highlight=False,
        soft_wrap=True,
    )


def trained(games: int = 4) -> str:
    """What a shipped agent, trained for the paper's 10M frames, scores here and now."""
    agent = load("pong", device="cpu")
    result = agent.evaluate(games)
    return (
        f"And an Atari agent that comes with the package, Pong after {agent.facts.frames:,} frames of preset "
        f"{agent.facts.preset}: {result.mean:.1f} of 21 points, mean of {games} games played just now "
        f"({result.normalised_pct:.0f} % of a human's)."
    )


MAZE_PATH = 24  # the maze's shortest path, and so the power of gamma that the start is worth


def start_reached(rows: list[dict[str, Any]], path: int = MAZE_PATH) -> int | None:
    """Frames until the value of the maze's start is half its true size, gamma^(P-1); None if never."""
    goal = 0.5 * 0.99 ** (path - 1)
    return next((row["frames"] for row in rows if (row["start_value"] or 0) >= goal), None)


def table(out: Path) -> Table:
    shown = Table("game", "method", "best evaluation", "last evaluation", "half the value at the start after")
    for act in ACTS:
        for name in METHODS:
            folder = RunFolder(act.run(out, name))
            scores = [float(row["score"]) for row in folder.evaluations()]
            reached = start_reached(folder.metrics()) if act.game == "maze" else None
            told = "" if act.game != "maze" else ("not reached" if reached is None else f"{reached:,} frames")
            shown.add_row(act.title, name, f"{max(scores):.2f}", f"{scores[-1]:.2f}", told)
    return shown


def draw(out: Path, picture: Path) -> None:
    """Learning curves of both games, and the value at the maze's start."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(13, 4), constrained_layout=True)
    colours = {"tightened": "#0072b2", "DQN": "#d55e00"}
    for axis, act in zip(axes[:2], ACTS, strict=True):
        for name in METHODS:
            rows = RunFolder(act.run(out, name)).evaluations()
            frames, scores = [int(r["frames"]) / 1000 for r in rows], [float(r["score"]) for r in rows]
            axis.plot(frames, scores, marker="o", markersize=3, label=name, color=colours[name])
        axis.set(title=act.title, xlabel="frames, thousands", ylabel="score, evaluated")
        axis.legend()
    for name in METHODS:
        metrics = RunFolder(ACTS[0].run(out, name)).metrics()
        points = [(r["frames"] / 1000, r["start_value"]) for r in metrics if r["start_value"] is not None]
        axes[2].plot(*zip(*points, strict=True), label=name, color=colours[name])
    axes[2].axhline(0.99 ** (MAZE_PATH - 1), color="grey", linestyle=":", label="true value")
    axes[2].set(title="Reward reaches the start of the maze", xlabel="frames, thousands", ylabel="max Q at the start")
    axes[2].legend()
    figure.savefig(picture, dpi=110)
    pyplot.close(figure)
