"""Those who follow a run are told what it writes, and cannot harm it."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import tightrope
from tightrope import callbacks
from tightrope.cli import main
from tightrope.errors import TightropeError
from tightrope.run import RunFolder

SHORT: dict[str, Any] = {
    "frames": 600, "learn_start_steps": 100, "log_frames": 200, "epoch_frames": 300, "eval_episodes": 2,
    "eval_max_game_frames": 40, "device": "cpu", "quiet": True,
}  # fmt: skip


class Recorder:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Any]] = []

    def on_start(self, start: callbacks.Start) -> None:
        self.told.append(("start", start))

    def on_metrics(self, values: dict[str, Any]) -> None:
        self.told.append(("metrics", dict(values)))

    def on_evaluation(self, row: dict[str, Any]) -> None:
        self.told.append(("evaluation", dict(row)))

    def on_end(self, agent: tightrope.Agent | None) -> None:
        self.told.append(("end", agent))


def test_a_callback_is_told_what_the_run_writes(tmp_path: Path) -> None:
    recorder = Recorder()
    agent = tightrope.train("maze", out=tmp_path / "run", callbacks=[recorder], seed=5, **SHORT)
    kinds = [kind for kind, _ in recorder.told]
    assert kinds == ["start", "metrics", "evaluation", "metrics", "metrics", "evaluation", "end"]
    start = recorder.told[0][1]
    assert (start.folder, start.game, start.preset, start.seed, start.frames) == (
        tmp_path / "run", "tightrope/Maze-v0", "maze", 5, 0,
    )  # fmt: skip
    assert start.config["frames"] == 600
    run = RunFolder(tmp_path / "run")
    assert [facts for kind, facts in recorder.told if kind == "metrics"] == run.metrics()
    scores = [facts["score"] for kind, facts in recorder.told if kind == "evaluation"]
    assert scores == [float(row["score"]) for row in run.evaluations()]
    assert recorder.told[-1][1].facts == agent.facts


def test_every_method_may_be_left_out(tmp_path: Path) -> None:
    tightrope.train("maze", out=tmp_path / "run", callbacks=[object(), callbacks.Callback()], **SHORT)
    assert RunFolder(tmp_path / "run").ended()


def test_a_callback_that_raises_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Bad(Recorder):
        def on_metrics(self, values: dict[str, Any]) -> None:
            super().on_metrics(values)
            raise RuntimeError("no connection")

    bad, good = Bad(), Recorder()
    tightrope.train("maze", out=tmp_path / "run", callbacks=[bad, good], **SHORT | {"quiet": False})
    assert [kind for kind, _ in bad.told] == ["start", "metrics"], "told nothing more, not even the end"
    assert len(good.told) == 7
    assert RunFolder(tmp_path / "run").ended()
    said = capsys.readouterr().err
    assert said.count("callback left out from here on: RuntimeError in Bad.on_metrics: no connection") == 1


def test_a_callback_that_cannot_start_stops_the_run(tmp_path: Path) -> None:
    class Bad:
        def on_start(self, start: callbacks.Start) -> None:
            raise ConnectionError("nobody there")

    recorder = Recorder()
    with pytest.raises(TightropeError, match=r"cannot start: ConnectionError in Bad\.on_start: nobody there"):
        tightrope.train("maze", out=tmp_path / "run", callbacks=[recorder, Bad()], **SHORT)
    assert recorder.told[-1] == ("end", None), "those who had started are told of the end"


def scalars(run: Path, tag: str) -> list[tuple[int, float]]:
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    return [(event.step, event.value) for event in events.Scalars(tag)]


def test_tensorboard_reads_what_it_was_told(tmp_path: Path) -> None:
    run = tmp_path / "run"
    tightrope.train("maze", out=run, callbacks=["tensorboard"], **SHORT)
    rows = RunFolder(run).metrics()
    for tag in ("epsilon", "updates", "loss", "seconds"):
        expected = [(row["frames"], pytest.approx(row[tag], rel=1e-6)) for row in rows if tag in row]
        assert scalars(run, tag) == expected
        assert expected
    evaluations = [(int(row["frames"]), pytest.approx(float(row["score"]))) for row in RunFolder(run).evaluations()]
    assert scalars(run, "evaluation/score") == evaluations


def test_tensorboard_forgets_what_a_resumed_run_tells_again(tmp_path: Path) -> None:
    """Told up to 600 frames, then killed; the checkpoint is that of 400."""
    run = tmp_path / "run"
    tightrope.train("maze", out=run, callbacks=["tensorboard"], **SHORT | {"frames": 400, "eval_every_epochs": 0})
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace("frames = 400 ", "frames = 800 "))
    lost = callbacks.TensorBoard()
    lost.on_start(callbacks.Start(run, "", "", 0, "", {}, 400))
    lost.on_metrics({"frames": 600, "epsilon": 77.0})
    lost.on_end(None)
    assert (600, 77.0) in scalars(run, "epsilon")
    newest = RunFolder(run).checkpoints.saved()[-1]
    from tightrope import checkpoint

    tensors, facts = checkpoint.read(newest)
    facts["config"]["frames"] = 800
    checkpoint.write(newest, tensors, facts)
    tightrope.resume(run, callbacks=["tensorboard"], quiet=True)
    told = scalars(run, "epsilon")
    assert [step for step, _ in told] == [200, 400, 600, 800]
    assert 77.0 not in [value for _, value in told]


class FakeWandB(types.ModuleType):
    """The part of Weights & Biases that is used, keeping what it is told."""

    def __init__(self) -> None:
        super().__init__("wandb")
        self.inits: list[dict[str, Any]] = []
        self.calls: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []

    def init(self, **options: Any) -> Any:
        self.inits.append(options)

        class Run:
            def __getattr__(run, name: str) -> Any:
                return lambda *words, **named: self.calls.append((name, words, named))

        return Run()


def test_wandb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeWandB()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    run = tmp_path / "my-run"
    tightrope.train("maze", out=run, callbacks=["wandb"], **SHORT)
    tightrope.resume(run, callbacks=[callbacks.WandB(project="mine")], quiet=True)
    first, again = fake.inits
    assert first["project"] == "tightrope"
    assert again["project"] == "mine"
    assert first["name"] == "my-run"
    assert first["resume"] == "allow"
    assert "dir" not in first, "W&B's own folder holds links, which a run's must not"
    assert first["id"] == again["id"]
    assert first["config"]["game"] == "tightrope/Maze-v0"
    assert first["config"]["frames"] == 600
    json.dumps(first["config"])
    logged = [words[0] for name, words, _ in fake.calls if name == "log"]
    assert [values for values in logged if "evaluation/score" not in values] == RunFolder(run).metrics()
    evaluated = [(values["frames"], values["evaluation/score"]) for values in logged if "evaluation/score" in values]
    assert evaluated == [(int(row["frames"]), float(row["score"])) for row in RunFolder(run).evaluations()]
    assert [named for name, _, named in fake.calls if name == "finish"] == [{"exit_code": 0}] * 2
    assert ("define_metric", ("*",), {"step_metric": "frames"}) in fake.calls


@pytest.mark.parametrize(("name", "package"), [("wandb", "wandb"), ("tensorboard", "tensorboard.compat.proto")])
def test_neither_is_needed(
    name: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main(["train", "maze", "--callbacks", name])
    assert ended.value.code == 2
    assert f"is not installed: pip install 'tightrope[{name}]'" in capsys.readouterr().err
    assert not list(tmp_path.iterdir()), "it is said before anything is made"
    tightrope.train("maze", out=tmp_path / "run", **SHORT)
    assert not (tmp_path / "run" / "tensorboard").exists()


def test_a_class_of_ones_own_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my_callbacks.py").write_text(
        "class Note:\n"
        "    def on_end(self, agent):\n"
        "        open('note.txt', 'w').write(f'{agent.facts.frames} frames')\n"
    )
    words = [f"--{name}={value}" for name, value in SHORT.items()]
    with pytest.raises(SystemExit) as ended:
        main(["train", "maze", "--out", "run", "--callbacks", "my_callbacks:Note, tensorboard", *words])
    assert ended.value.code == 0
    assert Path("note.txt").read_text() == "600 frames"
    assert list(Path("run/tensorboard").iterdir())
