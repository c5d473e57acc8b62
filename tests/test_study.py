"""Studies: what a file may say, and that every cell is filled whatever dies on the way."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

import tightrope
from tightrope.cli import main
from tightrope.config import Config, preset
from tightrope.errors import TightropeError
from tightrope.lock import held, is_held
from tightrope.run import RunFolder
from tightrope.study.cell import Status
from tightrope.study.folder import survey
from tightrope.study.local import LocalPool, gpus
from tightrope.study.plan import parse, read, shipped, suites
from tightrope.study.rows import COLUMNS, add_rows, run_rows
from tightrope.study.run import run_study

SMALL = {"frames": 600, "learn_start_steps": 100, "epoch_frames": 300, "eval_episodes": 2, "log_frames": 100,
         "eval_max_game_frames": 40}  # fmt: skip
#: What is left of a finished cell's checkpoints.
AGENTS = ["best.md", "best.safetensors", "last.md", "last.safetensors"]
#: Long enough to be killed in the middle, with many checkpoints before that.
LONG = SMALL | {"frames": 4000, "checkpoint_frames": 250, "epoch_frames": 1000}


def write(path: Path, fields: dict[str, Any], arms: str = "", games: str = '["maze-6"]', seeds: str = "[0]") -> Path:
    lines = [f"games = {games}", f"seeds = {seeds}", 'device = "cpu"', *(f"{k} = {v}" for k, v in fields.items())]
    path.write_text("\n".join([*lines, "[arms]", arms or 'tightened = { preset = "maze" }']) + "\n")
    return path


def cli(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


def scores(run: Path) -> list[tuple[str, str]]:
    return [(row["frames"], row["score"]) for row in RunFolder(run).evaluations()]


def metrics(run: Path) -> list[dict[str, Any]]:
    """All that was measured but the clock."""
    timed = ("seconds", "frames_per_second")
    return [{k: v for k, v in line.items() if k not in timed} for line in RunFolder(run).metrics()]


def wait_for(what: Callable[[], Any], seconds: float = 60) -> Any:
    until = time.monotonic() + seconds
    while not (found := what()):
        assert time.monotonic() < until, "it never came"
        time.sleep(0.02)
    return found


# ------------------------------------------------------------------------------------------------------------- files


def test_what_a_file_says() -> None:
    study = parse(
        """
        games = ["minatar-5", "Pong", "atari/pong"]
        seeds = [3, 1]
        frames = "2M"
        lam = 2
        [arms]
        paper = {}
        soft = { preset = "paper", lam = 0.5, frames = 1000 }
        """,
        "mine",
    )
    minatar = [f"minatar/{game}" for game in ("asterix", "breakout", "freeway", "seaquest", "space_invaders")]
    assert list(study.games) == [*minatar, "atari/pong"], "suites unfolded, each game once"
    assert len(study.cells) == 6 * 2 * 2
    # The preset's numbers, those of the study over them, those of the arm over both.
    paper, soft = (cell.config for cell in study.cells[:2])
    assert paper == preset("paper").replace(frames=2_000_000, lam=2)
    assert soft == preset("paper").replace(frames=1000, lam=0.5)
    assert [cell.seed for cell in study.cells] == [3] * 12 + [1] * 12
    assert study.cells[-1].folder == Path("cells/atari-pong/soft/seed-1")


def test_a_part_of_a_study_is_what_was_named_and_the_rest_can_follow(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arms = 'a = { preset = "maze" }\nb = { preset = "maze", lam = 1 }'
    file, out = write(tmp_path / "s.toml", SMALL, arms, '["maze-6", "maze-8"]', "[0, 1]"), tmp_path / "out"

    def runs() -> list[str]:
        found = (path.parent.relative_to(out / "cells") for path in out.glob("cells/**/config.toml"))
        return sorted(str(path) for path in found)

    assert cli("study", "run", file, "--out", out, "--arms", "b", "--games", "maze-8", "--seeds", 1) == 0
    assert runs() == ["maze-8/b/seed-1"]
    said_of_it = capsys.readouterr().out
    assert f"s in {out}: 1 of its 8 cells" in said_of_it
    assert "1 of 1 cell done" in said_of_it
    # The folder is that of the whole study; what is said of cells outside the part stays said.
    assert [seen.state for seen in survey(out).cells].count("planned") == 7
    other = out / "cells" / "maze-6" / "a" / "seed-0"
    Status(state="failed", error="it was so").write(other)
    assert cli("study", "run", out, "--arms", "b", "--games", "maze-8, maze-6", "--seeds", "1") == 0
    assert runs() == ["maze-6/b/seed-1", "maze-8/b/seed-1"]
    assert Status.read(other).error == "it was so"
    for part, said in (
        (["--arms", "c"], "no arm 'c'; it has a, b"),
        (["--games", "maze-6,maze-7"], "no game 'maze-7'; it has maze-6, maze-8"),
        (["--games", "pnog"], "did you mean"),
        (["--games", "minatar-5"], "the study has no game 'minatar-5'; it has maze-6, maze-8"),
        (["--seeds", "0-1"], "no seed '0-1'; it has 0, 1"),
        (["--seeds", " , "], "--seeds ' , ': names none"),
    ):
        assert cli("study", "run", file, "--out", out, *part) == 2
        assert said in capsys.readouterr().err


def test_suites() -> None:
    found = suites()
    assert {name: len(games) for name, games in found.items()} == {
        "paper-49": 49, "atari-5": 5, "tuning-4": 4, "minatar-5": 5
    }  # fmt: skip
    assert found["tuning-4"] == ["atari/alien", "atari/amidar", "atari/assault", "atari/asterix"]
    for games in found.values():
        assert parse(f"games = {games}\nseeds = [0]\narms.dqn = {{}}", "all").games == tuple(games)


def test_shipped_studies_are_what_they_say() -> None:
    assert {"table1", "table1-40m", "ablation", "laptop"} <= set(shipped())
    assert all(read(name).cells for name in shipped())
    assert read("studies/table1.toml").name == "table1"
    table, long = read("table1"), read("table1-40m")
    for study, frames in ((table, 10_000_000), (long, 40_000_000)):
        assert len(study.cells) == 98
        for cell in study.cells:
            config = cell.config
            assert (config.frames, config.frames // config.epoch_frames, config.eval_every_epochs) == (frames, 40, 1)
            assert (config.eval_episodes, config.eval_max_game_frames, config.noop_max) == (30, 18_000, 30)
            assert config.bounds == (cell.arm.name == "paper")
    configs = {cell.arm.name: cell.config for cell in read("ablation").cells}
    assert {config.lam for config in configs.values()} >= {0.25, 1, 4, 16}
    assert {config.k for config in configs.values()} >= {1, 4, 10}
    # Each arm changes one thing of the paper's.
    for arm, change in {
        "lam-0.25": {"lam": 0.25}, "lam-1": {"lam": 1}, "lam-16": {"lam": 16}, "k-1": {"k": 1}, "k-10": {"k": 10},
        "no-return": {"use_return": False}, "no-upper": {"use_upper": False}, "no-rescale": {"rescale": False},
    }.items():  # fmt: skip
        assert configs[arm] == configs["paper"].replace(**change)
    assert {c.eval_every_epochs * c.epoch_frames for c in configs.values()} == {1_000_000}
    assert {(c.eval_episodes, c.eval_steps, c.eval_max_game_frames) for c in configs.values()} == {(30, 0, 18_000)}
    laptop = read("laptop")
    assert len(laptop.seeds) == 5
    assert len(laptop.games) == 5
    assert {cell.config.bounds for cell in laptop.cells} == {True, False}
    assert not any(cell.config.save_replay for cell in read("gpu7").cells)


def test_the_study_of_differences_has_each_of_the_programs_rules_once_by_itself_and_all_at_once() -> None:
    """But for those of the budget, the evaluation, and what MinAtar does not have: lives, states of several frames."""
    apart = {"frames", "epoch_frames", "max_game_frames", "eval_steps", "eval_max_game_frames", "checkpoint_frames",
             "life_noops", "skip_start_rows"}  # fmt: skip

    def changed(config: Config, base: Config) -> dict[str, Any]:
        fields, others = asdict(config), asdict(base)
        return {name: value for name, value in fields.items() if value != others[name] and name not in apart}

    arms = {arm.name: cell.config for cell in read("differences").cells for arm in [cell.arm]}
    for whole in ("released", "released-close"):
        rules = changed(preset(whole), preset("paper"))
        assert changed(arms[whole], arms["paper"]) == rules
        drawn = "drawn" if whole == "released" else "close2"
        parts = ["lam-0.25", "slack", "both-mean", drawn, "end-return", "finished", "cut-mean-q", "starts"]
        singles = [changed(arms[part], arms["paper"]) for part in parts]
        assert sum(map(len, singles)) == len(rules)
        assert {name: value for single in singles for name, value in single.items()} == rules


GOOD = 'games = ["maze"]\nseeds = [0]\narms.maze = {}\n'
BAD = [
    ("games = [", "is no TOML"),
    ("seeds = [0]\narms.maze = {}", 'it has no games; write, for example, games = ["breakout"]'),
    (GOOD.replace('["maze"]', '"maze"'), "games = 'maze': must be a list"),
    (GOOD.replace("maze", "pogn"), "unknown game 'pogn'; did you mean pong"),
    (GOOD.replace('"maze"', '"paper49"'), "unknown suite 'paper49'; did you mean paper-49"),
    (GOOD.replace("[0]", "[]"), "seeds = []: must be a list"),
    (GOOD.replace("[0]", "[-1]"), "seed -1: must be a whole number"),
    (GOOD.replace("arms.maze = {}", ""), "it has no arms"),
    ("sed = [0]\n" + GOOD, "unknown field sed; did you mean seeds"),
    ("lamb = 4\n" + GOOD, "unknown field lamb; did you mean lam"),
    ("frames = 0\n" + GOOD, "frames = 0: must be a whole number of at least 1"),
    ('device = "tpu"\n' + GOOD, "device = 'tpu': must be auto, cpu or cuda"),
    (GOOD + "arms.dqm = {}", "arm dqm names no preset, and none is called dqm; did you mean dqn? Write dqm ="),
    (GOOD + "arms.zzz = {}", "arm zzz names no preset, and none is called zzz; write zzz ="),
    (GOOD + 'arms.x = { preset = "papper" }', "arm x: unknown preset 'papper'; did you mean paper"),
    (GOOD + 'arms.x = { preset = "maze", lamb = 4 }', "arm x: unknown field lamb; did you mean lam"),
    (GOOD + 'arms.x = { preset = "maze", gamma = 2 }', "arm x: gamma = 2: must be a number from 0.001 to 1"),
    (GOOD + 'arms.x = { preset = "maze", k = 0, lower_draws = 3 }', "lower_draws = 3: must be 0 where k = 0"),
    (GOOD + "arms.x = 4", "arm x: must be a table"),
    (GOOD + 'arms."../x" = { preset = "maze" }', "arm '../x': a name is made of letters"),
]


@pytest.mark.parametrize(("text", "said"), BAD, ids=[said for _, said in BAD])
def test_what_is_wrong_in_a_file_is_said_in_one_sentence(
    text: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(text)
    assert cli("study", "run", "mine.toml") == 2
    errors = capsys.readouterr().err
    assert errors.startswith("tightrope: study mine")
    assert said in errors
    assert len(errors.strip().splitlines()) == 1 or "TOML" in said
    assert [path.name for path in tmp_path.iterdir()] == ["mine.toml"], "nothing is left behind"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["study", "rnu"], "unknown command 'study rnu'; did you mean study run"),
        (["study", "run", "laptopp"], "no study 'laptopp'; did you mean laptop"),
        (["study", "run", "nothing.toml"], "no study 'nothing.toml'; shipped are ablation, atari-ablation"),
        (["study", "run", "."], "is not a study"),
        (["study", "run", "laptop", "--workers", "-1"], "workers = -1"),
        (["study", "run", "laptop", "--workers", "2", "--ray", "local"], "exclude each other"),
        (["study", "run", "laptop", "--out", "/sys/no"], "cannot write /sys/no"),
        (["study", "status", "/nowhere"], "is not a study"),
        (["study", "status"], "needs STUDY"),
        (["study", "rows", "/nowhere", "--out", "x.csv"], "neither a study nor a run"),
        (["study", "rows", "/nowhere"], "needs --out"),
    ],
)
def test_bad_words(
    words: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli(*words) == 2
    assert said in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


# -------------------------------------------------------------------------------------------------------- local runs


def test_a_study_is_run_grows_and_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arms = 'tightened = { preset = "maze" }\ndqn = { preset = "maze", bounds = false }'
    file, out, table = write(tmp_path / "s.toml", SMALL, arms), tmp_path / "out", tmp_path / "rows.csv"
    assert cli("study", "run", file, "--out", out, "--workers", 2) == 0
    said = capsys.readouterr().out
    assert "maze-6 dqn seed 0: done" in said
    assert "2 of 2 cells done" in said
    assert (out / "study.toml").read_text() == file.read_text()

    # A cell is the run that the same numbers give by hand, less the checkpoint that nothing will read again.
    cell = out / "cells" / "maze-6" / "dqn" / "seed-0"
    alone = tmp_path / "alone"
    tightrope.train("maze-6", preset="maze", bounds=False, device="cpu", out=alone, quiet=True, **SMALL)  # type: ignore[arg-type]
    assert scores(cell) == scores(alone)
    assert metrics(cell) == metrics(alone)
    assert tightrope.load(cell, which="last").facts == tightrope.load(alone, which="last").facts
    assert sorted(p.name for p in (cell / "checkpoints").iterdir()) == AGENTS
    assert cli("resume", cell) == 2
    assert "has ended" in capsys.readouterr().err
    assert scores(cell) == scores(alone), "and nothing of it was lost"

    # What is done is not done again; a new seed is added.
    before = (cell / "status.json").stat().st_mtime_ns
    write(file, SMALL, arms, seeds="[0, 1]")
    assert cli("study", "run", file, "--out", out, "--workers", 2) == 0
    assert (cell / "status.json").stat().st_mtime_ns == before
    capsys.readouterr()
    assert cli("study", "status", out, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [(c["arm"], c["seed"], c["state"], c["frames"]) for c in told["cells"]] == [
        (arm, seed, "done", 600) for seed in (0, 1) for arm in ("tightened", "dqn")
    ]
    assert (told["done"], told["planned"]) == (4, 0)
    assert cli("study", "status", out) == 0
    assert "4 of 4 cells done" in capsys.readouterr().out

    # An arm that has runs keeps its numbers.
    for changed, text in [
        (arms.replace("bounds = false", "bounds = false, lam = 9"), "arm dqn was run in .* with lam = 4.0, .* says 9"),
        (arms.replace('"maze", b', '"classic", b'), "arm dqn was run in .* with preset = maze"),
    ]:
        with pytest.raises(TightropeError, match=text):
            run_study(write(tmp_path / "changed.toml", SMALL, changed), out)
    assert (out / "study.toml").read_text() == file.read_text()

    # One row for each run and evaluation, each once, however often they are asked for.
    assert cli("study", "rows", out / "cells" / "maze-6" / "dqn" / "seed-1", "--out", table) == 0
    assert capsys.readouterr().out == f"2 rows of 1 run added to {table}\n"
    assert cli("study", "rows", out, "--out", table, "--device", "cpu") == 0
    assert add_rows(out, table) == f"0 rows of 4 runs added to {table}, 8 there already"
    with open(table, newline="") as lines:
        rows = list(csv.DictReader(lines))
    assert tuple(rows[0]) == COLUMNS
    keys = {(row["seed"], "--bounds False" in row["changed"], row["frames"]) for row in rows}
    assert keys == {(seed, plain, frames) for seed in "01" for plain in (True, False) for frames in ("300", "600")}
    assert len(rows) == 8
    assert {row["run_frames"] for row in rows} == {"600"}
    assert {(row["arm"], row["state"]) for row in rows} == {("dqn", "finished"), ("tightened", "finished")}
    # How often the bounds bound by the time of the evaluation; plain DQN has none.
    logged = [json.loads(line) for line in (out / "cells/maze-6/tightened/seed-0/metrics.jsonl").open()]
    at_300 = next(row for row in rows if (row["arm"], row["seed"], row["frames"]) == ("tightened", "0", "300"))
    assert float(at_300["lower_violated"]) == pytest.approx(logged[2]["lower_violated"], abs=1e-4)
    assert logged[2]["frames"] == 300
    assert {row["lower_violated"] for row in rows if row["arm"] == "dqn"} == {""}
    # The training's own score and mean Q, bounds or not.
    assert float(at_300["training_score"]) == pytest.approx(logged[2]["score"], abs=1e-4)
    assert float(at_300["q"]) == pytest.approx(logged[2]["q"], abs=1e-4)
    assert all(row["q"] for row in rows if row["arm"] == "dqn")
    # All frames played, and cut off in the last evaluation: not at its end.
    cut = out / "cells/maze-6/dqn/seed-0"
    (cut / "evaluations.csv").write_text("".join((cut / "evaluations.csv").read_text().splitlines(keepends=True)[:-1]))
    assert [(row["frames"], row["run_frames"], row["state"]) for row in run_rows(cut)] == [("300", "600", "stopped")]


def test_a_failed_cell_stops_no_other_and_is_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, out = write(tmp_path / "s.toml", SMALL, seeds="[0, 1]"), tmp_path / "out"
    bad, good = (out / "cells" / "maze-6" / "tightened" / f"seed-{n}" for n in (0, 1))
    bad.mkdir(parents=True)
    (bad / "checkpoints").write_text("in the way")
    assert cli("study", "run", file, "--out", out, "--workers", 1) == 1
    told = capsys.readouterr()
    assert f"cannot write {bad}" in told.out
    assert f"(log: {bad / 'log.txt'})" in told.out
    assert "1 of 2 cells failed" in told.err
    assert str(bad / "log.txt") in told.err
    assert "cannot write" in (bad / "log.txt").read_text()
    assert (Status.read(bad).state, Status.read(good).state) == ("failed", "done")
    assert cli("study", "status", out) == 0
    assert "1 failed" in capsys.readouterr().out
    # A row all the same, though it had failed before its run had a folder of its own.
    (bad / "config.toml").unlink()
    assert add_rows(out, tmp_path / "rows.csv").endswith(f"of 2 runs added to {tmp_path / 'rows.csv'}")
    with open(tmp_path / "rows.csv", newline="") as lines:
        told = {(row["arm"], row["seed"]): row for row in csv.DictReader(lines)}
    failed = told["tightened", "0"]
    assert failed["state"].startswith(f"failed: cannot write {bad}")
    assert (failed["game"], failed["preset"], failed["score"], failed["frames"]) == ("maze-6", "maze", "", "0")
    assert failed["changed"] == told["tightened", "1"]["changed"]
    (bad / "checkpoints").unlink()
    assert cli("study", "run", out) == 0
    assert Status.read(bad).state == "done"
    assert Status.read(bad).error == ""


def test_workers_are_as_many_as_gpus_or_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("tightrope.study.local.cores", lambda: 6)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    assert LocalPool(tmp_path, [], 0, "cpu", 0).workers == 6
    assert LocalPool(tmp_path, [], 0, "auto", 0).workers == 3
    assert LocalPool(tmp_path, [], 5, "auto", 0).workers == 5
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,7")
    assert gpus("cuda") == ["4", "7"]


def test_preset_tightrope_minatar_is_what_study_steps_found() -> None:
    """But for how long it runs, and for MinAtar's own stickiness."""
    cell = next(cell for cell in read("steps").cells if cell.arm.name == "lower-1-drawn-expectile")
    found, expected = asdict(preset("tightrope-minatar")), asdict(cell.config)
    assert {name for name in found if found[name] != expected[name]} == {"frames", "sticky", "save_replay"}


