"""Where PyTorch computes."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tightrope.errors import TightropeError

if TYPE_CHECKING:  # loaded by those who compute: it takes seconds
    import torch


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def threads(number: int | None) -> Iterator[None]:
    """PyTorch on so many CPU threads: small networks only lose by sharing their work."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(number or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def free_memory() -> float:
    """Bytes of the host that this process may still take: the machine's, or its container's where that has less."""
    import psutil

    return float(min(psutil.virtual_memory().available, _container_memory()[0]))


def total_memory() -> float:
    import psutil

    return float(min(psutil.virtual_memory().total, _container_memory()[1]))


def _container_memory(group: Path = Path("/sys/fs/cgroup")) -> tuple[float, float]:
    """Free and in all, of a container (cgroup 2); infinite where nothing limits it."""
    try:
        limit = (group / "memory.max").read_text().strip()
        if limit == "max":
            return math.inf, math.inf
        used = int((group / "memory.current").read_text())
        # The cache of files is given back when it is needed.
        cached = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        return int(limit) - used + int(cached["inactive_file"]), int(limit)
    except (OSError, ValueError, KeyError):
        return math.inf, math.inf


def pick_device(name: str) -> torch.device:
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise TightropeError("device = 'cuda': PyTorch sees no CUDA GPU here; use --device cpu")
    if name not in ("cpu", "cuda"):
        raise TightropeError(f"device = {name!r}: must be auto, cpu or cuda")
    return torch.device(name)
