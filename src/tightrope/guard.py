"""What a run watches beside its game: that its numbers are numbers, that memory and disk will last.

Nothing here is asked at every step: numbers when a line of metrics reads them anyway and before an agent is judged or
saved, memory and disk with every line.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch

from tightrope.checkpoint import Checkpoints, free_disk, write
from tightrope.device import free_memory, total_memory
from tightrope.errors import TightropeError, sized
from tightrope.learner import Learner
from tightrope.network import stacked
from tightrope.replay import Reach, Replay

#: Shares of the host's memory: with less free than the first a run says so, with less than the second it ends.
LOW, OUT = 0.05, 0.01
BAD_BATCH = "bad-batch.safetensors"


class OutOfMemoryError(TightropeError):
    """Memory that runs out while there is still enough to save."""


class Resources:
    """Memory and disk while a run goes on. What is short is said once, and again only after it was not short."""

    def __init__(self, checkpoints: Checkpoints, report: Callable[[str], None], device: torch.device) -> None:
        self.checkpoints, self.report, self.device = checkpoints, report, device
        self._said: set[str] = set()

    def check(self) -> None:
        free, total = free_memory(), total_memory()
        if free < OUT * total:
            raise OutOfMemoryError(f"memory is running out: {sized(free)} of {sized(total)} are left")
        self._remark("memory", free < LOW * total, f"memory runs low: {sized(free)} of {sized(total)} are left")
        if self.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self.device)
            self._remark(
                "GPU", free < OUT * total, f"memory of the GPU runs low: {sized(free)} of {sized(total)} are left"
            )
        room, folder = free_disk(self.checkpoints.folder), self.checkpoints.folder
        self._remark(
            "disk", room < 2 * self.checkpoints.bytes,
            f"the disk runs full: {sized(room)} are free under {folder} and a checkpoint takes "
            f"{sized(self.checkpoints.bytes)}; free some",
        )  # fmt: skip

    def _remark(self, what: str, short: bool, text: str) -> None:
        if short and what not in self._said:
            self.report(text)
        (self._said.add if short else self._said.discard)(what)


def keep_bad_batch(path: Path, learner: Learner, replay: Replay, facts: dict[str, object]) -> Path:
    """The samples with which the numbers broke, with their states and what was to be learned from them."""
    found = learner.telemetry.suspects()
    rows = found.pop("row").long()
    times, envs = replay.time_of(rows), rows % replay.num_envs
    window = replay.window(times, envs, Reach())
    write(
        path / BAD_BATCH,
        found
        | {
            "states": stacked(replay.by_row, window.rows_BS),
            "actions": window.actions_B,
            "rewards": window.rewards_BH,
            "returns": window.returns_B,
            "times": times,
            "environments": envs,
        },
        facts,
    )
    return path / BAD_BATCH


def not_a_number(where: str, batch: Path, last_good: Path | None, facts: dict[str, object]) -> TightropeError:
    kept = f"the last good checkpoint is {last_good.name}" if last_good is not None else "there is no checkpoint yet"
    return TightropeError(
        f"not a number in the {where} at {facts['frames']:,} frames, seed {facts['seed']}: the run is stopped, {kept}, "
        f"and the batch is in {batch}; a lower learning_rate, or rewards and observations of a smaller scale, may help"
    )