def test_who_shares_a_gpu_is_told_of_mps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr("tightrope.study.local.gpus", lambda device: ["0", "1"])
    assert "nvidia-cuda-mps-control -d" in LocalPool(tmp_path, [], 3, "auto", 0).hint
    assert not LocalPool(tmp_path, [], 2, "auto", 0).hint, "a GPU each"
    (tmp_path / "control").touch()
    assert not LocalPool(tmp_path, [], 3, "auto", 0).hint, "it runs"
    monkeypatch.setattr("tightrope.study.local.gpus", lambda device: [])
    (tmp_path / "control").unlink()
    assert not LocalPool(tmp_path, [], 3, "cpu", 0).hint, "no GPU"


def test_workers_share_the_cores() -> None:
    """No core is left over and none is used twice, unless there are more workers than cores: then each has one."""
    from tightrope.study.local import share

    for count in range(1, 18):
        cores = list(range(100, 100 + count))
        for workers in range(1, 20):
            shares = [share(cores, slot, workers) for slot in range(workers)]
            if workers <= count:
                assert [core for own in shares for core in own] == cores
                assert max(map(len, shares)) - min(map(len, shares)) <= 1
            else:
                assert all(len(own) == 1 and own[0] in cores for own in shares)


def test_a_ray_cluster_that_is_not_there(tmp_path: Path) -> None:
    file = write(tmp_path / "s.toml", SMALL)
    for address, said in [("127.0.0.1:1", "there is no Ray cluster"), ("ray://head:10001", "with --ray auto")]:
        with pytest.raises(TightropeError, match=f"--ray {address}: .*{said}"):
            run_study(file, tmp_path / "out", ray=address)


