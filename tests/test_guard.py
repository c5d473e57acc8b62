"""A run guards itself, and games that misbehave are named."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete

import tightrope
from tightrope import api, checkpoint, device, guard, progress
from tightrope.cli import main
from tightrope.config import preset
from tightrope.errors import TightropeError
from tightrope.games import GameOptions, make_game
from tightrope.games.gym import GymGame
from tightrope.games.patience import Patience
from tightrope.lock import held, is_held
from tightrope.progress import Progress
from tightrope.run import Description, RunFolder
from tightrope.trainer import Trainer

QUICK: dict[str, Any] = {
    "frames": 400, "learn_start_steps": 50, "eval_every_epochs": 0, "checkpoint_frames": 100, "log_frames": 50,
    "replay_rows": 400, "num_envs": 3, "epsilon_decay_steps": 300,
}  # fmt: skip


class Corridor(gymnasium.Env[np.ndarray, int]):
    """Ten steps; what `mischief` says happens at the `at`-th step of the environment's life, but for a mended one."""

    mended = False

    def __init__(self, mischief: str = "", at: int = 77) -> None:
        self.observation_space = Box(-1, 1, (3,), np.float32)
        self.action_space = Discrete(2)
        self.mischief, self.at, self.life, self.place = mischief, at, 0, 0

    def observe(self) -> Any:
        return np.array([self.place / 10, 1 - self.place / 10, 0], np.float32)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.place = 0
        return self.observe(), {}

    def step(self, action: int) -> Any:
        self.life += 1
        self.place += 1
        observation, reward, over = self.observe(), float(action), self.place == 10
        if self.life == self.at and not Corridor.mended:
            if self.mischief == "raises":
                raise ZeroDivisionError("a bug of yours\nin two lines")
            if self.mischief == "exits":
                sys.exit(3)
            if self.mischief == "hangs":
                time.sleep(1000)
            if self.mischief == "swallows":
                while True:
                    try:
                        time.sleep(1000)
                    except Exception:
                        continue
            observation = {
                "observes NaN": np.array([0, np.nan, 0], np.float32), "shape": np.zeros(4, np.float32),
                "dtype": np.array(["a", "b", "c"]),
            }.get(self.mischief, observation)  # fmt: skip
            reward = {
                "pays NaN": np.nan, "pays nothing": None, "pays a list": [1, 2], "pays too much": 1e300,
            }.get(self.mischief, reward)  # type: ignore[assignment]  # fmt: skip
            if self.mischief == "old API":
                return observation, reward, over, {}
        return observation, reward, over, False, {}


def one_of_three(mischief: str, at: int = 77) -> Callable[[], Corridor]:
    """A maker whose every third environment, beginning with the second, misbehaves."""
    made: list[Corridor] = []

    def make() -> Corridor:
        made.append(Corridor(mischief if len(made) % 3 == 1 else "", at))
        return made[-1]

    return make


MISCHIEF = {
    "raises": "custom raised ZeroDivisionError: a bug of yours in two lines: environment 1, {at} steps after seed",
    "exits": "custom raised SystemExit: 3: environment 1, {at} steps after seed",
    "pays too much": r"custom gave the reward 1e\+300: environment 1, {at} steps after seed",
    "observes NaN": "custom gave an observation that is not a number: environment 1, {at} steps after seed",
    "pays NaN": "custom gave the reward nan: environment 1, {at} steps after seed",
    "pays nothing": "custom gave the reward None: environment 1, {at} steps after seed",
    "pays a list": r"custom gave the reward \[1, 2\]: environment 1, {at} steps after seed",
    "shape": r"custom gave an observation of shape \(4,\), not \(3,\): environment 1, {at} steps after seed",
    "dtype": "custom gave an observation of type <U1, not float32: environment 1, {at} steps after seed",
    "old API": "custom gave 4 values from step, not 5: observation, reward, .*: environment 1, {at} steps after seed",
}


def playing(game: GymGame, steps: int) -> None:
    game.reset()
    for _ in range(steps):
        game.send(np.ones(3, dtype=np.int64))
        game.receive()


