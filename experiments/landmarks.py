"""What other agents score, for the report: `python experiments/landmarks.py FOLDER` writes package data from a folder
of published scores: dopamine.csv (rom,agent,frames,training_score), btr.csv (game,frames_millions,score,…) and
others.csv (source,algorithm,game,frames_millions,score,std,protocol).

Kept are DQN, Rainbow, IQN, the last two with IMPALA's network too, and BTR, at this project's two budgets, 10M and 40M
frames, on the paper's 49 games.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from tightrope.scores import references

COLUMNS = ("rom", "agent", "frames", "score", "source", "protocol")
BUDGETS = (10_000_000, 40_000_000)
DOPAMINE = "Dopamine, published baselines", "training score, mean of 5 seeds, sticky actions 0.25"
#: Its agents that are kept, by their names here.
AGENTS = {
    "DQN": "DQN",
    "Rainbow": "Rainbow",
    "IQN": "IQN",
    "Rainbow [jaxImpala]": "Rainbow, IMPALA",
    "IQN [jaxImpala]": "IQN, IMPALA",
}
BTR = "Beyond The Rainbow (Clark et al., 2024)", "evaluation, ε 0.01"


def rom_of(game: str) -> str | None:
    """ale-py's name of a game spelled in CamelCase, None outside the 49."""
    return next((rom for rom in references() if rom.replace("_", "") == game.lower()), None)


def read(path: Path) -> list[dict[str, str]]:
    with open(path, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def landmarks(folder: Path) -> Iterator[tuple[str, str, int, str, str, str]]:
    for row in read(folder / "dopamine.csv"):
        if row["agent"] in AGENTS and int(row["frames"]) in BUDGETS and row["rom"] in references():
            agent = f"{AGENTS[row['agent']]} (Dopamine)"
            yield row["rom"], agent, int(row["frames"]), row["training_score"], *DOPAMINE
    for row in read(folder / "btr.csv"):
        rom, frames = rom_of(row["game"]), int(row["frames_millions"]) * 1_000_000
        if rom is not None and frames in BUDGETS:
            yield rom, "BTR", frames, row["score"], *BTR
    for row in read(folder / "others.csv"):
        rom, frames = rom_of(row["game"]), int(row["frames_millions"]) * 1_000_000
        if rom is not None and frames in BUDGETS and row["algorithm"] == "DQN":
            project = row["source"].split()[0]
            yield rom, f"DQN ({project})", frames, row["score"], row["source"].split(":")[0], row["protocol"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    rows = sorted(landmarks(parser.parse_args().folder), key=lambda row: (row[1], row[2], row[0]))
    with open(str(resources.files("tightrope") / "data" / "landmarks.csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        writer.writerows(rows)


if __name__ == "__main__":
    main()
