"""What a learner does that does not wait for the games: `python experiments/asynchronous.py`.

One after the other, in two halves that take turns (`overlap`), and with a learner that never waits (`asynchronous`).
On CartPole, each step of which waits another millisecond, as for a simulator in another process; with `--game busy` the
same but reckoning in Python meanwhile; or with `--game pong` and `--device cuda` on a game of Atari by preset `paper`.
Two to six minutes each on two idle cores. Prints as Markdown, means over the seeds: how fast, how many updates a step,
the share of the time in which an update is being made, how many updates the acting weights lack, and the mean score of
the last games, at most 100, that ended in training's second half.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from tightrope.bench import machine
from tightrope.config import preset
from tightrope.device import pick_device
from tightrope.learner import Learner
from tightrope.run import Description, RunFolder
from tightrope.trainer import Trainer

MODES: dict[str, dict[str, Any]] = {
    "one after the other": {"overlap": False, "asynchronous": False},
    "`overlap`": {"overlap": True, "asynchronous": False},
    "`overlap` and `asynchronous`": {"overlap": True, "asynchronous": True},
}


class Slow(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Whose steps wait another millisecond."""

    def step(self, action: Any) -> Any:
        time.sleep(0.001)
        return self.env.step(action)


class Busy(Slow):
    """Whose steps reckon for another millisecond, so that no other thread's Python runs."""

    def step(self, action: Any) -> Any:
        until = time.perf_counter() + 0.001
        while time.perf_counter() < until:
            pass
        return self.env.step(action)


#: Games of our own; any other name is one of Atari's.
OWN = {"slow": Slow, "busy": Busy}


class Work:
    """How long updates take, on the host or on the GPU, whoever waits for them."""

    def __init__(self, device: torch.device) -> None:
        self.cuda = device.type == "cuda"
        self.spans: list[tuple[Any, Any]] = []

    def now(self) -> Any:
        if not self.cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    @contextmanager
    def watched(self) -> Any:
        update = Learner.update

        def timed(learner: Learner, *what: Any) -> None:
            began = self.now()
            update(learner, *what)
            self.spans.append((began, self.now()))

        Learner.update = timed  # type: ignore[method-assign]
        try:
            yield
        finally:
            Learner.update = update  # type: ignore[method-assign]

    def seconds(self) -> float:
        if not self.cuda:
            return sum(end - began for began, end in self.spans)
        torch.cuda.synchronize()
        return sum(began.elapsed_time(end) for began, end in self.spans) / 1000


def run(game: str, device: torch.device, fields: dict[str, Any], seed: int) -> list[float]:
    """Frames/s, updates a step, the updates' share of the time and updates behind, from the start of learning; and
    the mean score of the last games."""
    env = (lambda: OWN[game](gymnasium.make("CartPole-v1"))) if game in OWN else None
    name = "classic" if env else "paper"
    work = Work(device)
    with tempfile.TemporaryDirectory() as folder:
        config = preset(name).replace(eval_every_epochs=0, save_replay=False, **fields)
        description = Description("custom" if env else game, name, seed, str(device), config)
        trainer = Trainer(description, RunFolder(Path(folder) / "run"), env=env)
        trainer.folder.create(description)
        trainer.start()
        with trainer.threads():
            while trainer.started_at is None:
                trainer.step()
            trainer.step()  # a step of all that is warm
            began, steps, updates = time.perf_counter(), trainer.steps, trainer.learner.updates
            trainer.behind[:] = 0
            with work.watched():
                while trainer.frames < config.frames:
                    if trainer.frames < config.frames // 2:
                        trainer.recent_scores.clear()
                    trainer.step()
                busy = work.seconds()
            seconds = time.perf_counter() - began
        played, learned = trainer.steps - steps, trainer.learner.updates - updates
        behind, actions = trainer.behind
        score = float(np.mean(trainer.recent_scores)) if trainer.recent_scores else float("nan")
        frames = played * trainer.info.frames_per_step
        trainer.close()
    return [frames / seconds, learned / played, busy / seconds, behind / actions if actions else 0.0, score]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--game", default="slow")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--frames", type=int, default=20_000)
    parser.add_argument("--num_envs", type=int, default=8)
    parser.add_argument("--seeds", type=int, default=3)
    wanted = parser.parse_args()
    device = pick_device(wanted.device)
    sizes = {"frames": wanted.frames, "num_envs": wanted.num_envs, "log_frames": max(1, wanted.frames // 10)}
    if wanted.game not in OWN:
        # As in `tightrope bench`: rows enough to learn from, and a target network that follows so often
        # that on a CPU as many states must be valued anew as with the preset's numbers and its million rows.
        rows = wanted.frames // 8
        sizes |= {"learn_start_steps": rows, "target_every_steps": max(4, rows // 100)}
    found: dict[str, list[list[float]]] = {name: [] for name in MODES}
    for seed in range(wanted.seeds):
        for name, fields in MODES.items():
            found[name].append(run(wanted.game, device, sizes | fields, seed))
    print(f"{wanted.game}, {wanted.num_envs} environments, seeds 0 to {wanted.seeds - 1}: {machine(device)}\n")
    print("| | frames/s | updates a step | time in updates | updates behind | score |")
    print("| --- |" + " --- |" * 5)
    for name, rows in found.items():
        speed, updates, share, behind, score = np.mean(rows, axis=0)
        print(f"| {name} | {speed:,.0f} | {updates:.2f} | {share:.0%} | {behind:.1f} | {score:.0f} |")


if __name__ == "__main__":
    main()
