"""The torture programs (experiments/torture) in small numbers; docs/reliability.md has the large ones."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path

import damage
import disk
import fuzz
import hostile
import kills
import pytest
import torch
from common import Tally, in_child

from tightrope.errors import TightropeError


@pytest.fixture(autouse=True)
def one_thread() -> None:
    """Trials are forked, and other threads do not come along."""
    torch.set_num_threads(1)


def test_kills(tmp_path: Path) -> None:
    tally = Tally("kills")
    game, fields, _ = kills.RUNS[1]
    kills.campaign(5, random.Random(1), tally, tmp_path, game, fields | {"frames": 800})
    assert tally.broken == []
    assert tally.counts["run ended as the unbroken one"] >= 1


def test_damage(tmp_path: Path) -> None:
    rng = random.Random(2)
    runs, others = damage.base(tmp_path)
    said = []
    for number, kind in enumerate(damage.KINDS):
        source, expected = runs[number % 2]
        run = tmp_path / f"trial-{number}"
        shutil.copytree(source, run)
        path = rng.choice(sorted(p for p in run.glob("checkpoints/*") if p.name.startswith(("at-", "frames-", "last"))))
        kind(path, rng, others)
        said.append(in_child(lambda: damage.trial(run, expected)))  # noqa: B023
    assert [words for words in said if words.startswith("BROKEN")] == []
    assert "refused in a sentence" in said
    assert "resumed to the same end" in said


def test_hostile(tmp_path: Path) -> None:
    tally = Tally("hostile")
    hostile.torture(tmp_path, tally, every=17)
    assert tally.broken == []
    assert tally.total > 10


def test_fuzz(tmp_path: Path) -> None:
    tally = Tally("fuzz")
    fuzz.torture(300, random.Random(3), tally, tmp_path)
    assert tally.broken == []
    assert tally.counts["accepted"] > 10
    assert tally.counts["refused with status 2"] > 10


def test_disk(tmp_path: Path) -> None:
    tally = Tally("disk")
    disk.torture(tmp_path, tally, every=13, mounts=0)
    assert tally.broken == []
    assert tally.counts["refused, then resumed to the same end"] > 3


def test_the_programs_would_notice(tmp_path: Path) -> None:
    """A program that can only say that all is well says nothing."""

    def refuses() -> str:
        raise TightropeError("no")

    def crashes() -> str:
        raise KeyError("no")

    assert in_child(refuses) == "refused: no"
    assert in_child(crashes).startswith("BROKEN")
    assert in_child(lambda: time.sleep(9) or "", 0.1).startswith("BROKEN: it hung")
    assert in_child(lambda: os.kill(os.getpid(), signal.SIGKILL) or "").startswith("BROKEN")
