"""Where PyTorch computes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
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


def pick_device(name: str) -> torch.device:
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if name == "cuda" and not torch.cuda.is_available():
        raise TightropeError("device = 'cuda': PyTorch sees no CUDA GPU here; use --device cpu")
    if name not in ("cpu", "cuda"):
        raise TightropeError(f"device = {name!r}: must be auto, cpu or cuda")
    return torch.device(name)
