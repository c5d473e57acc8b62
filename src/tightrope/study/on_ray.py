"""The cells of a study as tasks of a Ray cluster.

Ray decides where each runs and starts it again when its worker or node dies; it then goes on from its last checkpoint.
Where a node sees the study's folder, a cell runs in it. Where it does not, the cell runs in a folder of that node, and
all that it writes is brought to the study's folder while it runs, the checkpoint too, so that any other node can take
it up from there.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import socket
import tempfile
import threading
import traceback
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tightrope.checkpoint import Checkpoints, unfinished, write_bytes
from tightrope.errors import TightropeError
from tightrope.study.cell import LOG, STATUS, play
from tightrope.study.plan import Cell

RETRIES = 3  # of one cell, after the death of its worker or node
EVERY = 1.0  # seconds between two deliveries

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
try:
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy
except ImportError:
    raise TightropeError("--ray needs Ray: pip install 'tightrope[ray]'") from None


class RayPool:
    """Ray is the pool: all cells are handed to it at once."""

    def __init__(self, path: Path, cells: list[Cell], address: str, device: str, share: bool = True) -> None:
        if address.startswith("ray://"):
            raise TightropeError(f"--ray {address}: run the study on a machine of the cluster, with --ray auto")
        self._ours = not ray.is_initialized()
        if self._ours:
            connect(address)
        # max_calls: a process for each cell, as elsewhere.
        task = ray.remote(max_retries=RETRIES, max_calls=1, **resources(device))(_run)
        path = path.resolve()
        # A file of a name that no other folder has tells a node that it sees this folder.
        self._mark = path / f".ray-{uuid.uuid4().hex}"
        if share:
            self._mark.touch()
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        always: dict[str, Any] = {"scheduling_strategy": here, "max_restarts": -1, "max_task_retries": -1}
        self._postman = ray.remote(num_cpus=0, **always)(Postman).remote(path)
        self._running = {task.remote(cell, self._mark, self._postman): cell for cell in cells}

    @property
    def busy(self) -> bool:
        return bool(self._running)

    def ended(self) -> Iterator[tuple[Cell, str]]:
        """The cells whose tasks have ended, with what ended those that did not end by themselves."""
        ready, _ = ray.wait(list(self._running), num_returns=len(self._running), timeout=0)
        for task in ready:
            cell, death = self._running.pop(task), ""
            try:
                ray.get(task)
            except ray.exceptions.RayError as problem:
                death = f"{type(problem).__name__}: {str(problem).strip().splitlines()[-1]}"
            yield cell, death

    def stop(self) -> None:
        """Lets the running cells save their work and waits for them; interrupted again, it does not wait."""
        try:
            for task in self._running:
                ray.cancel(task)  # an interrupt, as Ctrl-C is
            if self._running:
                ray.wait(list(self._running), num_returns=len(self._running))
        finally:
            self._running.clear()
            self._mark.unlink(missing_ok=True)
            if self._ours:
                ray.shutdown()


def connect(address: str) -> None:
    own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    host, _, port = address.rpartition(":")
    try:
        if port.isdigit():
            socket.create_connection((host, int(port)), timeout=10).close()  # Ray itself would try for two minutes
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **own)
    except (OSError, ValueError, RuntimeError, ray.exceptions.RayError):
        raise TightropeError(
            f"--ray {address}: there is no Ray cluster; start one (ray start --head), or say --ray local"
        ) from None


def resources(device: str) -> dict[str, Any]:
    """What a cell asks Ray for: a GPU where there are any and its share of the cores, or one core."""
    cluster: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    count = cluster.get("GPU", 0)
    if device == "cpu" or (device == "auto" and not count):
        return {"num_cpus": 1}
    if not count:
        raise TightropeError("device = 'cuda': the Ray cluster has no GPU")
    return {"num_gpus": 1, "num_cpus": max(1, int(cluster["CPU"] // count))}


def _run(cell: Cell, mark: Path, postman: Any) -> None:
    """The task: one cell, where this node keeps it."""
    if mark.exists():
        folder = mark.parent / cell.folder
        with logged(folder):
            play(cell, folder)
        return
    folder = Path(tempfile.gettempdir()) / "-".join([f"tightrope{mark.name}", *cell.folder.parts])
    shutil.rmtree(folder, ignore_errors=True)  # of an attempt that died here
    for name in ray.get(postman.names.remote(cell.folder)):
        write_bytes(folder / name, ray.get(postman.read.remote(cell.folder / name)))
    with delivered(folder, cell.folder, postman), logged(folder):
        play(cell, folder)
    shutil.rmtree(folder)


@contextmanager
def logged(folder: Path) -> Iterator[None]:
    """What is printed goes to the cell's log."""
    folder.mkdir(parents=True, exist_ok=True)
    with (
        open(folder / LOG, "a", buffering=1, encoding="utf-8") as log,
        contextlib.redirect_stdout(log),
        contextlib.redirect_stderr(log),
    ):
        yield


