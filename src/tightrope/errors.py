"""The one exception whose text is meant for the person at the keyboard."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class TightropeError(Exception):
    """A mistake the user can mend. The command line prints its one sentence and exits with 2."""


class GameError(TightropeError):
    """A game that misbehaved: it raised, hung, or gave what it had not promised."""


def printable(text: object) -> str:
    """What a file says, without what a terminal would obey.

    >>> printable("pong\x1b[2J")
    'pong?[2J'
    """
    return "".join(letter if letter.isprintable() else "?" for letter in str(text))


def sized(count: float) -> str:
    """Bytes as a person says them.

    >>> sized(7.066e9), sized(3.1e6)
    ('7.07 GB', '3.1 MB')
    """
    return f"{count / 1e9:.2f} GB" if count >= 1e9 else f"{count / 1e6:.1f} MB"


def counted(count: int, noun: str) -> str:
    """
    >>> counted(1, "run"), counted(3, "run")
    ('1 run', '3 runs')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def near(word: str, known: Iterable[str]) -> str:
    """', did you mean a, b?' for the names nearest to `word`, or '' where nothing is near.

    >>> near("pogn", ["pong", "breakout"])
    '; did you mean pong?'
    """
    names = {name.lower(): name for name in known}
    hits = difflib.get_close_matches(word.lower(), list(names), n=4, cutoff=0.5)
    return f"; did you mean {', '.join(names[hit] for hit in hits)}?" if hits else ""