@pytest.mark.parametrize("mischief", MISCHIEF)
def test_a_game_that_misbehaves_is_named(mischief: str) -> None:
    """A game takes ten steps and a reset: the 77th step is the 84th thing that the environment is told."""
    game = GymGame("custom", one_of_three(mischief), 3, 0, GameOptions())
    with pytest.raises(TightropeError, match=MISCHIEF[mischief].format(at=84) + r" \d+$"):
        playing(game, 100)
    # As if the step that broke had not begun, for each of them.
    assert game._log.lengths.tolist() == [83, 83, 83]
    # The sentence is enough to see it again.
    again = one_of_three(mischief)
    again()
    env, seed = again(), game._log.seed_of(1)
    env.reset(seed=seed)
    told = [*game._log.told(1).tolist(), 1]
    assert len(told) == 84
    for word in told[:-1]:
        env.reset() if word < 0 else env.step(word)
    assert env.life == 76


@pytest.mark.parametrize("overlap", [False, True])
def test_what_was_played_before_a_game_broke_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, overlap: bool
) -> None:
    """Mended and resumed, the run ends as the one whose games behaved: the step that broke is played again."""
    numbers = QUICK | {"overlap": overlap}
    tightrope.train(env=Corridor, out=tmp_path / "good", quiet=True, device="cpu", **numbers)
    # Of two halves the second is one environment.
    number = int(not overlap)

    def make() -> Callable[[], Corridor]:
        count = iter(range(1000))
        return lambda: Corridor("raises" if next(count) == 1 + overlap else "")

    said = rf"a bug of yours in two lines: environment {number}, 84 steps after seed \d+; all before it is saved: tight"
    with pytest.raises(TightropeError, match=said):
        tightrope.train(env=make(), out=tmp_path / "bad", quiet=True, device="cpu", **numbers)
    saved = RunFolder(tmp_path / "bad").checkpoints.saved()[-1]
    # 76 steps of each environment; of the first half's two environments also the 77th, where there are halves.
    assert checkpoint.read(saved)[1]["steps"] == 3 * 76 + 2 * overlap
    with pytest.raises(TightropeError, match=f"{saved.name} cannot be played again|raised ZeroDivisionError"):
        tightrope.resume(tmp_path / "bad", env=make(), quiet=True)  # not mended yet: and still nothing is lost
    monkeypatch.setattr(Corridor, "mended", True)
    tightrope.resume(tmp_path / "bad", env=make(), quiet=True)
    good, bad = (checkpoint.read(RunFolder(tmp_path / name).checkpoints.saved()[-1]) for name in ("good", "bad"))
    assert good[0].keys() == bad[0].keys()
    for name, tensor in good[0].items():
        assert torch.equal(tensor.nan_to_num(7), bad[0][name].nan_to_num(7)), name


@pytest.mark.timeout(60, method="thread")  # alarms are for the game here
@pytest.mark.parametrize("mischief", ["hangs", "swallows"])
def test_a_game_that_hangs_is_named(tmp_path: Path, mischief: str) -> None:
    signal.setitimer(signal.ITIMER_REAL, 0)
    before = signal.getsignal(signal.SIGALRM)
    with pytest.raises(
        TightropeError, match=r"has not answered for 0\.2 s .*environment 1, 84 steps after seed .* saved"
    ):
        tightrope.train(
            env=one_of_three(mischief), out=tmp_path / "run", quiet=True, device="cpu", **QUICK,
            step_timeout_seconds=0.2,
        )  # fmt: skip
    assert RunFolder(tmp_path / "run").checkpoints.saved()
    assert signal.getsignal(signal.SIGALRM) == before


