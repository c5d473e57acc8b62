"""An agent that travels as ONNX plays as it did."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn

import tightrope
from tightrope import export
from tightrope.cli import main
from tightrope.errors import TightropeError


def test_pong_as_onnx_plays_as_pong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "pong.onnx"
    with pytest.raises(SystemExit) as ended:
        main(["export", "pong", "--onnx", str(file), "--states", "70"])
    assert ended.value.code == 0
    assert "agree to" in capsys.readouterr().out
    agent = tightrope.load("pong", device="cpu")
    session = onnxruntime.InferenceSession(file)
    (given,), (result,) = session.get_inputs(), session.get_outputs()
    assert (given.name, given.type, given.shape) == ("states", "tensor(uint8)", ["batch", 4, 84, 84])
    assert (result.name, result.shape) == ("q_values", ["batch", 6])
    # Other games than those that the export itself looked at, in batches of other sizes.
    states = export.played_states(agent, 100, seed=9).numpy()
    assert len(np.unique(states.reshape(100, -1), axis=0)) > 75, "real play, not one frame again and again"
    for size in (1, 7, 100):
        (values,) = session.run(None, {"states": states[:size]})
        np.testing.assert_allclose(values, agent.q_values(states[:size]), atol=1e-5)
        assert (values.argmax(1) == agent.act(states[:size])).all()
    known = session.get_modelmeta().custom_metadata_map
    assert json.loads(known["tightrope"])["game"] == "atari/pong"
    assert json.loads(known["actions"])[:2] == ["noop", "fire"]
    text = (tmp_path / "pong.md").read_text()
    assert "95 % interval" in text
    assert 'onnxruntime.InferenceSession("pong.onnx")' in text


@pytest.fixture(scope="module")
def cartpole(tmp_path_factory: pytest.TempPathFactory) -> tightrope.Agent:
    out = tmp_path_factory.mktemp("export") / "run"
    return tightrope.train(
        "CartPole-v1", frames=300, learn_start_steps=100, eval_every_epochs=0, out=out, quiet=True, device="cpu"
    )


def test_a_small_game(cartpole: tightrope.Agent, tmp_path: Path) -> None:
    (tmp_path / "c.md").write_text("my own notes")
    export.export_onnx(cartpole, tmp_path / "c.onnx", states=20)
    assert (tmp_path / "c.md").read_text() == "my own notes"
    assert "# An agent for CartPole-v1" in (tmp_path / "c.onnx.md").read_text()
    session = onnxruntime.InferenceSession(tmp_path / "c.onnx")
    observation = np.array([[0.01, -0.02, 0.03, 0.04]], np.float32)
    (values,) = session.run(None, {"states": observation})
    np.testing.assert_allclose(values, cartpole.q_values(observation), atol=1e-6)


def test_a_file_that_differs_is_not_written(
    cartpole: tightrope.Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(export.Plain):
        def forward(self, states: torch.Tensor) -> torch.Tensor:
            return super().forward(states) * 1.01 + 0.01

    monkeypatch.setattr(export, "Plain", Wrong)
    with pytest.raises(TightropeError, match="was not written: ONNX Runtime and PyTorch differ by"):
        export.export_onnx(cartpole, tmp_path / "c.onnx", states=20)
    assert not list(tmp_path.iterdir())


def test_a_network_that_cannot_be_exported(tmp_path: Path) -> None:
    class Odd(nn.Module):
        def __init__(self, features: int, actions: int) -> None:
            super().__init__()
            self.layer = nn.Linear(features, actions)

        def forward(self, states: torch.Tensor) -> torch.Tensor:
            values: torch.Tensor = self.layer(states)
            return values * float(np.cos(values.sum().item()) + 2)

    agent = tightrope.train(
        "CartPole-v1", network=lambda shape, actions: Odd(*shape, actions), frames=200, learn_start_steps=100,
        eval_every_epochs=0, out=tmp_path / "run", quiet=True, device="cpu",
    )  # fmt: skip
    with pytest.raises(TightropeError, match="the network cannot be exported"):
        export.export_onnx(agent, tmp_path / "odd.onnx", states=4)
    assert not (tmp_path / "odd.onnx").exists()


def test_without_the_extra(cartpole: tightrope.Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load = builtins.__import__

    def without(name: str, *words: Any) -> Any:
        if name == "onnxscript":
            raise ModuleNotFoundError(name=name)
        return load(name, *words)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(TightropeError, match=r"onnxscript is not installed: pip install 'tightrope\[onnx\]'"):
        export.export_onnx(cartpole, tmp_path / "c.onnx")
