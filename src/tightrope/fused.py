"""The paper's network as a dozen kernels (kernels.py), forward and backward.

Frames are read where they lie, in the replay: a state is four row numbers, and nothing is gathered. The weights stay
float32; a copy in bfloat16 is what the kernels multiply.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor, nn

from tightrope import kernels
from tightrope.network import QNetwork

FRAME_SHAPE, STACK = (1, 84, 84), 4
SIDE1, SIDE2, SIDE3 = 20, 9, 7  # of the three convolutions' outputs
FEATURES, HIDDEN = 64 * SIDE3 * SIDE3, 512
FEW = 64  # up to so many states work is cut into smaller pieces, to keep the whole GPU busy
SPLITS = 7  # of the sum over the 3,136 features, for few states
FIRST_PARTS, PARTS = 64, 16  # of a batch, over which the gradients of the convolutions are summed first

LARGEST_BATCH = 128
AT_ONCE = 65_536  # states: the kernels count places in 32 bits

TYPES = {torch.bfloat16: tl.bfloat16, torch.float32: tl.float32}


def fits(
    network: QNetwork, batch_size: int, frame_shape: tuple[int, ...], frame_dtype: torch.dtype, stack: int
) -> bool:
    """Whether the kernels are this network's: the paper's with its plain head. Those of the full layers hold a whole
    batch."""
    known = (frame_shape, stack, frame_dtype) == (FRAME_SHAPE, STACK, torch.uint8)
    plain = network.kind == "paper" and not (network.form.dueling or network.form.quantiles)
    return plain and known and batch_size <= LARGEST_BATCH


class FusedNetwork(QNetwork):
    """The paper's network over the same parameters."""

    def __init__(self, network: QNetwork, dtype: torch.dtype = torch.bfloat16) -> None:
        super().__init__(network.body, network.scale, network.kind)
        self.dtype = dtype
        layers = [part for part in self.body.modules() if isinstance(part, nn.Conv2d | nn.Linear)]
        self.weights: list[Tensor] = [layer.weight for layer in layers]
        self.biases = [layer.bias for layer in layers]
        self.num_actions = len(self.weights[-1])
        self.columns = max(16, triton.next_power_of_2(self.num_actions))  # a kernel's blocks are powers of two
        self.factors = self.weights if dtype == torch.float32 else [w.detach().to(dtype) for w in self.weights]

    @torch.no_grad()
    def refresh(self) -> None:
        """The weights have changed."""
        if self.dtype != torch.float32:
            torch._foreach_copy_(self.factors, self.weights)

    def forward(self, states: Tensor) -> Tensor:
        frames = states.reshape(-1, *FRAME_SHAPE)
        return self.at(frames, torch.arange(len(frames), device=states.device).view(-1, STACK))

    def at(self, frames: Tensor, rows: Tensor, levels: Tensor | None = None) -> Tensor:
        with torch.no_grad():
            parts = torch.split(rows.reshape(-1, STACK), AT_ONCE)
            return torch.cat([self.run(frames, part, None)[0] for part in parts]).view(*rows.shape[:-1], -1)

    def taken(self, frames: Tensor, rows: Tensor, actions: Tensor, levels: Tensor | None = None) -> Tensor:
        values: Tensor = _Taken.apply(self, frames, rows, actions, *self.body.parameters())  # type: ignore[no-untyped-call]
        return values

    def run(self, frames: Tensor, rows: Tensor, taken: Tensor | None) -> tuple[Tensor, list[Tensor]]:
        """Values of the states (of all actions, or of those taken), and what the layers before gave, first first."""
        states = len(rows)
        few = states <= FEW
        kind = TYPES[self.dtype]
        w1, w2, w3, w4, w5 = self.factors
        b1, b2, b3, b4, b5 = self.biases

        def empty(*shape: int) -> Tensor:
            return torch.empty(states, *shape, dtype=self.dtype, device=rows.device)

        x1, x2, x3, hidden = empty(SIDE1, SIDE1, 32), empty(SIDE2, SIDE2, 64), empty(FEATURES), empty(HIDDEN)
        block = 64 if few else 128
        kernels.conv1[triton.cdiv(states * SIDE1**2, block),](
            words(frames), rows, w1, b1, x1, self.scale, states, BM=block, DT=kind
        )
        block = 32 if few else 128
        kernels.conv[triton.cdiv(states * SIDE2**2, block),](
            x1, w2, b2, x2, states,
            IN=SIDE1, CHANNELS=32, OUT=SIDE2, TAPS=4, STRIDE=2, FLAT=False, BM=block, DT=kind,
        )  # fmt: skip
        kernels.conv[triton.cdiv(states * SIDE3**2, block),](
            x2, w3, b3, x3, states,
            IN=SIDE2, CHANNELS=64, OUT=SIDE3, TAPS=3, STRIDE=1, FLAT=True, BM=block, DT=kind,
        )  # fmt: skip
        splits = SPLITS if few else 1
        block = 32 if few else 64
        sums = torch.empty(splits, states, HIDDEN, device=rows.device)
        kernels.full[triton.cdiv(states, block), HIDDEN // block, splits](
            x3, w4, sums, states, SPAN=FEATURES // splits, BM=block, BN=block, BK=64
        )
        values = torch.empty((states, self.num_actions) if taken is None else states, device=rows.device)
        kernels.head[states,](
            sums, b4, w5, b5, hidden, values, taken, states, self.num_actions,
            PARTS=splits, A=self.columns, TAKEN=taken is not None, DT=kind,
        )  # fmt: skip
        return values, [x1, x2, x3, hidden]

    def back(self, frames: Tensor, rows: Tensor, taken: Tensor, layers: list[Tensor], pull: Tensor) -> list[Tensor]:
        """Gradients of all parameters, given the pull on the values of the actions taken."""
        x1, x2, x3, hidden = layers
        d1, d2, d3, d_hidden = (torch.empty_like(x) for x in layers)
        _, w2, w3, w4, w5 = self.factors
        states = len(rows)
        kind = TYPES[self.dtype]
        batch = max(16, triton.next_power_of_2(states))
        parameters = list(self.body.parameters())
        convolutions, (g4, gb4, g5, gb5) = parameters[:6], [torch.empty_like(p) for p in parameters[6:]]
        kernels.head_back[HIDDEN // 32,](
            pull, taken, hidden, w5, d_hidden, g5, gb4, gb5, states, self.num_actions,
            B=batch, A=self.columns, BN=32, DT=kind,
        )  # fmt: skip
        kernels.full_back[FEATURES // 32,](
            d_hidden, x3, w4, d3, g4, states, B=batch, BN=32, BK=64, DT=kind
        )  # fmt: skip
        parts = min(PARTS, states)
        per_part = triton.cdiv(states, parts)
        ends = list(accumulate(p.numel() for p in convolutions))
        rest_size = ends[-1] - ends[1]
        first = torch.empty(FIRST_PARTS, ends[1], device=pull.device)
        rest = torch.empty(parts, rest_size, device=pull.device)
        g2, gb2, g3, gb3 = (rest[:, end - ends[1] :] for end in ends[1:5])
        places = triton.cdiv(states * SIDE2**2, 32)
        kernels.conv_back[places + parts * 9,](
            d3, x2, w3, d2, g3, gb3, states, rest_size, places,
            IN=SIDE2, CHANNELS=64, OUT=SIDE3, TAPS=3, STRIDE=1, PER_PART=per_part, COLUMNS=64, BM=32, BW=32, DT=kind,
        )  # fmt: skip
        places = 4 * triton.cdiv(states * (SIDE1 // 2) ** 2, 64)
        kernels.conv_back[places + parts * 8,](
            d2, x1, w2, d1, g2, gb2, states, rest_size, places,
            IN=SIDE1, CHANNELS=32, OUT=SIDE2, TAPS=4, STRIDE=2, PER_PART=per_part, COLUMNS=64, BM=64, BW=32, DT=kind,
        )  # fmt: skip
        kernels.conv1_back[STACK, FIRST_PARTS](
            d1, words(frames), rows, first, self.scale, states,
            SPAN=triton.cdiv(states * SIDE1**2, FIRST_PARTS), BW=64, DT=kind,
        )  # fmt: skip
        summed = torch.empty(ends[-1], device=pull.device)
        kernels.add_parts[triton.cdiv(ends[-1], 256),](
            first, rest, summed, rest_size, FIRST_PARTS=FIRST_PARTS, PARTS=parts, BLOCK=256
        )
        gradients = [
            summed.as_strided(p.shape, p.stride(), end - p.numel()) for p, end in zip(convolutions, ends, strict=True)
        ]
        return [*gradients, g4, gb4, g5, gb5]


def words(frames: Tensor) -> Tensor:
    """Four neighbouring pixels as one number."""
    return frames.view(torch.int32)


class _Taken(torch.autograd.Function):
    """Values of the actions taken."""

    @staticmethod
    def forward(ctx: Any, network: FusedNetwork, frames: Tensor, rows: Tensor, taken: Tensor, *_: Tensor) -> Tensor:
        values, layers = network.run(frames, rows, taken)
        ctx.seen = (frames, rows, taken, layers)
        ctx.network = network
        return values

    @staticmethod
    def backward(ctx: Any, pull: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        return None, None, None, None, *ctx.network.back(*ctx.seen, pull)
