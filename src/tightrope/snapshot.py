"""A run's state in a checkpoint: what is taken of a trainer, and how another one takes it up.

The frames of the replay are not in it: checkpoint.py keeps those, once for all checkpoints that name them.
"""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tightrope.checkpoint import arrays_to_tensors, put, tensors_to_arrays
from tightrope.config import learning
from tightrope.errors import GameError, TightropeError
from tightrope.games import Step
from tightrope.seeds import LEARNER, seed_for

if TYPE_CHECKING:
    from tightrope.trainer import Side, Trainer

#: What goes wrong with a checkpoint whose parts are not what they should be.
UNFIT = (LookupError, RuntimeError, ValueError, TypeError, AttributeError, ArithmeticError, MemoryError)


def taken(trainer: Trainer) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Tensors and facts. The device must have done all that it was told."""
    learner = trainer.learner
    tensors = {
        **learner.state(),
        "random.learner": learner.generator.get_state(),
        "recent_scores": torch.tensor(list(trainer.recent_scores), dtype=torch.float64),
        "behind": torch.from_numpy(trainer.behind),
    }
    if learner.memory is not None:
        # Not needed to go on, but to go on bit for bit: a state's value depends on which were valued beside it.
        tensors |= {f"memory.{name}": tensor for name, tensor in vars(learner.memory).items()}
    for i, side in enumerate(trainer.sides):
        tensors |= {f"side{i}.{name}": tensor for name, tensor in _side_tensors(side, trainer.overlap).items()}
    facts = {
        "game": trainer.info.name,
        "preset": trainer.description.preset,
        "config": trainer.config.to_dict(),
        "seed": trainer.description.seed,
        "frames": trainer.frames,
        "steps": trainer.steps,
        "started_at": trainer.started_at,
        "updates": learner.updates,
        "games": trainer.games,
        "epochs": trainer.epochs,
        "evaluated_at": trainer.evaluated_at,
        "best_score": trainer.best_score,
        "last_score": trainer.last_score,
        "last_evaluation": trainer.last_evaluation,
        "seconds": trainer.seconds,
        "last_log_frames": trainer.last_log[0],
        "records": trainer.folder.lengths(),
    }
    return tensors, facts


def _side_tensors(side: Side, own_network: bool) -> dict[str, torch.Tensor]:
    actor = side.actor
    own = {f"network.{n}": t for n, t in actor.network.state_dict().items()} if own_network else {}
    # Actions that are being played are sent again; their outcome is not in the games' logs yet.
    sent = np.zeros(0, dtype=np.int64) if side.sent is None else side.sent
    played: dict[str, np.ndarray] = {}
    if side.played is not None:
        actions, step, tails = side.played
        played = {"actions": actions, "tails": tails} | vars(step)
    return {
        "random": actor.generator.get_state(),
        "start_values": actor.start_values,
        "frames": actor.frames,
        "begins": actor.begins,
        **own,
        **arrays_to_tensors("", {"life_steps": side.life_steps, "sent": sent}),
        **arrays_to_tensors("", {"epoch": np.array(side.epoch), "updates": np.array(side.updates)}),
        **arrays_to_tensors("game.", side.game.save()),
        **arrays_to_tensors("played.", played),
    }


def take_up(trainer: Trainer, saved: list[Path]) -> None:
    """The newest of these checkpoints into a fresh trainer, or a sentence that says why not."""
    newest, folder, description = saved[-1], trainer.folder, trainer.description
    try:
        tensors, facts = folder.checkpoints.read(newest)
        if facts["game"] != trainer.info.name or facts["seed"] != description.seed:
            raise TightropeError(f"{newest} belongs to another run: {facts['game']}, seed {facts['seed']}")
        if facts.get("preset", description.preset) != description.preset:
            raise TightropeError(f"{newest} belongs to a run of preset {facts['preset']}")
        if learning(facts["config"]) != learning(trainer.config.to_dict()):
            raise TightropeError(f"{newest} belongs to a run with other numbers than {folder.path}/config.toml")
        folder.checkpoints.fill(trainer.replay, newest, tensors, facts)
        _restore(trainer, tensors, facts)
    except GameError as problem:
        raise TightropeError(f"{newest} cannot be played again: {problem}") from None
    except UNFIT as problem:
        raise TightropeError(f"{newest} does not fit this run: {' '.join(str(problem).split())[:300]}") from None
    except TightropeError as problem:
        if len(saved) < 2:
            raise
        raise TightropeError(
            f"{problem}. The checkpoint before it is {saved[-2].name}: remove {newest.name} to resume from there"
        ) from None


def _restore(trainer: Trainer, tensors: dict[str, torch.Tensor], facts: dict[str, Any]) -> None:
    learner = trainer.learner
    if "telemetry.samples" not in tensors:
        raise TightropeError(f"the checkpoint of {trainer.folder.path} is of an earlier version: train anew")
    _check_counts(trainer, facts)
    for name, tensor in learner.state().items():
        put(tensor, tensors[name], name)
    _restore_random(trainer, "learner", learner.generator, tensors["random.learner"], int(facts["steps"]))
    if learner.memory is not None:
        for name, tensor in _part(tensors, "memory.").items():
            put(getattr(learner.memory, name), tensor, f"memory of {name}")
    trainer.recent_scores.extend(tensors["recent_scores"].tolist())
    trainer.behind[:] = tensors["behind"].numpy()
    for i, side in enumerate(trainer.sides):
        own, fresh = _part(tensors, f"side{i}."), int(facts["steps"]) + i + 1
        _restore_random(trainer, f"actor {i}", side.actor.generator, own["random"], fresh)
        _restore_side(side, own, trainer.overlap)
    trainer.steps = trainer.steps_before = int(facts["steps"])
    trainer.started_at = facts["started_at"]
    learner.updates = int(facts["updates"])
    trainer.games, trainer.epochs, trainer.evaluated_at = facts["games"], facts["epochs"], facts["evaluated_at"]
    trainer.best_score, trainer.last_score = facts["best_score"], facts["last_score"]
    trainer.last_evaluation = facts.get("last_evaluation")
    trainer.seconds_before = float(facts["seconds"])
    trainer.sat_down = time.monotonic()
    trainer.last_log = (int(facts["last_log_frames"]), trainer.seconds_before)
    trainer.folder.cut_back(facts["records"])
    trainer.settle()


def _part(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return {n.removeprefix(prefix): t for n, t in tensors.items() if n.startswith(prefix)}


def _restore_side(side: Side, own: dict[str, torch.Tensor], own_network: bool) -> None:
    actor = side.actor
    for name in ("start_values", "frames", "begins"):
        put(getattr(actor, name), own[name], f"the actor's {name}")
    side.life_steps = own["life_steps"].numpy().copy()
    side.epoch, side.updates = int(own["epoch"]), int(own["updates"])
    if own_network:
        actor.network.load_state_dict(_part(own, "network."))
    side.game.restore(tensors_to_arrays("game.", own))
    if played := tensors_to_arrays("played.", own):
        actions, tails = played.pop("actions"), played.pop("tails")
        side.played = (actions, Step(**played), tails)
        put(actor.newest, torch.from_numpy(side.played[1].frames), "what the actor saw last")
    if len(own["sent"]):
        side.sent = own["sent"].numpy().copy()
        side.game.send(side.sent)


def _check_counts(trainer: Trainer, facts: dict[str, Any]) -> None:
    """Refuses counts that no run of this budget comes to."""
    config, per_step = trainer.config, trainer.info.frames_per_step
    most = config.frames // per_step + 2 * config.num_envs
    limits = {"steps": 0, "games": 0, "epochs": 0, "updates": 0, "last_log_frames": 0, "evaluated_at": -1}
    counts = {name: facts[name] for name in limits} | {"started_at": facts["started_at"] or 0}
    for name, count in counts.items():
        largest: float = config.updates_due(most) if name == "updates" else most * per_step
        if name == "updates" and config.asynchronous:
            largest = math.inf
        if type(count) is not int or not limits.get(name, 0) <= count <= largest:
            raise ValueError(f"{name} = {count!r}")
    for score in (facts["best_score"], facts["last_score"]):
        if score is not None and not math.isfinite(score):
            raise ValueError(f"a score of {score!r}")
    if facts["steps"] * per_step != facts["frames"] or not 0 <= float(facts["seconds"]) < 1e12:
        raise ValueError(f"frames = {facts['frames']!r}, seconds = {facts['seconds']!r}")


def _restore_random(trainer: Trainer, whose: str, generator: torch.Generator, state: torch.Tensor, fresh: int) -> None:
    if len(state) == len(generator.get_state()):
        generator.set_state(state)
    else:  # a GPU's generator has another kind of state than a CPU's
        generator.manual_seed(seed_for(trainer.description.seed, LEARNER, fresh))
        trainer.report(f"resumed on another device: the {whose}'s random numbers are not those of the unbroken run")
