"""Evaluations of finished runs as rows of results/: `python experiments/rows.py RUN ... --out results/atari.csv`.

Rows are added, none replaced: a run that disappointed is a row too. --commit names the code where the run could not.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from tightrope.run import Description, RunFolder

COLUMNS = ("game", "preset", "changed", "seed", "frames", "epoch", "score", "std", "games", "normalised_pct",
           "protocol", "run_frames", "run_seconds", "device", "torch", "commit")  # fmt: skip


def rows(path: Path, commit: str, device: str) -> list[dict[str, object]]:
    run, description = RunFolder(path), Description.from_toml(path / "config.toml")
    metrics = run.metrics()
    last = metrics[-1]
    # What the command changed of the preset, without the words that every command has.
    changed = " ".join(description.command().split()[9:])
    made = description.made_with
    return [
        {
            "game": description.game, "preset": description.preset, "changed": changed, "seed": description.seed,
            **{name: row[name] for name in ("frames", "epoch", "score", "std", "games", "normalised_pct", "protocol")},
            "run_frames": last["frames"], "run_seconds": last["seconds"], "device": device or description.device,
            "torch": made.get("torch", ""), "commit": commit or made.get("commit", ""),
        }
        for row in run.evaluations()
    ]  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--commit", default="")
    parser.add_argument("--device", default="", help="the machine in words")
    args = parser.parse_args()
    new = not args.out.exists()
    with open(args.out, "a", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        if new:
            writer.writeheader()
        for path in args.runs:
            writer.writerows(rows(path, args.commit, args.device))


if __name__ == "__main__":
    main()
