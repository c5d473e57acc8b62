"""How fast this machine is: emulator, actor, learner, and all of it together, measured in one run.

Machines are noisy, and other people use them. So the parts are measured in turn, several times over, and what compares
is the ratio of two measurements of one round; the median over the rounds is reported.
"""

from __future__ import annotations

import copy
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import torch

from tightrope.config import Config, numbers
from tightrope.device import pick_device, threads
from tightrope.errors import TightropeError
from tightrope.games import canonical
from tightrope.games.atari import AtariGame
from tightrope.games.base import GameOptions
from tightrope.learner import Learner
from tightrope.memory import Memory
from tightrope.run import Description, RunFolder, commit
from tightrope.trainer import Side, Trainer


def machine(device: torch.device) -> dict[str, Any]:
    """What the figures were measured on."""
    return {
        "cpu": processor(),
        "cores": psutil.cpu_count(),
        "gpu": torch.cuda.get_device_name(device) if device.type == "cuda" else None,
        "device": str(device),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "commit": commit(),
    }


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def rate(work: Callable[[], int], seconds: float) -> float:
    """Units of work a second, over at least so many seconds."""
    work()
    _settle()
    done, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        done += work()
    _settle()
    return done / (time.perf_counter() - began)


def _settle() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


class Bench:
    """One set of environments and one replay, with a tightened learner and one without bounds."""

    def __init__(self, game: str, device: torch.device, folder: Path, config: Config) -> None:
        # The preset's numbers with bounds, and beside it the same without.
        config = config.replace(eval_every_epochs=0, save_replay=False, bounds=True)
        said: list[str] = []
        self.device = device
        run = RunFolder(folder)
        run.clear_records()
        self.trainer = Trainer(Description(game, "bench", 0, str(device), config), run, report=said.append)
        began = time.perf_counter()
        self.trainer.start()
        self.start_seconds = time.perf_counter() - began
        while self.trainer.started_at is None:
            self.trainer.step()
        self.tightened = self.trainer.learner
        self.plain = Learner(copy.deepcopy(self.trainer.network), config.replace(bounds=False), device, 1)
        # A row has one priority, whoever learns from it.
        self.plain.priorities, self.plain.lacks_notes = self.tightened.priorities, False
        if self.tightened.memory is not None:
            self.plain.memory = Memory(*self.tightened.memory.values.shape)
        if self.trainer.sped_up:
            self.trainer.speed_up_learner(self.plain)
        self.random = np.random.default_rng(0)
        # ale-py's own vector environment on all cores, with nothing of ours around it.
        self.bare = AtariGame(self.trainer.info.rom or game, config.num_envs, 0, GameOptions()).bare()
        self.bare.reset(seed=0)

    def train(self, learner: Learner, seconds: float) -> float:
        """The whole loop: frames/s."""
        trainer = self.trainer
        trainer.learner = learner
        for side in trainer.sides:
            side.updates = -1  # it acts by the other learner's weights
        # As if its updates so far had been due: the learner alone may have made many.
        trainer.started_at = trainer.steps - trainer.config.steps_taken(learner.updates)

        def step() -> int:
            before = trainer.frames
            trainer.step()
            return trainer.frames - before

        before = learner.updates
        while learner.updates == before:  # the first update may compile
            step()
        return rate(step, seconds)

    def update(self, learner: Learner) -> int:
        """The learner alone: updates made."""
        learner.update(self.trainer.replay)
        return learner.at_once

    def act(self) -> int:
        """The actor alone: states acted on."""
        return sum(len(side.actor.act(0.1)) for side in self.trainer.sides)

    def send(self, side: Side) -> None:
        side.sent = self.random.integers(0, self.trainer.info.num_actions, side.game.num_envs)
        side.game.send(side.sent)

    def receive(self, side: Side) -> int:
        return int(side.game.receive().transition.sum()) * self.trainer.info.frames_per_step

    def play_in_turn(self) -> int:
        """The games alone under random actions, as training plays them: frames."""
        frames = 0
        for side in self.trainer.sides:
            frames += self.receive(side) if side.sent is not None else 0
            self.send(side)
        return frames

    def play_at_once(self) -> int:
        """The games alone, all in lockstep: frames."""
        frames = sum(self.receive(side) for side in self.trainer.sides if side.sent is not None)
        for side in self.trainer.sides:
            self.send(side)
        return frames

    def play_bare(self) -> int:
        """ale-py alone: frames."""
        count = int(self.bare.num_envs)
        self.bare.step(self.random.integers(0, self.trainer.info.num_actions, count))
        return count * self.trainer.info.frames_per_step

    def save(self) -> dict[str, float]:
        """A checkpoint with a full replay, written while training goes on: how long it takes, and the longest pause."""
        trainer, replay = self.trainer, self.trainer.replay
        # A full replay at once: as if its rows had been written before. Those without a flag are never sampled.
        replay.head += replay.length
        replay.clock += replay.length
        replay.began += replay.length
        trainer.config = trainer.config.replace(save_replay=True)
        pauses = []
        began = before = time.perf_counter()
        trainer.save(wait=False)
        while True:
            trainer.step()
            now = time.perf_counter()
            pauses.append(now - before)
            before = now
            if not trainer.folder.checkpoints.busy:
                return {"save_seconds": now - began, "save_pause_seconds": max(pauses)}

    def round(self, seconds: float) -> dict[str, float]:
        """Every part once."""
        ways = {"in_turn": self.play_in_turn, "at_once": self.play_at_once, "bare": self.play_bare}
        emulator = {f"emulator_{way}_frames_per_second": rate(play, seconds) for way, play in ways.items()}
        tightened = self.train(self.tightened, seconds)
        plain = self.train(self.plain, seconds)
        tightened_ms = 1000 / rate(lambda: self.update(self.tightened), seconds)
        plain_ms = 1000 / rate(lambda: self.update(self.plain), seconds)
        return emulator | {
            "actor_states_per_second": rate(self.act, seconds),
            "tightened_frames_per_second": tightened,
            "dqn_frames_per_second": plain,
            "tightened_update_ms": tightened_ms,
            "dqn_update_ms": plain_ms,
            "tightened_of_dqn_time": plain / tightened,
            "tightened_of_dqn_update": tightened_ms / plain_ms,
        }


