"""Tightened against plain DQN, against longer targets, and with bounds across trajectories, on the maze, over several
seeds and mazes: `make maze-study` writes results/maze.csv. Rows of cells that are not run stay there.

Two figures for each run: frames until the value of the start is half its true size, and frames until every game of an
evaluation reaches the goal. A run that never gets there is a row too, with the cell empty.
"""

from __future__ import annotations

import argparse
import csv
import os
import platform
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

#: What is changed of preset `maze`. Targets of several steps carry reward fast as well, without bounds.
METHODS: dict[str, dict[str, Any]] = {
    "tightened": {},
    "dqn": {"bounds": False},
    "lower": {"use_upper": False},
    "ahead": {"upper_by": "ahead", "use_return": False},
    "three-step": {"bounds": False, "n_step": 3},
    "five-step": {"bounds": False, "n_step": 5},
    "ten-step": {"bounds": False, "n_step": 10},
    "twenty-step": {"bounds": False, "n_step": 20},
    # Lower bounds over the whole episode, and through all that was ever tried in the same cells.
    "episode": {"horizon": "episode"},
    "crossings": {"horizon": "crossings"},
}


def one(path: int, seed: int, method: str, frames: int) -> dict[str, Any]:
    import tightrope
    from tightrope.demo import start_reached
    from tightrope.run import RunFolder, commit

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        agent = tightrope.train(
            f"maze-{path}",
            seed=seed,
            frames=frames,
            out=Path(folder) / "run",
            quiet=True,
            save_replay=False,
            device="cpu",
            **METHODS[method],
        )
        assert agent.run is not None
        run = RunFolder(agent.run)
        reached = start_reached(run.metrics(), path)
        valued = "" if reached is None else reached
        rows = run.evaluations()
        solved = next((int(r["frames"]) for r in rows if float(r["score"]) == 1.0), "")
        last = [float(r["score"]) for r in rows[-5:]]
    return {
        "preset": "maze", "shortest_path": path, "method": method, "seed": seed, "frames": frames,
        "start_valued_frames": valued,
        "first_solved_frames": solved, "last_score": last[-1], "mean_of_last_5": round(statistics.fmean(last), 4),
        "seconds": round(time.monotonic() - began, 1), "commit": commit(), "device": f"cpu {platform.machine()}",
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--paths", type=int, nargs="+", default=[12, 24])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--frames", type=int, default=16_000)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--out", type=Path, default=Path("results/maze.csv"))
    args = parser.parse_args()
    cells = [(p, s, m, args.frames) for p in args.paths for s in range(args.seeds) for m in args.methods]
    with ProcessPoolExecutor(args.workers) as pool:
        rows = list(pool.map(one, *zip(*cells, strict=True)))
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if args.out.exists():
        with open(args.out, newline="") as file:
            done = {(str(path), str(seed), method) for path, seed, method, _ in cells}
            others = [r for r in csv.DictReader(file) if (r["shortest_path"], r["seed"], r["method"]) not in done]
        rows = others + rows
    rows.sort(key=lambda row: (int(row["shortest_path"]), int(row["seed"]), list(METHODS).index(row["method"])))
    with open(args.out, "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    print("| shortest path | method | seeds | start valued at, median | solved at, median | solved | mean of last 5 |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for path in args.paths:
        for method in METHODS:
            mine = [r for r in rows if int(r["shortest_path"]) == path and r["method"] == method]
            if not mine:
                continue
            # A run that never got there counts as later than all others.
            at = {key: statistics.median([float(r[key] or "inf") for r in mine])
                  for key in ("start_valued_frames", "first_solved_frames")}  # fmt: skip
            solved = sum(r["first_solved_frames"] != "" for r in mine)
            mean = statistics.fmean(float(r["mean_of_last_5"]) for r in mine)
            told = [f"{v:,.0f}" if v != float("inf") else "never" for v in at.values()]
            print(f"| {path} | {method} | {len(mine)} | {told[0]} | {told[1]} | {solved} of {len(mine)} | {mean:.2f} |")


if __name__ == "__main__":
    main()
