"""A Ray cluster on one machine whose workers, nodes and drivers are killed: every cell is completed, and once.

The study is run by its command line on a cluster of three nodes. What is killed is drawn; a driver that was killed is
started again by the same command, a node by another.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import TIMED, Tally, arguments, in_child

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
from ray.cluster_utils import Cluster

import tightrope
from tightrope.run import RunFolder
from tightrope.study import survey
from tightrope.study.cell import Status

FIELDS: dict[str, Any] = {"frames": 4000, "learn_start_steps": 100, "epoch_frames": 1000, "eval_episodes": 2,
                          "eval_max_game_frames": 40, "log_frames": 100, "checkpoint_frames": 250}  # fmt: skip


def study(path: Path, seeds: int) -> Path:
    lines = ['games = ["maze-6"]', f"seeds = {list(range(seeds))}", 'device = "cpu"']
    lines += [*(f"{name} = {value}" for name, value in FIELDS.items()), '[arms]\ntightened = { preset = "maze" }']
    path.write_text("\n".join(lines) + "\n")
    return path


def told(run: Path) -> Any:
    folder = RunFolder(run)
    return [
        [{k: v for k, v in row.items() if k not in TIMED} for row in rows]
        for rows in (folder.metrics(), folder.evaluations())
    ]


class Torture:
    def __init__(self, folder: Path, seeds: int, rng: random.Random, tally: Tally) -> None:
        self.file, self.out, self.rng, self.tally = study(folder / "study.toml", seeds), folder / "out", rng, tally
        self.cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
        self.nodes = [self.cluster.add_node(num_cpus=1) for _ in range(2)]
        self.log = (folder / "driver.log").open("ab")
        self.driver: subprocess.Popen[bytes] | None = None

    def drive(self) -> None:
        words = [sys.executable, "-m", "tightrope", "study", "run", str(self.file), "--out", str(self.out)]
        self.driver = subprocess.Popen([*words, "--ray", self.cluster.address], stdout=self.log, stderr=self.log)

    def running(self) -> list[Path]:
        """Cells that have something to lose."""
        cells = [path.parent for path in self.out.rglob("status.json")]
        return [c for c in cells if Status.read(c).state == "running" and any(c.glob("checkpoints/at-*"))]

    def kill(self) -> str:
        kind = self.rng.choice(["worker", "worker", "node", "driver"])
        if kind == "worker":
            pid = Status.read(self.rng.choice(self.running())).pid
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return ""
        elif kind == "node":
            node = self.nodes.pop(self.rng.randrange(len(self.nodes)))
            self.cluster.remove_node(node, allow_graceful=False)
            self.nodes.append(self.cluster.add_node(num_cpus=1))
        else:
            assert self.driver is not None
            self.driver.kill()
            self.driver.wait()
            self.drive()
        return f"{kind} killed"

    def run(self, count: int) -> int:
        """Kills until so many are dead or the study is done; how many."""
        kills, until = 0, time.monotonic() + 1800
        self.drive()
        while time.monotonic() < until:
            assert self.driver is not None
            if self.driver.poll() is not None:
                if all(seen.state == "done" for seen in survey(self.out).cells):
                    return kills
                self.drive()  # a cell died more often than Ray tries it again: the same command goes on
            if kills < count and self.running():
                time.sleep(self.rng.random() * 2)
                if self.running() and (said := self.kill()):
                    kills += 1
                    self.tally.add("ray", said)
            time.sleep(0.1)
        self.tally.add("ray", "BROKEN: it did not end")
        return kills

    def close(self) -> None:
        if self.driver is not None and self.driver.poll() is None:
            self.driver.kill()
            self.driver.wait()
        self.cluster.shutdown()
        self.log.close()


def main() -> int:
    count, rng = arguments(20, "kills")
    tally = Tally("ray")
    cells = max(3, count // 3)
    with tempfile.TemporaryDirectory() as folder:
        torture = Torture(Path(folder), cells, rng, tally)
        try:
            kills = torture.run(count)
            print((Path(folder) / "driver.log").read_text()[-1500:], file=sys.stderr)
        finally:
            torture.close()
        for seen in survey(torture.out).cells:
            alone = Path(folder) / f"alone-{seen.cell.seed}"
            said = in_child(
                lambda: tightrope.train("maze-6", preset="maze", seed=seen.cell.seed, device="cpu", out=alone,  # noqa: B023
                                        quiet=True, **FIELDS) and "fine", 300
            )  # fmt: skip
            once = said == "fine" and json.dumps(told(alone)) == json.dumps(told(seen.folder))
            good = seen.state == "done" and once
            tally.add(seen.cell.name, "cell completed once" if good else f"BROKEN: {seen.state} {seen.error}")
    return tally.record(f"{kills} kills in a study of {cells} cells")


if __name__ == "__main__":
    sys.exit(main())
