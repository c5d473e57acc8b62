"""Whether the presets learn what they learned at an earlier commit: `python experiments/same_as.py 2f3d713`.

That one is the last before the switches beyond the paper. Short runs on a CPU, by the code of the commit and by that of
today, from the same seed: on the maze, on MinAtar's Breakout and on Pong. The weights that come of them must be the
same bit for bit; prints a line for each and ends with status 1 where they are not.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Game, preset, and what makes it short.
RUNS = [
    ("maze", "maze", {"frames": 4_000}),
    ("minatar/breakout", "minatar", {"frames": 6_000}),
    ("atari/pong", "paper", {"frames": 4_000, "num_envs": 4, "replay_rows": 1_000, "learn_start_steps": 400}),
    ("atari/pong", "released", {"frames": 24_000, "num_envs": 4, "replay_rows": 8_000, "learn_start_steps": 400}),
]
#: By either code: how many updates were made, and a digest of the weights after them.
PROGRAM = """
import hashlib, json, sys, tempfile
from pathlib import Path
from tightrope.config import preset
from tightrope.run import Description, RunFolder
from tightrope.trainer import Trainer
game, name, fields = json.loads(sys.argv[1])
config = preset(name).replace(eval_every_epochs=0, save_replay=False, **fields)
with tempfile.TemporaryDirectory() as folder:
    description = Description(game, name, 0, "cpu", config)
    trainer = Trainer(description, RunFolder(Path(folder) / "run"))
    trainer.folder.create(description)
    trainer.start()
    list(trainer.train())
    trainer.close()
digest = hashlib.sha256()
for weights in trainer.network.parameters():
    digest.update(weights.detach().contiguous().numpy().tobytes())
print(trainer.learner.updates, digest.hexdigest())
"""


def learned(source: Path, run: tuple[str, str, dict[str, int]]) -> str:
    environment = os.environ | {"PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", PROGRAM, json.dumps(run)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout.splitlines()[-1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit")
    commit = parser.parse_args().commit
    archive = subprocess.run(["git", "archive", commit, "src"], cwd=ROOT, check=True, capture_output=True).stdout
    same = True
    with tempfile.TemporaryDirectory() as before:
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(before, filter="data")
        for run in RUNS:
            then, now = learned(Path(before, "src"), run), learned(ROOT / "src", run)
            same &= then == now
            updates = now.split()[0]
            print(f"{run[0]}, {run[1]}: {'the same' if then == now else 'NOT the same'} after {updates} updates")
    sys.exit(not same)


if __name__ == "__main__":
    main()
