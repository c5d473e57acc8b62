"""Modules of the user's own, which the command line names: module:Class, module:GameId."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator


@contextlib.contextmanager
def here_first() -> Iterator[None]:
    """Modules of the working folder can be imported, as by `python -m`."""
    sys.path.insert(0, "")
    try:
        yield
    finally:
        sys.path.remove("")