@pytest.mark.timeout(60, method="thread")
def test_a_process_that_was_stopped_hangs_in_no_game() -> None:
    """Ctrl-Z or a closed laptop: the alarm that was due meanwhile is waiting when it goes on."""
    signal.setitimer(signal.ITIMER_REAL, 0)
    patience = Patience(0.2)
    with patience.watching():
        patience.calls += 1
        os.kill(os.getpid(), signal.SIGALRM)  # overslept
        time.sleep(0.1)
        patience.calls += 1
    others = signal.signal(signal.SIGALRM, signal.SIG_IGN)
    signal.setitimer(signal.ITIMER_REAL, 50)
    with patience.watching():
        assert signal.getsignal(signal.SIGALRM) == signal.SIG_IGN, "somebody else's alarm is left alone"
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, others)


def test_another_type_is_no_matter_where_nothing_is_lost() -> None:
    class Bytes(gymnasium.Env[Any, int]):
        observation_space, action_space = Box(0, 255, (5, 5, 1), np.uint8), Discrete(2)
        given: Any = np.full((5, 5, 1), 7.0)

        def reset(self, **_: Any) -> Any:
            return self.given, {}

    game = GymGame("bytes", Bytes, 1, 0, GameOptions())
    assert (game.reset() == 7).all()
    for lost in (np.full((5, 5, 1), 0.5), np.full((5, 5, 1), 256), np.full((5, 5, 1), -1)):
        Bytes.given = lost
        with pytest.raises(TightropeError, match=f"type {lost.dtype}, not uint8"):
            game.reset()


def test_a_game_that_ends_at_once_or_never_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Bandit(Corridor):
        def step(self, action: int) -> Any:
            return self.observe(), float(action), True, False, {}

    class Endless(Corridor):
        def step(self, action: int) -> Any:
            return self.observe(), float(action), False, False, {}

    def said(env: Any, out: str, **fields: Any) -> list[str]:
        lines: list[str] = []
        monkeypatch.setattr(Progress, "say", lambda self, text: lines.append(text))
        tightrope.train(env=env, out=tmp_path / out, device="cpu", **QUICK | fields)
        return [line for line in lines if line.startswith("custom")]

    (line,) = said(Bandit, "bandit")
    assert line.startswith("custom: every game ends at its first step (environment ")
    assert said(Corridor, "corridor") == []
    (line,) = said(Endless, "endless")
    assert line.startswith(
        "custom: no game has ended in the first fifth of the run, and max_game_frames sets no end (environment "
    )
    monkeypatch.setattr("tightrope.trainer.ENDLESS", 100)
    monkeypatch.setattr("tightrope.evaluation.ENDLESS", 100)
    line = said(Endless, "hundred")[-1]
    assert line.startswith("custom: no end of a game in 100 steps, and max_game_frames sets none (environment ")
    with pytest.raises(TightropeError, match=r"has not ended a game in 100 steps: .* seed .* eval_max_game_frames"):
        said(Endless, "evaluated", eval_every_epochs=1, epoch_frames=300, eval_max_game_frames=0)


# ------------------------------------------------------------------------------------------------------------ numbers


def trainer_of(folder: Path, **fields: Any) -> Trainer:
    config = preset("maze").replace(**QUICK | {"frames": 100_000} | fields)
    description = Description("maze", "maze", 5, "cpu", config)
    trainer = Trainer(description, RunFolder(folder))
    trainer.folder.create(description)
    trainer.start()
    return trainer


def test_the_batch_with_which_the_numbers_broke_is_kept(tmp_path: Path) -> None:
    """One stored reward is made not-a-number: the samples that saw it, and no others, are what is kept as the first."""
    trainer = trainer_of(tmp_path / "run", k=1)
    metrics = trainer.train()
    while trainer.frames < 250:
        next(metrics)
    (newest, *_) = trainer.folder.checkpoints.saved()[::-1]
    poisoned = trainer.replay.head - 40
    trainer.replay.rewards[poisoned % trainer.replay.length, 2] = float("nan")
    said = "not a number in the loss at .* frames, seed 5: .* the last good checkpoint is at-.*bad-batch"
    with pytest.raises(TightropeError, match=said):
        for _ in metrics:
            pass
    trainer.close()
    tensors, facts = checkpoint.read(tmp_path / "run" / guard.BAD_BATCH)
    assert (facts["game"], facts["seed"]) == ("tightrope/Maze-v0", 5)
    first = tensors["update"] == tensors["update"].min()
    assert first.any()
    assert tensors["q"][first].isfinite().all(), "the network was well until then"
    # With k = 1 a reward is seen by its own row, by the one before it (lower) and by the two after it (upper).
    assert set((tensors["times"][first] - poisoned).tolist()) <= {-1, 0, 1, 2}
    assert set(tensors["environments"][first].tolist()) == {2}
    assert tensors["states"].shape == (32, *trainer.info.state_shape)
    # Nothing of it was saved or told.
    assert "NaN" not in (tmp_path / "run" / "metrics.jsonl").read_text()
    for path in [*trainer.folder.checkpoints.saved(), trainer.folder.last]:
        assert all(t.isfinite().all() for n, t in checkpoint.read(path)[0].items() if n.startswith(("online", "body")))
    assert trainer.folder.checkpoints.saved()[-1].name >= newest.name


