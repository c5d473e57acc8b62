"""What training itself scored: `python experiments/training_curves.py RUN ... --out results/training.csv`.

Rows of results know a run where it was evaluated. This reads its metrics: for each million frames the first line at or
past it, and the last line of all, with the mean score of the last training games, mean Q, the share of samples that
violate their lower bound and by how much, and how fast it went. RUN is a run's folder, or one with many below it.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path

from tightrope.run import Description, RunFolder

MILLION = 1_000_000
#: Columns, by their names in the metrics.
TOLD = {"training_score": "score", "q": "q", "lower_violated": "lower_violated", "lower_gap": "lower_gap",
        "frames_per_second": "frames_per_second"}  # fmt: skip
OF_BOUNDS = ("lower_violated", "lower_gap")


def lines(folder: Path) -> list[dict[str, object]]:
    description, metrics = Description.from_toml(folder / "config.toml"), RunFolder(folder).metrics()
    chosen: dict[int, dict[str, float]] = {}
    for line in metrics:
        chosen.setdefault(line["frames"] // MILLION, line)
    chosen.pop(0, None)
    named = {"game": description.game, "arm": folder.resolve().parent.name, "seed": description.seed}
    return [
        named
        | {"frames": line["frames"], "commit": description.made_with.get("commit", "")[:10]}
        | {
            column: round(line[name], 4)
            for column, name in TOLD.items()
            if line.get(name) is not None and (description.config.bounds or column not in OF_BOUNDS)
        }
        for line in {line["frames"]: line for line in [*chosen.values(), *metrics[-1:]]}.values()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    wanted = parser.parse_args()
    folders = [path.parent for run in wanted.runs for path in sorted(run.rglob("metrics.jsonl"))]
    with open(wanted.out, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, ("game", "arm", "seed", "frames", *TOLD, "commit"), lineterminator="\n")
        writer.writeheader()
        for folder in folders:
            writer.writerows(lines(folder))
    print(f"{len(folders)} runs in {wanted.out}")


if __name__ == "__main__":
    main()
