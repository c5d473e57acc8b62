"""Cost as work grows: frames/s against environments, K and rows of replay, as one figure.

`python experiments/scaling.py --device cuda --csv results/scaling.csv --picture docs/figures/scaling.png`

Each point differs from the default (128 environments, K = 4, a million rows) in one number. All are set up side by
side, each in a process of its own, because that takes longest (on a GPU: 125 GB of its memory); then they are measured
one after the other. Points that are in the file already are not measured again.
"""

from __future__ import annotations

import argparse
import csv
import multiprocessing
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from where_time_goes import ready

from tightrope.bench import machine, rate
from tightrope.device import pick_device

DEFAULT = {"num_envs": 128, "k": 4, "replay_rows": 1_000_000}
AXES: dict[str, list[int]] = {
    "num_envs": [1, 8, 32, 64, 128, 512],
    "k": [0, 1, 2, 4, 8, 16],  # 0: no bounds
    "replay_rows": [10_000, 100_000, 1_000_000, 4_000_000],
}
NAMES = {"num_envs": "environments", "k": "K (0: no bounds)", "replay_rows": "rows of replay"}
COLUMNS = ("game", *DEFAULT, "frames_per_second", "update_ms", "seconds", "gpu", "cpu", "cores", "torch", "commit")


def points() -> list[dict[str, int]]:
    """All of the figure, the default once."""
    away = [DEFAULT | {axis: value} for axis, values in AXES.items() for value in values if value != DEFAULT[axis]]
    return [DEFAULT, *away]


def fields(point: dict[str, int]) -> dict[str, Any]:
    chosen: dict[str, Any] = dict(point)
    if chosen["k"] == 0:
        chosen |= {"k": 1, "bounds": False}
    # A small ring cannot wait for a late start of learning.
    return chosen | {"learn_start_steps": min(10_000, chosen["replay_rows"] // 2)}


def measure(game: str, device_name: str, point: dict[str, int], seconds: float, pipe: Connection) -> None:
    """In a process of its own: says when all is set up, measures when told to, and answers with a row."""
    device = pick_device(device_name)
    with tempfile.TemporaryDirectory() as folder:
        trainer = ready(game, "paper", device, Path(folder) / "run", fields(point))

        def step() -> int:
            before = trainer.frames
            trainer.step()
            return trainer.frames - before

        def update() -> int:
            before = trainer.learner.updates
            trainer.learner.update(trainer.replay)
            return trainer.learner.updates - before

        pipe.send("ready")
        pipe.recv()
        found = {"frames_per_second": rate(step, seconds), "update_ms": 1000 / rate(update, seconds)}
        where = machine(device)
        told = {name: where[name] for name in ("gpu", "cpu", "cores", "torch", "commit")}
        pipe.send({"game": game, **point, **found, "seconds": seconds, **told})
        trainer.close()


def draw(rows: list[dict[str, str]], picture: Path) -> None:
    import matplotlib.pyplot as plt

    shown = {"frames_per_second": "training, frames/s", "update_ms": "one update, ms"}
    figure, places = plt.subplots(
        len(shown), len(NAMES), figsize=(10, 5), sharex="col", sharey="row", layout="constrained"
    )
    for place_row, (column, label) in zip(places, shown.items(), strict=True):
        for place, axis in zip(place_row, NAMES, strict=True):
            fixed = {other: str(value) for other, value in DEFAULT.items() if other != axis}
            chosen = [row for row in rows if all(row[other] == value for other, value in fixed.items())]
            points = sorted((int(row[axis]), float(row[column])) for row in chosen)
            place.plot(*zip(*points, strict=True), marker="o", color="#0072b2")
            place.set_xscale("symlog" if axis == "k" else "log")
            place.set_xticks([x for x, _ in points], [f"{x:,}" for x, _ in points], rotation=45)
            place.minorticks_off()
            place.grid(alpha=0.3)
        place_row[0].set_ylim(bottom=0)
        place_row[0].set_ylabel(label)
        place_row[0].yaxis.set_major_formatter("{x:,g}")
    for place, name in zip(places[-1], NAMES.values(), strict=True):
        place.set_xlabel(name)
    figure.savefig(picture, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="pong")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--csv", type=Path, default=Path("results/scaling.csv"))
    parser.add_argument("--picture", type=Path, help="draw the figure too (needs matplotlib)")
    args = parser.parse_args()
    known = list(csv.DictReader(args.csv.open())) if args.csv.exists() else []
    done = {tuple(row[name] for name in ("game", *DEFAULT)) for row in known}
    missing = [p for p in points() if (args.game, *map(str, p.values())) not in done]
    context = multiprocessing.get_context("spawn")
    started = []
    for point in missing:
        here, there = context.Pipe()
        worker = context.Process(target=measure, args=(args.game, args.device, point, args.seconds, there), daemon=True)
        worker.start()
        there.close()  # so that a worker that dies is noticed
        started.append((worker, here))
    for _, pipe in started:
        pipe.recv()
    with open(args.csv, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not known:
            writer.writeheader()
        for worker, pipe in started:
            pipe.send("go")
            writer.writerow(pipe.recv())
            file.flush()
            worker.join()
    if args.picture:
        draw(list(csv.DictReader(args.csv.open())), args.picture)


if __name__ == "__main__":
    main()
