"""Cost as work grows: frames/s against environments, K and rows of replay, as one figure.

`python experiments/scaling.py --device cuda --csv results/scaling.csv --picture docs/scaling.png`

Points are measured one after the other, the default (128 environments, K = 4, a million rows) with each of the three;
each is written as soon as it is known, and points already in the file are not measured again.
"""

from __future__ import annotations

import argparse
import csv
import tempfile
from pathlib import Path
from typing import Any

import torch
from where_time_goes import ready

from tightrope.bench import machine, rate
from tightrope.device import pick_device

COLUMNS = ("game", "axis", "value", "num_envs", "k", "replay_rows", "frames_per_second", "update_ms", "seconds", "gpu",
           "cpu", "cores", "torch", "commit")  # fmt: skip
AXES: dict[str, list[int]] = {
    "k": [4, 0, 1, 2, 8, 16],  # 0: no bounds
    "replay_rows": [10_000, 100_000, 1_000_000, 4_000_000],
    "num_envs": [1, 8, 32, 128, 512],
}
DEFAULT = {"num_envs": 128, "k": 4, "replay_rows": 1_000_000}
NAMES = {"k": "K (0: no bounds)", "replay_rows": "rows of replay", "num_envs": "environments"}


def fields(axis: str, value: int) -> dict[str, Any]:
    chosen: dict[str, Any] = DEFAULT | {axis: value}
    if chosen["k"] == 0:
        chosen |= {"k": 1, "bounds": False}
    # A small ring cannot wait for a late start of learning.
    return chosen | {"learn_start_steps": min(10_000, chosen["replay_rows"] // 2)}


def measure(game: str, device: torch.device, axis: str, value: int, seconds: float) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        trainer = ready(game, "paper", device, Path(folder) / "run", fields(axis, value))

        def step() -> int:
            before = trainer.frames
            trainer.step()
            return trainer.frames - before

        def update() -> int:
            trainer.learner.update(trainer.replay)
            return trainer.learner.at_once

        found = {"frames_per_second": rate(step, seconds), "update_ms": 1000 / rate(update, seconds)}
        trainer.close()
    where = machine(device)
    names = ("gpu", "cpu", "cores", "torch", "commit")
    return {"game": game, "axis": axis, "value": value, **DEFAULT, axis: value, **found, "seconds": seconds} | {
        name: where[name] for name in names
    }


def draw(rows: list[dict[str, str]], picture: Path) -> None:
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), sharey=True, layout="constrained")
    for place, (axis, name) in zip(axes, NAMES.items(), strict=True):
        points = sorted((int(r["value"]), float(r["frames_per_second"])) for r in rows if r["axis"] == axis)
        place.plot(*zip(*points, strict=True), marker="o", color="#0072b2")
        place.set_xlabel(name)
        place.set_xscale("symlog" if axis == "k" else "log")
        place.set_xticks([x for x, _ in points], [f"{x:,}" for x, _ in points], rotation=45)
        place.minorticks_off()
        place.grid(alpha=0.3)
    axes[0].set_ylim(bottom=0)
    axes[0].set_ylabel("frames/s of training")
    figure.savefig(picture, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="pong")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--csv", type=Path, default=Path("results/scaling.csv"))
    parser.add_argument("--picture", type=Path, default=Path("docs/scaling.png"))
    args = parser.parse_args()
    device = pick_device(args.device)
    known = list(csv.DictReader(args.csv.open())) if args.csv.exists() else []
    done = {(row["game"], row["axis"], row["value"]) for row in known}
    with open(args.csv, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if not known:
            writer.writeheader()
        for axis, values in AXES.items():
            for value in values:
                if (args.game, axis, str(value)) not in done:
                    writer.writerow(measure(args.game, device, axis, value, args.seconds))
                    file.flush()
    draw(list(csv.DictReader(args.csv.open())), args.picture)


if __name__ == "__main__":
    main()
