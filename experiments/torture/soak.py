"""Hours' worth of steps in a small game at full speed: memory must stay flat, and nothing be left behind.

An hour of play at 60 frames a second is 216,000 frames. Memory is compared between the end of the first third, when
the replay has long been full, and the end of the run: at most 1 % more. Descriptors and threads are compared between
before and after.
"""

from __future__ import annotations

import gc
import sys
import tempfile
import threading
import time
from pathlib import Path

import psutil
import torch
from common import Tally, arguments

import tightrope
from tightrope.progress import Progress

HOUR = 216_000


def main() -> int:
    hours, _ = arguments(3, "hours of play at 60 frames a second")
    frames = hours * HOUR
    process, cuda = psutil.Process(), torch.cuda.is_available()
    tally = Tally("soak_gpu" if cuda else "soak")
    memory: list[tuple[int, float, float]] = []  # frames, bytes of the host, bytes of the GPU

    def look(self: Progress, values: dict[str, float], evaluated: float | None) -> None:
        gpu = float(torch.cuda.memory_reserved()) if cuda else 0.0
        memory.append((int(values["frames"]), float(process.memory_info().rss), gpu))

    tightrope_show, Progress.show = Progress.show, look  # type: ignore[assignment]
    with tempfile.TemporaryDirectory() as folder:
        # Once for all that is made at the first use, and stays.
        tightrope.train("maze", out=Path(folder) / "first", quiet=True, frames=2000)
        memory.clear()
        gc.collect()
        before = process.num_fds(), threading.active_count()
        began = time.monotonic()
        tightrope.train("maze", out=Path(folder) / "run", quiet=True, frames=frames, epoch_frames=20_000,
                        log_frames=2_000, checkpoint_frames=20_000)  # fmt: skip
        seconds = time.monotonic() - began
        gc.collect()
        after = process.num_fds(), threading.active_count()
    Progress.show = tightrope_show  # type: ignore[method-assign]
    third = [row for row in memory if row[0] <= frames / 3]
    # The largest of several lines at either end: what is asked for is whether it grows.
    grown = {}
    for place, name in ((1, "host"), (2, "GPU"))[: 2 if cuda else 1]:
        early, late = (max(row[place] for row in rows[-20:]) for rows in (third, memory))
        grown[name] = late / early - 1
        tally.add(
            name, f"memory of the {name} flat" if grown[name] <= 0.01 else f"BROKEN: {name} grew {grown[name]:.2%}"
        )
    for name, one, other in zip(("descriptors", "threads"), before, after, strict=True):
        tally.add(name, f"no {name} left behind" if other <= one else f"BROKEN: {name}: {one} before, {other} after")
    return tally.record(
        f"{frames:,} frames ({hours} hours of play) in {seconds:.0f} s, {len(memory)} looks at the memory",
        host_grew=f"{grown['host']:+.3%}", host_mb=round(memory[-1][1] / 1e6), device="cuda" if cuda else "cpu",
        gpu_grew=f"{grown['GPU']:+.3%}" if cuda else None,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