def test_one_study_at_a_time_in_a_folder(tmp_path: Path) -> None:
    file, out = write(tmp_path / "s.toml", SMALL), tmp_path / "out"
    with held(out), pytest.raises(TightropeError, match=f"is being run already, by process {os.getpid()}"):
        run_study(file, out)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Path]:
    """The long run of two seeds, alone and in one piece."""
    found = {}
    for seed in (0, 1):
        found[seed] = tmp_path_factory.mktemp("unbroken") / str(seed)
        tightrope.train("maze-6", preset="maze", seed=seed, device="cpu", out=found[seed], quiet=True, **LONG)  # type: ignore[arg-type]
    return found


def running_with_a_checkpoint(cell: Path) -> int:
    """Its process, once there is something to go on from."""
    if not any(cell.glob("checkpoints/at-*.safetensors")):
        return 0
    status = Status.read(cell)
    return status.pid if status.state == "running" else 0


def frames_by_sitting(cell: Path) -> list[list[int]]:
    """From the log: the frames that each sitting told of."""
    sittings = (cell / "log.txt").read_text().split(" run ")[1:]
    return [[int(n.replace(",", "")) for n in re.findall(r"% ([\d,]+) frames", text)] for text in sittings]


def test_a_killed_cell_goes_on_from_its_checkpoint(tmp_path: Path, unbroken: dict[int, Path]) -> None:
    arms = 'tightened = { preset = "maze" }\nbare = { preset = "maze", save_replay = false }'
    file, out = write(tmp_path / "s.toml", LONG, arms), tmp_path / "out"
    cells = [out / "cells" / "maze-6" / arm / "seed-0" for arm in ("tightened", "bare")]

    def kill() -> None:
        for cell in cells:
            os.kill(wait_for(lambda: running_with_a_checkpoint(cell)), signal.SIGKILL)  # noqa: B023

    killer = threading.Thread(target=kill)
    killer.start()
    seen = run_study(file, out, workers=2)
    killer.join()
    assert [(s.state, s.error) for s in seen.cells] == [
        ("failed", "its process was killed by SIGKILL (out of memory?)")
    ] * 2
    assert [s.state for s in run_study(out, workers=2).cells] == ["done", "done"]
    for cell in cells:
        assert scores(cell) == scores(unbroken[0])
        assert metrics(cell) == metrics(unbroken[0])
    # The one went on where its last checkpoint was; the other, which kept no replay, had to begin again.
    resumed, bare = (frames_by_sitting(cell)[-1][0] for cell in cells)
    assert resumed > LONG["checkpoint_frames"]
    assert bare == LONG["log_frames"]


