"""A folder for one process at a time: two that wrote to it would spoil each other's work."""

from __future__ import annotations

import contextlib
import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from tightrope.errors import TightropeError

try:
    import fcntl
except ImportError:  # Windows: nothing is locked there
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"


@contextmanager
def held(path: Path, wait: float = 0.0) -> Iterator[int]:
    """The folder for this process alone; refused if another still has it after so many seconds.

    The system lets go of it when the process ends, however it ends. Processes that inherit the file that is yielded
    hold the folder too.
    """
    from tightrope.checkpoint import disk_error

    try:
        path.mkdir(parents=True, exist_ok=True)
        # Not through a link: what it leads to would be overwritten.
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
        file = os.fdopen(os.open(path / LOCK, flags, 0o666), "r+")
    except OSError as problem:
        raise disk_error(path, problem) from None
    with file:
        until = time.monotonic() + wait
        while not _lock(file):
            if time.monotonic() >= until:
                file.seek(0)
                owner = file.read(200).strip() or "unknown"
                raise TightropeError(f"{path} is being run already, by process {owner}; wait or stop it")
            time.sleep(0.1)
        with contextlib.suppress(OSError):  # who holds it is good to know; the lock holds without
            file.truncate(0)
            file.write(f"{os.getpid()} on {platform.node()}")
            file.flush()
        yield file.fileno()


def _lock(file: IO[str]) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True  # a file system without locks
    return True


def is_held(path: Path) -> bool:
    """Whether somebody has the folder."""
    try:
        with open(path / LOCK) as file:
            return not _lock(file)
    except OSError:
        return False
