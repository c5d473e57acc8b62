"""Triton kernels of IMPALA's stages (stages.py): 3x3 convolutions of images that lie channels last, and pooling.

Pixels are numbered through all images. What is multiplied is of the images' type, sums are float32. Gradients of
weights are summed over parts of the pixels and then over the parts: the same numbers in, the same numbers out.
"""

import triton
import triton.language as tl


@triton.jit
def _shifted(images, m, y, x, dy, dx, there, c, H: tl.constexpr, W: tl.constexpr, CHANNELS: tl.constexpr):
    """The pixels that lie `dy` lines below and `dx` columns to the right of these; zero outside of the image."""
    inside = there & (y + dy >= 0) & (y + dy < H) & (x + dx >= 0) & (x + dx < W)
    at = (m + dy * W + dx)[:, None] * CHANNELS + c[None, :]
    return tl.load(images + at, mask=inside[:, None], other=0.0)


@triton.jit
def _relu(images):
    """Of bfloat16 as integers, which are below zero where the numbers are: Triton would make them float32."""
    if images.dtype == tl.bfloat16:
        bits = images.to(tl.int16, bitcast=True)
        above = tl.maximum(bits, tl.zeros_like(bits)).to(tl.bfloat16, bitcast=True)
    else:
        above = tl.maximum(images, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return above


@triton.jit
def convolve(
    images,  # [pixels, IN]
    taps,  # [9, in, out] of the convolution, whichever way
    bias,
    gate,
    more,
    out,  # [pixels, OUT]
    pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    BACK: tl.constexpr,  # from the gradient of what came out to that of what went in
    RELU_IN: tl.constexpr,  # on what goes in
    BIAS: tl.constexpr,
    RELU_OUT: tl.constexpr,  # on what comes out
    GATE: tl.constexpr,  # only where `gate` is above zero: the way back through a ReLU
    MORE: tl.constexpr,  # and `more` is added
    LINES: tl.constexpr,  # of what comes out that share what they read, as if they were so many times the channels
    BM: tl.constexpr,
):
    DOWN: tl.constexpr = (H + LINES - 1) // LINES
    n = tl.program_id(0) * BM + tl.arange(0, BM)
    y, x = (n // W) % DOWN * LINES, n % W
    m = (n // (DOWN * W) * H + y) * W + x  # the pixel of the first line
    there = m < pixels
    i, o = tl.arange(0, IN), tl.arange(0, LINES * OUT) % OUT
    line = tl.arange(0, LINES * OUT) // OUT
    total = tl.zeros((BM, LINES * OUT), tl.float32)
    for tap in range(3 * (2 + LINES)):
        seen = _shifted(images, m, y, x, tap // 3 - 1, tap % 3 - 1, there, i, H, W, IN)
        if RELU_IN:
            seen = _relu(seen)
        own = tap - 3 * line  # which of a line's own nine taps this is
        if BACK:  # what a pixel gave to the one above it comes back from there
            at = (8 - own)[None, :] * (IN * OUT) + o[None, :] * IN + i[:, None]
        else:
            at = own[None, :] * (IN * OUT) + i[:, None] * OUT + o[None, :]
        if LINES == 1:  # noqa: SIM108 (a ternary would be one long line)
            w = tl.load(taps + at)
        else:
            w = tl.load(taps + at, mask=((own >= 0) & (own < 9))[None, :], other=0.0)
        total = tl.dot(seen, w, total, input_precision="tf32x3")
    at = (m[:, None] + line[None, :] * W) * OUT + o[None, :]
    inside = there[:, None] & (y[:, None] + line[None, :] < H)
    if BIAS:
        total += tl.load(bias + o)[None, :]
    if RELU_OUT:
        total = _relu(total)
    if GATE:
        total = tl.where(tl.load(gate + at, mask=inside, other=0.0) > 0, total, 0.0)
    if MORE:
        total += tl.load(more + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(images.dtype.element_ty), mask=inside)


@triton.jit
def taps_back(
    images,  # [pixels, IN]
    pull,  # [pixels, OUT]
    gradient,  # [parts, nine taps and the bias]
    pixels,
    H: tl.constexpr,
    W: tl.constexpr,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    RELU_IN: tl.constexpr,
    SPAN: tl.constexpr,  # pixels of a part
    BM: tl.constexpr,
):
    """The gradient of one line of taps, and of the bias, over one part of the pixels."""
    part, line = tl.program_id(0), tl.program_id(1)
    i, o = tl.arange(0, IN), tl.arange(0, OUT)
    left = tl.zeros((IN, OUT), tl.float32)
    middle = tl.zeros((IN, OUT), tl.float32)
    right = tl.zeros((IN, OUT), tl.float32)
    bias = tl.zeros((OUT,), tl.float32)
    end = tl.minimum((part + 1) * SPAN, pixels)
    for start in range(0, SPAN, BM):
        m = part * SPAN + start + tl.arange(0, BM)
        there = m < end
        y, x = (m % (H * W)) // W + line - 1, m % W
        g = tl.load(pull + m[:, None] * OUT + o[None, :], mask=there[:, None], other=0.0)
        inside = there & (y >= 0) & (y < H)
        at = images + (m + (line - 1) * W)[None, :] * IN + i[:, None]  # as they are multiplied: channels by pixels
        a = tl.load(at - IN, mask=(inside & (x > 0))[None, :], other=0.0)
        b = tl.load(at, mask=inside[None, :], other=0.0)
        c = tl.load(at + IN, mask=(inside & (x + 1 < W))[None, :], other=0.0)
        if RELU_IN:
            a, b, c = _relu(a), _relu(b), _relu(c)
        left = tl.dot(a, g, left, input_precision="tf32x3")
        middle = tl.dot(b, g, middle, input_precision="tf32x3")
        right = tl.dot(c, g, right, input_precision="tf32x3")
        bias += tl.sum(g.to(tl.float32), 0)
    to = gradient + part * ((9 * IN + 1) * OUT)
    at = (line * 3 * IN + i[:, None]) * OUT + o[None, :]
    tl.store(to + at, left)
    tl.store(to + IN * OUT + at, middle)
    tl.store(to + 2 * IN * OUT + at, right)
    if line == 0:
        tl.store(to + 9 * IN * OUT + o, bias)


@triton.jit
def pool(
    images,  # [states, H, W, C]
    out,
    winners,
    pixels,  # of what comes out
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    KEEP: tl.constexpr,  # which of the nine was the largest, for the way back
    BM: tl.constexpr,
):
    """The largest of 3x3 pixels, every second line and column."""
    PH: tl.constexpr = (H + 1) // 2
    PW: tl.constexpr = (W + 1) // 2
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    there = m < pixels
    state, top, left = m // (PH * PW), (m // PW) % PH * 2 - 1, m % PW * 2 - 1
    c = tl.arange(0, C)
    best = tl.full((BM, C), float("-inf"), images.dtype.element_ty)
    winner = tl.zeros((BM, C), tl.int32)
    for corner in tl.static_range(9):
        y, x = top + corner // 3, left + corner % 3
        inside = there & (y >= 0) & (y < H) & (x >= 0) & (x < W)
        at = ((state * H + y) * W + x)[:, None] * C + c[None, :]
        found = tl.load(images + at, mask=inside[:, None], other=float("-inf"))
        better = (found > best) | (found != found)  # not a number stays one
        best, winner = tl.where(better, found, best), tl.where(better, corner, winner)
    at = m[:, None] * C + c[None, :]
    tl.store(out + at, best, mask=there[:, None])
    if KEEP:
        tl.store(winners + at, winner.to(tl.uint8), mask=there[:, None])


@triton.jit
def pool_back(
    pull,  # of what came out
    winners,
    out,  # [states, H, W, C]
    pixels,  # of what went in
    H: tl.constexpr,
    W: tl.constexpr,
    C: tl.constexpr,
    BM: tl.constexpr,
):
    """A pixel of an odd line or column is in two of the windows, any other in one."""
    PH: tl.constexpr = (H + 1) // 2
    PW: tl.constexpr = (W + 1) // 2
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    there = m < pixels
    state, y, x = m // (H * W), (m // W) % H, m % W
    c = tl.arange(0, C)
    total = tl.zeros((BM, C), tl.float32)
    for window in tl.static_range(4):
        py, px = y // 2 + window // 2, x // 2 + window % 2
        inside = there & (py < PH) & (px < PW)
        at = ((state * PH + py) * PW + px)[:, None] * C + c[None, :]
        corner = (y - 2 * py + 1) * 3 + x - 2 * px + 1  # of that window
        inside = inside & (2 * py - 1 <= y) & (2 * px - 1 <= x)
        winner = tl.load(winners + at, mask=inside[:, None], other=9)
        g = tl.load(pull + at, mask=inside[:, None], other=0.0)
        total += tl.where(winner.to(tl.int32) == corner[:, None], g, 0.0).to(tl.float32)
    tl.store(out + m[:, None] * C + c[None, :], total.to(out.dtype.element_ty), mask=there[:, None])
