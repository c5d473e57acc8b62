"""Are values right, and upper bounds bounds? `python experiments/values.py pong alien breakout [--out FILE.csv]`

Plays games with trained agents. The emulator is deterministic, so what an agent really got from a state on, R_j, is at
most Q* there: an upper bound U below R_j is wrong, whatever Q* is. Says for each agent (a shipped one, a file or a run)
the means of Q, R_j and U over all steps of finished episodes, how often U is below R_j and by how much, and how
often Q is.
"""

from __future__ import annotations

import argparse
import csv
import sys
from dataclasses import replace
from typing import Any, TextIO

import numpy as np
import torch

import tightrope
from tightrope.config import Config
from tightrope.watch.play import moments
from tightrope.watch.rope import rope


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agents", nargs="+", help="shipped agents, files or runs")
    parser.add_argument("--games", type=int, default=3)
    parser.add_argument("--out", default="", help="a CSV file, beside what is printed")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rows = []
    for name in args.agents:
        agent = tightrope.load(name, device="cpu")
        # Without horizons ahead the lower bound is R_j alone; the upper ones keep the agent's own.
        config = Config.stored(agent.facts.config)
        columns, scores = [], []
        for seed in range(args.games):
            played = list(moments(agent, seed))
            scores.append(played[-1].score)
            told = (
                torch.from_numpy(np.stack([moment.values for moment in played])).double(),
                torch.tensor([moment.action for moment in played[:-1]]),
                torch.tensor([moment.reward for moment in played[:-1]], dtype=torch.float64),
                torch.tensor([moment.terminal for moment in played[:-1]]),
            )
            columns.append(
                (*rope(*told, config), rope(*told, replace(config, k=0, lower_draws=0, upper_draws=0)).lower)
            )
        q, _, upper, returns = map(np.concatenate, zip(*columns, strict=True))
        there = np.isfinite(returns) & np.isfinite(upper)
        q, upper, returns = q[there], upper[there], returns[there]
        wrong = upper < returns
        rows.append(
            {
                "game": agent.facts.game, "preset": agent.facts.preset, "frames": agent.facts.frames,
                "games": args.games, "score": np.mean(scores), "q": q.mean(), "return": returns.mean(),
                "upper": upper.mean(), "upper_below_return_pct": 100 * wrong.mean(),
                "by": (returns - upper)[wrong].mean(), "q_below_return_pct": 100 * (q < returns).mean(),
            }
        )  # fmt: skip
    show(rows, sys.stdout)
    if args.out:
        with open(args.out, "w", newline="") as file:
            show(rows, file)


def show(rows: list[dict[str, Any]], out: TextIO) -> None:
    writer = csv.DictWriter(out, rows[0], lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: round(float(v), 3) if isinstance(v, float) else v for k, v in row.items()} for row in rows)


if __name__ == "__main__":
    main()
