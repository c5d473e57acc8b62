"""Triton kernels of the paper's network: conversion, convolution, bias and ReLU in one, forward and backward.

Sums are float32; what is multiplied is of type DT. Activations and the weights of convolutions lie pixel by pixel,
channels innermost, but for the third layer's outputs, which lie as PyTorch flattens them. Gradients of convolutions are
summed over parts of the batch and then over the parts, never by atomic additions: the same numbers in, the same numbers
out. How the kernels are put together is in fused.py.
"""

import triton
import triton.language as tl

# ------------------------------------------------------------------------------------------------------------- forward


@triton.jit
def conv1(frames, rows, weight, bias, out, scale, states, BM: tl.constexpr, DT: tl.constexpr):
    """8x8 pixels, stride 4. Four neighbouring pixels are one word of memory: the words of a patch are loaded once, and
    their first, second, third and fourth bytes multiplied in turn."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    there = m < states * 400
    state, place = m // 400, m % 400
    corner = (place // 20) * 84 + place % 20  # in words: a line has 21, a patch begins at a multiple of 4 pixels
    k = tl.arange(0, 16)  # two words from each of eight lines
    o = tl.arange(0, 32)
    words_at = corner[:, None] + ((k // 2) * 21 + k % 2)[None, :]
    total = tl.zeros((BM, 32), tl.float32)
    for frame in tl.static_range(4):
        row = tl.load(rows + state * 4 + frame, mask=there, other=-1)
        words = tl.load(frames + row[:, None] * 1764 + words_at, mask=(row >= 0)[:, None], other=0)
        for byte in tl.static_range(4):
            pixels = ((words >> (8 * byte)) & 255).to(DT)
            taps = tl.load(weight + o[None, :] * 256 + (k * 4 + byte)[:, None] * 4 + frame)
            total = tl.dot(pixels, taps, total, input_precision="tf32x3")
    total = total * scale + tl.load(bias + o)[None, :]
    tl.store(out + m[:, None] * 32 + o[None, :], tl.maximum(total, 0.0).to(DT), mask=there[:, None])


@triton.jit
def conv(
    inputs,
    weight,
    bias,
    out,
    states,
    IN: tl.constexpr,  # side of the input
    CHANNELS: tl.constexpr,
    OUT: tl.constexpr,  # side of the output
    TAPS: tl.constexpr,
    STRIDE: tl.constexpr,
    FLAT: tl.constexpr,  # write as PyTorch flattens: channel by channel
    BM: tl.constexpr,
    DT: tl.constexpr,
):
    """A convolution with 64 outputs. A line of taps, channels innermost, is contiguous in input and weight alike."""
    AREA: tl.constexpr = OUT * OUT
    LINE: tl.constexpr = TAPS * CHANNELS
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    there = m < states * AREA
    state, place = m // AREA, m % AREA
    corner = ((state * IN + (place // OUT) * STRIDE) * IN + (place % OUT) * STRIDE) * CHANNELS
    k = tl.arange(0, 64)
    o = tl.arange(0, 64)
    total = tl.zeros((BM, 64), tl.float32)
    for step in range(TAPS * LINE // 64):
        line, first = step // (LINE // 64), (step % (LINE // 64)) * 64
        at = corner[:, None] + (line * IN * CHANNELS + first + k)[None, :]
        patch = tl.load(inputs + at, mask=there[:, None], other=0.0)
        taps = tl.load(weight + o[None, :] * (TAPS * LINE) + (line * LINE + first + k)[:, None])
        total = tl.dot(patch, taps, total, input_precision="tf32x3")
    total = tl.maximum(total + tl.load(bias + o)[None, :], 0.0).to(DT)
    if FLAT:
        tl.store(out + state[:, None] * (64 * AREA) + o[None, :] * AREA + place[:, None], total, mask=there[:, None])
    else:
        tl.store(out + m[:, None] * 64 + o[None, :], total, mask=there[:, None])


@triton.jit
def full(inputs, weight, out, states, SPAN: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """Inputs times weights, [parts, states, 512]: each part sums SPAN of the 3,136 inputs."""
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n = tl.program_id(1) * BN + tl.arange(0, BN)
    part = tl.program_id(2)
    there = m < states
    k = part * SPAN + tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for step in range(SPAN // BK):
        x = tl.load(inputs + m[:, None] * 3136 + (step * BK + k)[None, :], mask=there[:, None], other=0.0)
        w = tl.load(weight + n[None, :] * 3136 + (step * BK + k)[:, None])
        total = tl.dot(x, w, total, input_precision="tf32x3")
    tl.store(out + (part * states + m)[:, None] * 512 + n[None, :], total, mask=there[:, None])


@triton.jit
def head(
    sums,
    bias,
    weight,
    bias2,
    hidden,
    values,
    taken,
    states,
    actions,
    PARTS: tl.constexpr,
    A: tl.constexpr,
    TAKEN: tl.constexpr,  # only the value of the action taken is wanted
    DT: tl.constexpr,
):
    """One state: the hidden units from their partial sums, and the value of each action."""
    state = tl.program_id(0)
    a = tl.arange(0, A)
    q = tl.zeros((A,), tl.float32)
    for first in range(0, 512, 128):
        n = first + tl.arange(0, 128)
        h = tl.load(bias + n)
        for part in tl.static_range(PARTS):
            h += tl.load(sums + (part * states + state) * 512 + n)
        h = tl.maximum(h, 0.0).to(DT)
        tl.store(hidden + state * 512 + n, h)
        w = tl.load(weight + a[:, None] * 512 + n[None, :], mask=(a < actions)[:, None], other=0.0)
        q += tl.sum(w.to(tl.float32) * h.to(tl.float32)[None, :], 1)
    q += tl.load(bias2 + a, mask=a < actions, other=0.0)
    if TAKEN:
        tl.store(values + state, tl.sum(tl.where(a == tl.load(taken + state), q, 0.0)))
    else:
        tl.store(values + state * actions + a, q, mask=a < actions)


# ------------------------------------------------------------------------------------------------------------ backward


@triton.jit
def head_back(
    pull,
    taken,
    hidden,
    weight,
    d_hidden,
    d_weight,
    d_bias,
    d_bias2,
    states,
    actions,
    B: tl.constexpr,
    A: tl.constexpr,
    BN: tl.constexpr,
    DT: tl.constexpr,
):
    """From the pull on the values of the actions taken to the gradients of the last layer and of the hidden units."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    b = tl.arange(0, B)
    a = tl.arange(0, A)
    there = b < states
    strength = tl.load(pull + b, mask=there, other=0.0)
    action = tl.load(taken + b, mask=there, other=-1)
    dq = tl.where(action[:, None] == a[None, :], strength[:, None], 0.0)
    h = tl.load(hidden + b[:, None] * 512 + n[None, :], mask=there[:, None], other=0.0)
    w = tl.load(weight + a[:, None] * 512 + n[None, :], mask=(a < actions)[:, None], other=0.0)
    dw = tl.dot(tl.trans(dq.to(DT)), h, input_precision="tf32x3")
    tl.store(d_weight + a[:, None] * 512 + n[None, :], dw, mask=(a < actions)[:, None])
    dh = tl.dot(dq.to(DT), w, input_precision="tf32x3")
    dh = tl.where(h > 0, dh, 0.0)
    tl.store(d_hidden + b[:, None] * 512 + n[None, :], dh.to(DT), mask=there[:, None])
    tl.store(d_bias + n, tl.sum(dh, 0))
    if tl.program_id(0) == 0:
        tl.store(d_bias2 + a, tl.sum(dq, 0), mask=a < actions)


