"""What training itself scored: `python experiments/training_curves.py RUN ... --out results/training.csv`.

Rows of results know a run where it was evaluated. This reads its metrics: for each million frames the first line at or
past it, and the last line of all, with the mean score of the last training games, mean Q, the share of samples that
violate their lower bound and by how much, and how fast it went. RUN is a run's folder, or one with many below it. Other
runs' lines in the file stay.
"""

from __future__ import annotations

import argparse
import csv
import io
from pathlib import Path

from tightrope.run import Description, RunFolder

MILLION = 1_000_000
#: Columns, by their names in the metrics.
TOLD = {"training_score": "score", "q": "q", "lower_violated": "lower_violated", "lower_gap": "lower_gap",
        "frames_per_second": "frames_per_second"}  # fmt: skip
OF_BOUNDS = ("lower_violated", "lower_gap")
RUN = ("game", "arm", "seed", "commit")
COLUMNS = ("game", "arm", "seed", "frames", *TOLD, "commit")


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
    new = [line for folder in folders for line in lines(folder)]
    runs = {tuple(str(line[column]) for column in RUN) for line in new}
    kept: list[dict[str, str]] = []
    if wanted.out.exists():
        with open(wanted.out, encoding="utf-8", newline="") as file:
            kept = [row for row in csv.DictReader(file) if tuple(row[column] for column in RUN) not in runs]
    whole = io.StringIO(newline="")
    writer = csv.DictWriter(whole, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows([*kept, *new])
    wanted.out.write_text(whole.getvalue(), encoding="utf-8")  # once all of it is there: the runs' folders may be gone
    print(f"{len(runs)} runs in {wanted.out}, beside {len(kept)} lines of others")


if __name__ == "__main__":
    main()
