"""Triton kernels of IMPALA's entrance (entrance.py): convolution, bias and pooling in one, forth and back.

A pixel is pooled from nine *corners* of the convolution, numbered line by line, which together see five lines of five
pixels. These begin at an even column, and images are of an even width: pixels are loaded in pairs, which are inside the
image or outside as a whole. A column of corners sees three of the five: what is multiplied has 16 columns, three pixels
and a one from each of the four frames.

Sums are float32; what is multiplied is of type DT. Gradients are summed over parts of the batch and then over the
parts: the same numbers in, the same numbers out.
"""

import triton
import triton.language as tl


@triton.jit
def _place(m, H: tl.constexpr, W: tl.constexpr):
    """Of pooled pixels: the state, the line and the column."""
    PW: tl.constexpr = W // 2
    PLACES: tl.constexpr = ((H + 1) // 2) * PW
    place = m % PLACES
    return m // PLACES, place // PW, place % PW


@triton.jit
def _line(at, inside, x, W: tl.constexpr, DT: tl.constexpr):
    """Five pixels of a line, from the pair in their middle and its neighbours."""
    left = tl.load(at - 1, mask=inside & (x > 0), other=0)
    middle = tl.load(at, mask=inside, other=0)
    right = tl.load(at + 1, mask=inside & (x + 1 < W // 2), other=0)
    return (left & 255).to(DT), (left >> 8).to(DT), (middle & 255).to(DT), (middle >> 8).to(DT), (right & 255).to(DT)


@triton.jit
def _lines(frames, rows, start, end, H: tl.constexpr, W: tl.constexpr, BM: tl.constexpr, DT: tl.constexpr):
    """All five lines that BM pooled pixels see, as [frame, pixel, half].

    A matrix unit wants 16 pixels from a warp: one from each half of them, and one frame of both, from each thread. Each
    thread loads just these, so that nothing is exchanged. The compiler lays threads along the first dimension that has
    no neighbours in memory, unless it sees some along another: it is told of none.
    """
    r = tl.arange(0, BM // 2)
    m = start + (r // 8 * 16 + r % 8)[None, :, None] + (tl.arange(0, 2) * 8)[None, None, :]
    state, y, x = _place(m, H, W)
    x = tl.max_contiguous(x, [1, 1, 1])
    of = tl.max_contiguous(state * 4 + tl.arange(0, 4)[:, None, None], [1, 1, 1])
    row = tl.load(rows + of, mask=m < end, other=-1)
    exists = row >= 0  # an episode's first states have fewer frames
    at = frames.to(tl.pointer_type(tl.uint16)) + row * (H * W // 2) + (y * W + x)
    above = exists & (y > 0)
    a = _line(at - W, above, x, W, DT)
    b = _line(at - W // 2, above, x, W, DT)
    c = _line(at, exists, x, W, DT)
    d = _line(at + W // 2, exists & (y * 2 + 1 < H), x, W, DT)
    e = _line(at + W, exists & (y * 2 + 2 < H), x, W, DT)
    return a, b, c, d, e


@triton.jit
def _seen(line, i: tl.constexpr):
    """What column i of corners sees of a line, as [pixel, 16]. No tap is multiplied by the ones: on the way back they
    gather the bias's gradient."""
    BM: tl.constexpr = 2 * line[i].shape[1]
    one = tl.full(line[i].shape, 1.0, tl.float32).to(line[i].dtype)
    seen = tl.join(tl.join(line[i], line[i + 2]), tl.join(line[i + 1], one))
    return tl.reshape(tl.permute(tl.reshape(seen, (4, BM // 16, 8, 2, 4)), (1, 3, 2, 0, 4)), (BM, 16))


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
    start, end = tl.program_id(0) * BM, states * ((H + 1) // 2 * (W // 2))
    a, b, c, d, e = _lines(frames, rows, start, end, H, W, BM, DT)
    k = tl.arange(0, 16)
    o = tl.arange(0, OUT)
    taps = weight + o[None, :] * by_out + ((k // 4) * by_frame + (k % 4) * by_column)[:, None]
    used = (k % 4 < 3)[:, None]
    w0 = tl.load(taps, mask=used, other=0.0).to(DT)
    w1 = tl.load(taps + by_line, mask=used, other=0.0).to(DT)
    w2 = tl.load(taps + 2 * by_line, mask=used, other=0.0).to(DT)
    m = start + tl.arange(0, BM)
    _, y, x = _place(m, H, W)
    best = tl.full((BM, OUT), float("-inf"), tl.float32)
    winner = tl.full((BM, OUT), 9, tl.int32)
    for i in tl.static_range(3):
        sa, sb, sc, sd, se = _seen(a, i), _seen(b, i), _seen(c, i), _seen(d, i), _seen(e, i)
        inside = (x > 0) | (i > 0)  # the other columns always exist, as does the middle line
        best, winner = _corner(best, winner, sa, sb, sc, w0, w1, w2, inside & (y > 0), i)
        best, winner = _corner(best, winner, sb, sc, sd, w0, w1, w2, inside, 3 + i)
        best, winner = _corner(best, winner, sc, sd, se, w0, w1, w2, inside & (y * 2 + 1 < H), 6 + i)
    to = m[:, None] * OUT + o[None, :]
    there = (m < end)[:, None]
    tl.store(out + to, (best * scale + tl.load(bias + o)[None, :]).to(DT), mask=there)
    if KEEP:
        tl.store(winners + to, winner.to(tl.uint8), mask=there)


@triton.jit
def back(
    pull,
    winners,
    frames,
    rows,
    gradient,  # [parts, line of taps, frame, three columns of taps and the bias, out]
    scale,
    states,
    H: tl.constexpr,
    W: tl.constexpr,
    OUT: tl.constexpr,
    SPAN: tl.constexpr,  # pooled pixels of a part
    BM: tl.constexpr,
    DT: tl.constexpr,
):
    """The gradient of weights and bias over one part of the batch."""
    part = tl.program_id(0)
    k = tl.arange(0, 16)
    o = tl.arange(0, OUT)
    d0 = tl.zeros((16, OUT), tl.float32)
    d1 = tl.zeros((16, OUT), tl.float32)
    d2 = tl.zeros((16, OUT), tl.float32)
    end = states * ((H + 1) // 2 * (W // 2))
    for step in range(0, SPAN, BM):
        start = part * SPAN + step
        a, b, c, d, e = _lines(frames, rows, start, end, H, W, BM, DT)
        m = start + tl.arange(0, BM)
        of = m[:, None] * OUT + o[None, :]
        there = (m < end)[:, None]
        g = tl.load(pull + of, mask=there, other=0.0)
        winner = tl.load(winners + of, mask=there, other=9)
        for i in tl.static_range(3):
            sa, sb, sc, sd, se = _seen(a, i), _seen(b, i), _seen(c, i), _seen(d, i), _seen(e, i)
            upper = tl.where(winner == i, g, 0.0).to(DT)
            middle = tl.where(winner == 3 + i, g, 0.0).to(DT)
            lower = tl.where(winner == 6 + i, g, 0.0).to(DT)
            d0 = _through(d0, sa, sb, sc, upper, middle, lower)
            d1 = _through(d1, sb, sc, sd, upper, middle, lower)
            d2 = _through(d2, sc, sd, se, upper, middle, lower)
    to = gradient + part * (48 * OUT) + k[:, None] * OUT + o[None, :]
    by = tl.where(k % 4 < 3, scale, 1.0)[:, None]
    tl.store(to, d0 * by)
    tl.store(to + 16 * OUT, d1 * by)
    tl.store(to + 32 * OUT, d2 * by)


@triton.jit
def _through(total, a, b, c, upper, middle, lower):
    """A line of taps sees another line of pixels from each line of corners."""
    total = tl.dot(tl.trans(a), upper, total, input_precision="tf32x3")
    total = tl.dot(tl.trans(b), middle, total, input_precision="tf32x3")
    return tl.dot(tl.trans(c), lower, total, input_precision="tf32x3")
