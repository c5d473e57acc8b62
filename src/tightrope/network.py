"""Q-functions: a batch of states in, a value for each action out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from tightrope.config import Config
from tightrope.errors import TightropeError
from tightrope.games.base import GameInfo
from tightrope.impala import ResidualBlocks, impala_trunk
from tightrope.targets import midpoints, of_actions

#: Builds the body of a network of the user's own: (shape of a state, number of actions) -> module.
NetworkMaker = Callable[[tuple[int, ...], int], nn.Module]


@dataclass(frozen=True)
class Form:
    """How one of our networks is built, beside its kind."""

    dueling: bool = False
    quantiles: int = 0  # of each action's return; 0: its mean alone
    width: int = 1  # of network impala, like the last
    spectral_norm: bool = False
    implicit: bool = False  # quantiles at any level

    @classmethod
    def of(cls, config: Config) -> Form:
        return cls(config.dueling, config.quantiles, config.width, config.spectral_norm, config.implicit)


class QNetwork(nn.Module):
    """Scales raw states to floats and hands them to a body that values the actions.

    What the body gives is an *output*: a number for each action, or its quantiles, whose mean is the action's value.
    """

    def __init__(self, body: nn.Module, scale: float, kind: str = "custom", form: Form = Form()) -> None:  # noqa: B008
        super().__init__()
        self.body = body
        self.scale = scale
        self.kind = kind  # one of TRUNKS, or a user's own
        self.form = form
        self.use_bfloat16 = False  # multiply in bfloat16
        self.spectral = [part for part in body.modules() if isinstance(part, ResidualBlocks) and part.spectral]

    def outputs(self, states: Tensor, levels: Tensor | None = None) -> Tensor:
        """[states, actions], with quantiles [states, actions, quantiles]. Implicit ones are those at these levels
        [states, quantiles], or at evenly spaced ones."""
        # Images with their channels last: a third faster on a CPU, and what a GPU's convolutions want.
        layout = torch.channels_last if states.dim() == 4 else torch.contiguous_format
        inputs = states.to(torch.float32, memory_format=layout)
        with torch.autocast(states.device.type, torch.bfloat16, enabled=self.use_bfloat16):
            inputs = inputs if self.scale == 1 else inputs * self.scale
            outputs: Tensor = self.body(inputs) if levels is None else self.body(inputs, levels)
        return outputs.float()

    def forward(self, states: Tensor) -> Tensor:
        """The value of each action."""
        outputs = self.outputs(states)
        return outputs.mean(-1) if self.form.quantiles else outputs

    def at(self, frames: Tensor, rows: Tensor, levels: Tensor | None = None) -> Tensor:
        """Outputs [..., actions (, quantiles)] of the states whose frames lie in these rows [..., stack]."""
        outputs: Tensor = self.outputs(stacked(frames, rows.flatten(0, -2)), levels)
        return outputs.view(*rows.shape[:-1], *outputs.shape[1:])

    def taken(self, frames: Tensor, rows: Tensor, actions: Tensor, levels: Tensor | None = None) -> Tensor:
        """The output of one action in each of the states."""
        return of_actions(self.at(frames, rows, levels), actions)

    def refresh(self) -> None:
        """Called after every change of the weights, for what is kept of them elsewhere."""
        for part in self.spectral:
            part.iterate()

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


# A network is a trunk, which finds a state's features, and a head, which values the actions by them.


def paper_trunk(shape: tuple[int, ...], form: Form) -> tuple[list[nn.Module], int]:
    """The Nature network's three convolutions, for images of at least 36x36."""
    channels, height, width = shape
    side_h, side_w = ((((s - 8) // 4 + 1 - 4) // 2 + 1) - 2 for s in (height, width))
    layers = [
        nn.Conv2d(channels, 32, 8, stride=4),
        nn.ReLU(),
        nn.Conv2d(32, 64, 4, stride=2),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3),
        nn.ReLU(),
        nn.Flatten(),
    ]
    return layers, 64 * side_h * side_w


def small_trunk(shape: tuple[int, ...], form: Form) -> tuple[list[nn.Module], int]:
    """For small images, as MinAtar's own agent: one 3x3 convolution of 16 filters."""
    channels, height, width = shape
    return [nn.Conv2d(channels, 16, 3), nn.ReLU(), nn.Flatten()], 16 * (height - 2) * (width - 2)


def mlp_trunk(shape: tuple[int, ...], form: Form) -> tuple[list[nn.Module], int]:
    """For vectors: a layer of 128 units."""
    return [nn.Flatten(), nn.Linear(math.prod(shape), 128), nn.ReLU()], 128


def residual_trunk(shape: tuple[int, ...], form: Form) -> tuple[list[nn.Module], int]:
    return impala_trunk(shape, form.width, form.spectral_norm)


#: By kind: the trunk, and the units of the head's hidden layer.
TRUNKS: dict[str, tuple[Callable[[tuple[int, ...], Form], tuple[list[nn.Module], int]], int]] = {
    "paper": (paper_trunk, 512),
    "small": (small_trunk, 128),
    "mlp": (mlp_trunk, 128),
    "impala": (residual_trunk, 512),
}


class Dueling(nn.Module):
    """Wang et al., 2016, equation 9: Q(s, a) = V(s) + A(s, a) - mean over actions of A(s, .), quantile by quantile."""

    def __init__(self, features: int, hidden: int, num_actions: int, quantiles: int) -> None:
        super().__init__()
        self.value = _stream(features, hidden, 1, quantiles)
        self.advantage = _stream(features, hidden, num_actions, quantiles)

    def forward(self, features: Tensor) -> Tensor:
        advantage: Tensor = self.advantage(features)
        value: Tensor = self.value(features)
        return value + advantage - advantage.mean(1, keepdim=True)


def _stream(features: int, hidden: int, actions: int, quantiles: int) -> nn.Sequential:
    """A hidden layer and an output for each action."""
    layers = [nn.Linear(features, hidden), nn.ReLU(), nn.Linear(hidden, actions * max(1, quantiles))]
    return nn.Sequential(*layers, nn.Unflatten(1, (actions, quantiles))) if quantiles else nn.Sequential(*layers)


class Implicit(nn.Module):
    """Implicit quantiles (Dabney et al., 2018): a head that values the actions at any level tau of their returns.

    The features are multiplied by an embedding of the level, ReLU(W cos(pi i tau) + b), i = 0..63, and go on through
    the head that there would be without quantiles.
    """

    COSINES = 64

    def __init__(self, features: int, head: nn.Module, quantiles: int) -> None:
        super().__init__()
        self.embedding = nn.Linear(self.COSINES, features)
        self.head = head
        self.quantiles = quantiles

    def forward(self, features: Tensor, levels: Tensor | None = None) -> Tensor:
        if levels is None:
            levels = midpoints(self.quantiles, features).expand(len(features), -1)
        waves = torch.pi * torch.arange(self.COSINES, device=features.device)
        embedded = torch.relu(self.embedding(torch.cos(levels[..., None] * waves)))
        outputs: Tensor = self.head((features[:, None] * embedded).flatten(0, 1))
        return outputs.view(*levels.shape, -1).transpose(1, 2)


class ImplicitBody(nn.Sequential):
    """A trunk and an implicit head."""

    def forward(self, inputs: Tensor, levels: Tensor | None = None) -> Tensor:
        *trunk, head = self
        for layer in trunk:
            inputs = layer(inputs)
        outputs: Tensor = head(inputs, levels)
        return outputs


def make_body(kind: str, shape: tuple[int, ...], num_actions: int, form: Form) -> nn.Module:
    trunk, hidden = TRUNKS[kind]
    layers, features = trunk(shape, form)
    if form.implicit:
        plain = (features, hidden, num_actions, 0)
        head = Dueling(*plain) if form.dueling else _stream(*plain)
        return ImplicitBody(*layers, Implicit(features, head, form.quantiles))
    if form.dueling:
        return nn.Sequential(*layers, Dueling(features, hidden, num_actions, form.quantiles))
    return nn.Sequential(*layers, *_stream(features, hidden, num_actions, form.quantiles))


def check_outputs(network: QNetwork, info: GameInfo) -> None:
    """A network of the user's own must value each action."""
    states = torch.zeros(2, *info.state_shape)
    try:
        with torch.no_grad():
            shape = tuple(network(states).shape)
    except Exception as problem:  # whatever a user's own code raises
        what = f"{type(problem).__name__}: {problem}"
        raise TightropeError(f"network: it does not take states of shape {info.state_shape}: {what}") from None
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
    fits = {"mlp": True, "small": image and side >= 3, "paper": image and side >= 36, "impala": image and side >= 8}
    if not fits[name]:
        other = " (preset tightrope-small has the game's usual network)" if name == "impala" else ""
        raise TightropeError(
            f"network = {name!r}: needs larger images than {info.name}'s states {info.state_shape}{other}"
        )
    return name


def initialise(module: nn.Module, generator: torch.Generator, zero_head: bool) -> None:
    """The released program's start: weights uniform in +-sqrt(3 / fan-in), biases 0.1.

    With `zero_head` the last layer starts at zero: then every value that is not zero is reward that has travelled.
    """
    with torch.no_grad():
        for layer in _layers(module):
            limit = math.sqrt(3.0 / layer.weight[0].numel())
            layer.weight.uniform_(-limit, limit, generator=generator)
            assert layer.bias is not None
            layer.bias.fill_(0.1)
        if zero_head:
            for stream in [part for part in module.modules() if isinstance(part, Dueling)]:
                for parameter in _layers(stream.value)[-1].parameters():
                    parameter.zero_()
            for parameter in _layers(module)[-1].parameters():
                parameter.zero_()


def initialise_impala(module: nn.Module, generator: torch.Generator) -> None:
    """Dopamine's start for this network: weights uniform in +-sqrt(6 / (fan-in + fan-out)), biases 0."""
    for part in module.modules():
        if isinstance(part, ResidualBlocks):
            part.initialise(generator)
        elif isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(part.weight, generator=generator)
            assert part.bias is not None
            nn.init.zeros_(part.bias)


def _layers(module: nn.Module) -> list[nn.Conv2d | nn.Linear]:
    """All layers with weights but residual blocks, the head's last."""
    return [part for part in module.modules() if isinstance(part, nn.Conv2d | nn.Linear)]


def build_network(
    kind: str | NetworkMaker,
    state_shape: tuple[int, ...],
    num_actions: int,
    scale: float,
    seed: int,
    form: Form = Form(),  # noqa: B008
) -> QNetwork:
    """A Q-network on the CPU. One of ours is initialised from `seed`; a user's own initialises itself."""
    if callable(kind):
        if form.dueling or form.quantiles:
            raise TightropeError("dueling, quantiles: a network of your own has a head of its own; set neither")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = QNetwork(kind(state_shape, num_actions), scale)
    else:
        network = QNetwork(make_body(kind, state_shape, num_actions, form), scale, kind, form)
        generator = torch.Generator().manual_seed(seed)
        if kind == "impala":
            initialise_impala(network, generator)
        else:
            initialise(network, generator, zero_head=kind != "paper")
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return network
