"""One cell of a study: begins it or goes on with it, and writes down how it went."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
import traceback
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tightrope.errors import TightropeError
from tightrope.files import read_text
from tightrope.study.plan import Cell

LOG, STATUS = "log.txt", "status.json"
PATIENCE = 60.0  # seconds for an earlier attempt to end


@dataclass(frozen=True)
class Status:
    """How far a cell is, as its folder says. A cell that was stopped in good order is planned again."""

    state: str = "planned"  # planned, running, done, failed
    error: str = ""  # of a failed one, in a sentence
    seconds: float = 0.0  # of all its sittings, but for those that were killed
    pid: int = 0  # of the process that runs it, or ran it last

    @classmethod
    def read(cls, folder: Path) -> Status:
        try:
            found = cls(**json.loads(read_text(folder / STATUS)))
            if (type(found.state), type(found.error), type(found.pid)) != (str, str, int):
                raise ValueError(f"{found} is no status")
            return replace(found, seconds=float(found.seconds))
        except FileNotFoundError:
            return cls()
        except (OSError, ValueError, TypeError, RecursionError) as problem:
            raise TightropeError(f"cannot read {folder / STATUS}: {problem}") from None

    def write(self, folder: Path) -> None:
        from tightrope.checkpoint import write_bytes

        write_bytes(folder / STATUS, (json.dumps(asdict(self)) + "\n").encode())


def play(cell: Cell, folder: Path) -> None:
    """Runs a cell to its end, or to a signal; whatever goes wrong is in its status and its log."""
    began, status = time.monotonic(), replace(Status.read(folder), state="running", error="", pid=os.getpid())
    status.write(folder)
    try:
        status = replace(status, state="done" if train(cell, folder) else "planned")
    except TightropeError as problem:
        print(f"tightrope: {problem}", file=sys.stderr)
        status = replace(status, state="failed", error=str(problem))
    except Exception as problem:
        traceback.print_exc()
        status = replace(status, state="failed", error=f"{type(problem).__name__}: {problem}")
    replace(status, seconds=round(status.seconds + time.monotonic() - began, 3)).write(folder)


def train(cell: Cell, folder: Path) -> bool:
    """Begins the run in the folder or goes on with it; whether it has come to its end."""
    from tightrope import api
    from tightrope.lock import held
    from tightrope.run import RunFolder

    with held(folder, wait=PATIENCE):
        pass  # an attempt before this one, whose node was given up, has ended too
    run = RunFolder(folder)
    begun = (folder / "config.toml").exists()
    if begun and run.checkpoints.saved() and not cell.config.save_replay and not run.ended():
        print("it kept no replay (save_replay = false), so it begins again", file=sys.stderr)
        clear(folder)
        begun = False
    if not begun:
        api.train(cell.game, preset=cell.arm.preset, seed=cell.seed, device=cell.device, out=folder, **cell.arm.fields)
    elif not run.ended():
        api.resume(folder, trust=True)  # the study says the same game, and who runs it has written that
    if not run.ended():
        return False
    run.checkpoints.remove()  # up to 7 GB of replay that nothing will read again
    return True


def clear(folder: Path) -> None:
    """A cell's folder as it was before its run."""
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        elif path.name not in (LOG, STATUS):
            path.unlink()
