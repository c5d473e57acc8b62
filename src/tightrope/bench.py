"""How fast this machine is: emulator, actor, learner, and all of it together, measured in one run.

Machines differ and are noisy: what compares are the ratios, and each part is measured several times, after a warm-up.
"""

from __future__ import annotations

import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from tightrope.config import preset
from tightrope.device import pick_device, threads
from tightrope.run import Description, RunFolder, commit
from tightrope.trainer import Trainer

REPEATS = 3


def machine(device: torch.device) -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpu": platform.processor() or platform.machine(),
        "cores": psutil.cpu_count(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "device": str(device),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit(),
    }


def rate(work: Callable[[], int], seconds: float, device: torch.device) -> float:
    """Units of work a second: the median of some repeats, each of at least so many seconds."""

    def once() -> float:
        done, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            done += work()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return done / (time.perf_counter() - began)

    work()
    return statistics.median(once() for _ in range(REPEATS))


def trainer_for(game: str, name: str, folder: Path, device: str, fields: dict[str, Any]) -> Trainer:
    """A run that is about to learn: its replay holds what learning starts with."""
    config = preset(name).replace(eval_every_epochs=0, save_replay=False, **fields)
    trainer = Trainer(Description(game, name, 0, device, config), RunFolder(folder))
    trainer.start()
    while trainer.started_at is None:
        trainer.step()
    for _ in range(2):  # compiled, captured, warm
        trainer.step()
    return trainer


def one_step(trainer: Trainer) -> int:
    """The whole loop once: frames played."""
    before = trainer.frames
    trainer.step()
    return trainer.frames - before


def one_update(trainer: Trainer) -> int:
    """The learner alone: updates made."""
    trainer.learner.update(trainer.replay)
    return trainer.learner.at_once


def one_act(trainer: Trainer) -> int:
    """The actor alone: states acted on."""
    return sum(len(side.actor.act(0.1)) for side in trainer.sides)


def one_play(trainer: Trainer, rng: np.random.Generator) -> int:
    """The games alone, under random actions: frames played."""
    played = 0
    for side in trainer.sides:
        if side.sent is not None:
            played += int(side.game.receive().transition.sum())
        side.sent = rng.integers(0, trainer.info.num_actions, side.game.num_envs)
        side.game.send(side.sent)
    return played * trainer.info.frames_per_step


def bench(
    game: str = "pong",
    device: str = "auto",
    num_envs: int = 128,
    replay_rows: int = 100_000,
    seconds: float = 3.0,
    learn_start_steps: int = 10_000,
) -> dict[str, Any]:
    """Frames/s of the emulator, states/s of the actor, ms of an update, frames/s end to end, and the ratios."""
    where = pick_device(device)
    fields = {"num_envs": num_envs, "replay_rows": replay_rows, "learn_start_steps": learn_start_steps}
    found: dict[str, Any] = {"game": game, **fields, "machine": machine(where)}
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("paper", "dqn"):
            trainer = trainer_for(game, name, Path(folder) / name, str(where), fields)
            with threads(None if trainer.info.network == "paper" else 1):
                found[f"{name}_frames_per_second"] = rate(partial(one_step, trainer), seconds, where)
                found[f"{name}_update_ms"] = 1000 / rate(partial(one_update, trainer), seconds, where)
                if name == "paper":
                    found["actor_states_per_second"] = rate(partial(one_act, trainer), seconds, where)
                    found["emulator_frames_per_second"] = rate(partial(one_play, trainer, rng), seconds, where)
            trainer.close()
    found["end_to_end_of_emulator"] = found["paper_frames_per_second"] / found["emulator_frames_per_second"]
    found["tightened_of_dqn_time"] = found["dqn_frames_per_second"] / found["paper_frames_per_second"]
    found["tightened_of_dqn_update"] = found["paper_update_ms"] / found["dqn_update_ms"]
    found["host_memory_gb"] = psutil.Process().memory_info().rss / 1e9
    found["gpu_memory_gb"] = torch.cuda.max_memory_reserved(where) / 1e9 if where.type == "cuda" else None
    return found
