"""Epsilon-greedy acting for many environments at once; the stacks of frames live on the device.

Everything on the device works on the same tensors every time, so that it can be captured (fast.py). With a stream of
its own an actor never waits for the learner's work, only for the weights it was told to follow.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tightrope.games.base import GameInfo
from tightrope.network import QNetwork


class Desk:
    """What goes to the device and comes back, on the host's side; pinned, so that the copies are part of a graph."""

    def __init__(self, num_envs: int, frame_shape: tuple[int, ...], dtype: torch.dtype, pinned: bool) -> None:
        self.frames = torch.zeros(num_envs, *frame_shape, dtype=dtype, pin_memory=pinned)
        self.begins = torch.ones(num_envs, dtype=torch.bool, pin_memory=pinned)
        self.always_random = torch.zeros(num_envs, dtype=torch.bool, pin_memory=pinned)
        self.epsilon = torch.ones(1, pin_memory=pinned)
        self.actions = torch.zeros(num_envs, dtype=torch.int64, pin_memory=pinned)


class Actor:
    def __init__(
        self,
        network: QNetwork,
        num_envs: int,
        info: GameInfo,
        device: torch.device,
        seed: int,
        stream: torch.cuda.Stream | None = None,
    ) -> None:
        self.network = network
        self.stream = stream
        self.num_actions = info.num_actions
        self.state_shape = info.state_shape
        self.device = device
        dtype = torch.from_numpy(np.zeros(0, info.frame_dtype)).dtype
        self._desk = Desk(num_envs, info.frame_shape, dtype, pinned=device.type == "cuda")
        self.newest = torch.zeros(num_envs, *info.frame_shape, dtype=dtype, device=device)
        self.begins = torch.ones(num_envs, dtype=torch.bool, device=device)
        self.always_random = torch.zeros(num_envs, dtype=torch.bool, device=device)
        self.epsilon = torch.ones(1, device=device)
        self.frames = torch.zeros(num_envs, info.stack, *info.frame_shape, dtype=dtype, device=device)
        self.generator = torch.Generator(device).manual_seed(seed)
        # Sum and count of max_a Q at the first state of each episode: how fast reward reaches the start.
        self.start_values = torch.zeros(2, dtype=torch.float64, device=device)
        self._followed = torch.cuda.Event() if stream is not None else None  # type: ignore[no-untyped-call]
        if stream is not None:
            stream.wait_stream(torch.cuda.current_stream())  # which makes all these tensors

    def restart(self, seed: int) -> None:
        """As if new, with this seed; the network stays."""
        self.generator.manual_seed(seed)
        for tensor in (self.frames, self.always_random, self._desk.always_random, self.start_values):
            tensor.zero_()
        self.begins.fill_(True)

    def follow(self, network: QNetwork) -> None:
        """Acts by these weights from the next action on. Needs a network of its own to put them in."""
        self.network.follow(network)
        if self._followed is not None:
            self._followed.record()

    def observe(self, frames: np.ndarray, begins: np.ndarray) -> None:
        """The newest frames. Between two calls there must be an `act`, which waits until they have arrived."""
        self._desk.frames.numpy()[:] = frames
        self._desk.begins.numpy()[:] = begins
        with torch.cuda.stream(self.stream):
            self.take_in()

    def take_in(self) -> None:
        """The newest frames onto the stacks. Where an episode begins, older frames are blank: of another life."""
        self.newest.copy_(self._desk.frames, non_blocking=True)
        self.begins.copy_(self._desk.begins, non_blocking=True)
        older = self.frames[:, 1:] * ~self.begins.view(-1, *[1] * (self.frames.dim() - 1))
        self.frames[:, :-1] = older
        self.frames[:, -1] = self.newest

    @property
    def states(self) -> Tensor:
        return self.frames.view(len(self.frames), *self.state_shape)

    def act(self, epsilon: float, always_random: np.ndarray | None = None) -> np.ndarray:
        """An action for each environment, each with its own coin."""
        self._desk.epsilon.fill_(epsilon)
        if always_random is not None:
            self._desk.always_random.numpy()[:] = always_random
        with torch.cuda.stream(self.stream):
            if epsilon >= 1.0:
                self._desk.actions.copy_(self.toss()[1], non_blocking=True)
            else:
                if self._followed is not None:
                    self._followed.wait()
                self.choose()
            if self.device.type == "cuda":
                torch.cuda.current_stream().synchronize()
        return self._desk.actions.numpy().copy()

    def toss(self) -> tuple[Tensor, Tensor]:
        """A coin and a random action for each environment."""
        size = (len(self.frames),)
        chance_N = torch.rand(size, generator=self.generator, device=self.device)
        return chance_N, torch.randint(self.num_actions, size, generator=self.generator, device=self.device)

    @torch.no_grad()
    def choose(self) -> None:
        """The best action by the network, or with probability epsilon any."""
        self.epsilon.copy_(self._desk.epsilon, non_blocking=True)
        self.always_random.copy_(self._desk.always_random, non_blocking=True)
        chance_N, random_N = self.toss()
        q_NA = self.network(self.states)
        best_N = q_NA.argmax(1)
        begins_N = self.begins.to(torch.float64)
        self.start_values += torch.stack([(q_NA.amax(1) * begins_N).sum(), begins_N.sum()])
        explores_N = (chance_N < self.epsilon) | self.always_random
        self._desk.actions.copy_(torch.where(explores_N, random_N, best_N), non_blocking=True)

    @torch.no_grad()
    def mean_values(self) -> np.ndarray:
        """The mean over actions of Q at the current states."""
        with torch.cuda.stream(self.stream):
            if self._followed is not None:
                self._followed.wait()
            values: np.ndarray = self.network(self.states).mean(1).cpu().numpy()
        return values

    def take_start_values(self) -> tuple[float, float]:
        """Sum and count of the first states' values since the last time."""
        with torch.cuda.stream(self.stream):
            total, count = self.start_values.tolist()
            self.start_values.zero_()
        return total, count
