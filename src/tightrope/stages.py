"""IMPALA's stages as kernels (stage_kernels.py): a convolution and pooling, then residual blocks, forth and back.

A ReLU, a bias, what a block adds to its input and the ways back through them are done where a convolution reads or
writes its images, and so cost no pass over memory of their own. The first stage's convolution is entrance.py. What is
left of the network, its head above all, is compiled.

Here images lie channels last, [states, H, W, channels], and weights by their taps, [9, in, out].
"""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
import triton
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from tightrope import stage_kernels as kernels
from tightrope.entrance import Entrance, check_size, enter
from tightrope.fused import STACK
from tightrope.impala import BLOCKS, CHANNELS, ResidualBlocks
from tightrope.network import ImplicitBody, QNetwork

# The sizes are an H200's (experiments/block_sizes.py, results/bench), and what smaller GPUs can hold; two lines at once
# have not been timed by themselves.
PIXELS, FEW_PIXELS = 128, 64  # of a program; of one where there would not be one for each processor otherwise
PROCESSORS = 132
NARROW = 32  # channels up to which a program makes two lines of what comes out, from four that it reads instead of six
PIXELS_POOLED = 16  # of a program that pools
PIXELS_BACK = {torch.bfloat16: 64, torch.float32: 32}  # of a step of one that sums gradients
# They are summed over parts first: so many at most, half of them for small images; and pixels of a part at least.
MOST_PARTS, SMALL, SPAN = 132, 2**16, 128


def fits(network: QNetwork, frame_shape: tuple[int, ...], frame_dtype: torch.dtype, stack: int) -> bool:
    """Whether the kernels are this network's: IMPALA's on four frames of an even width, whose pixels come in pairs; of
    16 or 32 channels, then twice as many. With more, what a program holds would not fit into a processor."""
    known = (frame_shape[0], frame_dtype, stack) == (1, torch.uint8, STACK) and frame_shape[-1] % 2 == 0
    return network.kind == "impala" and network.form.width in (1, 2) and known


def convolve(
    images: Tensor,
    taps: Tensor,
    bias: Tensor | None = None,
    *,
    back: bool = False,
    relu_in: bool = False,
    relu_out: bool = False,
    gate: Tensor | None = None,
    more: Tensor | None = None,
) -> Tensor:
    """A convolution, or its gradient from what came out to what went in, and what stands around it: see the kernel."""
    states, height, width, into = images.shape
    out = taps.shape[1] if back else taps.shape[2]
    made = torch.empty(states, height, width, out, dtype=images.dtype, device=images.device)
    check_size(made.shape)
    pixels = states * height * width
    block = PIXELS if pixels >= PIXELS * PROCESSORS else FEW_PIXELS
    lines = 2 if out <= NARROW and pixels >= 2 * PIXELS * PROCESSORS else 1
    kernels.convolve[triton.cdiv(states * triton.cdiv(height, lines) * width, block),](
        images, taps, bias, gate, more, made, pixels, H=height, W=width, IN=into, OUT=out, BACK=back, RELU_IN=relu_in,
        BIAS=bias is not None, RELU_OUT=relu_out, GATE=gate is not None, MORE=more is not None,
        LINES=lines, BM=block,
    )  # fmt: skip
    return made


def taps_back(images: Tensor, pull: Tensor, relu_in: bool, gradient: Tensor) -> None:
    """The gradients of a convolution's taps and bias into `gradient`, of the form of `parts_for`."""
    states, height, width, into = images.shape
    pixels, parts, step = states * height * width, len(gradient), PIXELS_BACK[images.dtype]
    kernels.taps_back[parts, 3](
        images, pull, gradient, pixels, H=height, W=width, IN=into, OUT=pull.shape[-1], RELU_IN=relu_in,
        SPAN=triton.cdiv(pixels, parts * step) * step, BM=step,
    )  # fmt: skip


