"""Epsilon-greedy acting for many environments at once; the stacks of frames live on the device.

Everything on the device works on the same tensors every time, so that it can be captured (fast.py).
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from tightrope.games.base import GameInfo


class Actor:
    def __init__(
        self,
        network: nn.Module,
        num_envs: int,
        info: GameInfo,
        device: torch.device,
        seed: int,
    ) -> None:
        self.network = network
        self.num_actions = info.num_actions
        self.state_shape = info.state_shape
        self.device = device
        dtype = torch.from_numpy(np.zeros(0, info.frame_dtype)).dtype
        cuda = device.type == "cuda"
        # What comes from the host: pinned memory there, so that nothing waits but for the actions.
        self._desk = torch.zeros(num_envs, *info.frame_shape, dtype=dtype, pin_memory=cuda)
        self.newest = torch.zeros(num_envs, *info.frame_shape, dtype=dtype, device=device)
        self.begins = torch.ones(num_envs, dtype=torch.bool, device=device)
        self.always_random = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self.epsilon = torch.ones((), device=device)
        self.frames = torch.zeros(num_envs, info.stack, *info.frame_shape, dtype=dtype, device=device)
        self.generator = torch.Generator(device).manual_seed(seed)
        # Sum and count of max_a Q at the first state of each episode: how fast reward reaches the start.
        self.start_values = torch.zeros(2, dtype=torch.float64, device=device)

    def observe(self, frames: np.ndarray, begins: np.ndarray) -> None:
        """The newest frames. Between two calls there must be an `act`, which waits until they have arrived."""
        self._desk.numpy()[:] = frames
        self.newest.copy_(self._desk, non_blocking=True)
        self.begins.copy_(torch.from_numpy(begins), non_blocking=True)
        self.shift()

    def shift(self) -> None:
        """The newest frames onto the stacks. Where an episode begins, older frames are blank: of another life."""
        older = self.frames[:, 1:] * ~self.begins.view(-1, *[1] * (self.frames.dim() - 1))
        self.frames[:, :-1] = older
        self.frames[:, -1] = self.newest

    @property
    def states(self) -> Tensor:
        return self.frames.view(len(self.frames), *self.state_shape)

    def act(self, epsilon: float, always_random: np.ndarray | None = None) -> np.ndarray:
        """An action for each environment, each with its own coin."""
        if epsilon >= 1.0:
            return self.toss()[1].cpu().numpy()
        self.epsilon.fill_(epsilon)
        if always_random is not None:
            self.always_random.copy_(torch.from_numpy(always_random), non_blocking=True)
        return self.choose().cpu().numpy()

    def toss(self) -> tuple[Tensor, Tensor]:
        """A coin and a random action for each environment."""
        size = (len(self.frames),)
        chance_N = torch.rand(size, generator=self.generator, device=self.device)
        return chance_N, torch.randint(self.num_actions, size, generator=self.generator, device=self.device)

    @torch.no_grad()
    def choose(self) -> Tensor:
        """The best action by the network, or with probability epsilon any."""
        chance_N, random_N = self.toss()
        q_NA = self.network(self.states)
        best_N = q_NA.argmax(1)
        begins_N = self.begins.to(torch.float64)
        self.start_values += torch.stack([(q_NA.amax(1) * begins_N).sum(), begins_N.sum()])
        return torch.where((chance_N < self.epsilon) | self.always_random, random_N, best_N)

    @torch.no_grad()
    def mean_values(self) -> np.ndarray:
        """The mean over actions of Q at the current states."""
        values: np.ndarray = self.network(self.states).mean(1).cpu().numpy()
        return values
