"""The same from Python as from the command line: train, resume, load."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

import torch

from tightrope import run
from tightrope.agent import Agent, shipped
from tightrope.callbacks import Callbacks, Start
from tightrope.config import learning, own_numbers
from tightrope.device import pick_device
from tightrope.errors import TightropeError, counted
from tightrope.games import EnvMaker, canonical, config_for, default_preset, refuse_unknown_module
from tightrope.idle import remarks
from tightrope.lock import held
from tightrope.network import NetworkMaker
from tightrope.progress import Progress
from tightrope.run import Description, RunFolder, new_run_path
from tightrope.trainer import Trainer


def train(
    game: str | None = None,
    *,
    env: EnvMaker | None = None,
    network: str | NetworkMaker | None = None,
    preset: str | None = None,
    seed: int = 0,
    device: str = "auto",
    out: str | Path | None = None,
    quiet: bool = False,
    callbacks: Iterable[Any] = (),
    json: bool = False,
    **fields: Any,
) -> Agent:
    """Trains an agent and returns it; the run is kept in the folder `out` (its path is `agent.run`).

    Args:
        game: a game's name in any usual spelling: "pong", "ALE/MsPacman-v5", "minatar/breakout", "maze", "CartPole-v1".
        env: instead of a name, a function that makes an environment of your own: Gymnasium, discrete actions.
        network: one of ours by name ("paper", "impala", "small", "mlp"), or a function (state shape, number of actions)
            -> torch.nn.Module of your own. Its input is a batch of float states (images from 0 to 1), its output one
            value for each action.
        preset: where the numbers come from; by default the one that suits the game. Or a TOML file of your own with
            fields, and `preset = "dqn"` for the one that they change; a run's config.toml is such a file.
        quiet: say nothing while training.
        json: say it as JSON objects on standard output, one a line.
        callbacks: who follows the run: "tensorboard", "wandb", or objects with methods of `callbacks.Callback`.
        fields: any field of the preset, changed: lam=1, frames=1_000_000 ... `tightrope presets NAME` lists them.

    >>> import tightrope
    >>> agent = tightrope.train("maze", frames=400, learn_start_steps=100, out=tmp / "train", quiet=True)
    >>> agent.facts.frames
    400

    An environment and a network of your own:

    >>> import gymnasium, torch
    >>> def my_net(shape, actions):
    ...     return torch.nn.Sequential(torch.nn.Linear(*shape, 32), torch.nn.ReLU(), torch.nn.Linear(32, actions))
    >>> agent = tightrope.train(env=lambda: gymnasium.make("CartPole-v1"), network=my_net, frames=300,
    ...                         learn_start_steps=100, out=tmp / "own", quiet=True)
    """
    if (game is None) == (env is None):
        raise TightropeError("give either the name of a game or env=, a function that makes one")
    if env is not None and not callable(env):
        raise TightropeError("env: must be a function that makes an environment, such as lambda: MyEnv()")
    if isinstance(network, torch.nn.Module):
        raise TightropeError("network: must be a function (state shape, number of actions) -> module, not a module")
    name = canonical(game) if game is not None else "custom"
    if preset is not None and preset.endswith(".toml"):
        preset, own = own_numbers(Path(preset))
        fields = own | fields
    chosen = preset or default_preset(name)
    if isinstance(network, str):
        fields, network = fields | {"network": network}, None
    config = config_for(name, chosen, fields)
    if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
        raise TightropeError(f"seed = {seed!r}: must be a whole number of at least 0")
    device = str(pick_device(device))
    path = Path(out) if out is not None else new_run_path(name, seed)
    description = Description(
        game=name,
        preset=chosen,
        seed=seed,
        device=device,
        config=config,
        network="custom" if network is not None else "auto",
        made_with={"commit": run.commit()} | run.versions(),
    )
    progress = Progress(path, config, quiet, json)
    folder = RunFolder(path, Callbacks([*callbacks, progress], progress.say))
    folder.refuse_if_taken()
    plain = config_for(name, chosen, {})
    for remark in remarks([field for field in fields if getattr(config, field) != getattr(plain, field)], config):
        progress.say(remark)
    trainer = Trainer(description, folder, env, network, progress.say, progress.glance)
    with closing(trainer), held(path):
        folder.create(description)
        trainer.start()
        return _finish(trainer, path, progress)


def resume(
    path: str | Path,
    *,
    env: EnvMaker | None = None,
    network: NetworkMaker | None = None,
    device: str | None = None,
    quiet: bool = False,
    callbacks: Iterable[Any] = (),
    json: bool = False,
    trust: bool = False,
    frames: int | None = None,
) -> Agent:
    """Continues a run from its last checkpoint, as if it had never stopped; up to a larger budget where `frames` says.

    A game that is called module:Id is of a module: it is imported only where you `trust` the run, or have it imported
    already.

    >>> import tightrope
    >>> agent = tightrope.train("maze", frames=400, learn_start_steps=100, out=tmp / "resume", quiet=True)
    >>> tightrope.resume(agent.run, quiet=True).facts.frames  # it was at its end already
    400
    """
    path = Path(path)
    description = Description.from_toml(path / "config.toml")
    if device is not None:
        description.device = device
    if description.game == "custom" and env is None:
        raise TightropeError(f"{path} trains on an environment of its own: resume it in Python with env=...")
    if description.network == "custom" and network is None:
        raise TightropeError(f"{path} has a network of its own: resume it in Python with network=...")
    if env is None:
        refuse_unknown_module(description.game, path, trust)
    budget = description.config.frames
    if frames is not None:
        description.config = description.config.replace(frames=frames)
        if description.config.frames < budget:
            raise TightropeError(f"frames = {description.config.frames}: must be at least the run's own {budget}")
    folder = RunFolder(path)
    folder.refuse_links()
    if folder.checkpoints.saved() and not description.config.save_replay:
        raise TightropeError(
            f"{path} kept no replay (save_replay = false), so it cannot go on as if nothing had happened"
        )
    if not folder.checkpoints.saved() and folder.ended():
        raise TightropeError(f"{path} has ended and its checkpoint was removed: there is nothing to resume")
    progress = Progress(path, description.config, quiet, json)
    folder.callbacks = Callbacks([*callbacks, progress], progress.say)
    if not folder.checkpoints.saved():
        progress.say(f"{path} has no checkpoint yet: it starts again from its beginning")
    with held(path):
        trainer = Trainer(description, folder, env, network, progress.say, progress.glance)
        with closing(trainer):
            trainer.resume()
            if description.config.frames > budget:
                folder.describe(description)
            return _finish(trainer, path, progress)


def _finish(trainer: Trainer, path: Path, progress: Progress) -> Agent:
    said, callbacks = trainer.description, trainer.folder.callbacks
    start = Start(path, said.game, said.preset, said.seed, said.device, said.config.to_dict(), trainer.frames)
    ended: Agent | None = None
    progress.over = over = trainer.over
    try:
        callbacks.tell("start", start)
        with progress, trainer.stopping_on_signals():
            for values in trainer.train():
                progress.show(values, trainer.last_score)
        ended = trainer.agent()
    finally:
        try:
            trainer.folder.checkpoints.finish()  # before the folder is let go
        finally:
            callbacks.tell("end", ended)
    if trainer.stopped_early:
        progress.say(f"stopped at {trainer.frames:,} frames; everything is saved: tightrope resume {path}")
    else:
        progress.say(("was done already: " if over else "done: ") + closing_line(RunFolder(path)))
    ended.run, ended.stopped = path, trainer.stopped_early
    return ended


def closing_line(folder: RunFolder) -> str:
    """What a run reached. The best of all evaluations flatters: the last and the mean of the last five stand beside."""
    scores = [float(row["score"]) for row in folder.evaluations()]
    if not scores:
        return "no evaluation was due"
    said = f"{counted(len(scores), 'evaluation')}, best {max(scores):.4g}, last {scores[-1]:.4g}"
    last = scores[-5:]
    return said + (f" (mean of the last {len(last)}: {sum(last) / len(last):.4g})" if len(last) > 1 else "")


def _shipped(name: str) -> Path:
    """The shipped agent of that game."""
    agents = shipped()
    try:
        return agents[canonical(name)]
    except (KeyError, TightropeError):
        games = ", ".join(game.removeprefix("atari/") for game in agents)
        raise TightropeError(f"{name} does not exist: no run, no file, and no shipped agent ({games})") from None


def load(
    path: str | Path,
    *,
    which: str = "best",
    device: str = "auto",
    env: EnvMaker | None = None,
    network: NetworkMaker | None = None,
    trust: bool = False,
) -> Agent:
    """The agent of a run (its best by evaluation, or which="last"), the agent in a file, or a shipped one by its game.

    A game that is called module:Id is of a module: it is imported only where you `trust` the file, or have it imported
    already.

    >>> import tightrope
    >>> agent = tightrope.train("maze", frames=400, learn_start_steps=100, out=tmp / "load", quiet=True)
    >>> tightrope.load(agent.run).facts.game
    'tightrope/Maze-v0'
    """
    path = Path(path)
    run_path = None
    if path.is_dir():
        run_path, folder = path, RunFolder(path)
        if not (path / "config.toml").exists():
            raise TightropeError(f"{path} is not a run: it has no config.toml")
        if which not in ("best", "last"):
            raise TightropeError(f"which = {which!r}: must be best or last")
        which = "best" if which == "best" and folder.best.exists() else "last"  # no evaluation, no best
        path = folder.best if which == "best" else folder.last
        if not path.exists():
            raise TightropeError(f"{run_path} has no agent yet: it was stopped before its first checkpoint")
    elif not path.exists():
        path = _shipped(str(path))
    agent = Agent.load(path, pick_device(device), env, network, trust)
    if run_path is not None:
        own, facts = Description.from_toml(run_path / "config.toml"), agent.facts
        if (facts.game, facts.seed, learning(facts.config)) != (own.game, own.seed, learning(own.config.to_dict())):
            raise TightropeError(
                f"{path} belongs to another run: {facts.game}, preset {facts.preset}, seed {facts.seed}"
            )
    agent.run, agent.which = run_path, which if run_path is not None else None
    return agent
