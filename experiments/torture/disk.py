"""A disk that fails: full, read-only, no permission, an input/output error, a quota; at each write of a run in turn.

Every time the run must end with a sentence, and with the disk well again it must go on to the end that it would have
come to. Failures are put in where Python asks the system (an audit hook: opening for writing, renaming, truncating,
removing, making folders) and where tensors are written; and, where the system lets us mount one, on a real file system
that is too small, and on one that becomes read-only. A slow one must only take its time.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from common import SHORT, Tally, arguments, in_child, outcome, same, train

import tightrope
from tightrope import checkpoint
from tightrope.errors import TightropeError

ERRORS = (errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EIO, errno.EDQUOT)
FIELDS: dict[str, Any] = {"frames": 160, "log_frames": 40, "checkpoint_frames": 80}


class BadDisk:
    """Counts the writes below a folder; the one of that number, and all after it, fail or take their time."""

    def __init__(self) -> None:
        self.folder, self.at, self.number, self.slow = "", 0, 0, 0.0
        self.writes: list[str] = []

    def write(self, kind: str, path: Any) -> None:
        if not self.folder or not str(path).startswith(self.folder):
            return
        self.writes.append(f"{kind} {os.path.basename(str(path))}")
        time.sleep(self.slow)
        if self.number and len(self.writes) >= self.at:
            raise OSError(self.number, os.strerror(self.number), str(path))

    def hear(self, event: str, details: tuple[Any, ...]) -> None:
        if not self.folder:
            return
        if event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR):
            self.write("opening", details[0])
        elif event in ("os.rename", "os.truncate", "os.remove", "os.mkdir"):
            self.write(event, details[0])

    def install(self) -> None:
        sys.addaudithook(self.hear)
        original = safetensors.torch.save_file

        def save_file(tensors: Any, path: Any, header: Any) -> None:
            try:
                self.write("tensors", path)
            except OSError as problem:
                raise safetensors.SafetensorError(f"I/O error: it failed (os error {problem.errno})") from None
            original(tensors, path, header)

        checkpoint.safetensors.torch.save_file = save_file


def trial(disk: BadDisk, run: Path, at: int, number: int, expected: dict[str, Any]) -> str:
    disk.install()
    disk.folder, disk.at, disk.number = str(run), at, number
    try:
        train("maze", run, **FIELDS)
        return f"BROKEN: it noticed nothing of {disk.writes[at - 1]}"
    except TightropeError as problem:
        said = str(problem)
    disk.folder = ""
    if "\n" in said or not any(word in said for word in ("no room", "cannot write", "cannot read")):
        return f"BROKEN: it said {said!r}"
    if number == errno.ENOSPC and "free some" not in said:
        return f"BROKEN: it does not say what to free: {said!r}"
    if (run / "config.toml").exists():
        tightrope.resume(run, quiet=True)
    else:
        train("maze", run, **FIELDS)
    return "refused, then resumed to the same end" if same(expected, outcome(run)) else "BROKEN: another end"


def kinds_of_writes(disk: BadDisk, run: Path) -> str:
    disk.install()
    disk.folder = str(run)
    train("maze", run, **FIELDS)
    return "\n".join(disk.writes)


def slow(disk: BadDisk, run: Path, expected: dict[str, Any]) -> str:
    disk.install()
    disk.folder, disk.slow = str(run), 0.05
    train("maze", run, **FIELDS)
    disk.folder = ""
    return "slow, to the same end" if same(expected, outcome(run)) else "BROKEN: another end"


#: In a mount namespace of its own: a disk of so many kilobytes, then the same with room; or one that becomes read-only.
MOUNTED = """
set -e
mkdir -p {folder}/mnt; mount -t tmpfs -o size={size}k tmpfs {folder}/mnt
cd {folder}/mnt
if [ {kind} = full ]; then
  set +e; {train} 2> {folder}/said; echo $? > {folder}/status; set -e
  mount -o remount,size=100000k {folder}/mnt
else
  {train} 2> {folder}/said & pid=$!
  while [ "$(ls run/checkpoints/at-* 2>/dev/null | wc -l)" -lt 2 ] && kill -0 $pid 2>/dev/null; do sleep 0.01; done
  # Busy while a file is open for writing: it becomes read-only between two writes, as a disk with an error does.
  for try in $(seq 500); do mount -o remount,ro {folder}/mnt 2>/dev/null && break; sleep 0.01; done
  set +e; wait $pid; echo $? > {folder}/status; set -e
  mount -o remount,rw {folder}/mnt
fi
cp -r run {folder}/run 2>/dev/null || true
"""


def mounted(kind: str, size: int, folder: Path, expected: dict[str, Any]) -> str:
    fields = " ".join(f"--{name} {value}" for name, value in (SHORT | FIELDS).items())
    words = f"{sys.executable} -m tightrope train maze --out run --quiet --device cpu {fields}"
    script = MOUNTED.format(folder=folder, size=size, kind=kind, train=words)
    subprocess.run(["unshare", "-rm", "bash", "-c", script], check=True, timeout=120, capture_output=True)
    status, said = int((folder / "status").read_text()), (folder / "said").read_text()
    if status == 0:
        return "had room enough"
    if status != 2 or "Traceback" in said or len(said.strip().splitlines()) != 1:
        return f"BROKEN: status {status}, {said!r}"
    run = folder / "run"
    if (run / "config.toml").exists():
        tightrope.resume(run, quiet=True)
        same_end = same(expected, outcome(run))
        return "refused, then resumed to the same end" if same_end else "BROKEN: another end"
    return "refused before anything was written"


def can_mount() -> bool:
    words = ["unshare", "-rm", "bash", "-c", "mount -t tmpfs tmpfs /mnt"]
    try:
        return subprocess.run(words, capture_output=True, check=False).returncode == 0
    except OSError:
        return False


def torture(folder: Path, tally: Tally, every: int = 1, mounts: int = 24) -> int:
    """Each write of a run, with another error each time; returns how many kinds of write there are."""
    said = in_child(lambda: train("maze", folder / "well", **FIELDS) or "fine")
    assert said == "fine", said
    expected = outcome(folder / "well")
    writes = in_child(lambda: kinds_of_writes(BadDisk(), folder / "counted"), 120).splitlines()
    for at in range(1, len(writes) + 1, every):
        number, run = ERRORS[at // every % len(ERRORS)], folder / f"run-{at}"
        said = in_child(lambda: trial(BadDisk(), run, at, number, expected), 120)  # noqa: B023
        tally.add(f"{errno.errorcode[number]} at {writes[at - 1]}", said)
    tally.add("slow", in_child(lambda: slow(BadDisk(), folder / "slow", expected), 300))
    if mounts and can_mount():
        for n in range(mounts):
            place = folder / f"mount-{n}"
            place.mkdir()
            kind, size = ("full", 150 + 60 * n) if n % 4 else ("read-only", 100_000)
            said = in_child(lambda: mounted(kind, size, place, expected), 200)  # noqa: B023
            tally.add(f"{kind}, {size} kB", said)
    return len({word.split("-")[0].split(".")[0] for word in writes})


def main() -> int:
    _, _ = arguments(0, "each write, always")
    tally = Tally("disk")
    with tempfile.TemporaryDirectory() as folder:
        kinds = torture(Path(folder), tally)
    return tally.record(f"{tally.total} failures, at each of {kinds} kinds of write")


if __name__ == "__main__":
    sys.exit(main())
