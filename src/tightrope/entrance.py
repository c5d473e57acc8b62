"""IMPALA's entrance, its first convolution and the pooling after it, as one kernel each way.

The convolution has few inputs and large images, and pooling throws three quarters of what it makes away. Here nothing
reaches memory but what is left after pooling, and frames are read where they lie, in the replay. What
comes behind it is stages.py.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import triton
from torch import Tensor
from torch.autograd.function import once_differentiable

from tightrope import entrance_kernels as kernels
from tightrope.fused import STACK, TYPES
from tightrope.network import QNetwork

# The fastest on an H200 of a few that were tried there, in bfloat16; with 64 pixels Triton would turn to Hopper's own
# matrix instructions, for which threads exchange all pixels first. In float32 what fits into the registers.
PIXELS = {torch.bfloat16: 32, torch.float32: 64}  # pooled ones of a program, forth
WARP = (16, 32)  # pixels and channels of a warp, forth
PIXELS_BACK = 32  # of a step of a program, back
PARTS = 264  # of a batch at most, over which gradients are summed first: two for each of an H200's 132 processors


def fits(network: QNetwork, frame_shape: tuple[int, ...], frame_dtype: torch.dtype, stack: int) -> bool:
    """Whether the kernels are this network's: IMPALA's on four frames, with a power of two of channels.

    The width must be even, for pixels are loaded in pairs: an odd one would tear these apart on every other line.
    """
    if network.kind != "impala" or (frame_shape[0], frame_dtype, stack) != (1, torch.uint8, STACK):
        return False
    if frame_shape[-1] % 2:
        return False
    channels = len(network.body[0].weight)  # type: ignore[index]
    return channels >= 16 and channels == triton.next_power_of_2(channels)


class Entrance(torch.autograd.Function):
    """From frames and the rows of states [states, 4] to pooled images [states, channels, (H + 1) / 2, W / 2]."""

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
        pixels = states * height * width
        span = triton.cdiv(pixels, PARTS * PIXELS_BACK) * PIXELS_BACK  # whole steps
        parts = triton.cdiv(pixels, span)
        gradient = torch.empty(parts, 3, STACK, 4, out, device=pull.device)
        kernels.back[parts,](
            pull.permute(0, 2, 3, 1).contiguous(), winners, frames, rows, gradient, ctx.scale, states,
            H=frames.shape[-2], W=frames.shape[-1], OUT=out, SPAN=span, BM=PIXELS_BACK, DT=TYPES[pull.dtype],
            num_warps=min(4, out // 8),
        )  # fmt: skip
        summed = gradient.sum(0)
        return None, None, summed[:, :, :3].permute(3, 1, 0, 2), summed[0, 0, 3], None, None


def enter(
    frames: Tensor, rows: Tensor, weight: Tensor, bias: Tensor, scale: float, dtype: torch.dtype, keep: bool = False
) -> tuple[Tensor, Tensor]:
    """The pooled images, channels last, and which corner each pixel is of, where that is to be kept."""
    height, width = frames.shape[-2:]
    shape = (len(rows), (height + 1) // 2, width // 2, len(weight))
    if math.prod(shape) >= 2**31:
        raise ValueError(f"{len(rows)} states at once: the kernels count what comes out in 32 bits")
    images = torch.empty(shape, dtype=dtype, device=rows.device)
    winners = torch.empty(shape if keep else 0, dtype=torch.uint8, device=rows.device)
    pixels = PIXELS[dtype]
    kernels.forth[triton.cdiv(images[..., 0].numel(), pixels),](
        frames, rows, weight, bias, images, winners, scale, len(rows), *weight.stride(),
        H=height, W=width, OUT=len(weight), KEEP=keep, BM=pixels, DT=TYPES[dtype],
        num_warps=pixels // WARP[0] * max(1, len(weight) // WARP[1]),
    )  # fmt: skip
    return images.permute(0, 3, 1, 2), winners
