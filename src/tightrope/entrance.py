"""IMPALA's entrance, its first convolution and the pooling after it, as one kernel each way.

The convolution has few inputs and large images, and pooling throws three quarters of what it makes away. Here nothing
reaches memory but what is left after pooling, and frames are read where they lie, in the replay. stages.py goes on from
there.
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

# The fastest on an H200 of a few that were tried there, in bfloat16; with 64 pixels Triton would turn to Hopper's own
# matrix instructions, for which threads exchange all pixels first. In float32 nothing was timed.
PIXELS = {torch.bfloat16: 32, torch.float32: 64}  # pooled ones of a program, forth
WARP_PIXELS, WARP_CHANNELS = 16, 32  # of a warp, forth
PIXELS_BACK = 32  # of a step of a program, back
PARTS = 264  # of a batch at most, over which gradients are summed first: two for each of an H200's 132 processors


class Entrance(torch.autograd.Function):
    """From frames and the rows of states [states, 4] to pooled images [states, (H + 1) / 2, W / 2, channels]."""

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
            pull.contiguous(), winners, frames, rows, gradient, ctx.scale, states,
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
    check_size(shape)
    images = torch.empty(shape, dtype=dtype, device=rows.device)
    winners = torch.empty(shape if keep else 0, dtype=torch.uint8, device=rows.device)
    pixels = PIXELS[dtype]
    kernels.forth[triton.cdiv(images[..., 0].numel(), pixels),](
        frames, rows, weight, bias, images, winners, scale, len(rows), *weight.stride(),
        H=height, W=width, OUT=len(weight), KEEP=keep, BM=pixels, DT=TYPES[dtype],
        num_warps=pixels // WARP_PIXELS * max(1, len(weight) // WARP_CHANNELS),
    )  # fmt: skip
    return images, winners


def check_size(shape: tuple[int, ...]) -> None:
    """Of images that a kernel makes."""
    if math.prod(shape) >= 2**31:
        raise ValueError(f"{shape[0]} states at once: the kernels count what comes out in 32 bits")
