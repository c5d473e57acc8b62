"""The same work by other programs, beside ours: agent steps a second of plain DQN on one Atari game.

Everyone has the Nature network, batches of 32, one update for every 4 steps, 20,000 rows of replay and a target network
that follows every 200 steps: a fiftieth of the paper's numbers, so that ours, which on a CPU remembers what its target
network said, gains no more by it than it would there. On a GPU ours multiplies bfloat16 and the others float32.
Stable-Baselines3 is asked through its own interface. CleanRL is a file to be copied, not a package: what is measured is
a loop of our own in its manner, one environment, Gymnasium's wrappers, and the replay buffer that it uses, which is
Stable-Baselines3's.
"""

from __future__ import annotations

import importlib.metadata
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from tightrope.config import preset
from tightrope.errors import TightropeError
from tightrope.network import Form, make_body
from tightrope.run import Description, RunFolder
from tightrope.trainer import Trainer

ROWS, TARGET_EVERY = 20_000, 200

#: Works for about so many seconds and says how many steps of the agent that were.
Contestant = Callable[[float], int]


def check() -> str:
    """That Stable-Baselines3 is there: its version."""
    try:
        importlib.metadata.version("opencv-python-headless")
        return importlib.metadata.version("stable-baselines3")
    except importlib.metadata.PackageNotFoundError as missing:
        raise TightropeError(f"--peers needs {missing.name}: pip install 'tightrope[peers]'") from None


def compare(game: str, device: torch.device, seconds: float, rounds: int) -> dict[str, Any]:
    """Steps a second of each, in turns; medians over the rounds."""
    version = check()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        contestants: dict[str, Contestant] = {
            "tightrope dqn, 1 environment": ours(game, device, here / "a", 1, bounds=False),
            "tightrope dqn, 8 environments": ours(game, device, here / "b", 8, bounds=False),
            "tightrope tightened, 8 environments": ours(game, device, here / "c", 8, bounds=True),
            "stable-baselines3 DQN, 1 environment": stable_baselines(game, device, 1),
            "stable-baselines3 DQN, 8 environments": stable_baselines(game, device, 8),
            "in the manner of CleanRL's dqn_atari, 1 environment": in_cleanrls_manner(game, device),
        }
        for name, work in contestants.items():
            played = 0
            # Ours begins to learn when its replay is full; what the others' cost does not depend on that.
            while played <= (ROWS if name.startswith("tightrope") else 1000):
                played += work(1.0)
            work(1.0)
        measured: dict[str, list[float]] = {name: [] for name in contestants}
        for _ in range(rounds):
            for name, work in contestants.items():
                began = time.perf_counter()
                steps = work(seconds)
                measured[name].append(steps / (time.perf_counter() - began))
    return {
        "stable_baselines3": version,
        "steps_per_second": {name: statistics.median(rates) for name, rates in measured.items()},
        "range": {name: [min(rates), max(rates)] for name, rates in measured.items()},
    }


def ours(game: str, device: torch.device, folder: Path, num_envs: int, bounds: bool) -> Contestant:
    name = "paper" if bounds else "dqn"
    config = preset(name).replace(
        num_envs=num_envs, replay_rows=ROWS, learn_start_steps=ROWS, target_every_steps=TARGET_EVERY,
        eval_every_epochs=0, save_replay=False,
    )  # fmt: skip
    trainer = Trainer(Description(game, name, 0, str(device), config), RunFolder(folder))
    trainer.start()

    def work(seconds: float) -> int:
        before, end = trainer.steps, time.perf_counter() + seconds
        while time.perf_counter() < end:
            trainer.step()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return trainer.steps - before

    return work


def stable_baselines(game: str, device: torch.device, num_envs: int) -> Contestant:
    from stable_baselines3 import DQN
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.env_util import make_atari_env
    from stable_baselines3.common.vec_env import VecFrameStack

    env = VecFrameStack(make_atari_env(environment_id(game), n_envs=num_envs, seed=0), n_stack=4)
    # One round of all environments, then as many updates as keep one for every 4 steps.
    every, updates = (4, 1) if num_envs == 1 else (1, num_envs // 4)
    model = DQN(
        "CnnPolicy", env, buffer_size=ROWS, learning_starts=1000, batch_size=32, train_freq=every,
        gradient_steps=updates, target_update_interval=TARGET_EVERY, exploration_fraction=1e-9,
        exploration_final_eps=0.1, device=device, seed=0,
    )  # fmt: skip

    class Until(BaseCallback):  # type: ignore[misc]
        def __init__(self, seconds: float) -> None:
            super().__init__()
            self.end = time.perf_counter() + seconds

        def _on_step(self) -> bool:
            return time.perf_counter() < self.end

    def work(seconds: float) -> int:
        before = model.num_timesteps
        model.learn(10**9, callback=Until(seconds), reset_num_timesteps=False, log_interval=10**9)
        return int(model.num_timesteps - before)

    return work


def in_cleanrls_manner(game: str, device: torch.device) -> Contestant:
    import gymnasium
    from gymnasium.wrappers import AtariPreprocessing, FrameStackObservation
    from stable_baselines3.common.buffers import ReplayBuffer

    env: Any = gymnasium.make(environment_id(game))
    env = FrameStackObservation(AtariPreprocessing(env), 4)
    actions = int(env.action_space.n)
    online, target = (make_body("paper", (4, 84, 84), actions, Form()).to(device) for _ in range(2))
    optimiser = torch.optim.Adam(online.parameters(), lr=1e-4)
    buffer = ReplayBuffer(
        ROWS, env.observation_space, env.action_space, device, optimize_memory_usage=True,
        handle_timeout_termination=False,
    )  # fmt: skip
    rng = np.random.default_rng(0)
    state: Any = env.reset(seed=0)[0]
    steps = 0

    def learn() -> None:
        batch = buffer.sample(32)
        with torch.no_grad():
            ahead = target(batch.next_observations / 255).amax(1)
            goal = batch.rewards.flatten() + 0.99 * ahead * (1 - batch.dones.flatten())
        value = online(batch.observations / 255).gather(1, batch.actions).flatten()
        optimiser.zero_grad()
        nn.functional.mse_loss(value, goal).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    def work(seconds: float) -> int:
        nonlocal state, steps
        before, end = steps, time.perf_counter() + seconds
        while time.perf_counter() < end:
            if steps < 1000 or rng.random() < 0.1:
                action = int(rng.integers(actions))
            else:
                with torch.no_grad():
                    seen = torch.as_tensor(np.asarray(state)[None], device=device) / 255
                    action = int(online(seen).argmax())
            following, reward, terminated, truncated, _ = env.step(action)
            buffer.add(state, following, np.array([action]), np.array([reward]), np.array([terminated]), [{}])
            state = env.reset()[0] if terminated or truncated else following
            steps += 1
            if steps > 1000 and steps % 4 == 0:
                learn()
            if steps % TARGET_EVERY == 0:
                target.load_state_dict(online.state_dict())
        return steps - before

    return work


def environment_id(game: str) -> str:
    """The single-frame environment that others wrap."""
    import ale_py
    import gymnasium

    from tightrope.games.atari import find_rom

    gymnasium.register_envs(ale_py)
    rom = find_rom(game)
    if rom is None:
        raise TightropeError(f"--peers needs an Atari game; {game!r} is none")
    return "".join(word.capitalize() for word in rom.split("_")) + "NoFrameskip-v4"
