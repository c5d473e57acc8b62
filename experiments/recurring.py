"""How often do states come again, to the last pixel? Bounds across trajectories can know no more of a game than that.

    python experiments/recurring.py breakout alien pong --steps 100000

Plays with agents that come with the package, without sticky actions, and prints for each fifth of the steps the share
of those whose state an earlier step had. Some minutes each on one core.
"""

from __future__ import annotations

import argparse
import hashlib

import numpy as np

import tightrope
from tightrope.actor import Actor
from tightrope.games import GameOptions, make_game

ENVS, PARTS = 8, 5


def shares(name: str, steps: int, epsilon: float) -> list[float]:
    agent = tightrope.load(name)
    options = GameOptions(
        max_game_frames=108_000, noop_max=30, sticky=0.0, life_ends=True, life_noops=0, sides=1, patience=0
    )
    game = make_game(agent.info.name, ENVS, 0, options, None)
    actor = Actor(agent.network, ENVS, agent.info, agent.device, 0)
    actor.observe(game.reset(), np.ones(ENVS, dtype=bool))
    seen: set[bytes] = set()
    again = []
    for _ in range(steps // ENVS):
        game.send(actor.act(epsilon))
        for state in actor.frames.cpu().numpy():
            key = hashlib.blake2b(state.tobytes(), digest_size=8).digest()
            again.append(key in seen)
            seen.add(key)
        step = game.receive()
        actor.observe(step.frames, step.begins)
    game.close()
    return [float(np.mean(part)) for part in np.array_split(again, PARTS)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("agents", nargs="+")
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--epsilon", type=float, default=0.05)
    args = parser.parse_args()
    for name in args.agents:
        found = shares(name, args.steps, args.epsilon)
        print(f"{name}, epsilon {args.epsilon}: {', '.join(f'{share:.0%}' for share in found)}", flush=True)


if __name__ == "__main__":
    main()
