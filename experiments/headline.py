"""Where the method stands at 10M frames: `python experiments/headline.py` prints what docs/worth.md's table has of it.

Of study `headline`'s games and arms: the evaluation of each run in results/atari.csv after so many frames (`--frames`,
10M unless told), of the newest commit where a seed was run again, and of a run that was stopped as far as it went;
means over seeds; what the paper and other agents score then; and the median and mean of the human-normalised scores of
who has all games.
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from statistics import fmean

from tightrope.report.landmarks import landmarks
from tightrope.report.words import number
from tightrope.scores import summary
from tightrope.study import read

RESULTS = Path(__file__).parents[1] / "results" / "atari.csv"
BUDGET = 10_000_000
EPOCH_ENDS_WITHIN = 10_000  # frames: it is over with the step, of all environments, that completes it


def table(frames: int) -> dict[str, dict[str, float]]:
    """Scores after so many frames, by agent and game."""
    study = read("headline")
    roms = [game.removeprefix("atari/") for game in study.games]
    runs: dict[str, dict[str, dict[str, float]]] = {arm.name: {} for arm in study.arms}  # by arm, game and seed
    with open(RESULTS, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            rom = row["game"].removeprefix("atari/")
            then = row["score"] and 0 <= int(row["frames"]) - frames < EPOCH_ENDS_WITHIN
            if then and row["arm"] in runs and rom in roms:
                # Rows are added behind those that are there.
                runs[row["arm"]].setdefault(rom, {})[row["seed"]] = float(row["score"])
    found = {arm: {rom: fmean(seeds.values()) for rom, seeds in own.items()} for arm, own in runs.items()}
    for mark in landmarks():
        if mark.frames == frames and mark.rom in roms:
            found.setdefault(mark.agent, {})[mark.rom] = mark.score
    return {agent: {rom: scores[rom] for rom in roms if rom in scores} for agent, scores in found.items() if scores}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--frames", type=int, default=BUDGET)
    found = table(parser.parse_args().frames)
    roms = [game.removeprefix("atari/") for game in read("headline").games]
    print("|", " | ".join(["", *roms, "median", "mean"]), "|")
    print("| --- |" + " --- |" * (len(roms) + 2))
    for agent, scores in found.items():
        mean, median = (f"{round(value)} %" if len(scores) == len(roms) else "" for value in summary(scores))
        own = (number(scores[rom]) if rom in scores else "" for rom in roms)
        print("|", " | ".join([agent, *own, median, mean]), "|")


if __name__ == "__main__":
    main()
