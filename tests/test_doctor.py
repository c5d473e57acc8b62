"""What the doctor finds, on this machine and on others that are pretended."""

from __future__ import annotations

import json
import shutil
import sys
from collections import namedtuple

import psutil
import pytest
import torch

from tightrope import doctor
from tightrope.cli import main
from tightrope.config import preset


def test_this_machine(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["doctor", "--json", "--seconds", "0.6", "--device", "cpu"])
    found = json.loads(capsys.readouterr().out)
    assert ended.value.code == (1 if found["amiss"] else 0)
    names = [finding["name"] for finding in found["findings"]]
    assert names == ["Python", "PyTorch", "GPU", "memory", "cores", "disk", "ale-py", "C++", "extras"]
    assert torch.__version__ in found["findings"][1]["found"]
    games = {measured["game"]: measured for measured in found["measured"]}
    assert set(games) == {"atari/pong", "minatar/breakout", "CartPole-v1"}
    for game, name in (("atari/pong", "paper"), ("minatar/breakout", "minatar"), ("CartPole-v1", "classic")):
        assert games[game]["frames"] == preset(name).frames
        assert games[game]["training_seconds"] * games[game]["frames_per_second"] == pytest.approx(preset(name).frames)
    for columns in ("80", "120"):
        monkeypatch.setenv("COLUMNS", columns)
        text = doctor.told(found)
        assert max(map(len, text.splitlines())) <= int(columns)
        assert "10,000,000 frames in" in text


def test_nothing_is_measured_when_nobody_asks() -> None:
    assert doctor.examine("cpu", seconds=0)["measured"] == []


def test_a_game_that_cannot_be_played_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "GAMES", {"minatar/breakout": 1.0})
    monkeypatch.setitem(sys.modules, "minatar", None)  # as if it were not installed
    found = doctor.examine("cpu", seconds=0.1)
    assert found["amiss"]
    assert found["measured"] == []
    assert found["findings"][-1]["found"] == "minatar/breakout: MinAtar is not installed: pip install minatar"


def test_a_gpu_that_pytorch_does_not_see(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/nvidia-smi" if name == "nvidia-smi" else None)
    monkeypatch.setattr(torch.version, "cuda", None)
    assert doctor.gpu().amiss
    assert "install PyTorch for CUDA" in doctor.gpu().remedy
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    assert "run nvidia-smi" in doctor.gpu().remedy
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert not doctor.gpu().amiss, "a machine without a GPU is not ill"
    assert doctor.compiler().remedy


def test_too_little_memory_names_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The paper's replay is 7.07 GB: a million rows of 84 x 84 + 10 bytes. Of 4 GB 80 % are taken: 450,000."""
    seen = namedtuple("seen", "available total")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: seen(4e9, 8e9))
    assert "--replay_rows 450000" in doctor.memory("cpu").remedy
    assert doctor.memory("cuda").remedy == "", "there the replay lies on the GPU"
    monkeypatch.setattr(psutil, "virtual_memory", lambda: seen(16e9, 16e9))
    assert doctor.memory("cpu").remedy == ""


def test_a_full_disk_and_a_broken_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(1e9))
    assert "--save_replay false" in doctor.disk().remedy

    def broken(*words: object) -> None:
        raise ImportError("libale.so is gone")

    monkeypatch.setattr("tightrope.games.make_game", broken)
    found = doctor.atari()
    assert found.amiss
    assert "libale.so is gone" in found.found
    assert "pip install" in found.remedy
    text = doctor.told({"findings": [vars(found)], "measured": [], "amiss": True})
    assert "amiss\n" in text
    assert "Nothing is amiss" not in text
