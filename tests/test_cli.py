"""The command line as a person meets it, and everything that can be typed wrong."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import tightrope
from tightrope import config as settings
from tightrope.cli import main
from tightrope.compare import Compared, common_frames
from tightrope.config import Config, preset
from tightrope.errors import TightropeError
from tightrope.progress import line
from tightrope.replay import check_memory, needed_bytes
from tightrope.run import Description, RunFolder

SHORT = ["--frames", "600", "--learn_start_steps", "100", "--epoch_frames", "300", "--eval_episodes", "2",
         "--eval-max-game-frames", "40", "--device", "cpu"]  # fmt: skip


def run(*words: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(w) for w in words])
    assert isinstance(ended.value.code, int)
    return ended.value.code


@pytest.fixture(scope="module")
def maze(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli") / "maze"
    assert run("train", "maze", *SHORT, "--lam=2", "--bounds", "true", "--out", folder, "--quiet") == 0
    return folder


def test_a_run_is_a_folder_that_can_be_repeated(maze: Path) -> None:
    assert {p.name for p in maze.iterdir()} == {
        ".lock", "config.toml", "metrics.jsonl", "evaluations.csv", "checkpoints"
    }  # fmt: skip
    description = Description.from_toml(maze / "config.toml")
    assert description.config == preset("maze").replace(
        frames=600, learn_start_steps=100, epoch_frames=300, eval_episodes=2, eval_max_game_frames=40, lam=2.0
    )
    assert set(description.made_with) >= {"commit", "torch", "ale-py", "gymnasium", "python", "tightrope"}
    rows = [json.loads(line) for line in (maze / "metrics.jsonl").read_text().splitlines()]
    assert rows[-1].keys() >= {
        "frames", "frames_per_second", "score", "normalised_pct", "epsilon", "loss", "q", "lower_violated", "lower_gap",
        "upper_violated", "upper_gap", "return_tightest",
    }  # fmt: skip


def test_the_command_in_config_toml_repeats_the_run(maze: Path, tmp_path: Path) -> None:
    command = Description.from_toml(maze / "config.toml").command().split()
    assert command[:2] == ["tightrope", "train"]
    assert run(*command[1:], "--out", tmp_path / "again", "--quiet", "--device", "cpu") == 0
    first, again = (tightrope.load(folder, which="last").network.state_dict() for folder in (maze, tmp_path / "again"))
    assert all(torch.equal(first[name], again[name]) for name in first)


def test_evaluate(maze: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("evaluate", maze, "--episodes", "3", "--json", "--device", "cpu") == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["scores"]) == told["episodes"] == 3
    assert told["score"] == pytest.approx(np.mean(told["scores"]))
    assert told["normalised_pct"] is None
    assert run("evaluate", maze, "--episodes", "3", "--device", "cpu") == 0
    assert "human-normalised: n/a" in capsys.readouterr().out
    assert run("evaluate", maze, "--episodes", "1", "--device", "cpu") == 0
    assert "deviation of 1 game\n" in capsys.readouterr().out


def test_an_atari_run_is_evaluated_and_watched(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "pong"
    small = ["--frames", "800", "--num_envs", "2", "--replay_rows", "400", "--learn_start_steps", "100", "--batch_size",
             "4", "--eval_every_epochs", "0", "--max_game_frames", "400", "--eval_max_game_frames", "200"]  # fmt: skip
    assert run("train", "pong", *small, "--device", "cpu", "--quiet", "--out", out) == 0
    assert run("evaluate", out, "--episodes", "2", "--json", "--device", "cpu") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["normalised_pct"] == pytest.approx(100 * (told["score"] + 20.7) / 30)
    assert run("watch", out, "--video", tmp_path / "pong.mp4", "--seconds", 4) == 0
    assert (tmp_path / "pong.mp4").stat().st_size > 1000


def test_watch_writes_videos(maze: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from PIL import Image

    assert run("watch", maze, "--video", tmp_path / "maze.gif") == 0
    with Image.open(tmp_path / "maze.gif") as film:
        film.seek(0)
        assert film.format == "GIF"
    assert "pictures" in capsys.readouterr().out
    assert run("watch", maze, "--video", tmp_path / "maze.avi") == 2
    assert ".mp4 or .gif" in capsys.readouterr().err


def test_bench_measures_every_part(capsys: pytest.CaptureFixture[str]) -> None:
    from tightrope.bench import bench, told

    found = bench("pong", device="cpu", num_envs=2, replay_rows=1000, seconds=0.1, rounds=2, saving=True)
    rates = ("emulator_frames_per_second", "tightened_frames_per_second", "dqn_frames_per_second",
             "tightened_update_ms", "dqn_update_ms", "actor_states_per_second", "end_to_end_of_emulator",
             "host_memory_gb")  # fmt: skip
    assert all(found[name] > 0 for name in rates)
    assert 0 < found["save_pause_seconds"] <= found["save_seconds"]
    low, high = found["range"]["dqn_update_ms"]
    assert low <= found["dqn_update_ms"] <= high
    assert found["machine"].keys() >= {"cores", "torch", "commit"}
    assert f"{found['tightened_update_ms']:.3f}" in told(found)


def test_records_that_are_none(maze: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Pipes hang nobody, absurd sizes fill no memory, and a line that is none is named."""
    for name, what in (("pipe", "is not a file"), ("huge", "too large"), ("odd", "line 1 is no line of metrics")):
        for record in ("metrics.jsonl", "evaluations.csv"):
            if (name, record) == ("odd", "evaluations.csv"):
                continue
            copy = tmp_path / f"{name}-{record}"
            shutil.copytree(maze, copy)
            (copy / record).unlink()
            if name == "pipe":
                os.mkfifo(copy / record)
            else:
                (copy / record).write_text('{"frames": "x"}\n{}\n')
            if name == "huge":
                os.truncate(copy / record, 60_000_000_000)
            for words in (["compare", copy, maze], ["study", "rows", copy, "--out", tmp_path / "rows.csv"]):
                assert run(*words) == 2
                assert what in capsys.readouterr().err