@pytest.mark.parametrize("where", ["online", "target", "optimiser"])
def test_weights_that_are_no_numbers_are_never_saved_or_judged(tmp_path: Path, where: str) -> None:
    trainer = trainer_of(tmp_path / "run")
    for _ in range(60):
        trainer.step()
    trainer.save()
    files = {path: path.read_bytes() for path in sorted((tmp_path / "run" / "checkpoints").iterdir())}
    learner = trainer.learner
    broken = {"online": list(learner.online.parameters()), "target": list(learner.target.parameters()),
              "optimiser": learner.optimiser.square}[where]  # fmt: skip
    with torch.no_grad():
        broken[-1].view(-1)[0] = float("inf")
    trainer.steps += 3
    with pytest.raises(TightropeError, match="not a number in the weights"):
        trainer.save()
    assert {path: path.read_bytes() for path in sorted((tmp_path / "run" / "checkpoints").iterdir())} == files
    trainer.config = trainer.config.replace(eval_every_epochs=1)
    with pytest.raises(TightropeError, match="not a number in the weights"):
        trainer.end_epoch(last=True)
    trainer.close()


# ---------------------------------------------------------------------------------------------------- memory and disk


def test_memory_and_disk_are_watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    checkpoints = checkpoint.Checkpoints(tmp_path)
    checkpoints.bytes = 1000
    resources = guard.Resources(checkpoints, said.append, torch.device("cpu"))
    memory, disk = [10e9], [10**9]
    monkeypatch.setattr(guard, "free_memory", lambda: memory[0])
    monkeypatch.setattr(guard, "total_memory", lambda: 16e9)
    monkeypatch.setattr(guard, "free_disk", lambda folder: disk[0])
    resources.check()
    assert said == []
    memory[0], disk[0] = 0.5e9, 1999  # less than a twentieth; room for one checkpoint more, not for two
    resources.check()
    resources.check()
    assert [text.partition(":")[0] for text in said] == ["memory runs low", "the disk runs full"]
    memory[0], disk[0] = 10e9, 10**9
    resources.check()
    memory[0] = 0.5e9
    resources.check()
    assert len(said) == 3, "said again after it was well"
    memory[0] = 0.1e9
    with pytest.raises(guard.OutOfMemoryError, match=r"running out: 100\.0 MB of 16\.00 GB"):
        resources.check()


def test_a_run_that_memory_stops_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = {"device": "cpu", "quiet": True} | QUICK
    tightrope.train("maze", out=tmp_path / "good", **full)
    calls = iter(range(100))
    with monkeypatch.context() as patch:
        patch.setattr(guard, "free_memory", lambda: 10e9 if next(calls) < 4 else 1e6)
        with pytest.raises(TightropeError, match=r"memory is running out.* all before it is saved: tightrope resume"):
            tightrope.train("maze", out=tmp_path / "run", **full)
    assert len(RunFolder(tmp_path / "run").metrics()) == 5
    agent = tightrope.resume(tmp_path / "run", quiet=True)
    for name, tensor in tightrope.load(tmp_path / "good", which="last").network.state_dict().items():
        assert torch.equal(tensor, agent.network.state_dict()[name])


