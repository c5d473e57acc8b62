"""IMPALA's entrance, its first convolution and the pooling after it, as one kernel each way.

The convolution has few inputs and large images, and pooling throws three quarters of what it makes away. Here nothing
reaches memory but what is left after pooling, and frames are read where they lie, in the replay. The rest of the
network is compiled as any other.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tightrope import entrance_kernels as kernels
from tightrope.fused import STACK, TYPES
from tightrope.network import ImplicitBody, QNetwork

# The fastest on an H200 of a few that were tried there.
PIXELS = 64  # pooled ones of a program, forth
PIXELS_BACK = 32  # of a step of a program, back
PARTS = 176  # of a batch, over which gradients are summed first


def fits(network: QNetwork, frame_shape: tuple[int, ...], frame_dtype: torch.dtype, stack: int) -> bool:
    """Whether the kernels are this network's: IMPALA's on four frames, with a power of two of channels."""
    if network.kind != "impala" or (frame_shape[0], frame_dtype, stack) != (1, torch.uint8, STACK):
        return False
    channels = len(network.body[0].weight)  # type: ignore[index]
    return channels >= 16 and channels == triton.next_power_of_2(channels)


class Entrance(torch.autograd.Function):
    """From frames and the rows of states [states, 4] to pooled images [states, channels, (H + 1) / 2, (W + 1) / 2]."""

    @staticmethod
    def forward(
        ctx: Any, frames: Tensor, rows: Tensor, weight: Tensor, bias: Tensor, scale: float, dtype: torch.dtype
    ) -> Tensor:
        images, winners = enter(frames, rows, weight, bias, scale, dtype, keep=True)
        ctx.save_for_backward(frames, rows, winners)
        ctx.scale = scale
        return images

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        frames, rows, winners = ctx.saved_tensors
        states, height, width, out = winners.shape
        gradient = torch.empty(PARTS, 3, 49 * out, device=pull.device)
        kernels.back[PARTS, 3](
            pull.permute(0, 2, 3, 1).contiguous(), winners, frames, rows, gradient, ctx.scale, states,
            H=frames.shape[-2], W=frames.shape[-1], OUT=out, SPAN=triton.cdiv(states * height * width, PARTS),
            BM=PIXELS_BACK, DT=TYPES[pull.dtype],
        )  # fmt: skip
        summed = gradient.sum((0, 1))
        weight = summed[: 48 * out].view(3, STACK, 4, out)[:, :, :3].permute(3, 1, 0, 2)
        return None, None, weight, summed[48 * out :], None, None


def enter(
    frames: Tensor, rows: Tensor, weight: Tensor, bias: Tensor, scale: float, dtype: torch.dtype, keep: bool = False
) -> tuple[Tensor, Tensor]:
    """The pooled images, channels last, and which corner each pixel is of, where that is to be kept."""
    height, width = frames.shape[-2:]
    shape = (len(rows), (height + 1) // 2, (width + 1) // 2, len(weight))
    if math.prod(shape) >= 2**31:
        raise ValueError(f"{len(rows)} states at once: the kernels count what comes out in 32 bits")
    images = torch.empty(shape, dtype=dtype, device=rows.device)
    winners = torch.empty(shape if keep else 0, dtype=torch.uint8, device=rows.device)
    kernels.forth[triton.cdiv(images[..., 0].numel(), PIXELS),](
        frames, rows, weight, bias, images, winners, scale, len(rows), *weight.stride(),
        H=height, W=width, OUT=len(weight), KEEP=keep, BM=PIXELS, DT=TYPES[dtype],
    )  # fmt: skip
    return images.permute(0, 3, 1, 2), winners


class EntranceNetwork(QNetwork):
    """IMPALA's network over the same parameters."""

    def __init__(self, network: QNetwork, dtype: torch.dtype, **options: Any) -> None:
        super().__init__(network.body, network.scale, network.kind, network.form)
        assert isinstance(network.body, nn.Sequential)
        self.dtype = dtype
        first, rest = network.body[0], network.body[2:]
        assert isinstance(first, nn.Conv2d)
        assert first.bias is not None
        self.first = (first.weight, first.bias)

        def finish(images: Tensor, levels: Tensor | None) -> Tensor:
            with torch.autocast(images.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
                outputs: Tensor = rest(images, levels) if isinstance(rest, ImplicitBody) else rest(images)
            return outputs.float()

        self.finish = torch.compile(finish, **options)

    def outputs(self, states: Tensor, levels: Tensor | None = None) -> Tensor:
        frames = states.contiguous().view(-1, 1, *states.shape[-2:])
        return self.at(frames, torch.arange(len(frames), device=states.device).view(-1, STACK), levels)

    def at(self, frames: Tensor, rows: Tensor, levels: Tensor | None = None) -> Tensor:
        weight, bias = self.first
        states = rows.contiguous().view(-1, STACK)  # the kernels know of no strides
        if torch.is_grad_enabled():
            images: Tensor = Entrance.apply(frames, states, weight, bias, self.scale, self.dtype)  # type: ignore[no-untyped-call]
        else:
            images, _ = enter(frames, states, weight, bias, self.scale, self.dtype)
        outputs: Tensor = self.finish(images, levels)
        return outputs.view(*rows.shape[:-1], *outputs.shape[1:])
