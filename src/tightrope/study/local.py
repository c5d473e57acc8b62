"""The cells of a study as processes on this machine."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

from tightrope.device import cores
from tightrope.study.cell import LOG
from tightrope.study.plan import Cell


def gpus(device: str) -> list[str]:
    """The GPUs that cells may use, as CUDA_VISIBLE_DEVICES names them; none where cells run on the CPU."""
    import torch

    from tightrope.device import pick_device

    if pick_device(device).type == "cpu":
        return []
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    return named.split(",") if named else [str(n) for n in range(torch.cuda.device_count())]


def mps_runs() -> bool:
    """Whether NVIDIA's MPS is there, by which kernels of several processes run beside each other."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def share(cores: list[int], slot: int, workers: int) -> list[int]:
    """The cores of one worker: parts of equal size, or the cores in turn where there are more workers.

    >>> share([0, 1, 2, 3, 4, 5, 6], 1, 3), share([0, 1], 4, 5)
    ([2, 3], [0])
    """
    if workers > len(cores):
        return [cores[slot % len(cores)]]
    return cores[slot * len(cores) // workers : (slot + 1) * len(cores) // workers]


class LocalPool:
    """So many processes at a time, by default one for each GPU, or for each core where there is none: one cell keeps a
    GPU busy, and the small networks lose by sharing their work between cores."""

    def __init__(self, path: Path, cells: list[Cell], workers: int, device: str, lock: int) -> None:
        self.path, self.lock = path, lock
        self.gpus = gpus(device)
        self.workers = workers or len(self.gpus) or cores()
        self._waiting = deque(cells)
        self._running: dict[int, tuple[Cell, subprocess.Popen[bytes]]] = {}  # by slot

    @property
    def hint(self) -> str:
        """What to say before cells share a GPU that would take them in turns."""
        if not self.gpus or self.workers <= len(self.gpus) or mps_runs():
            return ""
        return "several runs share a GPU: they may be faster by NVIDIA's MPS; start it with  nvidia-cuda-mps-control -d"

    @property
    def busy(self) -> bool:
        return bool(self._waiting or self._running)

    def ended(self) -> Iterator[tuple[Cell, str]]:
        """The cells whose processes have ended, with what killed those that did not end by themselves; starts others
        in their place."""
        for slot, (cell, process) in list(self._running.items()):
            if process.poll() is not None:
                del self._running[slot]
                yield cell, _death(process.returncode)
        for slot in range(self.workers):
            if self._waiting and slot not in self._running:
                cell = self._waiting.popleft()
                self._running[slot] = cell, self._start(cell, slot)

    def _start(self, cell: Cell, slot: int) -> subprocess.Popen[bytes]:
        environment = {"OMP_NUM_THREADS": str(max(1, cores() // self.workers))} | os.environ
        if self.gpus:
            environment["CUDA_VISIBLE_DEVICES"] = self.gpus[slot % len(self.gpus)]
        with open(self.path / cell.folder / LOG, "ab") as log:
            # A process group of its own: Ctrl-C is for the study, which then stops its cells in good order. Its
            # standard input ends with the study, and so does the cell; until then it holds the study's folder too.
            process = subprocess.Popen(
                [sys.executable, "-m", "tightrope.study", str(self.path), str(cell.folder)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
                pass_fds=(self.lock,),
            )
        if hasattr(os, "sched_setaffinity"):
            # Emulators' threads of several cells on the same cores would only get into each other's way.
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(process.pid, share(sorted(os.sched_getaffinity(0)), slot, self.workers))
        return process

    def stop(self) -> None:
        """Lets the running cells save their work and waits for them; interrupted again, it does not wait."""
        self._waiting.clear()
        running = [process for _, process in self._running.values()]
        try:
            for process in running:
                process.send_signal(signal.SIGTERM)
            for process in running:
                process.wait()
        finally:
            for process in running:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
        self._running.clear()


def _death(status: int) -> str:
    """
    >>> _death(-9), _death(0)
    ('its process was killed by SIGKILL (out of memory?)', '')
    """
    if status == 0:
        return ""
    if status > 0:
        return f"its process ended with status {status}"
    name = signal.Signals(-status).name
    return f"its process was killed by {name}{' (out of memory?)' if name == 'SIGKILL' else ''}"
