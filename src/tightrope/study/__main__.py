"""`python -m tightrope.study STUDY CELL`: a cell in a process of its own, so that a crash takes nothing else along."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path

from tightrope.study.cell import play
from tightrope.study.plan import read


def stop_with_the_study() -> None:
    """The study holds the other end of standard input: when it is gone, this process saves its work and ends."""
    while os.read(0, 1):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    threading.Thread(target=stop_with_the_study, daemon=True).start()
    study, folder = Path(sys.argv[1]), Path(sys.argv[2])
    cell = next(cell for cell in read(study).cells if cell.folder == folder)
    play(cell, study / folder)


if __name__ == "__main__":
    main()
