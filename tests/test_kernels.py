"""The kernels of IMPALA's network, compiled for GPUs that need not be here: that they can be, and fit into small ones.

What they compute is in test_fast.py.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

#: Shared memory that a program may have on NVIDIA's GPUs for desks, compute capability 8.6 and 8.9.
SMALL = 101_376

STAGES = [(42, 32, 32), (42, 32, 64), (21, 64, 64), (11, 64, 64)]  # side, channels in and out: those of 84x84 frames
CONVOLUTIONS = [
    {"BACK": False, "RELU_IN": True, "BIAS": True, "RELU_OUT": True, "GATE": False, "MORE": False},
    {"BACK": False, "RELU_IN": False, "BIAS": True, "RELU_OUT": False, "GATE": False, "MORE": True},
    {"BACK": True, "RELU_IN": False, "BIAS": False, "RELU_OUT": False, "GATE": True, "MORE": True},
]


def compiled(kernel: Any, capability: int, warps: int, **given: Any) -> int:
    """The shared memory of a kernel's program. `given` are constants, and types of what is no constant."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    types = {name: kind for name, kind in given.items() if isinstance(kind, str)}
    constants = {(kernel.arg_names.index(name),): value for name, value in given.items() if name not in types}
    source = ASTSource(
        kernel,
        {name: types.get(name, "constexpr") for name in kernel.arg_names},
        constants,
        # What Triton finds out about pointers by itself when it is called.
        {(kernel.arg_names.index(n),): [["tt.divisibility", 16]] for n, kind in types.items() if kind.startswith("*")},
    )
    made = triton.compile(source, GPUTarget("cuda", capability, 32), {"num_warps": warps})
    return int(made.metadata.shared)


def largest(capability: int) -> int:
    """Of the shared memory of all programs."""
    from tightrope import entrance, stages
    from tightrope import entrance_kernels as first
    from tightrope import stage_kernels as kernels
    from tightrope.fused import TYPES

    dtype, images, exact = torch.bfloat16, "*bf16", "*fp32"
    used = []
    for side, into, out in STAGES:
        shape = {"pixels": "i32", "H": side, "W": side}
        for flags in CONVOLUTIONS:
            ends = {"IN": out, "OUT": into} if flags["BACK"] else {"IN": into, "OUT": out}
            pointers = dict.fromkeys(("images", "taps", "gate", "more", "out"), images)
            for lines in (1, 2) if ends["OUT"] <= stages.NARROW else (1,):
                used.append(
                    compiled(kernels.convolve, capability, 4, **pointers, bias=exact, **shape, **ends, **flags,
                             LINES=lines, BM=stages.PIXELS)
                )  # fmt: skip
        for relu in (True, False):
            used.append(
                compiled(kernels.taps_back, capability, 4, images=images, pull=images, gradient=exact, **shape, IN=into,
                         OUT=out, RELU_IN=relu, SPAN=1_024, BM=stages.PIXELS_BACK[dtype])
            )  # fmt: skip
        shape |= {"C": out, "BM": stages.PIXELS_POOLED}
        used.append(compiled(kernels.pool, capability, 4, images=images, out=images, winners="*u8", **shape, KEEP=True))
        used.append(compiled(kernels.pool_back, capability, 4, pull=images, out=images, winners="*u8", **shape))
    frames = {"frames": "*u8", "rows": "*i64", "winners": "*u8", "scale": "fp32", "states": "i32", "H": 84, "W": 84,
              "OUT": 32, "DT": TYPES[dtype]}  # fmt: skip
    strides = dict.fromkeys(("by_out", "by_frame", "by_line", "by_column"), "i32")
    pixels = entrance.PIXELS[dtype]
    used.append(
        compiled(first.forth, capability, pixels // entrance.WARP_PIXELS, **frames, **strides, weight=exact, bias=exact,
                 out=images, KEEP=True, BM=pixels)
    )  # fmt: skip
    used.append(
        compiled(first.back, capability, 4, **frames, pull=images, gradient=exact, SPAN=1_024, BM=entrance.PIXELS_BACK)
    )
    return max(used)


@pytest.mark.parametrize("capability", [80, 89, 90])
def test_the_kernels_compile_and_fit_into_small_gpus(capability: int) -> None:
    pytest.importorskip("triton", reason="Triton is for Linux")
    assert largest(capability) <= SMALL
