"""From gradients to weights. All numbers that change are tensors that stay in place, so that a step can be captured."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from tightrope.config import Config


class Optimiser(Protocol):
    def step(self, learning_rate: float | Tensor) -> None: ...

    def state(self) -> dict[str, Tensor]:
        """What it remembers, by name, for checkpoints."""


def _gradients(parameters: list[nn.Parameter]) -> list[Tensor]:
    return [p.grad if p.grad is not None else torch.zeros_like(p) for p in parameters]


class RMSProp:
    """DeepMind's centred RMSProp: w -= lr * g / sqrt(E[g^2] - E[g]^2 + eps), the epsilon inside the root."""

    def __init__(self, parameters: list[nn.Parameter], decay: float, epsilon: float) -> None:
        self.parameters = parameters
        self.decay = decay
        self.epsilon = epsilon
        self.mean = [torch.zeros_like(p) for p in parameters]
        self.square = [torch.zeros_like(p) for p in parameters]

    @torch.no_grad()
    def step(self, learning_rate: float | Tensor) -> None:
        gradients = _gradients(self.parameters)
        torch._foreach_lerp_(self.mean, gradients, 1 - self.decay)
        torch._foreach_mul_(self.square, self.decay)
        torch._foreach_addcmul_(self.square, gradients, gradients, 1 - self.decay)
        root = torch._foreach_mul(self.mean, self.mean)
        torch._foreach_neg_(root)
        torch._foreach_add_(root, self.square)
        torch._foreach_add_(root, self.epsilon)
        torch._foreach_sqrt_(root)
        change = torch._foreach_div(gradients, root)
        torch._foreach_mul_(change, learning_rate)
        torch._foreach_sub_(list(self.parameters), change)

    def state(self) -> dict[str, Tensor]:
        return _numbered("rms_mean", self.mean) | _numbered("rms_square", self.square)


class Adam:
    """Kingma and Ba, 2015, algorithm 1: w -= lr * m / (sqrt(v) + eps), both averages free of their start at zero."""

    def __init__(self, parameters: list[nn.Parameter], mean_decay: float, square_decay: float, epsilon: float) -> None:
        self.parameters = parameters
        self.mean_decay = mean_decay
        self.square_decay = square_decay
        self.epsilon = epsilon
        self.mean = [torch.zeros_like(p) for p in parameters]
        self.square = [torch.zeros_like(p) for p in parameters]
        self.steps = torch.zeros((), device=parameters[0].device)

    @torch.no_grad()
    def step(self, learning_rate: float | Tensor) -> None:
        gradients = _gradients(self.parameters)
        self.steps += 1
        torch._foreach_lerp_(self.mean, gradients, 1 - self.mean_decay)
        torch._foreach_mul_(self.square, self.square_decay)
        torch._foreach_addcmul_(self.square, gradients, gradients, 1 - self.square_decay)
        root = torch._foreach_div(self.square, 1 - self.square_decay**self.steps)
        torch._foreach_sqrt_(root)
        torch._foreach_add_(root, self.epsilon)
        change = torch._foreach_div(self.mean, root)
        torch._foreach_mul_(change, learning_rate / (1 - self.mean_decay**self.steps))
        torch._foreach_sub_(list(self.parameters), change)

    def state(self) -> dict[str, Tensor]:
        return _numbered("adam_mean", self.mean) | _numbered("adam_square", self.square) | {"adam_steps": self.steps}


def _numbered(name: str, tensors: list[Tensor]) -> dict[str, Tensor]:
    return {f"{name}.{i}": tensor for i, tensor in enumerate(tensors)}


def make_optimiser(parameters: list[nn.Parameter], config: Config) -> Optimiser:
    if config.optimiser == "adam":
        return Adam(parameters, config.adam_mean_decay, config.adam_square_decay, config.adam_epsilon)
    return RMSProp(parameters, config.rms_decay, config.rms_epsilon)


@torch.no_grad()
def limit_gradient(parameters: list[nn.Parameter], largest: float) -> None:
    """Shrinks all gradients alike, to a norm of at most `largest` over all of them together."""
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = torch.stack(torch._foreach_norm(gradients)).norm()
    # Not clip_grad_norm_: it adds 1e-6 to the norm, and so shrinks a gradient that is just within the limit.
    torch._foreach_mul_(gradients, largest / norm.clamp(min=largest))
