"""Tensors on disk: atomic, checked, and unable to execute anything.

Every file is safetensors with one JSON text of plain data in its header and a SHA-256 over both. It is written under a
temporary name, synced and renamed, so that a file under its own name is always whole.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.torch
import torch
from torch import Tensor

from tightrope.errors import TightropeError, sized
from tightrope.replay import Replay

FORMAT = 1
#: Rows of frames in one file of the replay: about 115 MB of Atari.
SEGMENT_ROWS = 16_384


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
    data = safetensors.torch.save(host, {"tightrope": str(FORMAT), "facts": text, "sha256": digest})
    write_bytes(path, data)
    return digest


def write_bytes(path: Path, data: bytes) -> None:
    """Temporary name, sync, rename, sync the folder."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
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
        raise disk_error(path, problem, len(data)) from None


def check_room(folder: Path, needed: int) -> None:
    """Refuses a run whose checkpoints will not fit, before it has played for hours."""
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if needed > free:
        raise TightropeError(
            f"checkpoints with the replay need up to {sized(needed)} under {folder} and {sized(free)} are free; free "
            "some, lower replay_rows, or set save_replay = false (such a run cannot be resumed)"
        )


def disk_error(path: Path, problem: OSError, size: int = 0) -> TightropeError:
    """A write that failed, in a sentence that says what to do."""
    if problem.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
        return TightropeError(
            f"no room to write {path} ({sized(size)}): free some space, then tightrope resume; what was saved "
            "before is whole"
        )
    return TightropeError(f"cannot write {path}: {problem.strerror or problem}")


def read(path: Path, digest: str | None = None) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and facts of a file that `write` made (with that checksum); anything else is refused in a sentence."""
    try:
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
    except (safetensors.SafetensorError, ValueError, RuntimeError) as problem:
        raise TightropeError(f"{path} is damaged: {problem}") from None
    except OSError as problem:
        raise TightropeError(f"cannot read {path}: {problem.strerror or problem}") from None
    if _digest(tensors, header["facts"]) != header["sha256"]:
        raise TightropeError(f"{path} is damaged: its contents do not match its checksum")
    if digest is not None and digest != header["sha256"]:
        raise TightropeError(f"{path} belongs to another checkpoint")
    return tensors, json.loads(header["facts"])


# ------------------------------------------------------------------------------------------------------- checkpoints


class Checkpoints:
    """The checkpoints of one run: `at-<frames>.safetensors`, the frames of the replay beside them in segments.

    A frame never changes once written, so each is saved once: a checkpoint writes only the segments that are new. The
    last two checkpoints are kept, and the segments that either of them names.
    """

    KEEP = 2

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._segments: dict[str, str] = {}  # name -> checksum, of segments known to be on disk

    def saved(self) -> list[Path]:
        """All checkpoints, oldest first."""
        found = [p for p in self.folder.glob("at-*.safetensors") if re.fullmatch(r"at-\d+\.safetensors", p.name)]
        return sorted(found, key=lambda p: int(p.stem.removeprefix("at-")))

    def save(self, frames: int, tensors: dict[str, Tensor], facts: dict[str, Any], replay: Replay | None) -> None:
        named: dict[str, str] = {}
        if replay is not None:
            named = self._save_frames(replay)
            tensors = tensors | {f"replay.{name}": tensor for name, tensor in _columns(replay).items()}
            facts = facts | {"replay": {"head": replay.head, "finished_rows": replay.finished_rows}}
        write(self.folder / f"at-{frames:012d}.safetensors", tensors, facts | {"segments": named})
        self._segments = named
        self._prune()

    def _save_frames(self, replay: Replay) -> dict[str, str]:
        rows = max(1, SEGMENT_ROWS // replay.num_envs)
        oldest = int(replay.oldest)
        named: dict[str, str] = {}
        for segment in range(oldest // rows, replay.head // rows + 1):
            first, last = max(segment * rows, oldest), min((segment + 1) * rows - 1, replay.head)
            whole = f"frames-{segment:06d}.safetensors"
            # A segment is whole once the ring has moved past its end; until then its name says how far it goes.
            name = whole if last == (segment + 1) * rows - 1 else f"frames-{segment:06d}-to-{last}.safetensors"
            if name in self._segments:
                named[name] = self._segments[name]
                continue
            slots = torch.arange(first, last + 1, device=replay.device) % replay.length
            named[name] = write(self.folder / name, {"frames": replay.frames[slots]}, {"first": first})
        return named

    def segments(self, path: Path) -> set[str] | None:
        """Names of the files that hold the frames of a checkpoint; None where it cannot be read."""
        try:
            with safetensors.safe_open(path, framework="pt") as file:
                return set(json.loads(file.metadata()["facts"])["segments"])
        except (safetensors.SafetensorError, OSError, KeyError, TypeError, ValueError):
            return None

    def remove(self) -> None:
        """All checkpoints, of a run that has ended and will not go on; its agents stay."""
        for path in [*self.saved(), *self.folder.glob("frames-*")]:
            path.unlink()

    def _prune(self) -> None:
        checkpoints = self.saved()
        named: set[str] = set()
        for path in checkpoints[-self.KEEP :]:
            segments = self.segments(path)
            if segments is None:
                return  # an unreadable one might name any file: delete nothing
            named |= segments
        try:
            for path in checkpoints[: -self.KEEP]:
                path.unlink()
            for path in self.folder.glob("frames-*"):
                if path.name not in named:
                    path.unlink()
            for path in self.folder.glob("*.tmp"):
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
        replay.clock.fill_(replay.head)
        replay.finished_rows = int(facts["replay"]["finished_rows"])
        for name, tensor in _columns(replay).items():
            tensor.copy_(tensors[f"replay.{name}"])
        for name, digest in facts["segments"].items():
            if Path(name).name != name:
                raise TightropeError(f"{path} names a file outside its folder: {name!r}")
            frames, segment = read(self.folder / name, digest)
            times = torch.arange(segment["first"], segment["first"] + len(frames["frames"]))
            keep = times >= int(replay.oldest)
            slots = (times[keep] % replay.length).to(replay.device)
            replay.frames[slots] = frames["frames"][keep].to(replay.device)
        self._segments = dict(facts["segments"])


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
    return {f"{prefix}.{name}": torch.from_numpy(np.ascontiguousarray(array)) for name, array in arrays.items()}


def tensors_to_arrays(prefix: str, tensors: dict[str, Tensor]) -> dict[str, np.ndarray]:
    start = prefix + "."
    return {name.removeprefix(start): t.numpy() for name, t in tensors.items() if name.startswith(start)}
