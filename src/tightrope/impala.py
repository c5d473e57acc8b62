"""IMPALA's residual network (Espeholt et al., 2018), as Rainbow's successors use it: wider, spectrally normalised.

Schmidt and Schmied ("Fast and Data-Efficient Training of Rainbow", 2021) and BTR (Clark et al., 2024) multiply its
channels, normalise the convolutions of its residual blocks, and pool what comes out to 6x6.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHANNELS = (16, 32, 32)
POOLED = 6  # side of the last layer's images


class SpectralConv2d(nn.Conv2d):
    """A convolution whose weights, seen as a matrix, are divided by their largest singular value (Miyato et al., 2018).

    One power iteration after each change of the weights, not in each forward pass: so the value of a state does not
    depend on how often it was asked for, and a target network holds still.
    """

    left: Tensor
    right: Tensor

    def __init__(self, channels: int, outputs: int, size: int, padding: int) -> None:
        super().__init__(channels, outputs, size, padding=padding)
        matrix = self.weight.detach().flatten(1)
        self.register_buffer("left", F.normalize(torch.ones(matrix.shape[0]), dim=0))
        self.register_buffer("right", F.normalize(torch.ones(matrix.shape[1]), dim=0))

    @torch.no_grad()
    def iterate(self) -> None:
        matrix = self.weight.flatten(1)
        self.right.copy_(F.normalize((matrix * self.left[:, None]).sum(0), dim=0))
        self.left.copy_(F.normalize((matrix * self.right).sum(1), dim=0))

    def norm(self) -> Tensor:
        """The largest singular value as the power iteration knows it; its gradient reaches the weights."""
        # Products and sums, not a matrix product: that would be rounded to bfloat16 where the rest is.
        return ((self.weight.flatten(1) * self.right).sum(1) * self.left).sum()

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self._conv_forward(images, self.weight / self.norm(), self.bias)
        return outputs


class Residual(nn.Module):
    def __init__(self, channels: int, spectral: bool) -> None:
        super().__init__()
        kind = SpectralConv2d if spectral else nn.Conv2d
        self.first = kind(channels, channels, 3, padding=1)
        self.second = kind(channels, channels, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        inner: Tensor = self.second(F.relu(self.first(F.relu(images))))
        return images + inner


def impala_trunk(shape: tuple[int, ...], width: int, spectral: bool) -> tuple[list[nn.Module], int]:
    """Layers from images to features, and how many features."""
    channels, *sides = shape
    layers: list[nn.Module] = []
    for outputs in (width * c for c in CHANNELS):
        layers += [
            nn.Conv2d(channels, outputs, 3, padding=1),
            nn.MaxPool2d(3, stride=2, padding=1),
            Residual(outputs, spectral),
            Residual(outputs, spectral),
        ]
        channels, sides = outputs, [(side + 1) // 2 for side in sides]
    layers.append(nn.ReLU())
    if min(sides) > POOLED:
        layers.append(nn.AdaptiveMaxPool2d(POOLED))
        sides = [POOLED, POOLED]
    return [*layers, nn.Flatten()], channels * sides[0] * sides[1]