@triton.jit
def full_back(
    d_hidden,
    inputs,
    weight,
    d_inputs,
    d_weight,
    states,
    B: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    DT: tl.constexpr,
):
    """Gradients of the first full layer and of what went into it, which is written pixel by pixel."""
    n = tl.program_id(0) * BN + tl.arange(0, BN)
    b = tl.arange(0, B)
    there = b < states
    x = tl.load(inputs + b[:, None] * 3136 + n[None, :], mask=there[:, None], other=0.0)
    dx = tl.zeros((B, BN), tl.float32)
    for first in range(0, 512, BK):
        k = first + tl.arange(0, BK)
        dh = tl.load(d_hidden + b[:, None] * 512 + k[None, :], mask=there[:, None], other=0.0)
        w = tl.load(weight + k[:, None] * 3136 + n[None, :])
        dx = tl.dot(dh, w, dx, input_precision="tf32x3")
        dw = tl.dot(tl.trans(dh), x, input_precision="tf32x3")
        tl.store(d_weight + k[:, None] * 3136 + n[None, :], dw)
    dx = tl.where(x > 0, dx, 0.0)
    at = b[:, None] * 3136 + ((n % 49) * 64 + n // 49)[None, :]
    tl.store(d_inputs + at, dx.to(DT), mask=there[:, None])


@triton.jit
def conv_back(
    d_out,
    inputs,
    weight,
    d_inputs,
    d_weight,  # [parts, gradient_size], of which this layer's are
    d_bias,
    states,
    gradient_size,
    places,  # programs that do the inputs; those after them do the weights
    IN: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUT: tl.constexpr,
    TAPS: tl.constexpr,
    STRIDE: tl.constexpr,
    PER_PART: tl.constexpr,  # states
    COLUMNS: tl.constexpr,  # of a line of taps that one program does
    BM: tl.constexpr,
    BW: tl.constexpr,
    DT: tl.constexpr,
):
    """Gradients of a convolution with 64 outputs, of its inputs and of its weights, side by side."""
    program = tl.program_id(0)
    if program < places:
        _inputs_back(d_out, inputs, weight, d_inputs, states, program, IN, CHANNELS, OUT, TAPS, STRIDE, BM, DT)
    else:
        _weights_back(
            d_out, inputs, d_weight, d_bias, states, gradient_size, program - places,
            IN, CHANNELS, OUT, TAPS, STRIDE, PER_PART, COLUMNS, BW,
        )  # fmt: skip


@triton.jit
def _inputs_back(
    d_out,
    inputs,
    weight,
    d_inputs,
    states,
    program,
    IN: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUT: tl.constexpr,
    TAPS: tl.constexpr,
    STRIDE: tl.constexpr,
    BM: tl.constexpr,
    DT: tl.constexpr,
):
    """Inputs whose coordinates leave the same remainders by the stride are reached by the same taps: done together."""
    PER: tl.constexpr = (IN + STRIDE - 1) // STRIDE
    REACH: tl.constexpr = (TAPS + STRIDE - 1) // STRIDE
    tiles = tl.cdiv(states * PER * PER, BM)
    kind, tile = program // tiles, program % tiles
    m = tile * BM + tl.arange(0, BM)
    o = tl.arange(0, 64)
    c = tl.arange(0, CHANNELS)
    state, place = m // (PER * PER), m % (PER * PER)
    odd_y, odd_x = kind // STRIDE, kind % STRIDE
    half_y, half_x = place // PER, place % PER
    y, x = half_y * STRIDE + odd_y, half_x * STRIDE + odd_x
    there = (state < states) & (y < IN) & (x < IN)
    total = tl.zeros((BM, CHANNELS), tl.float32)
    for step in range(REACH * REACH):
        back_y, back_x = step // REACH, step % REACH
        tap = (back_y * STRIDE + odd_y) * TAPS + back_x * STRIDE + odd_x
        out_y, out_x = half_y - back_y, half_x - back_x
        ok = there & (out_y >= 0) & (out_y < OUT) & (out_x >= 0) & (out_x < OUT)
        at = ((state * OUT + out_y) * OUT + out_x) * 64
        g = tl.load(d_out + at[:, None] + o[None, :], mask=ok[:, None], other=0.0)
        w = tl.load(weight + o[:, None] * (TAPS * TAPS * CHANNELS) + (tap * CHANNELS + c)[None, :])
        total = tl.dot(g, w, total, input_precision="tf32x3")
    place_in = (((state * IN + y) * IN + x) * CHANNELS)[:, None] + c[None, :]
    active = tl.load(inputs + place_in, mask=there[:, None], other=0.0) > 0
    tl.store(d_inputs + place_in, tl.where(active, total, 0.0).to(DT), mask=there[:, None])


@triton.jit
def _weights_back(
    d_out,
    inputs,
    d_weight,
    d_bias,
    states,
    gradient_size,
    program,
    IN: tl.constexpr,
    CHANNELS: tl.constexpr,
    OUT: tl.constexpr,
    TAPS: tl.constexpr,
    STRIDE: tl.constexpr,
    PER_PART: tl.constexpr,
    COLUMNS: tl.constexpr,
    BW: tl.constexpr,
):
    """Some columns of the weights' gradient, over one part of the batch."""
    AREA: tl.constexpr = OUT * OUT
    LINE: tl.constexpr = TAPS * CHANNELS
    BLOCKS: tl.constexpr = TAPS * LINE // COLUMNS
    part, block = program // BLOCKS, program % BLOCKS
    line, first = (block * COLUMNS) // LINE, (block * COLUMNS) % LINE
    k = first + tl.arange(0, COLUMNS)
    o = tl.arange(0, 64)
    dw = tl.zeros((64, COLUMNS), tl.float32)
    db = tl.zeros((64,), tl.float32)
    end = tl.minimum((part + 1) * PER_PART, states) * AREA
    for start in range(0, PER_PART * AREA, BW):
        m = part * PER_PART * AREA + start + tl.arange(0, BW)
        there = m < end
        state, place = m // AREA, m % AREA
        corner = ((state * IN + (place // OUT) * STRIDE + line) * IN + (place % OUT) * STRIDE) * CHANNELS
        g = tl.load(d_out + m[:, None] * 64 + o[None, :], mask=there[:, None], other=0.0)
        patch = tl.load(inputs + corner[:, None] + k[None, :], mask=there[:, None], other=0.0)
        dw = tl.dot(tl.trans(g), patch, dw, input_precision="tf32x3")
        db += tl.sum(g.to(tl.float32), 0)
    tl.store(d_weight + part * gradient_size + o[:, None] * (TAPS * LINE) + (line * LINE + k)[None, :], dw)
    if block == 0:
        tl.store(d_bias + part * gradient_size + o, db)


@triton.jit
def conv1_back(
    d_out,
    frames,
    rows,
    gradient,  # [parts, 8192 weights and 32 biases]
    scale,
    states,
    SPAN: tl.constexpr,  # places of a part, of which each state has 400
    BW: tl.constexpr,
    DT: tl.constexpr,
):
    """Gradients of the first convolution's weights for one of the four frames, over one part of the batch."""
    frame, part = tl.program_id(0), tl.program_id(1)
    k = tl.arange(0, 16)
    o = tl.arange(0, 32)
    dw0 = tl.zeros((32, 16), tl.float32)
    dw1 = tl.zeros((32, 16), tl.float32)
    dw2 = tl.zeros((32, 16), tl.float32)
    dw3 = tl.zeros((32, 16), tl.float32)
    db = tl.zeros((32,), tl.float32)
    end = tl.minimum((part + 1) * SPAN, states * 400)
    for start in range(0, SPAN, BW):
        m = part * SPAN + start + tl.arange(0, BW)
        there = m < end
        state, place = m // 400, m % 400
        row = tl.load(rows + state * 4 + frame, mask=there, other=-1)
        at = ((place // 20) * 84 + place % 20)[:, None] + ((k // 2) * 21 + k % 2)[None, :]
        words = tl.load(frames + row[:, None] * 1764 + at, mask=(row >= 0)[:, None], other=0)
        g = tl.load(d_out + m[:, None] * 32 + o[None, :], mask=there[:, None], other=0.0)
        db += tl.sum(g.to(tl.float32), 0)
        g = tl.trans(g)
        dw0 = tl.dot(g, (words & 255).to(DT), dw0, input_precision="tf32x3")
        dw1 = tl.dot(g, ((words >> 8) & 255).to(DT), dw1, input_precision="tf32x3")
        dw2 = tl.dot(g, ((words >> 16) & 255).to(DT), dw2, input_precision="tf32x3")
        dw3 = tl.dot(g, ((words >> 24) & 255).to(DT), dw3, input_precision="tf32x3")
    gradient += part * 8224
    at = gradient + o[:, None] * 256 + (k * 16)[None, :] + frame
    tl.store(at, dw0 * scale)
    tl.store(at + 4, dw1 * scale)
    tl.store(at + 8, dw2 * scale)
    tl.store(at + 12, dw3 * scale)
    if frame == 0:
        tl.store(gradient + 8192 + o, db)


@triton.jit
def add_parts(first, rest, out, rest_size, FIRST_PARTS: tl.constexpr, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    """The parts of the convolutions' gradients together: the first one's, and those of the other two."""
    n = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    of_rest = n - 8224
    total = tl.zeros((BLOCK,), tl.float32)
    for part in tl.static_range(FIRST_PARTS):
        total += tl.load(first + part * 8224 + n, mask=of_rest < 0, other=0.0)
    there = (of_rest >= 0) & (of_rest < rest_size)
    for part in tl.static_range(PARTS):
        total += tl.load(rest + part * rest_size + of_rest, mask=there, other=0.0)
    tl.store(out + n, total, mask=of_rest < rest_size)
