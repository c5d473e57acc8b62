"""IMPALA's residual network (Espeholt et al., 2018), as Rainbow's successors use it: wider, spectrally normalised.

Schmidt and Schmied ("Fast and Data-Efficient Training of Rainbow", 2021) and BTR (Clark et al., 2024) multiply its
channels, normalise the convolutions of its residual blocks, and pool what comes out to 6x6.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHANNELS = (16, 32, 32)
BLOCKS = 2  # residual ones of a stage
POOLED = 6  # side of the last layer's images


class ResidualBlocks(nn.Module):
    """A stage's residual blocks, of two 3x3 convolutions each.

    All convolutions have one shape, and their weights lie in one tensor, one below the other: what is done to each of
    them, spectral normalisation above all, is then done to all at once, in fewer and larger kernels.

    Spectrally normalised (Miyato et al., 2018) means that each one's weights, seen as a matrix of rows for what comes
    out, are divided by their largest singular value. One power iteration after each change of the weights, not in each
    forward pass: so the value of a state does not depend on how often it was asked for, and a target network holds
    still.
    """

    left: Tensor  # [convolutions, out]: the singular vectors that the iteration has found
    right: Tensor  # [convolutions, in, 3, 3]

    def __init__(self, channels: int, spectral: bool) -> None:
        super().__init__()
        self.count, self.spectral = 2 * BLOCKS, spectral
        self.weight = nn.Parameter(torch.zeros(self.count * channels, channels, 3, 3))
        self.bias = nn.Parameter(torch.zeros(self.count * channels))
        if spectral:
            self.register_buffer("left", torch.full((self.count, channels), channels**-0.5))
            self.register_buffer("right", torch.full((self.count, channels, 3, 3), (9 * channels) ** -0.5))

    def each(self) -> Tensor:
        """[convolutions, out, in, 3, 3]"""
        return self.weight.view(self.count, -1, *self.weight.shape[1:])

    @torch.no_grad()
    def initialise(self, generator: torch.Generator) -> None:
        for weight in self.each():
            nn.init.xavier_uniform_(weight, generator=generator)
        self.bias.zero_()
        if self.spectral:
            for _ in range(20):  # later one a change will do: the weights change little
                self.iterate()

    # Products and sums, not matrix products: those would be rounded to bfloat16 where the rest is.

    @torch.no_grad()
    def iterate(self) -> None:
        weights = self.each()
        right = (weights * self.left[:, :, None, None, None]).sum(1)
        self.right.copy_(right / right.square().sum((1, 2, 3), keepdim=True).sqrt().clamp(min=1e-12))
        self.left.copy_(F.normalize((weights * self.right[:, None]).sum((2, 3, 4)), dim=1))

    def norms(self) -> Tensor:
        """The largest singular values as the power iteration knows them; their gradients reach the weights."""
        return ((self.each() * self.right[:, None]).sum((2, 3, 4)) * self.left).sum(1)

    def weights(self) -> Tensor:
        """Those that images are convolved with, [convolutions, out, in, 3, 3]."""
        weights = self.each()
        return weights / self.norms()[:, None, None, None, None] if self.spectral else weights

    def forward(self, images: Tensor) -> Tensor:
        convolutions = zip(self.weights(), self.bias.view(self.count, -1), strict=True)
        for _ in range(BLOCKS):
            inner = images
            for _ in range(2):
                inner = F.conv2d(F.relu(inner), *next(convolutions), padding=1)
            images = images + inner
        return images


def impala_trunk(shape: tuple[int, ...], width: int, spectral: bool) -> tuple[list[nn.Module], int]:
    """Layers from images to features, and how many features."""
    channels, *sides = shape
    layers: list[nn.Module] = []
    for outputs in (width * c for c in CHANNELS):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            ResidualBlocks(outputs, spectral),
        ]
        channels, sides = outputs, [(side + 1) // 2 for side in sides]
    layers.append(nn.ReLU())
    if min(sides) > POOLED:
        layers.append(nn.AdaptiveMaxPool2d(POOLED))
        sides = [POOLED, POOLED]
    return [*layers, nn.Flatten()], channels * math.prod(sides)