def test_interrupted_and_killed_studies_go_on(tmp_path: Path, unbroken: dict[int, Path]) -> None:
    file, out = write(tmp_path / "s.toml", LONG), tmp_path / "out"
    cell = out / "cells" / "maze-6" / "tightened" / "seed-0"
    words = [sys.executable, "-m", "tightrope", "study", "run", str(file), "--out", str(out), "--workers", "1"]

    # Ctrl-C: the cell saves its work, the study says how to go on. (What a shell started in the background ignores it,
    # and so do its children.)
    study = subprocess.Popen(
        words, stdout=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    wait_for(lambda: running_with_a_checkpoint(cell))
    study.send_signal(signal.SIGINT)
    said, _ = study.communicate(timeout=60)
    assert study.returncode == 130
    assert f"tightrope study run {out} goes on where it stopped" in said
    assert Status.read(cell).state == "planned"
    (stopped,) = survey(out).cells
    assert stopped.state == "interrupted"
    assert 0 < stopped.frames < LONG["frames"]

    # The study itself is killed: its cell ends too, and then lets go of the folder.
    study = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    wait_for(lambda: Status.read(cell).state == "running")
    wait_for(lambda: survey(out).cells[0].frames > stopped.frames)
    study.kill()
    study.communicate(timeout=60)
    wait_for(lambda: not is_held(out))
    assert survey(out).cells[0].state == "interrupted"

    assert cli("study", "run", out) == 0
    assert scores(cell) == scores(unbroken[0])
    assert metrics(cell) == metrics(unbroken[0])


# --------------------------------------------------------------------------------------------------------------- Ray


@pytest.mark.parametrize("share", [True, False], ids=["shared folder", "folders of their own"])
def test_ray_fills_every_cell_though_a_worker_is_killed(share: bool, tmp_path: Path, unbroken: dict[int, Path]) -> None:
    file, out = write(tmp_path / "s.toml", LONG, seeds="[0, 1]"), tmp_path / "out"
    cells = [out / "cells" / "maze-6" / "tightened" / f"seed-{seed}" for seed in (0, 1)]
    killed: list[int] = []

    def kill() -> None:
        killed.append(wait_for(lambda: running_with_a_checkpoint(cells[0])))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    seen = run_study(file, out, ray="local", share=share)
    killer.join()
    assert [s.state for s in seen.cells] == ["done", "done"]
    for seed, cell in enumerate(cells):
        assert scores(cell) == scores(unbroken[seed])
        assert metrics(cell) == metrics(unbroken[seed])
        assert sorted(p.name for p in (cell / "checkpoints").iterdir()) == AGENTS
    assert Status.read(cells[0]).pid not in (0, killed[0]), "another process ended it"
    assert frames_by_sitting(cells[0])[-1][0] > LONG["checkpoint_frames"], "from the checkpoint, not from the start"
    assert not list(out.glob(".ray-*"))
