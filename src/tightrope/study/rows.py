"""Evaluations as rows of results/: one for each run and evaluation, added behind those that are there.

None is replaced and none left out: a run that failed or disappointed is there too.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from tightrope.checkpoint import write_bytes
from tightrope.errors import TightropeError, counted
from tightrope.run import Description, RunFolder
from tightrope.study.folder import Seen, survey
from tightrope.study.plan import is_study

#: How often the bounds bound, as the metrics had it when the agent was evaluated.
TELEMETRY = ("lower_violated", "upper_violated", "return_tightest")
#: What else they had then, bounds or not, and its name there: the mean score of the last training games, and mean Q.
TRAINING = {"training_score": "score", "q": "q"}
COLUMNS = ("game", "preset", "changed", "seed", "frames", "epoch", "score", "std", "games", "normalised_pct",
           "protocol", "run_frames", "run_seconds", "device", "torch", "commit", "arm", "state",
           *TELEMETRY, *TRAINING)  # fmt: skip
#: What may differ between two looks at the same run: it went on, or was run again to the same score; and what rows of
#: before these columns do not have.
PASSING = ("run_frames", "run_seconds", "arm", "state", *TELEMETRY, *TRAINING)


def run_rows(path: Path, commit: str = "", device: str = "", arm: str = "", error: str = "") -> list[dict[str, str]]:
    """The evaluations of one run; of one that ended before its first, a row without a score.

    `commit` names the code where the run could not, `device` the machine in words, `arm` the study's name for it,
    `error` what it failed with.
    """
    run, description = RunFolder(path), Description.from_toml(path / "config.toml")
    metrics, made = run.metrics(), description.made_with
    last = metrics[-1] if metrics else {}
    reached = last.get("frames", 0)
    evaluations: list[dict[str, str]] = run.evaluations() or [{}]
    # A run that was cut off in its last evaluation has played all its frames, and is not at its end.
    judged = not description.config.eval_every_epochs or evaluations[-1].get("frames") == str(reached)
    ended = "finished" if reached >= description.config.frames and judged else "stopped"
    facts = {
        "game": description.game, "preset": description.preset, "changed": " ".join(description.changed()),
        "seed": description.seed, "device": device or description.device, "torch": made.get("torch", ""),
        "commit": commit or made.get("commit", ""), "run_frames": last.get("frames", ""),
        "run_seconds": last.get("seconds", ""), "arm": arm, "state": f"failed: {error}" if error else ended,
    }  # fmt: skip
    blank = dict.fromkeys(COLUMNS, "") | {"frames": str(reached)}
    rows = []
    for evaluation in evaluations:
        row: dict[str, Any] = blank | evaluation | facts
        until = [line for line in metrics if line["frames"] <= int(row["frames"])]
        known = until[-1] if until else {}  # before learning starts nothing is counted
        row |= {name: round(known[name], 4) for name in TELEMETRY if name in known and description.config.bounds}
        row |= {name: round(known[told], 4) for name, told in TRAINING.items() if known.get(told) is not None}
        rows.append({name: str(row[name]) for name in COLUMNS})
    return rows


def _cell_rows(seen: Seen, commit: str, device: str) -> list[dict[str, str]]:
    """A cell's rows; one without a score where it failed before its run began."""
    cell = seen.cell
    if (seen.folder / "config.toml").exists():
        return run_rows(seen.folder, commit, device, cell.arm.name, seen.error)
    description = Description(cell.game, cell.arm.preset, cell.seed, cell.device, cell.config)
    facts = {
        "game": cell.game, "preset": cell.arm.preset, "changed": " ".join(description.changed()), "seed": cell.seed,
        "frames": 0, "device": device or cell.device, "commit": commit, "arm": cell.arm.name,
        "state": f"failed: {seen.error}",
    }  # fmt: skip
    return [{name: str(facts.get(name, "")) for name in COLUMNS}]


def add_rows(path: Path, out: Path, commit: str = "", device: str = "") -> str:
    """Adds the rows of a study's cells, or of a single run, to the file `out`; says in a sentence what was added."""
    left_out = ""
    if is_study(path):
        cells = survey(path).cells
        # The rows of a run that goes on would have to be changed later.
        over = [seen for seen in cells if seen.state in ("done", "failed")]
        if len(over) < len(cells):
            left_out = f"; {counted(len(cells) - len(over), 'cell')} not at the end yet: left for another time"
        found = [row for seen in over for row in _cell_rows(seen, commit, device)]
        runs = len(over)
    elif (path / "config.toml").exists():
        whole = path.resolve()
        found = run_rows(path, commit, device, whole.parent.name if whole.parents[2].name == "cells" else "")
        runs = 1
    else:
        raise TightropeError(f"{path} is neither a study nor a run: it has no study.toml and no config.toml")
    old: list[dict[str, str]] = []
    if out.exists():
        with open(out, encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            old = list(reader)
            if tuple(reader.fieldnames or ()) != COLUMNS:
                raise TightropeError(f"{out} has other columns than rows of results have: choose another --out")
    known = {_identity(row) for row in old}
    new = [row for row in found if _identity(row) not in known]
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    writer.writeheader()
    writer.writerows(old + new)
    write_bytes(out, text.getvalue().encode())  # whole or not at all
    there = f", {len(found) - len(new)} there already" if len(found) > len(new) else ""
    return f"{counted(len(new), 'row')} of {counted(runs, 'run')} added to {out}{there}{left_out}"


def _identity(row: dict[str, str]) -> tuple[str, ...]:
    return tuple(row[name] for name in COLUMNS if name not in PASSING)
