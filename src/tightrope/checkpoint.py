"""Tensors on disk: atomic, checked, and unable to execute anything.

Every file is safetensors with one JSON text of plain data in its header and a SHA-256 over both. It is written under a
temporary name, synced and renamed, so that a file under its own name is always whole.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import math
import os
import re
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tightrope.device import free_memory
from tightrope.errors import TightropeError, sized
from tightrope.files import check_readable
from tightrope.replay import Replay

FORMAT = 1
#: Files as everybody else makes them; safetensors' own are for their owner alone.
_UMASK = os.umask(0o022)
os.umask(_UMASK)
_MODE = 0o666 & ~_UMASK
#: Rows of frames in one file of the replay: about 115 MB of Atari.
SEGMENT_ROWS = 16_384
#: Seconds that a checkpoint may have to wait for the one before it.
PATIENCE = 0.5


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        # Viewed as bytes, because NumPy knows no bfloat16.
        if tensor.numel():
            digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write(path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> str:
    """Writes the file whole or not at all; returns its checksum."""
    host = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    text = json.dumps(facts, sort_keys=True)
    digest = _digest(host, text)
    header = {"tightrope": str(FORMAT), "facts": text, "sha256": digest}

    def fill(temporary: Path) -> None:
        # Straight to the file: made in memory first, it would hold up every other thread meanwhile.
        safetensors.torch.save_file(host, temporary, header)
        os.chmod(temporary, _MODE)

    _write(path, fill, sum(tensor.nbytes for tensor in host.values()))
    return digest


def write_bytes(path: Path, data: bytes) -> None:
    """The same for any file."""
    _write(path, lambda temporary: temporary.write_bytes(data), len(data))


def _write(path: Path, fill: Callable[[Path], Any], size: int) -> None:
    """Temporary name, sync, rename, sync the folder."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # should it be a link, nothing is written to where it leads
        try:
            fill(temporary)
        except safetensors.SafetensorError as problem:
            number = re.search(r"os error (\d+)", str(problem))
            if number is None:
                raise
            raise OSError(int(number[1]), os.strerror(int(number[1]))) from None
        with open(temporary, "rb+") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as problem:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise disk_error(path, problem, size) from None


def unfinished(path: Path) -> bool:
    """A file that is still being written: by us, or by safetensors, which has names of its own for that."""
    return path.name.endswith(".tmp") or path.name.startswith(".tmp")


