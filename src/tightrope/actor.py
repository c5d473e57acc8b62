"""Epsilon-greedy acting for all environments at once; the stacks of frames live on the device."""

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
        self.frames = torch.zeros(num_envs, info.stack, *info.frame_shape, dtype=dtype, device=device)
        self.begins = torch.ones(num_envs, dtype=torch.bool, device=device)
        self.generator = torch.Generator(device).manual_seed(seed)
        # Sum and count of max_a Q at the first state of each episode: how fast reward reaches the start.
        self.start_values = torch.zeros(2, dtype=torch.float64, device=device)

    def observe(self, frames: np.ndarray | Tensor, begins: np.ndarray) -> None:
        """The newest frames. Where an episode begins, older frames are blank: they belong to another life."""
        self.begins = torch.as_tensor(begins, device=self.device)
        older = self.frames[:, 1:] * ~self.begins.view(-1, *[1] * (self.frames.dim() - 1))
        newest = torch.as_tensor(frames, device=self.device).unsqueeze(1)
        self.frames = torch.cat([older, newest], dim=1)

    @property
    def states(self) -> Tensor:
        return self.frames.reshape(len(self.frames), *self.state_shape)

    @torch.no_grad()
    def act(self, epsilon: float, always_random: np.ndarray | None = None) -> np.ndarray:
        """An action for each environment, each with its own coin."""
        chance_N = torch.rand(len(self.frames), generator=self.generator, device=self.device)
        random_N = torch.randint(self.num_actions, (len(self.frames),), generator=self.generator, device=self.device)
        if epsilon >= 1.0:
            return random_N.cpu().numpy()
        q_NA = self.network(self.states)
        best_N = q_NA.argmax(1)
        begins_N = self.begins.to(torch.float64)
        self.start_values += torch.stack([(q_NA.amax(1) * begins_N).sum(), begins_N.sum()])
        explore_N = chance_N < epsilon
        if always_random is not None:
            explore_N |= torch.as_tensor(always_random, device=self.device)
        return torch.where(explore_N, random_N, best_N).cpu().numpy()

    @torch.no_grad()
    def mean_values(self) -> np.ndarray:
        """The mean over actions of Q at the current states."""
        values: np.ndarray = self.network(self.states).mean(1).cpu().numpy()
        return values

    def read_start_value(self) -> float | None:
        """Mean value of the episodes' first states since the last reading; None if none began."""
        total, count = self.start_values.tolist()
        self.start_values.zero_()
        return total / count if count else None