def test_a_container_has_less_memory_than_its_machine(tmp_path: Path) -> None:
    free = device._container_memory
    assert free(tmp_path) == (float("inf"), float("inf"))
    (tmp_path / "memory.max").write_text("max\n")
    assert free(tmp_path) == (float("inf"), float("inf"))
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\ninactive_file 150\n")
    assert free(tmp_path) == (450, 1000)


def test_a_checkpoint_without_room_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = trainer_of(tmp_path / "run")
    for _ in range(60):
        trainer.step()
    trainer.save()
    (good,) = trainer.folder.checkpoints.saved()
    for _ in range(10):
        trainer.step()
    monkeypatch.setattr("shutil.disk_usage", lambda path: type("Usage", (), {"free": 100_000})())
    with pytest.raises(TightropeError, match=r"no room for the checkpoint at .* needs .* and 0\.1 MB are free under"):
        trainer.save()
    trainer.close()
    assert trainer.folder.checkpoints.saved() == [good]
    assert not [path for path in good.parent.iterdir() if checkpoint.unfinished(path)]


# ------------------------------------------------------------------------------------------------------ one at a time


def test_two_processes_cannot_write_one_run(tmp_path: Path) -> None:
    run = tmp_path / "run"
    tightrope.train("maze", out=run, quiet=True, device="cpu", **QUICK)
    assert not is_held(run)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}
    with held(run):
        with pytest.raises(TightropeError, match=f"is being run already, by process {os.getpid()} on "):
            tightrope.resume(run, quiet=True)
        assert is_held(run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*") if path.name != ".lock"} == {
        path: then for path, then in before.items() if path.name != ".lock"
    }
    waiting = threading.Thread(target=lambda: held(run, wait=20).__enter__())
    with held(run):
        waiting.start()
        time.sleep(0.3)
        assert waiting.is_alive(), "it waits"
    waiting.join(10)
    assert not waiting.is_alive()


def test_a_new_run_that_another_process_begins_at_the_same_time(tmp_path: Path) -> None:
    with held(tmp_path / "run"), pytest.raises(TightropeError, match="is being run already"):
        tightrope.train("maze", out=tmp_path / "run", quiet=True, device="cpu", **QUICK)


# -------------------------------------------------------------------------------------------------------- checkpoints


def test_checkpoints_are_kept_by_the_users_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoint, "SEGMENT_ROWS", 60)
    rule = {"keep_checkpoints": 1, "keep_every_frames": 250}
    tightrope.train(
        "maze", out=tmp_path / "run", quiet=True, device="cpu", **QUICK | {"num_envs": 1, "frames": 600} | rule
    )
    checkpoints = RunFolder(tmp_path / "run").checkpoints
    # One every 100 frames: 300 is the first after 250, 500 the first after 500, and 600 is the newest.
    assert [int(path.stem[3:]) for path in checkpoints.saved()] == [300, 500, 600]
    named = {name for path in checkpoints.saved() for name in checkpoints.segments(path) or ()}
    assert {path.name for path in checkpoints.folder.glob("frames-*")} == named
    # Each of them can be gone on from, with another rule if one likes, and ends where the run ended.
    expected = tightrope.load(tmp_path / "run", which="last").network.state_dict()
    for newest in (500, 300):
        for path in checkpoints.saved():
            if int(path.stem[3:]) > newest:
                path.unlink()
        text = (tmp_path / "run" / "config.toml").read_text()
        (tmp_path / "run" / "config.toml").write_text(text.replace("keep_checkpoints = 1", "keep_checkpoints = 5"))
        found = tightrope.resume(tmp_path / "run", quiet=True).network.state_dict()
        assert all(torch.equal(expected[name], found[name]) for name in expected)
    assert [int(path.stem[3:]) for path in checkpoints.saved()] == [300, 400, 500, 600]


