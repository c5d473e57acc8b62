"""A learner that never waits for the games: while they play it makes updates beyond those that are due.

It has a thread of its own, which is at rest whenever the replay or the weights are touched from outside: so an update
is still one thing after another, and whoever plays waits at most for the one in hand.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


class Ceaseless:
    """Calls `update` again and again, whenever it is let."""

    def __init__(self, update: Callable[[], None], device: torch.device) -> None:
        self._update = update
        self._device = device
        # A new thread begins with as many of its own as there are cores.
        number = torch.get_num_threads()
        self._thread = ThreadPoolExecutor(1, "learner", initializer=lambda: torch.set_num_threads(number))

    @contextmanager
    def going(self) -> Iterator[None]:
        """Updates go on for as long as the block takes. What goes wrong in them goes wrong at its end."""
        enough = threading.Event()
        work = self._thread.submit(self._go, enough)
        try:
            yield
        finally:
            enough.set()
            work.result()

    def _go(self, enough: threading.Event) -> None:
        while not enough.is_set():
            self._update()
            if self._device.type == "cuda":
                torch.cuda.current_stream().synchronize()  # or they would queue there without end

    def close(self) -> None:
        self._thread.shutdown()