def test_a_run_without_a_checkpoint_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "maze", *SHORT, "--out", tmp_path / "run", "--quiet") == 0
    shutil.rmtree(tmp_path / "run" / "checkpoints")
    for record in ("metrics.jsonl", "evaluations.csv"):
        (tmp_path / "run" / record).write_text("")
    assert run("resume", tmp_path / "run") == 0
    assert "has no checkpoint yet: it starts again from its beginning" in capsys.readouterr().err


def test_a_package_that_is_not_there_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    assert run("watch", "pong", "--video", "pong.mp4", "--seconds", "0.2") == 2
    said = "tightrope: this needs imageio_ffmpeg, which is not installed: pip install imageio-ffmpeg\n"
    assert capsys.readouterr().err.endswith(said)


def test_bench_of_a_file_of_ones_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Priorities are one for both learners; what the file says is what is measured."""
    text = 'preset = "tightrope-small"\nquantiles = 4\nimplicit = true\nbatch_size = 8\nupdate_every_steps = 16\n'
    (tmp_path / "mine.toml").write_text(text)
    words = ["bench", "--preset", tmp_path / "mine.toml", "--device", "cpu", "--num-envs", "2", "--rounds", "1"]
    assert run(*words, "--replay-rows", "500", "--seconds", "0.05", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["preset"] == str(tmp_path / "mine.toml")
    assert found["dqn_update_ms"] > 0
    assert found["tightened_update_ms"] > 0
    assert run("bench", "--preset", "nonesuch") == 2
    assert "unknown preset 'nonesuch'" in capsys.readouterr().err


def test_training_is_compared_with_the_way_of_playing_that_is_fastest_by_its_median() -> None:
    from tightrope.bench import against_the_emulator

    ways = {
        "emulator_in_turn_frames_per_second": [100.0, 90.0, 200.0],
        "emulator_bare_frames_per_second": [95.0, 120.0, 110.0],
    }
    measured = [
        {name: rates[i] for name, rates in ways.items()} | {"tightened_frames_per_second": 60.0} for i in range(3)
    ]
    against_the_emulator(measured)
    # Medians are 100 and 110, so it is the second, though the first had the luckiest round.
    assert [one["emulator_frames_per_second"] for one in measured] == [95, 120, 110]
    assert measured[1]["end_to_end_of_emulator"] == 0.5


def test_presets_and_games(capsys: pytest.CaptureFixture[str]) -> None:
    for name in settings.preset_names():
        assert run("presets", name) == 0
        told = capsys.readouterr().out
        assert all(field in told for field in settings.field_names())
    assert run("games") == 0
    assert "ms_pacman*" in capsys.readouterr().out
    assert run("presets", "paper") == 0
    told = capsys.readouterr().out.splitlines()
    at = next(i for i, line in enumerate(told) if line.startswith("  frames "))
    assert told[at].split(maxsplit=1)[1] == "10M frames · training budget"
    assert told[at + 1].strip() == f"[{settings.origins('paper')['frames']}]"
    at = next(i for i, line in enumerate(told) if line.startswith("  lam_end "))
    assert "(no effect: lam_schedule = 'constant')" in " ".join(" ".join(told[at : at + 3]).split())
    assert run() == run("--help") == run("--version") == run("train", "--help") == 0


@pytest.mark.parametrize("name", settings.preset_names())
def test_every_number_of_a_preset_has_an_origin(name: str) -> None:
    assert set(settings.origins(name)) == set(settings.field_names())


BAD = [
    (["train", "CartPole-v1", "--preset", "tightrope"], "preset tightrope-small has the game's usual network"),
    (["train", "maze", "--spectral_norm", "true"], "spectral_norm = True: is for network = 'impala' alone"),
    (["study", "status", "a" * 300], "File name too long"),
    (["evaluate", "a" * 300], "File name too long"),
    (["fly"], "unknown command 'fly'"),
    (["trian", "pong"], "did you mean train"),
    (["train"], "needs GAME"),
    (["train", "pogn"], "unknown game 'pogn'; did you mean pong"),
    (["train", "CartPole"], "did you mean CartPole-v1, CartPole-v0, earthworld"),  # not phys2d/..., which wants JAX
    (["train", "CartPole-v1", "--asynchronous", "true"], "needs overlap = True and num_envs above 1; here overlap = F"),
    (["train", "maze", "--preset", "papper"], "unknown preset 'papper'; did you mean paper"),
    (["train", "maze", "--lamb", "3"], "unknown field lamb = '3'; did you mean lam"),
    (["train", "maze", "--frames", "-5"], "frames = '-5': must be a whole number of at least 1"),
    (["train", "maze", "--frames", "many"], "frames = 'many': must be a whole number"),
    (["train", "maze", "--gamma", "1.5"], "gamma = '1.5': must be a number from 0.001 to 1"),
    (["train", "maze", "--lam", "nan"], "lam = 'nan': must be a number of at least 0"),
    (["train", "maze", "--bounds", "maybe"], "bounds = 'maybe': must be true or false"),
    (["train", "maze", "--both_violated", "none"], "both_violated = 'none': must be one of both, mean"),
    (["train", "maze", "--k"], "--k needs a whole number"),
    (["train", ":", "--device", "cpu"], "game : cannot be made"),
    (["train", "maze", "--replay_rows", "10"], "replay_rows = 10: must be at least"),
    (["train", "maze", "--epsilon_end", "0.5", "--epsilon_start", "0.2"], "epsilon_end = 0.5"),
    (["train", "maze", "--seed", "-1"], "seed = -1"),
    (["train", "maze", "--device", "tpu"], "device = 'tpu': must be auto, cpu or cuda"),
    (["train", "maze", "--sticky", "0.3"], "sticky = 0.3: only Atari and MinAtar"),
    (["train", "maze", "--skip_start_rows", "3"], "skip_start_rows = 3"),
    (["train", "Pendulum-v1", "--device", "cpu"], "only discrete actions"),
    (["train", "CartPole-v1", "--network", "paper", "--device", "cpu"], "network = 'paper'"),
    (["train", "minatar/breakout", "--network", "paper", "--device", "cpu"], "network = 'paper'"),
    (["train", "maze", "--k", "0", "--lower_draws", "3"], "lower_draws = 3"),
    (["train", "pong", "breakout"], "takes no 'breakout'"),
    (["train", "maze", "--callbacks", "tensorbord"], "callbacks = 'tensorbord': must be one of tensorboard, wandb"),
    (["train", "maze", "--callbacks", "no_such:Thing"], "callbacks = 'no_such:Thing': cannot be imported"),
    (["train", "maze", "--callbacks", "json:Thing"], "callbacks = 'json:Thing': cannot be imported"),
    (["train", "maze", "--callbacks", "json:dumps"], "callbacks = 'json:dumps': cannot be made"),
    (["completion", "fish"], "shell = 'fish': must be bash or zsh"),
    (["completion"], "needs SHELL"),
    (["doctor", "--seconds", "many"], "seconds = 'many': must be a number"),
    (["doctor", "--seconds", "-1"], "seconds = -1"),
    (["doctor", "--device", "tpu"], "device = 'tpu': must be auto, cpu or cuda"),
    (["bench", "--seconds", "x"], "seconds = 'x': must be a number"),
    (["bench", "--rounds", "0"], "at least one round"),
    (["train", "maze", "--out", ""], "out = '': must be a path"),
    (["train", "maze", "--learning_rate", "1e20"], "learning_rate = 1e+20: must be at most 1e+15"),
    (["bench", "--game", "maze"], "bench measures an Atari game; maze is none"),
    (["export", "pong"], "needs --onnx"),
    (["export", "pong", "--onnx", "pong.pt"], "onnx = 'pong.pt': must end in .onnx"),
    (["export", "pong", "--onnx", "pong.onnx", "--states", "0"], "states = 0"),
    (["watch", "pong", "--speed", "0"], "speed = 0: must be a number from 0.01"),
    (["watch", "pong", "--seconds", "-3"], "seconds = -3"),
    (["watch", "pong", "--video", "pong.avi"], "must end in .mp4 or .gif"),
    (["watch", "pong", "--which", "worst"], "which = 'worst': must be best or last"),
    (["evaluate", "x", "--json=perhaps"], "json = 'perhaps'"),
    (["train", "pong", "--replay_rows", "1000M", "--device", "cpu"], "replay needs 7102"),
    (["resume", "/nowhere"], "/nowhere does not exist"),
    (["evaluate", "/nowhere"], "does not exist"),
    (["watch", "/nowhere"], "does not exist"),
    (["presets", "nope"], "unknown preset"),
    (["evaluate", "x", "--episode", "3"], "unknown option --episode"),
    (["train", "maze", "--out", "/sys/tightrope", "--save_replay", "false"], "cannot write /sys/tightrope"),
    (["train", "maze", "--out", "/sys/tightrope"], "checkpoints with the replay need up to 3.6 MB"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(w) for w, _ in BAD])
def test_bad_words_get_one_sentence_and_status_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(*words) == 2
    errors = capsys.readouterr().err
    assert said in errors
    assert "Traceback" not in errors
    assert errors.strip().splitlines()[-1].startswith("tightrope: ")
    assert not list(tmp_path.iterdir()), "nothing is left behind"


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_asked_for_and_absent(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("train", "pong", "--device", "cuda") == 2
    assert "sees no CUDA GPU" in capsys.readouterr().err


def test_bad_evaluations(maze: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in [
        (["evaluate", maze, "--protocol", "modern"], "unknown protocol 'modern': paper or sticky"),
        (["evaluate", maze, "--protocol", "sticky"], "for Atari games"),
        (["evaluate", maze, "--episodes", "0"], "episodes = 0"),
        (["evaluate", maze, "--seed", "-1"], "seed = -1"),
        (["watch", maze, "--seed", "-1"], "seed = -1"),
        (["evaluate", maze, "--which", "worst"], "which = 'worst'"),
        (["train", "maze", "--out", maze], "holds a run already"),
        (["resume", tmp_path], "is not a run"),
    ]:
        assert run(*words) == 2
        assert said in capsys.readouterr().err
    (tmp_path / "config.toml").write_text("game = [")
    assert run("resume", tmp_path) == 2
    assert "config.toml is damaged" in capsys.readouterr().err


def test_a_full_disk_loses_nothing_that_was_saved(tmp_path: Path) -> None:
    """The disk takes no file of more than 550 kB: the growing replay stops fitting in mid-run."""
    out = tmp_path / "run"
    words = ["train", "maze", *SHORT[:-2], "--device", "cpu", "--frames", "4000", "--checkpoint_frames", "1000",
             "--replay_rows", "4000", "--quiet", "--out", str(out)]  # fmt: skip
    limit = 550_000

    def small_disk() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    ended = subprocess.run(
        [sys.executable, "-m", "tightrope", *words], preexec_fn=small_disk, capture_output=True, text=True, timeout=120
    )
    assert ended.returncode == 2, ended.stderr
    assert "no room to write" in ended.stderr
    assert "Traceback" not in ended.stderr
    saved = RunFolder(out).checkpoints.saved()
    assert saved, "what was saved before is still there"
    # With room again the run goes on from there and ends.
    assert run("resume", out, "--quiet") == 0
    assert tightrope.load(out, which="last").facts.frames == 4000


def test_a_disk_full_of_metrics(tmp_path: Path) -> None:
    """No checkpoint is due; the records alone outgrow the disk."""
    words = ["train", "maze", *SHORT[:-2], "--device", "cpu", "--frames", "5000", "--checkpoint_frames", "1M",
             "--eval_every_epochs", "0", "--log_frames", "1", "--quiet", "--out", str(tmp_path / "run")]  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-m", "tightrope", *words], capture_output=True, text=True, timeout=120,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, 40_000)),
    )  # fmt: skip
    assert ended.returncode == 2, ended.stderr
    assert "no room to write" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_fields_from_python() -> None:
    with pytest.raises(TightropeError, match="unknown field lamb"):
        preset("paper").replace(lamb=3)
    with pytest.raises(TightropeError, match="frames = -1"):
        preset("paper").replace(frames=-1)
    with pytest.raises(TightropeError, match="k = True"):
        preset("paper").replace(k=True)
    with pytest.raises(TightropeError, match="either the name"):
        tightrope.train()
    assert preset("paper").replace(frames="2.03M", lam="0.25").frames == 2_030_000
    assert isinstance(preset("paper").replace(lam=1).lam, float)
    assert Config(**preset("dqn").to_dict()) == preset("dqn")


def test_the_papers_replay_fits_its_budget() -> None:
    rows = preset("paper").replay_rows
    assert needed_bytes(rows, (1, 84, 84), np.dtype(np.uint8)) == rows * (84 * 84 + 10) <= 7.3e9
    with pytest.raises(TightropeError, match=r"needs 999999\.00 GB"):
        check_memory(int(999999e9), torch.device("cpu"))


def test_a_run_of_an_earlier_version_is_read(maze: Path, tmp_path: Path) -> None:
    """Without the fields that came later; without any other it is refused."""
    old = tmp_path / "config.toml"
    lines = (maze / "config.toml").read_text().splitlines()
    old.write_text("\n".join(line for line in lines if not line.startswith("precision")))
    assert Description.from_toml(old) == Description.from_toml(maze / "config.toml")
    old.write_text("\n".join(line for line in lines if not line.startswith("gamma")))
    with pytest.raises(TightropeError, match="gamma"):
        Description.from_toml(old)


# ------------------------------------------------------------------------------------------- runs beside each other


def test_a_run_goes_on_with_a_larger_budget_as_if_it_had_been_told_so_at_first(maze: Path, tmp_path: Path) -> None:
    shutil.copytree(maze, tmp_path / "short")
    assert run("resume", tmp_path / "short", "--frames", "900", "--quiet") == 0
    assert run("train", "maze", *SHORT, "--frames", "900", "--lam", 2, "--out", tmp_path / "long", "--quiet") == 0
    short, long = (tightrope.load(tmp_path / name, which="last", device="cpu") for name in ("short", "long"))
    assert short.facts.frames == long.facts.frames == 900
    for a, b in zip(short.network.parameters(), long.network.parameters(), strict=True):
        assert torch.equal(a, b)
    assert Description.from_toml(tmp_path / "short" / "config.toml").config.frames == 900
    rows = RunFolder(tmp_path / "short").evaluations()
    assert [row["frames"] for row in rows] == ["300", "600", "900"]


def test_an_evaluation_says_how_many_games_have_ended(maze: Path) -> None:
    heard: list[int] = []
    tightrope.load(maze, device="cpu").evaluate(episodes=3, told=heard.append)
    assert heard == sorted(heard)
    assert (heard[0], heard[-1]) == (0, 3)
    values = {"frames": 300, "frames_per_second": 9, "score": None, "epsilon": 1.0, "evaluating": 2}
    assert line(values, preset("maze").replace(frames=600), None).startswith(" 50% 300 frames · evaluating: 2 games")


def test_a_budget_cannot_shrink(maze: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("resume", maze, "--frames", "100") == 2
    assert "frames = 100: must be at least the run's own 600" in capsys.readouterr().err


def test_runs_beside_each_other(maze: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = tmp_path / "other"
    assert run("train", "maze", *SHORT, "--frames", "300", "--bounds", "false", "--out", other, "--quiet") == 0
    capsys.readouterr()
    assert run("compare", maze, other, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["differ"] == {"frames": [600, 300], "bounds": [True, False], "lam": [2.0, 4.0]}
    assert [one["run"] for one in found["runs"]] == [str(maze), str(other)]
    assert run("compare", maze, other) == 0
    said = capsys.readouterr().out
    assert "score by 300" in said
    assert "bounds: True, False" in said


def test_what_is_compared_is_what_all_have_reached() -> None:
    long = Compared("a", "maze", {}, [(300, 1.0), (600, 2.0)], 600, 1.0)
    short = Compared("b", "maze", {}, [(301, 5.0)], 301, 1.0)
    assert common_frames([long, short]) == 301
    assert [run.at(301) for run in (long, short)] == [1.0, 5.0]
    assert long.at(299) is None
    # 128 environments end an epoch of 10M frames some hundred frames later or earlier.
    assert Compared("c", "pong", {}, [(10_000_480, 7.0)], 10_000_480, 1.0).at(10_000_012) == 7.0


def test_numbers_from_a_file(maze: Path, tmp_path: Path) -> None:
    """A file of one's own changes the preset it names; what is typed goes before it; a run's config.toml is one too."""
    own = tmp_path / "mine.toml"
    own.write_text('preset = "maze"\nlam = 3\nk = 2\n')
    words = ["--frames", "200", "--eval_every_epochs", "0", "--quiet", "--device", "cpu"]
    assert run("train", "maze", "--preset", own, "--k", "1", *words, "--out", tmp_path / "run") == 0
    found = Description.from_toml(tmp_path / "run" / "config.toml")
    assert found.preset == "maze"
    assert found.config == preset("maze").replace(lam=3, k=1, frames=200, eval_every_epochs=0)
    again = ["train", "maze", "--preset", maze / "config.toml", "--quiet", "--device", "cpu"]
    assert run(*again, "--out", tmp_path / "again") == 0
    assert (
        Description.from_toml(tmp_path / "again" / "config.toml").config
        == Description.from_toml(maze / "config.toml").config
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("lam = 'much'", "lam = 'much': must be a number"),
        ("lamda = 1", "unknown field lamda"),
        ("preset = 'pap'", "preset = 'pap': must be one of"),
        ("lam =", "is no TOML file"),
    ],
)
def test_a_file_of_numbers_that_is_wrong(
    text: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "mine.toml"
    own.write_text(text)
    assert run("train", "maze", "--preset", own) == 2
    assert told in capsys.readouterr().err
    assert run("train", "maze", "--preset", tmp_path / "none.toml") == 2
    assert "there is no file" in capsys.readouterr().err


@pytest.mark.parametrize("words", [["compare"], ["compare", "nothing"], ["compare", "nothing", "nowhere"]])
def test_compare_wants_runs(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words) == 2
    assert capsys.readouterr().err.count("\n") == 1


# ------------------------------------------------------------------------------ an environment in one's own folder

CORRIDOR = """
import gymnasium
import numpy as np