class Postman:
    """Reads and writes in the study's folder for nodes that do not see it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def names(self, folder: Path) -> list[str]:
        base = self.path / folder
        return [str(p.relative_to(base)) for p in base.rglob("*") if p.is_file() and not unfinished(p)]

    def read(self, name: Path) -> bytes:
        return (self.path / name).read_bytes()

    def write(self, name: Path, data: bytes) -> None:
        write_bytes(self.path / name, data)

    def keep(self, folder: Path, checkpoint: set[str]) -> None:
        """Of all checkpoints and their frames only this one."""
        checkpoints = Checkpoints(self.path / folder / "checkpoints")
        for path in [*checkpoints.saved(), *checkpoints.folder.glob("frames-*")]:
            if path.name not in checkpoint:
                path.unlink()


@contextmanager
def delivered(folder: Path, home: Path, postman: Any) -> Iterator[None]:
    """While it lasts, what changes in the folder is brought home now and then, and all of it at the end."""
    parcel, over = Parcel(folder, home, postman), threading.Event()

    def deliver() -> None:
        while not over.wait(EVERY):
            try:
                parcel.deliver()
            except Exception:  # the last delivery will say it, if it lasts
                traceback.print_exc()

    thread = threading.Thread(target=deliver, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        parcel.deliver()


class Parcel:
    """What a cell has written and its study's folder does not have yet."""

    def __init__(self, folder: Path, home: Path, postman: Any) -> None:
        self.folder, self.home, self.postman = folder, home, postman
        self._sent: dict[str, tuple[int, int]] = {}

    def deliver(self) -> None:
        """Brings home what is new, in an order that leaves a whole cell behind wherever it stops: the frames of the
        newest checkpoint, the records, which are then at least as long as it remembers, the checkpoint itself, and last
        of all the status as it was at first."""
        checkpoints = Checkpoints(self.folder / "checkpoints")
        newest = checkpoints.saved()[-1:]
        segments = {name for path in newest for name in checkpoints.segments(path) or ()}
        status = (self.folder / STATUS).read_bytes() if (self.folder / STATUS).exists() else b""
        in_checkpoint = segments | {path.name for path in newest}
        others = [
            path
            for path in sorted(self.folder.rglob("*"))
            if path.is_file()
            and not unfinished(path)
            and path.name != STATUS
            and not path.name.startswith(("at-", "frames-"))
        ]
        try:
            for path in [*(checkpoints.folder / name for name in sorted(segments)), *others, *newest]:
                self._send(path)
        except FileNotFoundError:
            return  # a newer checkpoint has just replaced this one: the next delivery takes that
        ray.get(self.postman.keep.remote(self.home, in_checkpoint))
        if status:
            ray.get(self.postman.write.remote(self.home / STATUS, status))

    def _send(self, path: Path) -> None:
        facts = path.stat()
        stamp = (facts.st_mtime_ns, facts.st_size)
        name = str(path.relative_to(self.folder))
        if self._sent.get(name) != stamp:
            ray.get(self.postman.write.remote(self.home / name, path.read_bytes()))
            self._sent[name] = stamp
