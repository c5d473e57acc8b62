"""A learner that never waits for the games: while they play it makes updates beyond those that are due.

It has a thread of its own, which is at rest whenever the replay or the weights are touched from outside: so an update
is still one thing after another, and whoever plays waits at most for the call of `update` in hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

import torch

#: Seconds. Games that answer as soon leave nothing to wait for: an update would only hold up whoever plays.
MOMENT = 0.001


class Ceaseless:
    """Calls `update` again and again, whenever it is let."""

    def __init__(self, update: Callable[[], None], device: torch.device) -> None:
        self._update = update
        self._device = device
        self._rest = threading.Event()
        self._closed = False
        # A new thread begins with as many of its own as there are cores.
        number = torch.get_num_threads()
        self._thread = ThreadPoolExecutor(1, "learner", initializer=lambda: torch.set_num_threads(number))

    @contextmanager
    def going(self) -> Iterator[None]:
        """Updates go on for as long as the block takes. What goes wrong in them goes wrong at its end."""
        work: Future[None] | None = None
        self._rest.clear()
        try:
            work = self._thread.submit(self._go)
            yield
        except BaseException as problem:  # the block's own, which says what to do about it: not to be lost
            self._rest.set()
            if work is not None and (own := work.exception()) is not None:
                problem.add_note(f"and the learner: {own!r}")
            raise
        self._rest.set()
        work.result()

    def _go(self) -> None:
        if self._rest.wait(MOMENT):
            return
        # A signal's exception may come before `set` has done its work: then `close` ends it.
        while not (self._rest.is_set() or self._closed):
            self._update()
            if self._device.type == "cuda":
                torch.cuda.current_stream().synchronize()  # or they would queue there without end

    def close(self) -> None:
        self._closed = True
        self._thread.shutdown()
