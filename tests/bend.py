"""A kernel that only tests run: the ReLU of IMPALA's stages by itself."""

import triton
import triton.language as tl

from tightrope.stage_kernels import _bent


@triton.jit
def bend(numbers, out, size: tl.constexpr):
    at = tl.arange(0, size)
    tl.store(out + at, _bent(tl.load(numbers + at)))
