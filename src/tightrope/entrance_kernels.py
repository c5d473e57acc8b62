"""Triton kernels of IMPALA's entrance (entrance.py): convolution, bias and pooling in one, forth and back.

A pixel is pooled from nine *corners* of the convolution, numbered line by line. Sums are float32; what is multiplied is
of type DT. Gradients are summed over parts of the batch and then over the parts: the same numbers in, the same numbers
out.
"""

import triton
import triton.language as tl


@triton.jit
def _line(frames, first, exists, x, y, H: tl.constexpr, W: tl.constexpr, DT: tl.constexpr):
    """Three pixels of line y from each of the four frames, beginning at x: 16 columns, each fourth of them empty."""
    k = tl.arange(0, 16) % 4
    columns = x[:, None] + k[None, :]
    inside = exists & (k < 3)[None, :] & (columns >= 0) & (columns < W) & ((y >= 0) & (y < H))[:, None]
    return tl.load(frames + first + y[:, None] * W + columns, mask=inside, other=0).to(DT)


@triton.jit
def _frames_of(rows, state, there, H: tl.constexpr, W: tl.constexpr):
    """Where the frames of the 16 columns begin, and whether they exist: an episode's first states have fewer."""
    row = tl.load(rows + state[:, None] * 4 + (tl.arange(0, 16) // 4)[None, :], mask=there[:, None], other=-1)
    return row * (H * W), row >= 0


@triton.jit
def _corner(best, winner, a, b, c, w0, w1, w2, inside, corner: tl.constexpr):
    """The convolution at a corner, from three lines of pixels; kept where it is the largest so far. Of equals any will
    do: where they come from equal pixels, as on a blank background, so do their gradients."""
    found = tl.dot(a, w0, input_precision="tf32x3")
    found = tl.dot(b, w1, found, input_precision="tf32x3")
    found = tl.dot(c, w2, found, input_precision="tf32x3")
    better = inside[:, None] & (found > best)
    return tl.where(better, found, best), tl.where(better, corner, winner)


@triton.jit
def forth(
    frames,
    rows,
    weight,  # [out, frame, line, column], by its strides
    bias,
    out,
    winners,
    scale,
    states,
    by_out,
    by_frame,
    by_line,
    by_column,
    H: tl.constexpr,
    W: tl.constexpr,
    OUT: tl.constexpr,
    KEEP: tl.constexpr,  # which corner was the largest, for the way back
    BM: tl.constexpr,
    DT: tl.constexpr,
):
    PH: tl.constexpr = (H + 1) // 2
    PW: tl.constexpr = (W + 1) // 2
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    there = m < states * (PH * PW)
    state, place = m // (PH * PW), m % (PH * PW)
    top, left = (place // PW) * 2 - 1, (place % PW) * 2 - 1  # the first corner
    first, exists = _frames_of(rows, state, there, H, W)
    k = tl.arange(0, 16)
    o = tl.arange(0, OUT)
    taps = weight + o[None, :] * by_out + ((k // 4) * by_frame + (k % 4) * by_column)[:, None]
    used = (k % 4 < 3)[:, None]
    w0 = tl.load(taps, mask=used, other=0.0).to(DT)
    w1 = tl.load(taps + by_line, mask=used, other=0.0).to(DT)
    w2 = tl.load(taps + 2 * by_line, mask=used, other=0.0).to(DT)
    best = tl.full((BM, OUT), float("-inf"), tl.float32)
    winner = tl.full((BM, OUT), 9, tl.int32)
    for i in tl.static_range(3):
        x = left - 1 + i
        a = _line(frames, first, exists, x, top - 1, H, W, DT)
        b = _line(frames, first, exists, x, top, H, W, DT)
        c = _line(frames, first, exists, x, top + 1, H, W, DT)
        d = _line(frames, first, exists, x, top + 2, H, W, DT)
        e = _line(frames, first, exists, x, top + 3, H, W, DT)
        inside = (left + i >= 0) & (left + i < W)
        best, winner = _corner(best, winner, a, b, c, w0, w1, w2, inside & (top >= 0), i)
        best, winner = _corner(best, winner, b, c, d, w0, w1, w2, inside, 3 + i)  # the middle line always exists
        best, winner = _corner(best, winner, c, d, e, w0, w1, w2, inside & (top + 2 < H), 6 + i)
    at = m[:, None] * OUT + o[None, :]
    tl.store(out + at, (best * scale + tl.load(bias + o)[None, :]).to(DT), mask=there[:, None])
    if KEEP:
        tl.store(winners + at, winner.to(tl.uint8), mask=there[:, None])


@triton.jit
def back(
    pull,
    winners,
    frames,
    rows,
    gradient,  # [parts, column of corners, three lines of taps and the bias]
    scale,
    states,
    H: tl.constexpr,
    W: tl.constexpr,
    OUT: tl.constexpr,
    SPAN: tl.constexpr,  # pooled pixels of a part
    BM: tl.constexpr,
    DT: tl.constexpr,
):
    """The gradient of the weights by way of one of three columns of corners, over one part of the batch."""
    PH: tl.constexpr = (H + 1) // 2
    PW: tl.constexpr = (W + 1) // 2
    part, i = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, 16)
    o = tl.arange(0, OUT)
    d0 = tl.zeros((16, OUT), tl.float32)
    d1 = tl.zeros((16, OUT), tl.float32)
    d2 = tl.zeros((16, OUT), tl.float32)
    bias = tl.zeros((OUT,), tl.float32)
    end = tl.minimum((part + 1) * SPAN, states * (PH * PW))
    for start in range(0, SPAN, BM):
        m = part * SPAN + start + tl.arange(0, BM)
        there = m < end
        state, place = m // (PH * PW), m % (PH * PW)
        top, x = (place // PW) * 2 - 1, (place % PW) * 2 - 2 + i
        first, exists = _frames_of(rows, state, there, H, W)
        at = m[:, None] * OUT + o[None, :]
        g = tl.load(pull + at, mask=there[:, None], other=0.0)
        winner = tl.load(winners + at, mask=there[:, None], other=9)
        bias += tl.sum(g.to(tl.float32), 0)
        upper = tl.where(winner == i, g, 0.0).to(DT)
        middle = tl.where(winner == 3 + i, g, 0.0).to(DT)
        lower = tl.where(winner == 6 + i, g, 0.0).to(DT)
        a = tl.trans(_line(frames, first, exists, x, top - 1, H, W, DT))
        b = tl.trans(_line(frames, first, exists, x, top, H, W, DT))
        c = tl.trans(_line(frames, first, exists, x, top + 1, H, W, DT))
        d = tl.trans(_line(frames, first, exists, x, top + 2, H, W, DT))
        e = tl.trans(_line(frames, first, exists, x, top + 3, H, W, DT))
        d0 = _through(d0, a, b, c, upper, middle, lower)
        d1 = _through(d1, b, c, d, upper, middle, lower)
        d2 = _through(d2, c, d, e, upper, middle, lower)
    to = gradient + (part * 3 + i) * (49 * OUT)
    at = k[:, None] * OUT + o[None, :]
    tl.store(to + at, d0 * scale)
    tl.store(to + 16 * OUT + at, d1 * scale)
    tl.store(to + 32 * OUT + at, d2 * scale)
    tl.store(to + 48 * OUT + o, tl.where(i == 0, bias, 0.0))


@triton.jit
def _through(total, a, b, c, upper, middle, lower):
    """A line of taps sees another line of pixels from each line of corners."""
    total = tl.dot(a, upper, total, input_precision="tf32x3")
    total = tl.dot(b, middle, total, input_precision="tf32x3")
    return tl.dot(c, lower, total, input_precision="tf32x3")
