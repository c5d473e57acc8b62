"""Are values right, and upper bounds bounds? `python experiments/values.py pong [AGENT.safetensors ...] [--games 3]`

Plays games with trained agents. The emulator is deterministic, so what an agent really got from a state on, R_j, is at
most Q* there: an upper bound U below R_j is wrong, whatever Q* is. Prints for each agent the means of Q, R_j and U over
all steps of finished episodes, how often U is below R_j and by how much, and how often Q is.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

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
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("| game | preset | score | Q | R_j | U | U below R_j | by | Q below R_j |\n|" + " --- |" * 9)
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
            columns.append((*rope(*told, config), rope(*told, replace(config, k=0)).lower))
        q, _, upper, returns = map(np.concatenate, zip(*columns, strict=True))
        there = np.isfinite(returns) & np.isfinite(upper)
        q, upper, returns = q[there], upper[there], returns[there]
        wrong = upper < returns
        means = " | ".join(f"{column.mean():.2f}" for column in (q, returns, upper))
        said = f"{wrong.mean():.0%} | {(returns - upper)[wrong].mean():.2f} | {(q < returns).mean():.0%}"
        print(f"| {agent.facts.game} | {agent.facts.preset} | {np.mean(scores):.4g} | {means} | {said} |", flush=True)


if __name__ == "__main__":
    main()