def free_disk(folder: Path) -> int:
    """Bytes free where the folder is, or will be."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def check_room(folder: Path, needed: int) -> None:
    """Refuses a run whose checkpoints will not fit, before it has played for hours."""
    free = free_disk(folder)
    if needed > free:
        raise TightropeError(
            f"checkpoints with the replay need up to {sized(needed)} under {folder} and {sized(free)} are free; free "
            "some, lower replay_rows, or set save_replay = false (such a run cannot be resumed)"
        )


def disk_error(path: Path, problem: OSError, size: int = 0) -> TightropeError:
    """A write that failed, in a sentence that says what to do."""
    if problem.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return TightropeError(
            f"no room to write {path} ({sized(size)}): free some space, then try again (a run: tightrope resume); what "
            "was saved before is whole"
        )
    return TightropeError(f"cannot write {path}: {problem.strerror or problem}")


def _foreign(path: Path) -> bool:
    """Whether a file never was safetensors: those begin with the length of their header and its brace. Where only one
    of the two is wrong, it may be a damaged one."""
    with open(path, "rb") as file:
        start = file.read(9)
    return len(start) == 9 and start[8:] != b"{" and int.from_bytes(start[:8], "little") > path.stat().st_size


def read(path: Path, digest: str | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a file that `write` made (with that checksum); anything else is refused in a sentence."""
    try:
        check_readable(path, free_memory())
        if _foreign(path):
            raise TightropeError(f"{path} is no agent or checkpoint of tightrope: it is not a safetensors file")
        with safetensors.safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            if "facts" not in header or "sha256" not in header:
                raise TightropeError(f"{path} was not written by tightrope")
            if header.get("tightrope") != str(FORMAT):
                raise TightropeError(
                    f"{path} has format {header.get('tightrope')}; this version of tightrope reads {FORMAT}"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise TightropeError(f"{path} does not exist") from None
    except (safetensors.SafetensorError, ValueError, RuntimeError, TypeError, AttributeError, MemoryError) as problem:
        raise TightropeError(f"{path} is damaged: {' '.join(str(problem).split())[:200]}") from None
    except OSError as problem:
        raise TightropeError(f"cannot read {path}: {problem.strerror or problem}") from None
    if _digest(tensors, header["facts"]) != header["sha256"]:
        raise TightropeError(f"{path} is damaged: its contents do not match its checksum")
    if digest is not None and digest != header["sha256"]:
        raise TightropeError(f"{path} belongs to another checkpoint")
    try:
        facts = json.loads(header["facts"])
    except (ValueError, RecursionError) as problem:
        raise TightropeError(f"{path} is damaged: {problem}") from None
    if not isinstance(facts, dict):
        raise TightropeError(f"{path} was not written by tightrope")
    return tensors, facts


# ------------------------------------------------------------------------------------------------------- checkpoints


@dataclass
class Segment:
    """Frames of so many rows, first and last included."""

    name: str
    first: int
    last: int


class Saving:
    """A checkpoint that is being written while the training goes on.

    All but the frames is a copy. The frames are copied segment by segment, each when it is written; should the ring
    come round to a row that is still to be copied, this checkpoint is given up and the one before it stands.
    """

    def __init__(self, write: Callable[[Saving], None], needs_from: float) -> None:
        self.needs_from = needs_from  # time of the oldest row still to be copied
        self.given_up = False
        self.problem: Exception | None = None
        self.under_way = threading.Event()  # the first segment is copied
        self.lock = threading.Lock()
        self._write = write
        self.thread = threading.Thread(target=self._run, name="tightrope-saving")
        self.thread.start()

    def _run(self) -> None:
        try:
            self._write(self)
        except Exception as problem:  # handed to the training's own thread
            self.problem = problem
        finally:
            self.under_way.set()

    def copied(self, needs_from: float) -> bool:
        """Rows before this one are copied; False if they had been overwritten meanwhile."""
        with self.lock:
            self.needs_from = needs_from
            self.under_way.set()
            return not self.given_up

    def overwriting(self, time: int) -> bool:
        """The ring is about to overwrite the row of that time; True if this checkpoint is thereby given up."""
        with self.lock:
            newly = not self.given_up and self.needs_from <= time
            self.given_up |= newly
            return newly


class Checkpoints:
    """The checkpoints of one run: `at-<frames>.safetensors`, the frames of the replay beside them in segments.

    A frame never changes once written, so each is saved once: a checkpoint writes only the segments that are new. Kept
    are the last `keep` checkpoints and, where `every` is not 0, the first after every so many frames, with the segments
    that any of them names. A checkpoint is the manifest of its segments: it names each with its checksum.
    """

    def __init__(self, folder: Path, keep: int = 2, every: int = 0) -> None:
        self.folder = folder
        self.keep, self.every = keep, every
        self.bytes = 0  # that the newest checkpoint wrote: about what the next one will
        self._segments: dict[str, str] = {}  # name -> checksum, of segments known to be on disk
        self._saving: Saving | None = None
        self._swept = False
        self._desk: Tensor | None = None  # where frames lie between the replay and the disk

    def saved(self) -> list[Path]:
        """All checkpoints, oldest first."""
        found = [p for p in self.folder.glob("at-*.safetensors") if re.fullmatch(r"at-\d+\.safetensors", p.name)]
        return sorted(found, key=lambda p: int(p.stem.removeprefix("at-")))

    def save(
        self, frames: int, tensors: dict[str, Tensor], facts: dict[str, Any], replay: Replay | None, wait: bool = True
    ) -> bool:
        """Writes a checkpoint, beside the training unless `wait`; False if the one before takes too long to write."""
        if not wait and self._saving is not None:
            self._saving.thread.join(PATIENCE)
            if self._saving.thread.is_alive():
                return False
        self.finish()
        if not self._swept:
            # Once, before anything is written: later such a file may be somebody's who is writing it.
            self._sweep()
            self._swept = True
        segments: list[Segment] = []
        if replay is not None:
            tensors = tensors | {f"replay.{name}": tensor for name, tensor in _columns(replay).items()}
            facts = facts | {"replay": {"head": replay.head, "finished_rows": replay.finished_rows}}
            segments = _segments(replay)
        # A copy: the training changes its own.
        copies = {name: tensor.detach().to("cpu", copy=True) for name, tensor in tensors.items()}
        written = None
        if replay is not None and replay.device.type == "cuda":
            written = torch.cuda.Event()  # type: ignore[no-untyped-call]
            written.record()

        def write_all(saving: Saving) -> None:
            named = {}
            for segment in segments:
                if segment.name not in self._segments:
                    assert replay is not None
                    rows = self._copy(replay, segment, written)
                    if not saving.copied(segment.last + 1):
                        return
                    self._segments[segment.name] = write(
                        self.folder / segment.name, {"frames": rows}, {"first": segment.first}
                    )
                named[segment.name] = self._segments[segment.name]
            saving.copied(math.inf)
            write(self.folder / f"at-{frames:012d}.safetensors", copies, facts | {"segments": named})
            self._segments = named
            self._prune()

        missing = [segment for segment in segments if segment.name not in self._segments]
        self.bytes = sum(copy.nbytes for copy in copies.values())
        if replay is not None:
            row = replay.frames[0].nbytes
            self.bytes += sum(row * (segment.last - segment.first + 1) for segment in missing)
        self._check_room(frames)
        self._saving = Saving(write_all, min((segment.first for segment in missing), default=math.inf))
        self._saving.under_way.wait()
        if wait:
            self.finish()
        return True

    @property
    def busy(self) -> bool:
        """Whether a checkpoint is being written."""
        return self._saving is not None and self._saving.thread.is_alive()

    def _check_room(self, frames: int) -> None:
        free = free_disk(self.folder)
        if self.bytes > free:
            raise TightropeError(
                f"no room for the checkpoint at {frames:,} frames: it needs {sized(self.bytes)} and {sized(free)} are "
                f"free under {self.folder}; free some, then tightrope resume; what was saved before is whole"
            )

    def finish(self) -> None:
        """Waits for the checkpoint that is being written; raises what went wrong with it."""
        if self._saving is not None:
            self._saving.thread.join()
            problem, self._saving = self._saving.problem, None
            if problem is not None:
                raise problem

    def make_way(self, replay: Replay) -> bool:
        """Called before each new row. True if a checkpoint that is being written had to be given up for it."""
        if self._saving is None:
            return False
        if not self._saving.thread.is_alive():
            self.finish()
            return False
        return self._saving.overwriting(replay.head + 1 - replay.length)

    def _copy(self, replay: Replay, segment: Segment, written: torch.cuda.Event | None) -> Tensor:
        """A segment's frames in the host's memory. On a GPU by a stream of its own, so that nothing else waits."""
        count = segment.last - segment.first + 1
        if self._desk is None or len(self._desk) < count:
            self._desk = torch.empty(
                _rows_of_a_segment(replay), *replay.frames.shape[1:], dtype=replay.frames.dtype,
                pin_memory=written is not None,
            )  # fmt: skip
        desk = self._desk[:count]
        slot = segment.first % replay.length
        before_seam = min(count, replay.length - slot)
        pieces = ((desk[:before_seam], replay.frames[slot : slot + before_seam]),
                  (desk[before_seam:], replay.frames[: count - before_seam]))  # fmt: skip
        stream = None
        if written is not None:
            stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
            stream.wait_event(written)
        with torch.cuda.stream(stream):
            for to, of in pieces:
                to.copy_(of, non_blocking=True)
        if stream is not None:
            stream.synchronize()
        return desk

    def segments(self, path: Path) -> set[str] | None:
        """Names of the files that hold the frames of a checkpoint; None where it cannot be read."""
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                return set(json.loads(file.metadata()["facts"])["segments"])
        except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError):
            return None

    def remove(self) -> None:
        """All checkpoints, of a run that has ended and will not go on; its agents stay."""
        for path in [*self.saved(), *self.folder.glob("frames-*")]:
            path.unlink()
        self._sweep()

    def _sweep(self) -> None:
        """Removes what was being written when a process was killed."""
        try:
            for path in self.folder.glob("*"):
                if unfinished(path):
                    path.unlink()
        except OSError as problem:
            raise disk_error(self.folder, problem) from None

    def superseded(self) -> list[Path]:
        """The checkpoints that the rule does not keep."""
        saved = self.saved()
        old, before = [], 0
        for path in saved[: -self.keep]:
            frames = int(path.stem.removeprefix("at-"))
            if self.every and frames // self.every > before // self.every:
                before = frames
            else:
                old.append(path)
        return old

    def _prune(self) -> None:
        old = self.superseded()
        named: set[str] = set()
        for path in self.saved():
            if path in old:
                continue
            segments = self.segments(path)
            if segments is None:
                return  # an unreadable one might name any file: delete nothing
            named |= segments
        try:
            for path in old:
                path.unlink()
            for path in self.folder.glob("frames-*"):
                if path.name not in named:
                    path.unlink()
        except OSError as problem:
            raise disk_error(self.folder, problem) from None

    def read(self, path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and facts of a checkpoint."""
        tensors, facts = read(path)
        if "segments" not in facts:
            raise TightropeError(f"{path} is not a checkpoint")
        return tensors, facts

    def fill(self, replay: Replay, path: Path, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """The replay as it was at a checkpoint that `read` gave."""
        if "replay" not in facts:
            raise TightropeError(f"{path} holds no replay")
        replay.head = int(facts["replay"]["head"])
        replay.finished_rows = int(facts["replay"]["finished_rows"])
        for name, tensor in _columns(replay).items():
            put(tensor, tensors[f"replay.{name}"], name)
        oldest, covered = max(0, replay.head - replay.length + 1), 0
        for name, digest in facts["segments"].items():
            if Path(name).name != name:
                raise TightropeError(f"{path} names a file outside its folder: {name!r}")
            stored, segment = read(self.folder / name, digest)
            frames = stored["frames"]
            if frames.dtype != replay.frames.dtype or frames.shape[1:] != replay.frames.shape[1:]:
                raise TightropeError(f"{self.folder / name} holds other frames than this game's")
            times = torch.arange(segment["first"], segment["first"] + len(frames))
            keep = (times >= oldest) & (times <= replay.head)
            slots = (times[keep] % replay.length).to(replay.device)
            replay.frames[slots] = frames[keep].to(replay.device)
            covered += int(keep.sum())
        if covered != replay.head - oldest + 1:
            raise TightropeError(f"{path} does not name all frames of its replay")
        replay.reread()
        self._segments = dict(facts["segments"])


def put(tensor: Tensor, stored: Tensor, name: str) -> None:
    """A stored tensor into its place, which it must fit: copying alone would stretch a single number over it."""
    if stored.shape != tensor.shape or stored.dtype != tensor.dtype:
        raise ValueError(f"{name} is {stored.dtype} {tuple(stored.shape)}, not {tensor.dtype} {tuple(tensor.shape)}")
    tensor.copy_(stored)


def _rows_of_a_segment(replay: Replay) -> int:
    return max(1, SEGMENT_ROWS // replay.num_envs)


def _segments(replay: Replay) -> list[Segment]:
    """What the replay's frames are saved as, oldest first."""
    rows = _rows_of_a_segment(replay)
    oldest = max(0, replay.head - replay.length + 1)
    found = []
    for number in range(oldest // rows, replay.head // rows + 1):
        first, last = max(number * rows, oldest), min((number + 1) * rows - 1, replay.head)
        # A segment is whole once the ring has moved past its end; until then its name says how far it goes.
        whole = last == (number + 1) * rows - 1
        found.append(Segment(f"frames-{number:06d}{'' if whole else f'-to-{last}'}.safetensors", first, last))
    return found


def _columns(replay: Replay) -> dict[str, Tensor]:
    """All of a replay but its frames."""
    return {
        "actions": replay.actions,
        "rewards": replay.rewards,
        "returns": replay.returns,
        "flags": replay.flags,
        "began": torch.from_numpy(replay.began),
    }


def arrays_to_tensors(prefix: str, arrays: dict[str, np.ndarray]) -> dict[str, Tensor]:
    return {prefix + name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def tensors_to_arrays(prefix: str, tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): t.numpy() for name, t in tensors.items() if name.startswith(prefix)}
