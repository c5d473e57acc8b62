"""Where the time of training goes: `python experiments/where_time_goes.py --game pong --device cuda --seconds 1`.

First the host: what the training's own thread does in each step, waiting included. Then the GPU: every kernel of some
updates, with how often it runs. Prints both as Markdown for docs/performance.md.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from tightrope.bench import machine
from tightrope.config import numbers
from tightrope.device import pick_device
from tightrope.run import Description, RunFolder
from tightrope.trainer import Trainer


class Clock:
    """Adds up the time spent in functions by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def watch(self, owner: Any, name: str, label: str) -> None:
        work: Callable[..., Any] = getattr(owner, name)

        def timed(*args: Any, **kwargs: Any) -> Any:
            began = time.perf_counter()
            try:
                return work(*args, **kwargs)
            finally:
                self.seconds[label] += time.perf_counter() - began

        setattr(owner, name, timed)


def ready(game: str, name: str, device: torch.device, folder: Path, changed: dict[str, Any]) -> Trainer:
    """A trainer that has learned a little and is warm."""
    fields = {"eval_every_epochs": 0, "save_replay": False, "learn_start_steps": 10_000} | changed
    config = numbers(name).replace(**fields)
    trainer = Trainer(Description(game, name, 0, str(device), config), RunFolder(folder), report=print)
    trainer.start()
    while trainer.started_at is None or trainer.learner.updates < 200:
        trainer.step()
    return trainer


def host(trainer: Trainer, seconds: float) -> None:
    clock = Clock()
    for side in trainer.sides:
        clock.watch(side.game, "receive", "waiting for the games and reading them")
        clock.watch(side.game, "send", "sending actions")
        clock.watch(side.actor, "observe", "frames to the device")
        clock.watch(side.actor, "act", "choosing actions, waiting for the device included")
    clock.watch(trainer, "learn", "starting updates")
    clock.watch(trainer, "store", "writing the replay")
    began, frames, steps = time.perf_counter(), trainer.frames, 0
    while time.perf_counter() - began < seconds:
        trainer.step()
        steps += 1
    took = time.perf_counter() - began
    speed = (trainer.frames - frames) / took
    print(f"\n{speed:,.0f} frames/s; a step of all environments takes {1000 * took / steps:.2f} ms\n")
    print("| the training's own thread | ms a step | share |\n| --- | --- | --- |")
    for label, spent in sorted(clock.seconds.items(), key=lambda item: -item[1]):
        print(f"| {label} | {1000 * spent / steps:.2f} | {spent / took:.0%} |")


def kernels(trainer: Trainer, calls: int = 10) -> None:
    learner, replay = trainer.learner, trainer.replay
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(5 * calls):
        learner.update(replay)
    torch.cuda.synchronize()
    update = 1e6 * (time.perf_counter() - began) / (5 * calls * learner.at_once)
    # There is one cycle; without `acc_events` PyTorch warns that it forgets those before.
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True) as profile:
        for _ in range(calls):
            learner.update(replay)
        torch.cuda.synchronize()
    found: dict[str, list[float]] = defaultdict(list)
    for event in profile.events():
        if event.device_type == torch.autograd.DeviceType.CUDA:
            found[event.name].append(event.device_time)
    updates = calls * learner.at_once
    total = sum(map(sum, found.values())) / updates
    print(f"\n{update:.0f} µs an update; its kernels together {total:.0f} µs, some beside each other\n")
    print("| kernel | µs an update | times an update | µs each |\n| --- | --- | --- | --- |")
    for name, times in sorted(found.items(), key=lambda item: -sum(item[1]))[:24]:
        print(
            f"| {name[:60]} | {sum(times) / updates:.1f} | {len(times) / updates:.2f} | {sum(times) / len(times):.1f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--game", default="pong")
    parser.add_argument("--preset", default="paper")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--num_envs", type=int, default=128)
    parser.add_argument("--replay_rows", type=int, default=1_000_000)
    parser.add_argument("--seconds", type=float, default=1.0)
    args = parser.parse_args()
    device = pick_device(args.device)
    print(machine(device))
    changed = {"num_envs": args.num_envs, "replay_rows": args.replay_rows}
    with tempfile.TemporaryDirectory() as folder:
        trainer = ready(args.game, args.preset, device, Path(folder) / "run", changed)
        host(trainer, args.seconds)
        if device.type == "cuda":
            kernels(trainer)
        trainer.close()


if __name__ == "__main__":
    main()