class Beside:
    """Gradients of weights on a stream of their own: nothing on the way back to the images waits for them."""

    def __init__(self, like: Tensor) -> None:
        self.stream = _side_stream(like.device) if like.is_cuda else None
        self.read: list[Tensor] = []  # what it reads must not be given away before it has

    def taps_back(self, images: Tensor, pull: Tensor, relu_in: bool, gradient: Tensor) -> None:
        if self.stream is None:
            taps_back(images, pull, relu_in, gradient)
            return
        self.read += [images, pull]
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            taps_back(images, pull, relu_in, gradient)

    def wait(self) -> None:
        if self.stream is not None:
            torch.cuda.current_stream().wait_stream(self.stream)


@functools.cache
def _side_stream(device: torch.device) -> torch.cuda.Stream:
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def parts_for(images: Tensor, taps: Tensor) -> Tensor:
    """Room for gradients by parts of these images' pixels: [convolutions, parts, those of nine taps and the bias]."""
    *convolutions, _, into, out = taps.shape
    pixels = images[..., 0].numel()
    parts = min(MOST_PARTS if pixels >= SMALL else MOST_PARTS // 2, triton.cdiv(pixels, SPAN))
    return torch.empty(*convolutions, parts, (9 * into + 1) * out, device=images.device)


def summed(gradient: Tensor, taps: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of taps and bias from those by parts."""
    whole, out = gradient.sum(-2), taps.shape[-1]
    return whole[..., :-out].view(taps.shape), whole[..., -out:]


def pool(images: Tensor, keep: bool) -> tuple[Tensor, Tensor]:
    """The largest of 3x3 pixels at every second place, and which of the nine it was where that is to be kept."""
    states, height, width, channels = images.shape
    shape = (states, (height + 1) // 2, (width + 1) // 2, channels)
    out = torch.empty(shape, dtype=images.dtype, device=images.device)
    winners = torch.empty(shape if keep else 0, dtype=torch.uint8, device=images.device)
    pixels = math.prod(shape[:3])
    kernels.pool[triton.cdiv(pixels, PIXELS_POOLED),](
        images, out, winners, pixels, H=height, W=width, C=channels, KEEP=keep, BM=PIXELS_POOLED
    )
    return out, winners


def pool_back(pull: Tensor, winners: Tensor, height: int, width: int) -> Tensor:
    states, *_, channels = pull.shape
    out = torch.empty(states, height, width, channels, dtype=pull.dtype, device=pull.device)
    pixels = states * height * width
    kernels.pool_back[triton.cdiv(pixels, PIXELS_POOLED),](
        pull, winners, out, pixels, H=height, W=width, C=channels, BM=PIXELS_POOLED
    )
    return out


def shrink(images: Tensor, taps: Tensor, bias: Tensor, keep: bool = False) -> tuple[Tensor, Tensor]:
    """A convolution and pooling."""
    return pool(convolve(images, taps, bias), keep)


class Shrink(torch.autograd.Function):
    """`shrink` with its gradients; the taps come as float32, and so do their gradients."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, taps: Tensor, bias: Tensor) -> Tensor:
        taps = taps.to(images.dtype)
        pooled, winners = shrink(images, taps, bias, keep=True)
        ctx.save_for_backward(images, taps, winners)
        return pooled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        images, taps, winners = ctx.saved_tensors
        wide = pool_back(pull.contiguous(), winners, *images.shape[1:3])
        gradient, weights = parts_for(wide, taps), Beside(wide)
        weights.taps_back(images, wide, False, gradient)
        pull = convolve(wide, taps, back=True)
        weights.wait()
        return pull, *summed(gradient, taps)


def residual(images: Tensor, taps: Tensor, biases: Tensor) -> list[Tensor]:
    """Residual blocks. What each convolution saw: a block's input, and what its first one made of it, behind the ReLU;
    and last what comes out of all."""
    seen = [images]
    for block in range(0, 2 * BLOCKS, 2):
        inner = convolve(seen[-1], taps[block], biases[block], relu_in=True, relu_out=True)
        seen += [inner, convolve(inner, taps[block + 1], biases[block + 1], more=seen[-1])]
    return seen


class Residual(torch.autograd.Function):
    """`residual` with its gradients; the taps [convolutions, 9, in, out] come as float32, and so do their gradients."""

    @staticmethod
    def forward(ctx: Any, images: Tensor, taps: Tensor, biases: Tensor) -> Tensor:
        taps = taps.to(images.dtype)
        *seen, made = residual(images, taps, biases)
        ctx.save_for_backward(taps, *seen)
        return made

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, pull: Tensor) -> tuple[Tensor, ...]:  # type: ignore[override]
        taps, *seen = ctx.saved_tensors
        pull = pull.contiguous()
        gradient, weights = parts_for(pull, taps), Beside(pull)
        for block in reversed(range(0, 2 * BLOCKS, 2)):
            outer, inner = seen[block], seen[block + 1]
            weights.taps_back(inner, pull, False, gradient[block + 1])
            inner_pull = convolve(pull, taps[block + 1], back=True, gate=inner)
            weights.taps_back(outer, inner_pull, True, gradient[block])
            pull = convolve(inner_pull, taps[block], back=True, gate=outer, more=pull)
        weights.wait()
        return pull, *summed(gradient, taps)


def by_taps(weight: Tensor) -> Tensor:
    """[..., out, in, 3, 3] -> [..., 9, in, out]"""
    return weight.movedim((-2, -1, -3, -4), (-4, -3, -2, -1)).flatten(-4, -3).contiguous()


class StagedNetwork(QNetwork):
    """IMPALA's network over the same parameters."""

    def __init__(self, network: QNetwork, dtype: torch.dtype, **options: Any) -> None:
        super().__init__(network.body, network.scale, network.kind, network.form)
        assert isinstance(network.body, nn.Sequential)
        self.dtype = dtype
        first, *inner = [layer for layer in network.body if isinstance(layer, nn.Conv2d | ResidualBlocks)]
        assert first.bias is not None
        self.first = (first.weight, first.bias)
        rest = network.body[3 * len(CHANNELS) :]  # a stage is a convolution, pooling and blocks

        def weights() -> list[tuple[Tensor, Tensor]]:
            """Taps and biases of all convolutions but the first, blocks' and others' in turn."""
            found = []
            for layer in inner:
                assert layer.bias is not None
                if isinstance(layer, ResidualBlocks):
                    found.append((by_taps(layer.weights()), layer.bias.view(layer.count, -1)))
                else:
                    found.append((by_taps(layer.weight), layer.bias))
            return found

        def finish(images: Tensor, levels: Tensor | None) -> Tensor:
            with torch.autocast(images.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
                outputs: Tensor = rest(images, levels) if isinstance(rest, ImplicitBody) else rest(images)
            return outputs.float()

        self.weights, self.finish = torch.compile(weights, **options), torch.compile(finish, **options)

    def outputs(self, states: Tensor, levels: Tensor | None = None) -> Tensor:
        frames = states.contiguous().view(-1, 1, *states.shape[-2:])
        return self.at(frames, torch.arange(len(frames), device=states.device).view(-1, STACK), levels)

    def at(self, frames: Tensor, rows: Tensor, levels: Tensor | None = None) -> Tensor:
        states = rows.contiguous().view(-1, STACK)  # the kernels know of no strides
        entry = (frames, states, *self.first, self.scale, self.dtype)
        learning = torch.is_grad_enabled()
        images: Tensor = Entrance.apply(*entry) if learning else enter(*entry)[0]  # type: ignore[no-untyped-call]
        for stage, (taps, bias) in enumerate(self.weights()):
            if learning:
                images = (Shrink if stage % 2 else Residual).apply(images, taps, bias)  # type: ignore[no-untyped-call]
            elif stage % 2:
                images, _ = shrink(images, taps.to(self.dtype), bias)
            else:
                images = residual(images, taps.to(self.dtype), bias)[-1]
        outputs: Tensor = self.finish(images.permute(0, 3, 1, 2), levels)
        return outputs.view(*rows.shape[:-1], *outputs.shape[1:])