@pytest.mark.parametrize(
    ("keep", "every", "saved", "kept"),
    [
        (2, 0, [1, 2, 3, 4], [3, 4]),
        (3, 0, [1, 2], [1, 2]),
        (1, 10, [4, 8, 12, 16, 20, 24], [12, 20, 24]),
        (1, 10, [9, 11, 35, 36, 50], [11, 35, 50]),  # none was made between 11 and 35
        (2, 1, [1, 2, 3, 4], [1, 2, 3, 4]),
    ],
)
def test_the_rule(tmp_path: Path, keep: int, every: int, saved: list[int], kept: list[int]) -> None:
    checkpoints = checkpoint.Checkpoints(tmp_path, keep, every)
    left: list[int] = []
    for frames in saved:  # pruned after each, as in a run
        (tmp_path / f"at-{frames:012d}.safetensors").touch()
        for path in checkpoints.superseded():
            path.unlink()
        left = [int(path.stem[3:]) for path in checkpoints.saved()]
    assert left == kept


def test_records_that_were_changed_behind_a_checkpoint_are_noticed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    tightrope.train("maze", out=run, quiet=True, device="cpu", **QUICK)
    for name in ("metrics.jsonl", "evaluations.csv"):
        whole = (run / name).read_bytes()
        (run / name).write_bytes(whole[:10] + bytes([whole[10] ^ 1]) + whole[11:])
        with pytest.raises(TightropeError, match=f"{name} is damaged: it is not what it was"):
            tightrope.resume(run, quiet=True)
        (run / name).write_bytes(whole[:-1])
        with pytest.raises(TightropeError, match=f"{name} is shorter than its checkpoint says"):
            tightrope.resume(run, quiet=True)
        (run / name).write_bytes(whole)
    tightrope.resume(run, quiet=True)


# ----------------------------------------------------------------------------------------------------------- progress


