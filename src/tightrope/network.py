"""Q-functions: a batch of states in, a value for each action out."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cached_property

import torch
from torch import Tensor, nn

from tightrope.errors import TightropeError
from tightrope.games.base import GameInfo

#: Builds the body of a network of the user's own: (shape of a state, number of actions) -> module.
NetworkMaker = Callable[[tuple[int, ...], int], nn.Module]


class QNetwork(nn.Module):
    """Scales raw states to floats and hands them to a body that values the actions."""

    def __init__(self, body: nn.Module, scale: float, kind: str = "custom") -> None:
        super().__init__()
        self.body = body
        self.scale = scale
        self.kind = kind  # one of BODIES, or a user's own
        self.use_bfloat16 = False  # multiply in bfloat16

    def forward(self, states: Tensor) -> Tensor:
        # Images with their channels last: a third faster on a CPU, and what a GPU's convolutions want.
        layout = torch.channels_last if states.dim() == 4 else torch.contiguous_format
        inputs = states.to(torch.float32, memory_format=layout)
        with torch.autocast(states.device.type, torch.bfloat16, enabled=self.use_bfloat16):
            values: Tensor = self.body(inputs if self.scale == 1 else inputs * self.scale)
        return values.float()

    def at(self, frames: Tensor, rows: Tensor) -> Tensor:
        """Values [..., actions] of the states whose frames lie in these rows [..., stack]."""
        values: Tensor = self(stacked(frames, rows.flatten(0, -2)))
        return values.view(*rows.shape[:-1], -1)

    def taken(self, frames: Tensor, rows: Tensor, actions: Tensor) -> Tensor:
        """The value of one action in each of the states."""
        return self.at(frames, rows).gather(1, actions[:, None])[:, 0]

    def refresh(self) -> None:
        """Called after every change of the weights, for forms of a network that keep a copy of them."""

    @torch.no_grad()
    def follow(self, other: QNetwork) -> None:
        """Takes over the weights of a network of the same kind."""
        torch._foreach_copy_(self.tensors, other.tensors)
        self.refresh()

    @cached_property
    def tensors(self) -> list[Tensor]:
        """All that is learned or kept, on the device where the network is by now: looked up once, for speed."""
        return [*self.parameters(), *self.buffers()]


def stacked(frames: Tensor, rows: Tensor) -> Tensor:
    """States from their frames [rows, channels, ...]: [..., stack] -> [..., stack * channels, ...]. Row -1 is blank."""
    picked = frames[rows.clamp(min=0)]
    picked = picked * (rows >= 0).view(*rows.shape, *[1] * (frames.dim() - 1))
    return picked.flatten(rows.dim() - 1, rows.dim())


def paper_body(shape: tuple[int, ...], num_actions: int) -> nn.Module:
    """The Nature network, for images of at least 36x36: three convolutions, 512 units."""
    channels, height, width = shape
    side_h, side_w = ((((s - 8) // 4 + 1 - 4) // 2 + 1) - 2 for s in (height, width))
    return nn.Sequential(
        nn.Conv2d(channels, 32, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * side_h * side_w, 512),
        nn.ReLU(),
        nn.Linear(512, num_actions),
    )


def small_body(shape: tuple[int, ...], num_actions: int) -> nn.Module:
    """For small images, as MinAtar's own agent: one 3x3 convolution of 16 filters, 128 units."""
    channels, height, width = shape
    return nn.Sequential(
        nn.Conv2d(channels, 16, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * (height - 2) * (width - 2), 128),
        nn.ReLU(),
        nn.Linear(128, num_actions),
    )


def mlp_body(shape: tuple[int, ...], num_actions: int) -> nn.Module:
    """For vectors: two layers of 128 units."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(shape), 128),
        nn.ReLU(),
        nn.Linear(128, 128),
        nn.ReLU(),
        nn.Linear(128, num_actions),
    )


BODIES: dict[str, NetworkMaker] = {"paper": paper_body, "small": small_body, "mlp": mlp_body}


def check_outputs(network: QNetwork, info: GameInfo) -> None:
    """A network of the user's own must value each action."""
    states = torch.zeros(2, *info.state_shape)
    try:
        with torch.no_grad():
            shape = tuple(network(states).shape)
    except RuntimeError as problem:
        raise TightropeError(f"network: it does not take states of shape {info.state_shape}: {problem}") from None
    if shape != (2, info.num_actions):
        raise TightropeError(
            f"network: for 2 states it gives values of shape {shape}; {info.name} needs (2, {info.num_actions}), one "
            "for each action"
        )


def named_network(name: str, info: GameInfo) -> str:
    """Which of our bodies a game gets; one that its states do not fit is refused."""
    if name == "auto":
        return info.network
    image = len(info.state_shape) == 3
    side = min(info.state_shape[1:], default=0)
    fits = {"mlp": True, "small": image and side >= 3, "paper": image and side >= 36}
    if not fits[name]:
        raise TightropeError(f"network = {name!r}: needs larger images than {info.name}'s states {info.state_shape}")
    return name


def initialise(module: nn.Module, generator: torch.Generator, zero_head: bool) -> None:
    """The released program's start: weights uniform in +-sqrt(3 / fan-in), biases 0.1.

    With `zero_head` the last layer starts at zero: then every value that is not zero is reward that has travelled.
    """
    layers = [part for part in module.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
    with torch.no_grad():
        for layer in layers:
            limit = math.sqrt(3.0 / layer.weight[0].numel())
            layer.weight.uniform_(-limit, limit, generator=generator)
            assert layer.bias is not None
            layer.bias.fill_(0.1)
        if zero_head:
            for parameter in layers[-1].parameters():
                parameter.zero_()


def build_network(
    kind: str | NetworkMaker, state_shape: tuple[int, ...], num_actions: int, scale: float, seed: int
) -> QNetwork:
    """A Q-network on the CPU. One of ours is initialised from `seed`; a user's own initialises itself."""
    if callable(kind):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = QNetwork(kind(state_shape, num_actions), scale)
    else:
        network = QNetwork(BODIES[kind](state_shape, num_actions), scale, kind)
        initialise(network, torch.Generator().manual_seed(seed), zero_head=kind != "paper")
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network
