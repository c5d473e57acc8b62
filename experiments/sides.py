"""How many sets of environments should play in turn, with how many threads? `python experiments/sides.py --device cuda`

Each variant is a process of its own; they are measured in turn, and compared with ale-py alone on all cores in the same
round: machines are noisy, and a minute later they are noisy in another way.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
from multiprocessing.connection import Connection
from pathlib import Path

from tightrope import trainer
from tightrope.bench import Bench, rate
from tightrope.config import preset
from tightrope.device import cores, pick_device, threads
from tightrope.games import atari

#: Sets of environments, threads of each.
VARIANTS = [(2, 8), (3, 8), (4, 4), (4, 8), (3, 5)]


def work(pipe: Connection, sides: int, threads_each: int, args: argparse.Namespace) -> None:
    """A trainer with so many sets, which works when asked to."""
    everything = cores()
    trainer.SIDES = sides
    atari.cores = lambda: sides * threads_each  # of which each set gets its part
    config = preset("paper").replace(num_envs=args.num_envs, replay_rows=args.replay_rows, learn_start_steps=args.start)
    with tempfile.TemporaryDirectory() as folder, threads(None):
        bench = Bench("pong", pick_device(args.device), Path(folder) / "run", config)
        atari.cores = lambda: everything
        bench.bare = atari.AtariGame("pong", args.num_envs, 0, atari.GameOptions()).bare()
        bench.bare.reset(seed=0)
        pipe.send("ready")
        while (what := pipe.recv()) != "end":
            pipe.send(
                bench.train(bench.tightened, args.seconds) if what == "train" else rate(bench.play_bare, args.seconds)
            )
        bench.trainer.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--num_envs", type=int, default=128)
    parser.add_argument("--replay_rows", type=int, default=1_000_000)
    parser.add_argument("--start", type=int, default=10_000, help="steps before learning")
    parser.add_argument("--seconds", type=float, default=0.7)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    pipes = []
    for variant in VARIANTS:
        ours, theirs = context.Pipe()
        context.Process(target=work, args=(theirs, *variant, args), daemon=True).start()
        ours.recv()  # one after the other: the first one's compiled code serves them all
        pipes.append(ours)

    def ask(pipe: Connection, what: str) -> float:
        pipe.send(what)
        return float(pipe.recv())

    ratios: dict[tuple[int, int], list[float]] = {variant: [] for variant in VARIANTS}
    for _ in range(args.rounds):
        alone = ask(pipes[0], "alone")
        for variant, pipe in zip(VARIANTS, pipes, strict=True):
            ratios[variant].append(ask(pipe, "train") / alone)
    for (sides, each), found in ratios.items():
        print(f"{sides} sets of {each} threads: {statistics.median(found):.3f} ({min(found):.2f}-{max(found):.2f})")
    for pipe in pipes:
        pipe.send("end")


if __name__ == "__main__":
    main()
