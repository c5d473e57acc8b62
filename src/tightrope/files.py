"""Reading files that may have come from anywhere: none may block for ever, or fill the memory."""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path
from typing import Any

from tightrope.errors import TightropeError, sized


def check_readable(path: Path, at_most: float) -> None:
    """Refuses pipes, devices and absurd sizes."""
    facts = path.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise TightropeError(f"{path} is not a file")
    if facts.st_size > at_most:
        raise TightropeError(f"{path} is too large to be read: {sized(facts.st_size)} of at most {sized(at_most)}")


def read_text(path: Path, at_most: int = 1_000_000) -> str:
    """A file of settings, of a size that settings have."""
    check_readable(path, at_most)
    return path.read_text("utf-8")


def parse_toml(text: str) -> dict[str, Any]:
    """TOML, or a ValueError whatever is wrong with it. (tomllib needs the square of a key's parts in memory.)

    >>> parse_toml("a.b = 1")
    {'a': {'b': 1}}
    """
    if any(part.count(".") > 100 for part in re.split(r"[=\n,{}\[\]]", text)):
        raise ValueError("a key of more than 100 parts")
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
