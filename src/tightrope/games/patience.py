"""How long a game may think: one that never comes back would hold a run for ever, and say nothing."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


class HangsError(BaseException):
    """Raised inside a call that does not come back. No Exception, so that no careless `except` keeps it."""


class Patience:
    """Interrupts a call that has taken longer than so many seconds, and at most twice as many; 0: never.

    By an alarm, so it reaches whatever a signal reaches: loops in Python, sleeping, waiting for a socket or a process;
    not a loop in C that never returns. Only the main thread has alarms, and somebody else's alarm is left alone.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.calls = 0  # counted by the caller: a call is hanging if this stays the same from one alarm to the next

    @contextmanager
    def watching(self) -> Iterator[None]:
        here = threading.current_thread() is threading.main_thread() and hasattr(signal, "setitimer")
        if not self.seconds or not here or signal.getitimer(signal.ITIMER_REAL)[0]:
            yield
            return
        seen = -1

        def alarm(number: int, frame: Any) -> None:
            # The first alarm only looks: a process that was stopped for an hour finds one waiting when it goes on.
            nonlocal seen
            if seen == self.calls:
                raise HangsError
            seen = self.calls

        before = signal.signal(signal.SIGALRM, alarm)
        signal.setitimer(signal.ITIMER_REAL, self.seconds, self.seconds)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
