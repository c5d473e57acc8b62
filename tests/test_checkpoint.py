"""Files that are whole, checked and harmless; kills and damage of every kind."""

from __future__ import annotations

import json
import os
import pickle
import random
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tightrope
from tightrope import checkpoint
from tightrope.config import preset
from tightrope.errors import TightropeError
from tightrope.run import Description, RunFolder
from tightrope.trainer import Trainer

QUICK = {
    "frames": 1200, "learn_start_steps": 100, "epoch_frames": 400, "eval_episodes": 2, "checkpoint_frames": 400,
    "log_frames": 100, "eval_max_game_frames": 50, "replay_rows": 500,
}  # fmt: skip


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short finished run."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    tightrope.train("maze", out=folder, quiet=True, device="cpu", **QUICK)
    return folder


def copy_of(run: Path, to: Path) -> Path:
    import shutil

    shutil.copytree(run, to)
    return to


def test_what_is_written_is_read(tmp_path: Path) -> None:
    tensors = {"a": torch.arange(6).reshape(2, 3), "b": torch.tensor([1.5, float("nan")]), "c": torch.zeros(0)}
    checkpoint.write(tmp_path / "x.safetensors", tensors, {"n": 1, "list": [1, "two", None]})
    found, facts = checkpoint.read(tmp_path / "x.safetensors")
    assert facts == {"n": 1, "list": [1, "two", None]}
    assert torch.equal(found["a"], tensors["a"])
    assert torch.equal(found["b"].nan_to_num(7), tensors["b"].nan_to_num(7))
    (tmp_path / "y").touch()
    assert (tmp_path / "x.safetensors").stat().st_mode == (tmp_path / "y").stat().st_mode


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_any_flipped_bit_or_cut_is_noticed(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.mktemp("flip")
    path = folder / "x.safetensors"
    checkpoint.write(path, {"w": torch.arange(20.0), "i": torch.arange(7)}, {"game": "maze"})
    whole = path.read_bytes()
    if data.draw(st.booleans()):
        at = data.draw(st.integers(0, len(whole) - 1))
        bit = data.draw(st.integers(0, 7))
        path.write_bytes(whole[:at] + bytes([whole[at] ^ (1 << bit)]) + whole[at + 1 :])
    else:
        path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    try:
        tensors, facts = checkpoint.read(path)
    except TightropeError:
        pass  # in a sentence, not as any other error
    else:  # a flip that changes nothing that is read (white space in the header, say)
        assert facts == {"game": "maze"}
        assert torch.equal(tensors["w"], torch.arange(20.0))
        assert torch.equal(tensors["i"], torch.arange(7))


def test_an_agent_with_a_damaged_start_is_called_damaged(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    checkpoint.write(path, {"w": torch.ones(3)}, {"game": "maze"})
    whole = path.read_bytes()
    starts = [whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :] for at in range(9)]
    for data in (*starts, *(whole[:length] for length in (0, 5, 9, 100)), bytes(len(whole))):
        path.write_bytes(data)
        with pytest.raises(TightropeError, match="is damaged"):
            checkpoint.read(path)


def test_foreign_files_are_refused_and_execute_nothing(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path}/exploded",)

    path = tmp_path / "x.safetensors"
    path.write_bytes(pickle.dumps(Bomb()))
    with pytest.raises(TightropeError, match="no agent or checkpoint"):
        checkpoint.read(path)
    torch.save({"w": torch.ones(3)}, path)
    with pytest.raises(TightropeError, match="no agent or checkpoint"):
        checkpoint.read(path)
    path.write_text("# A text of some length")
    with pytest.raises(TightropeError, match="no agent or checkpoint"):
        checkpoint.read(path)
    path.write_bytes(safetensors.torch.save({"w": torch.ones(3)}))
    with pytest.raises(TightropeError, match="not written by tightrope"):
        checkpoint.read(path)
    path.write_bytes(struct.pack("<Q", 2**60) + b"{}")
    with pytest.raises(TightropeError, match="damaged"):
        checkpoint.read(path)
    assert not (tmp_path / "exploded").exists()


def test_a_checkpoint_cannot_name_files_outside_its_folder(tmp_path: Path, finished: Path) -> None:
    run = copy_of(finished, tmp_path / "run")
    newest = RunFolder(run).checkpoints.saved()[-1]
    tensors, facts = checkpoint.read(newest)
    facts["segments"] = {"../../secret.safetensors": "0" * 64}
    checkpoint.write(newest, tensors, facts)
    (tmp_path / "secret.safetensors").write_bytes(b"")
    with pytest.raises(TightropeError, match="outside its folder"):
        tightrope.resume(run, quiet=True)


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, finished: Path) -> None:
    other = tmp_path / "other"
    tightrope.train("maze", seed=9, out=other, quiet=True, device="cpu", **QUICK)
    run = copy_of(finished, tmp_path / "run")
    for path in (run / "checkpoints").iterdir():
        path.unlink()
    for path in (other / "checkpoints").iterdir():
        (run / "checkpoints" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(TightropeError, match="another run"):
        tightrope.resume(run, quiet=True)


def test_a_checkpoint_of_another_game_is_refused(tmp_path: Path) -> None:
    """Same rows and environments, other observations."""
    for game in ("CartPole-v1", "Acrobot-v1"):
        tightrope.train(game, out=tmp_path / game, quiet=True, device="cpu", **QUICK | {"eval_every_epochs": 0})
    for path in (tmp_path / "Acrobot-v1" / "checkpoints").iterdir():
        path.unlink()
    for path in (tmp_path / "CartPole-v1" / "checkpoints").iterdir():
        (tmp_path / "Acrobot-v1" / "checkpoints" / path.name).write_bytes(path.read_bytes())
    with pytest.raises(TightropeError, match="another run: CartPole-v1"):
        tightrope.resume(tmp_path / "Acrobot-v1", quiet=True)


def test_a_damaged_older_checkpoint_does_not_stop_a_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    half = QUICK | {"frames": 1000}
    tightrope.train("maze", out=run, quiet=True, device="cpu", **half)
    text = (run / "config.toml").read_text()
    older, newest = RunFolder(run).checkpoints.saved()[-2:]
    older.write_bytes(older.read_bytes()[:50])
    # Give it more to do, in the checkpoint too, so that it saves (and prunes) again.
    (run / "config.toml").write_text(text.replace("frames = 1000 ", "frames = 1100 ", 1))
    tensors, facts = checkpoint.read(newest)
    checkpoint.write(newest, tensors, facts | {"config": facts["config"] | {"frames": 1100}})
    assert tightrope.resume(run, quiet=True).facts.frames == 1100


def test_a_damaged_newest_checkpoint_names_the_good_one_before_it(tmp_path: Path, finished: Path) -> None:
    run = copy_of(finished, tmp_path / "run")
    older, newest = RunFolder(run).checkpoints.saved()[-2:]
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.raises(TightropeError, match=f"damaged.*{older.name}.*remove {newest.name}"):
        tightrope.resume(run, quiet=True)
    newest.unlink()
    agent = tightrope.resume(run, quiet=True)
    expected = tightrope.load(finished, which="last")
    for name, tensor in expected.network.state_dict().items():
        assert torch.equal(tensor, agent.network.state_dict()[name])


def test_the_replay_is_saved_in_parts_and_only_what_is_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SEGMENT_ROWS", 64)
    written: list[str] = []
    original = checkpoint.write

    def spy(path: Path, *what: Any) -> str:
        written.append(path.name)
        return original(path, *what)

    monkeypatch.setattr(checkpoint, "write", spy)
    tightrope.train("maze", out=tmp_path / "run", quiet=True, device="cpu", **QUICK)
    segments = [name for name in written if name.startswith("frames-")]
    whole = [name for name in segments if "-to-" not in name]
    assert len(whole) == len(set(whole)) > 10, "no whole segment is written twice"
    on_disk = {p.name for p in (tmp_path / "run" / "checkpoints").glob("frames-*")}
    named: set[str] = set()
    for path in RunFolder(tmp_path / "run").checkpoints.saved():
        named |= set(checkpoint.read(path)[1]["segments"])
    assert on_disk == named, "and none is left that no checkpoint names"
    assert len(RunFolder(tmp_path / "run").checkpoints.saved()) == 2


def slow_disk(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    original = checkpoint.write

    def write(path: Path, *what: Any) -> str:
        if path.name.startswith("frames-"):
            time.sleep(seconds)
        return original(path, *what)

    monkeypatch.setattr(checkpoint, "write", write)


def trainer_of(folder: Path, said: list[str], **fields: Any) -> Trainer:
    config = preset("maze").replace(**{**QUICK, "frames": 100_000, "eval_every_epochs": 0} | fields)
    description = Description("maze", "maze", 0, "cpu", config)
    trainer = Trainer(description, RunFolder(folder), report=said.append)
    trainer.folder.create(description)
    trainer.start()
    return trainer


def test_a_checkpoint_is_of_the_moment_it_was_asked_for_however_slow_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training goes on meanwhile, and a resume from there ends where the run that waited does."""
    slow_disk(monkeypatch, 0.5)
    runs = []
    for wait in (True, False):
        trainer = trainer_of(tmp_path / str(wait), [])
        while trainer.frames < 300:
            trainer.step()
        began = time.monotonic()
        trainer.save(wait=wait)
        if not wait:
            assert time.monotonic() - began < 0.4, "the disk takes half a second"
            assert not trainer.folder.checkpoints.saved()
            for _ in range(50):
                trainer.step()
        trainer.close()
        (saved,) = trainer.folder.checkpoints.saved()
        tensors, facts = checkpoint.read(saved)
        for name in facts["segments"]:
            tensors[name] = checkpoint.read(trainer.folder.checkpoints.folder / name)[0]["frames"]
        runs.append(tensors)
    assert runs[0].keys() == runs[1].keys()
    for name, tensor in runs[0].items():
        assert torch.equal(tensor.nan_to_num(7.0), runs[1][name].nan_to_num(7.0)), name


def test_a_checkpoint_that_the_ring_overtakes_is_given_up_and_the_one_before_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint, "SEGMENT_ROWS", 128)
    said: list[str] = []
    trainer = trainer_of(tmp_path / "run", said)
    while trainer.frames < 200:
        trainer.step()
    trainer.save()
    (before,) = trainer.folder.checkpoints.saved()
    while trainer.frames < 1000:
        trainer.step()
    slow_disk(monkeypatch, 1.0)
    trainer.save(wait=False)
    while not said or "given up" not in said[-1]:
        assert trainer.frames < 3000, "500 rows have come round long ago"
        trainer.step()
    # Another one is not even begun while that one is on its way out.
    trainer.save(wait=False)
    assert "left out" in said[-1]
    trainer.close()
    assert trainer.folder.checkpoints.saved() == [before]


def test_what_goes_wrong_beside_the_training_stops_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, *what: Any) -> str:
        raise TightropeError(f"no room to write {path}")

    trainer = trainer_of(tmp_path / "run", [])
    for _ in range(20):
        trainer.step()
    monkeypatch.setattr(checkpoint, "write", full)
    with pytest.raises(TightropeError, match="no room"):
        trainer.save()
    monkeypatch.setattr(type(trainer.agent()), "save", lambda self, path: None)
    trainer._saved_at = (-1, -1)
    trainer.save(wait=False)
    with pytest.raises(TightropeError, match="no room"):
        all(trainer.step() is None for _ in range(1000))


def test_a_disk_too_small_for_the_replay_is_noticed_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Where the run is to be, before it is there.
    monkeypatch.setattr(
        "shutil.disk_usage", lambda path: type("Usage", (), {"free": 10_000 if path == tmp_path else 10**9})()
    )
    with pytest.raises(TightropeError, match=r"need up to .* 0\.0 MB are free.* save_replay = false"):
        tightrope.train("maze", out=tmp_path / "run", quiet=True, device="cpu", **QUICK)
    assert not (tmp_path / "run").exists()
    tightrope.train("maze", out=tmp_path / "run", quiet=True, device="cpu", save_replay=False, **QUICK)


TRAIN = [sys.executable, "-m", "tightrope", "train", "maze", "--device", "cpu", "--frames", "2000",
         "--learn_start_steps", "100", "--epoch_frames", "500", "--eval_episodes", "2", "--eval_max_game_frames", "50",
         "--checkpoint_frames", "20", "--log_frames", "100", "--replay_rows", "500", "--quiet", "--out"]  # fmt: skip


def final_weights(run: Path) -> dict[str, torch.Tensor]:
    return tightrope.load(run, which="last").network.state_dict()


def test_kill_minus_nine_while_saving(tmp_path: Path) -> None:
    """Saves every 20 frames, so nearly always; killed ten times at random; ends as the unbroken run does. (`make
    torture` kills hundreds of times.)"""
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    subprocess.run([*TRAIN, str(unbroken)], check=True, timeout=120)
    rng = random.Random(0)
    words = [*TRAIN, str(broken)]
    kills = 0
    folder = broken / "checkpoints"
    while kills < 10:
        before = set(folder.glob("at-*.safetensors"))
        process = subprocess.Popen(words, stderr=subprocess.PIPE)
        # Past the imports: once there is a new checkpoint, and a random moment later.
        while set(folder.glob("at-*.safetensors")) <= before and process.poll() is None:
            time.sleep(0.005)
        time.sleep(rng.random() * 0.15)
        process.send_signal(signal.SIGKILL)
        _, errors = process.communicate()
        assert process.returncode == -signal.SIGKILL, f"it ended by itself: {errors.decode()[-300:]}"
        kills += 1
        words = [sys.executable, "-m", "tightrope", "resume", str(broken), "--quiet"]
    subprocess.run(words, check=True, timeout=120)
    expected, found = final_weights(unbroken), final_weights(broken)
    assert all(torch.equal(expected[name], found[name]) for name in expected)
    rows = [[(r["frames"], r.get("loss")) for r in RunFolder(run).metrics()] for run in (unbroken, broken)]
    assert rows[0] == rows[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_saves_and_ends_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    run = tmp_path / "run"
    words = [*TRAIN, str(run)]
    words[words.index("--frames") + 1] = "1M"
    words[words.index("--checkpoint_frames") + 1] = "1M"
    words.remove("--quiet")

    def heeding() -> None:
        signal.signal(number, signal.SIG_DFL)  # whoever runs the tests may ignore it, as nohup does

    process = subprocess.Popen(words, stderr=subprocess.PIPE, text=True, preexec_fn=heeding)
    while not (run / "metrics.jsonl").exists() or len(RunFolder(run).metrics()) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130, "so that `train && evaluate` does not go on"
    assert f"tightrope resume {run}" in errors
    (saved,) = RunFolder(run).checkpoints.saved()
    facts = json.loads(json.dumps(checkpoint.read(saved)[1]))
    assert facts["frames"] >= 300


def test_a_run_under_nohup_outlives_its_terminal(tmp_path: Path) -> None:
    run = tmp_path / "run"

    def ignoring() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    process = subprocess.Popen([*TRAIN, str(run)], preexec_fn=ignoring)
    while not (run / "metrics.jsonl").exists() or len(RunFolder(run).metrics()) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGHUP)
    assert process.wait(timeout=60) == 0
    assert RunFolder(run).ended()
