"""A trained agent: acts, is evaluated, is saved to one file and loaded from it."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Space

from tightrope import checkpoint
from tightrope.card import card, use_file
from tightrope.config import Config
from tightrope.errors import TightropeError
from tightrope.evaluation import Evaluation, evaluate
from tightrope.evaluation import protocol as named_protocol
from tightrope.games import EnvMaker, GameInfo, GameOptions, make_game, refuse_unknown_module
from tightrope.games.gym import Observations
from tightrope.network import Form, NetworkMaker, QNetwork, build_network, named_network


@dataclass(frozen=True)
class AgentFacts:
    """What is known of an agent; stored with its weights."""

    game: str
    preset: str
    seed: int
    frames: int
    score: float | None  # of its last evaluation in training
    network: str
    config: dict[str, Any]
    evaluation: dict[str, Any] | None = None  # Evaluation.facts of the same, and after how many frames


def shipped() -> dict[str, Path]:
    """The trained agents that come with the package, by game."""
    folder = Path(__file__).parent / "agents"
    return {f"atari/{path.stem}": path for path in sorted(folder.glob("*.safetensors"))}


class Agent:
    """A Q-network that plays one game. `tightrope.train` and `tightrope.load` return one."""

    def __init__(
        self, network: QNetwork, info: GameInfo, facts: AgentFacts, device: torch.device, env: EnvMaker | None = None
    ) -> None:
        self.network = network
        self.info = info
        self.facts = facts
        self.device = device
        self.run: Path | None = None
        self.which: str | None = None  # "best" or "last" of a run
        self.stopped = False  # a signal ended its training before the budget was spent
        self.env = env

    def __repr__(self) -> str:
        return f"Agent({self.facts.game}, {self.facts.preset}, {self.facts.frames:,} frames, score {self.facts.score})"

    @property
    def observation_space(self) -> Space[Any]:
        """One observation of the game, or the last four where the agent sees stacks of frames; what `act` takes."""
        return self.info.observation_space

    def _frames(self, observations: Any, batched: bool) -> torch.Tensor:
        batch = list(observations) if batched else [observations]
        space = self.observation_space
        if self.info.rom is not None:
            states = np.stack([np.asarray(o) for o in batch])
        elif self.info.stack > 1:
            assert isinstance(space, Box)
            seen = Observations(Box(space.low[0], space.high[0], dtype=space.dtype))
            states = np.stack([np.stack([seen.frame(frame) for frame in o]) for o in batch])
        else:
            seen = Observations(space)
            states = np.stack([seen.frame(o) for o in batch])
        states = states.reshape(len(batch), *self.info.state_shape)
        return torch.as_tensor(states, device=self.device)

    def _is_batch(self, observations: Any) -> bool:
        """One observation has the space's own shape; a batch has one axis more."""
        shape = self.observation_space.shape
        if isinstance(observations, list) and shape is None:
            return True
        given = np.shape(observations) if shape is not None else ()
        if shape is None or given == shape:
            return False
        if given[1:] == shape:
            return True
        raise TightropeError(f"observation of shape {given}: must be {shape}, or a batch of such")

    @torch.no_grad()
    def q_values(self, observations: Any) -> np.ndarray:
        """The value of each action: [actions] for one observation, [batch, actions] for a batch."""
        batched = self._is_batch(observations)
        if batched and len(observations) == 0:
            return np.zeros((0, self.info.num_actions), np.float32)
        values: np.ndarray = self.network(self._frames(observations, batched)).cpu().numpy()
        return values if batched else values[0]

    def act(self, observations: Any) -> Any:
        """The best action for one observation, or an array of them for a batch.

        >>> import gymnasium, tightrope
        >>> agent = tightrope.train("CartPole-v1", frames=300, learn_start_steps=100, out=tmp / "act", quiet=True)
        >>> env = gymnasium.make("CartPole-v1")
        >>> observation, _ = env.reset(seed=0)
        >>> agent.act(observation) in (0, 1)
        True
        """
        best = self.q_values(observations).argmax(-1)
        return int(best) if np.ndim(best) == 0 else best

    def evaluate(
        self,
        episodes: int | None = None,
        protocol: str = "paper",
        seed: int = 0,
        told: Callable[[int], None] = lambda games: None,
    ) -> Evaluation:
        """Plays games and scores them by the protocol "paper" or "sticky". `told` hears how many have ended so far.

        >>> import tightrope
        >>> agent = tightrope.train("maze", frames=300, learn_start_steps=100, out=tmp / "evaluate", quiet=True)
        >>> len(agent.evaluate(episodes=5).scores)
        5
        """
        if seed < 0:
            raise TightropeError(f"seed = {seed}: must be a whole number of at least 0")
        plan = named_protocol(protocol, Config.stored(self.facts.config), self.facts.game)
        if episodes is not None:
            if episodes < 1:
                raise TightropeError(f"episodes = {episodes}: must be a whole number of at least 1")
            plan = replace(plan, episodes=episodes, steps=0)
        return evaluate(self.network, self.facts.game, plan, seed, self.device, self.env, told)

    def save(self, path: Path) -> None:
        """One safetensors file with all that `load` needs, and a model card beside it."""
        checkpoint.write(path, dict(self.network.state_dict()), {"agent": asdict(self.facts)})
        checkpoint.write_bytes(path.with_suffix(".md"), card(self.facts, use_file(self.facts, path.name)).encode())

    @classmethod
    def load(
        cls,
        path: Path,
        device: torch.device,
        env: EnvMaker | None = None,
        network: NetworkMaker | None = None,
        trust: bool = False,
    ) -> Agent:
        """The agent in a file. One trained on an environment or network of your own needs them again."""
        tensors, stored = checkpoint.read(path)
        try:
            facts = AgentFacts(**stored["agent"])
            config = Config.stored(facts.config)
            if not all(isinstance(word, str) for word in (facts.game, facts.preset, facts.network)):
                raise TypeError("names that are none")
        except (KeyError, TypeError) as problem:
            raise TightropeError(f"{path} is not an agent: {json.dumps(str(problem))}") from None
        if facts.game == "custom" and env is None:
            raise TightropeError(f"{path} plays an environment of its own: load it in Python with env=...")
        if facts.network == "custom" and network is None:
            raise TightropeError(f"{path} has a network of its own: load it in Python with network=...")
        if env is None:
            refuse_unknown_module(facts.game, path, trust)
        game = make_game(facts.game, 1, 0, GameOptions(sticky=config.sticky), env)
        game.close()
        kind = network or named_network(config.network, game.info)
        shape, actions = game.info.state_shape, game.info.num_actions
        net = build_network(kind, shape, actions, game.info.scale, 0, Form.of(config))
        try:
            net.load_state_dict(tensors)
        except RuntimeError as problem:
            raise TightropeError(f"{path} does not fit {facts.game}: {str(problem).splitlines()[-1].strip()}") from None
        return cls(net.to(device), game.info, facts, device, env)
