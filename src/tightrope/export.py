"""An agent as an ONNX file, for programs without PyTorch; checked before anybody relies on it."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import warnings
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tightrope.actor import Actor
from tightrope.agent import Agent
from tightrope.card import card, is_card, use_onnx
from tightrope.checkpoint import write_bytes
from tightrope.config import Config
from tightrope.errors import TightropeError
from tightrope.evaluation import protocol
from tightrope.games import make_game

#: Steps between the states that are looked at.
APART = 8
#: How far the two may lie apart, of the largest value there is: both compute in float32, in another order.
TOLERANCE = 1e-4


class Plain(nn.Module):
    """A Q-network without its switches: raw states in, values out."""

    def __init__(self, body: nn.Module, scale: float) -> None:
        super().__init__()
        self.body, self.scale = body, scale

    def forward(self, states: Tensor) -> Tensor:
        values: Tensor = self.body(states.to(torch.float32) * self.scale)
        return values


def played_states(agent: Agent, count: int, seed: int = 0) -> Tensor:
    """So many states of games that the agent plays by the paper's protocol; some steps lie between them, for neighbours
    are much alike."""
    plan = protocol("paper", Config.stored(agent.facts.config), agent.facts.game)
    width = min(8, count)
    game = make_game(agent.facts.game, width, seed, plan.options, agent.env)
    actor = Actor(agent.network, width, agent.info, agent.device, seed)

    def steps() -> Any:
        actor.observe(game.reset(), np.ones(width, dtype=bool))
        while True:
            yield actor.states.cpu().clone()
            game.send(actor.act(plan.epsilon))
            step = game.receive()
            actor.observe(step.frames, step.begins)

    try:
        return torch.cat(list(islice(steps(), 0, -(-count // width) * APART, APART)))[:count]
    finally:
        game.close()


def export_onnx(agent: Agent, path: Path, states: int = 256) -> str:
    """Writes the file, its model card beside it, and returns a sentence on how far the two programs lie apart.

    Input `states`: [batch, ...] as the game gives them, unscaled (Atari: uint8, the last four frames of 84x84). Output
    `q_values`: [batch, actions]. The agent's facts are in the file's metadata, as JSON. A file that does not agree with
    PyTorch is not written.
    """
    if path.suffix != ".onnx":
        raise TightropeError(f"onnx = {str(path)!r}: must end in .onnx")
    if not 1 <= states <= 1_000_000:
        raise TightropeError(f"states = {states}: must be a whole number from 1 to 1000000")
    try:
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401  PyTorch's exporter needs it
    except ImportError as missing:
        raise TightropeError(f"{missing.name} is not installed: pip install 'tightrope[onnx]'") from None
    seen = played_states(agent, states)
    model = _model(agent, seen)
    facts = {"tightrope": json.dumps(asdict(agent.facts)), "actions": json.dumps(agent.info.action_names)}
    for name, text in facts.items():
        model.metadata_props.add(key=name, value=text)
    onnx.checker.check_model(model, full_check=True)
    data = model.SerializeToString()

    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    batches = torch.split(seen, 64)
    with torch.no_grad():
        ours = torch.cat([agent.network(batch.to(agent.device)).cpu() for batch in batches]).numpy()
    theirs = np.concatenate([session.run(None, {"states": batch.numpy()})[0] for batch in batches])
    alone = session.run(None, {"states": seen[:1].numpy()})[0]
    apart = float(max(np.abs(ours - theirs).max(), np.abs(ours[:1] - alone).max()))
    if not apart <= TOLERANCE * max(1.0, float(np.abs(ours).max())):
        raise TightropeError(f"{path} was not written: ONNX Runtime and PyTorch differ by {apart:.2g} on played states")
    write_bytes(path, data)
    beside = path.with_suffix(".md")
    if beside.exists() and not is_card(beside):  # somebody's own notes
        beside = path.with_name(path.name + ".md")
    write_bytes(beside, card(agent.facts, use_onnx(path.name)).encode())
    return f"{path}: PyTorch and ONNX Runtime agree to {apart:.1g} on {states} states of played games"


def _model(agent: Agent, seen: Tensor) -> Any:
    """The network as ONNX, for batches of any size. What PyTorch's exporter says meanwhile is not for our user."""
    plain = Plain(agent.network.body, agent.network.scale).cpu().eval()
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(
                plain,
                (seen[:2].repeat(2, *[1] * (seen.dim() - 1))[:2],),
                dynamo=True,
                input_names=["states"],
                output_names=["q_values"],
                dynamic_shapes=({0: torch.export.Dim("batch")},),
                verbose=False,
            )
    except Exception as problem:  # of a user's own network
        said = str(problem).strip().splitlines() or [""]
        raise TightropeError(f"the network cannot be exported: {type(problem).__name__}: {said[0]}") from None
    finally:
        quiet.setLevel(level)
    assert program is not None
    return program.model_proto