def cli(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(word) for word in words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


SHORT = ["--frames", 300, "--learn_start_steps", 50, "--epoch_frames", 300, "--eval_episodes", 2, "--log_frames", 100,
         "--eval_max_game_frames", 40, "--device", "cpu"]  # fmt: skip


def test_progress_in_a_log_as_json_and_in_silence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("train", "maze", *SHORT, "--out", tmp_path / "log") == 0
    told = capsys.readouterr()
    assert told.out == ""
    lines = told.err.splitlines()
    for line in lines:
        time.strptime(line[:20], "%Y-%m-%d %H:%M:%S ")
    assert any("100% 300 frames" in line for line in lines)
    assert re.fullmatch(r"done: 1 evaluation, best (\S+), last \1", lines[-1][20:])

    assert cli("train", "maze", *SHORT, "--out", tmp_path / "json", "--json") == 0
    told = capsys.readouterr()
    assert told.err == ""
    events = [json.loads(line) for line in told.out.splitlines()]
    assert [e["frames"] for e in events if e["event"] == "metrics"] == [100, 200, 300]
    kept = RunFolder(tmp_path / "json").metrics()
    assert next({k: e[k] for k in kept[0]} for e in events if e["event"] == "metrics") == kept[0]
    assert events[0]["event"] in ("said", "run")
    (row,) = [e for e in events if e["event"] == "evaluation"]
    (end,) = [e for e in events if e["event"] == "end"]
    assert (row["frames"], row["games"]) == (300, 2)
    assert (end["frames"], end["score"]) == (300, row["score"])
    assert events[-1]["text"].startswith("done: 1 evaluation, best ")

    for words in (["--quiet"], ["--quiet", "--json"]):
        assert cli("train", "maze", *SHORT, "--out", tmp_path / "-".join(words), *words) == 0
        assert capsys.readouterr() == ("", "")


def told_of(frames: int = 5_000, **changes: Any) -> list[str]:
    """The parts of a line of metrics, of a run of 6,000 frames."""
    values = {
        "frames": frames, "frames_per_second": 100.0, "score": 2.0, "normalised_pct": None, "epsilon": 0.5,
        "loss": 0.1, "q": 1.0, "lower_violated": 0.25, "lower_gap": 0.5, "upper_violated": 0.125, "upper_gap": 0.0625,
        "return_tightest": 0.75,
    }  # fmt: skip
    if changes.get("horizon") == "crossings":
        values["crossings"] = 0.0
    return progress.line(values, preset("paper").replace(frames=6_000, **changes), None).split(" · ")


def test_a_line_tells_of_what_the_run_has() -> None:
    always = [" 83% 5,000 frames", "100/s", "10 s left", "score 2", "ε 0.500", "loss 0.1", "Q 1"]
    lower, upper, returns = "L violated 25% by 0.5", "U violated 12% by 0.062", "R tightest 75%"
    assert told_of() == [*always, lower, upper, returns]
    assert told_of(bounds=False) == always
    assert told_of(use_upper=False) == [*always, lower, returns]
    assert told_of(use_return=False) == [*always, lower, upper]
    # Horizons of the upper bounds go from 1 to K = 0: there are none.
    assert told_of(k=0) == [*always, lower, returns]
    assert told_of(k=0, upper_from=0) == told_of()
    assert told_of(k=0, upper_from=0, upper_by="ahead") == [*always, lower, returns]
    crossing: dict[str, Any] = {"horizon": "crossings", "use_upper": False, "use_return": False, "k": 0}
    assert told_of(**crossing) == [*always, lower, "crossings 0%"]


def test_a_run_that_only_plays_yet_says_nothing_of_the_time_left() -> None:
    """For its steps will take longer once they are learned from."""
    values = {"frames": 300, "frames_per_second": 100.0, "score": None, "epsilon": 1.0, "updates": 0}
    config = preset("paper").replace(frames=600)
    assert progress.line(values, config, None).split(" · ")[2] == "not learning yet"
    assert progress.line(values | {"updates": 1}, config, None).split(" · ")[2] == "3 s left"


def test_a_line_beyond_the_budget_is_at_its_end() -> None:
    assert told_of(frames=6_144)[:3] == ["100% 6,144 frames", "100/s", "0 s left"]


def test_a_run_too_short_to_learn_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the maze a step is a frame: at 300 steps the run of 300 frames is over."""
    said = "learning would start at 300 frames and this run ends at 300: nothing will be learned"
    for start, unfinished, told in ((300, True, True), (299, True, False), (300, False, False)):
        fields = {"learn_start_steps": start, "sample_unfinished": unfinished, "frames": 300, "eval_every_epochs": 0}
        tightrope.train("maze", out=tmp_path / f"{start}-{unfinished}", device="cpu", **fields)
        assert (said in capsys.readouterr().err) == told


def test_a_run_that_was_done_already_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli("train", "maze", *SHORT, "--out", tmp_path / "run", "--quiet") == 0
    assert cli("resume", tmp_path / "run") == 0
    last = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"was done already: 1 evaluation, best (\S+), last \1", last[20:])


def test_the_closing_line_counts_evaluations(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.clear_records()
    assert api.closing_line(folder) == "no evaluation was due"
    for score, said in (
        (3, "1 evaluation, best 3, last 3"),
        (1, "2 evaluations, best 3, last 1 (mean of the last 2: 2)"),
    ):
        folder.log_evaluation({"frames": 1, "score": score})
        assert api.closing_line(folder) == said


def test_a_run_goes_on_though_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone:
        encoding = "utf-8"

        def write(self, text: str) -> int:
            raise BrokenPipeError

        def flush(self) -> None:
            raise BrokenPipeError

        def isatty(self) -> bool:
            return False

    monkeypatch.setattr(sys, "stderr", Gone())
    monkeypatch.setattr(sys, "stdout", Gone())
    for json_lines in (False, True):
        agent = tightrope.train("maze", out=tmp_path / str(json_lines), device="cpu", json=json_lines, **QUICK)
        assert agent.facts.frames >= 400


def test_a_clock_that_jumps_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Back by a year, on by a day, at every look."""
    full = {"device": "cpu", "quiet": True} | QUICK
    tightrope.train("maze", out=tmp_path / "steady", **full)
    real, jumps = time.time, iter(range(10**9))
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: real() + (-3e7 if next(jumps) % 2 else 86_400))
        patch.setattr(time, "time_ns", lambda: int(time.time() * 1e9))
        began = time.monotonic()
        tightrope.train("maze", out=tmp_path / "jumping", **full | {"frames": 200})
        (tmp_path / "jumping" / "config.toml").write_text((tmp_path / "steady" / "config.toml").read_text())
        newest = RunFolder(tmp_path / "jumping").checkpoints.saved()[-1]
        tensors, facts = checkpoint.read(newest)
        checkpoint.write(newest, tensors, facts | {"config": facts["config"] | {"frames": 400}})
        tightrope.resume(tmp_path / "jumping", quiet=True)
        lasted = time.monotonic() - began
    steady, jumping = (RunFolder(tmp_path / name).metrics() for name in ("steady", "jumping"))
    timed = ("seconds", "frames_per_second")
    for a, b in zip(steady, jumping, strict=True):
        assert {k: v for k, v in a.items() if k not in timed} == {k: v for k, v in b.items() if k not in timed}
    seconds = [line["seconds"] for line in jumping]
    assert sorted(seconds) == seconds
    assert 0 < seconds[-1] <= lasted, "time is counted by the clock that nobody sets"


