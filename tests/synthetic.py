"""Study folders with known scores, for tests of the report: what a run leaves behind, without the run."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path

from tightrope.config import preset
from tightrope.run import EVALUATION_COLUMNS, Description


def write_run(
    folder: Path,
    game: str,
    preset_name: str,
    seed: int,
    scores: Sequence[float],
    *,
    budget: int = 10_000_000,
    epochs: int | None = None,
    seconds: float = 360.0,
    **changes: object,
) -> None:
    """A run folder of a run that was evaluated after each epoch, with these scores; `epochs` says how many there would
    be, for a run that is not finished."""
    epochs = epochs or len(scores)
    epoch_frames = -(-budget // epochs)
    config = preset(preset_name).replace(frames=budget, epoch_frames=epoch_frames, **changes)
    description = Description(game, preset_name, seed, "cpu", config, made_with={"commit": "c0ffee" * 6 + "+"})
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(description.to_toml(), "utf-8")
    with open(folder / "evaluations.csv", "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, EVALUATION_COLUMNS, lineterminator="\n")
        writer.writeheader()
        for epoch, score in enumerate(scores, 1):
            writer.writerow(
                {
                    "frames": epoch * epoch_frames, "epoch": epoch, "score": score, "std": 1.0,
                    "best_game": score, "games": 30, "normalised_pct": "", "protocol": "paper",
                    "mean_game_frames": 1000.0, "seconds": 1.0,
                }
            )  # fmt: skip
    with open(folder / "metrics.jsonl", "w", encoding="utf-8") as file:
        for epoch in range(1, len(scores) + 1):
            line = {"frames": epoch * epoch_frames, "seconds": seconds * epoch / epochs, "score": None}
            share = epoch / epochs
            line |= {
                "lower_violated": 0.5 * (1 - share) if config.bounds else 0.0,
                "upper_violated": 0.2 * share if config.bounds else 0.0,
                "return_tightest": 0.1 if config.bounds else 0.0,
            }
            file.write(json.dumps(line) + "\n")


def write_study(
    folder: Path,
    games: Sequence[str],
    arms: dict[str, dict[str, object]],
    seeds: Sequence[int],
    score: Callable[[str, str, int], Sequence[float]],
) -> Path:
    """A study's folder: games x arms x seeds; `score` gives each run's evaluations."""
    for game in games:
        for arm, fields in arms.items():
            for seed in seeds:
                own = dict(fields)
                path = folder / "cells" / game.replace("/", "-") / arm / f"seed-{seed}"
                write_run(path, game, str(own.pop("preset", arm)), seed, score(game, arm, seed), **own)
    listed = ", ".join(json.dumps(game) for game in games)
    lines = [f"games = [{listed}]", f"seeds = {list(seeds)}", "", "[arms]"]
    for arm, fields in arms.items():
        pairs = ", ".join(f"{name} = {json.dumps(value)}" for name, value in fields.items() if name != "budget")
        lines.append(f"{json.dumps(arm)} = {{ {pairs} }}")
    (folder / "study.toml").write_text("\n".join(lines) + "\n", "utf-8")
    return folder