class Corridor(gymnasium.Env):
    observation_space = gymnasium.spaces.Box(0, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = 0
        return np.eye(3, dtype=np.float32)[0], {}

    def step(self, action):
        self.place = max(0, self.place + (1 if action else -1))
        return np.eye(3, dtype=np.float32)[min(2, self.place)], float(self.place == 2), self.place == 2, False, {}

gymnasium.register("Corridor-v0", Corridor)
"""


def test_an_environment_of_the_working_folder_that_knows_nothing_of_pictures(tmp_path: Path) -> None:
    (tmp_path / "corridor.py").write_text(CORRIDOR)

    def tell(*words: str) -> subprocess.CompletedProcess[str]:
        # -P: Python itself does not look in the working folder, as the installed command does not.
        line = [sys.executable, "-P", "-m", "tightrope", *words]
        return subprocess.run(line, capture_output=True, text=True, cwd=tmp_path, check=False)

    trained = tell("train", "corridor:Corridor-v0", *SHORT, "--out", "run")
    assert trained.returncode == 0, trained.stderr
    assert tell("evaluate", "run", "--trust", "--episodes", "2").returncode == 0
    watched = tell("watch", "run", "--trust", "--video", "game.gif")
    assert watched.returncode == 2
    assert "Corridor-v0 cannot be" in watched.stderr
    assert watched.stderr.strip().count("\n") == 0