def against_the_emulator(measured: list[dict[str, float]]) -> None:
    """Training compared with the emulator alone, played in the way that is fastest here by its median.

    Not with each round's fastest, which would be the luckiest of three noisy measurements.
    """
    ways = [name for name in measured[0] if name.startswith("emulator_")]
    fastest = max(ways, key=lambda way: statistics.median(one[way] for one in measured))
    for one in measured:
        one["emulator_frames_per_second"] = one[fastest]
        one["end_to_end_of_emulator"] = one["tightened_frames_per_second"] / one[fastest]


def bench(
    game: str = "pong",
    preset: str = "paper",
    device: str = "auto",
    num_envs: int = 128,
    replay_rows: int = 0,
    seconds: float = 3.0,
    rounds: int = 3,
    saving: bool = False,
    peers: bool = False,
) -> dict[str, Any]:
    """All parts in some rounds: medians, and the smallest and largest of each. `replay_rows` 0: by the device.

    On a CPU what an update costs depends on how many rows the target network has valued already. So there the replay is
    full from the start, and the target network's period is the paper's share of it, a hundredth, or one update: some
    five seconds.
    """
    if rounds < 1 or seconds <= 0:
        raise TightropeError(f"rounds = {rounds}, seconds = {seconds:g}: at least one round, and some time for it")
    if not canonical(game).startswith("atari/"):
        raise TightropeError(f"bench measures an Atari game; {game} is none")
    if peers:
        from tightrope.peers import check

        check()
    where, config = pick_device(device), numbers(preset)
    if where.type == "cuda":
        fields = {"replay_rows": replay_rows or 1_000_000, "learn_start_steps": 10_000}
    else:
        rows = replay_rows or 40_000
        period = max(config.update_every_steps, rows // 100)
        fields = {"replay_rows": rows, "learn_start_steps": rows, "target_every_steps": period}
    fields["num_envs"] = num_envs
    config = config.replace(**fields)
    found: dict[str, Any] = {"game": game, "preset": preset, **fields, "seconds": seconds, "rounds": rounds}
    found["machine"] = machine(where)
    with tempfile.TemporaryDirectory() as folder, threads(None):
        parts = Bench(game, where, Path(folder) / "run", config)
        found["start_seconds"] = parts.start_seconds
        found["speed_up_seconds"] = parts.trainer.speed_up_seconds
        measured = [parts.round(seconds) for _ in range(rounds)]
        against_the_emulator(measured)
        found |= {name: statistics.median(one[name] for one in measured) for name in measured[0]}
        found["range"] = {name: [f(one[name] for one in measured) for f in (min, max)] for name in measured[0]}
        found["host_memory_gb"] = psutil.Process().memory_info().rss / 1e9
        found["gpu_memory_gb"] = None
        if where.type == "cuda":
            free, total = torch.cuda.mem_get_info(where)
            found["gpu_memory_gb"] = (total - free) / 1e9
        found |= parts.save() if saving else {}
        parts.trainer.close()
        if peers:
            from tightrope.peers import compare

            found["peers"] = compare(game, where, seconds, rounds)
    return found


def told(found: dict[str, Any]) -> str:
    """The same as lines to read."""
    where = found["machine"]

    def line(words: str, name: str, form: str) -> str:
        low, high = found["range"][name]
        return f"  {words:<46}{format(found[name], form):>12}    {format(low, form)} to {format(high, form)}"

    lines = [
        f"{found['game']}, preset {found['preset']}, {found['num_envs']} environments, {found['replay_rows']:,} rows "
        f"of replay; median of {found['rounds']} rounds of {found['seconds']:g} s a part, smallest to largest",
        f"{where['gpu'] or where['cpu']}, {where['cores']} cores; PyTorch {where['torch']}, Python {where['python']}, "
        f"commit {where['commit'][:10]}",
        line("emulator alone, frames/s", "emulator_frames_per_second", ",.0f"),
        line("training, tightened, frames/s", "tightened_frames_per_second", ",.0f"),
        line("training, plain DQN, frames/s", "dqn_frames_per_second", ",.0f"),
        line("training of emulator alone", "end_to_end_of_emulator", ".2f"),
        line("tightened of plain, time of training", "tightened_of_dqn_time", ".2f"),
        line("one update, tightened, ms", "tightened_update_ms", ".3f"),
        line("one update, plain DQN, ms", "dqn_update_ms", ".3f"),
        line("tightened of plain, time of an update", "tightened_of_dqn_update", ".2f"),
        line("actor alone, states/s", "actor_states_per_second", ",.0f"),
        f"  {'starting the games, s':<46}{found['start_seconds']:>12.1f}",
        f"  {'compiling and capturing, s':<46}{found['speed_up_seconds']:>12.1f}",
        f"  {'memory of the host, GB':<46}{found['host_memory_gb']:>12.2f}",
    ]
    if found["gpu_memory_gb"] is not None:
        lines.append(f"  {'memory of the GPU, GB':<46}{found['gpu_memory_gb']:>12.2f}")
    if "save_seconds" in found:
        lines.append(f"  {'saving a full replay while training, s':<46}{found['save_seconds']:>12.1f}")
        lines.append(f"  {'longest pause of training meanwhile, s':<46}{found['save_pause_seconds']:>12.2f}")
    if "peers" in found:
        rates = found["peers"]["steps_per_second"]
        lines.append(f"steps of the agent a second (stable-baselines3 {found['peers']['stable_baselines3']})")
        for name, value in rates.items():
            low, high = found["peers"]["range"][name]
            lines.append(f"  {name:<52}{value:>6.1f}    {low:.1f} to {high:.1f}")
    return "\n".join(lines)