# ------------------------------------------------------------------------------------------------------------- trust


def test_a_file_cannot_have_a_module_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "evil.py").write_text(
        "import gymnasium, pathlib\n"
        f"pathlib.Path({str(tmp_path / 'executed')!r}).touch()\n"
        "gymnasium.register('Evil-v0', entry_point='gymnasium.envs.classic_control:CartPoleEnv')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    run = tmp_path / "run"
    tightrope.train("CartPole-v1", out=run, quiet=True, device="cpu", **QUICK)
    text = (run / "config.toml").read_text()
    (run / "config.toml").write_text(text.replace('"CartPole-v1"', '"evil:Evil-v0"'))
    tensors, facts = checkpoint.read(run / "checkpoints" / "last.safetensors")
    facts["agent"]["game"] = "evil:Evil-v0"
    checkpoint.write(run / "checkpoints" / "last.safetensors", tensors, facts)
    for words in (["resume", run], ["evaluate", run], ["watch", run, "--video", tmp_path / "x.gif"]):
        assert cli(*words) == 2
    for attempt in (lambda: api.load(run), lambda: api.resume(run)):
        with pytest.raises(TightropeError, match=r"asks for the Python module 'evil': if you trust it, say --trust"):
            attempt()
    assert not (tmp_path / "executed").exists()
    assert cli("evaluate", run, "--episodes", 1, "--trust", "--device", "cpu") == 0
    assert (tmp_path / "executed").exists()
    assert api.load(run).facts.game == "evil:Evil-v0", "a module that is imported already executes nothing more"
    with pytest.raises(TightropeError, match="belongs to another run: CartPole"):
        api.resume(run)


@pytest.mark.parametrize("name", ["metrics.jsonl", "checkpoints", "checkpoints/last.safetensors.tmp", ".lock"])
def test_a_run_cannot_lead_its_writing_elsewhere(tmp_path: Path, name: str) -> None:
    run = tmp_path / "run"
    tightrope.train("maze", out=run, quiet=True, device="cpu", **QUICK)
    outside = tmp_path / "outside"
    if (run / name).is_dir():
        (run / name).rename(outside)
    else:
        outside.write_bytes((run / name).read_bytes() if (run / name).exists() else b"mine")
        (run / name).unlink(missing_ok=True)
    before = sorted((path, path.stat().st_mtime_ns) for path in [outside, *outside.rglob("*")])
    (run / name).symlink_to(outside)
    with pytest.raises(TightropeError, match=r"is a link|Too many levels"):
        tightrope.resume(run, quiet=True)
    with pytest.raises(TightropeError):
        tightrope.train("maze", out=run, quiet=True, device="cpu", **QUICK)
    assert sorted((path, path.stat().st_mtime_ns) for path in [outside, *outside.rglob("*")]) == before


def test_make_game_passes_its_patience_on() -> None:
    game = make_game("maze", 1, 0, GameOptions(patience=3.0))
    assert isinstance(game, GymGame)
    assert game._patience.seconds == 3.0
