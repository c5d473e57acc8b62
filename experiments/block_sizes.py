"""How large the blocks of IMPALA's kernels should be: `python experiments/block_sizes.py` on a GPU, about a minute.

Times every convolution of the network on 84x84 frames, forth, back and its weights' gradient, in bfloat16, for several
numbers of pixels and warps of a program, and prints microseconds as Markdown, the fastest of a line with a star.
Kernels are compiled by as many processes as there are cores, then timed one after the other as graphs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import torch
import triton

from tightrope import stage_kernels as kernels
from tightrope import stages
from tightrope.device import cores

LAYERS = [(42, 32, 32), (42, 32, 64), (21, 64, 64), (11, 64, 64)]  # side, channels in and out
BATCHES = (64, 256)  # what learns, and what is valued for four updates
SIZES = [(pixels, warps) for pixels in (64, 128, 256) for warps in (4, 8)]
PARTS = (66, 132, 264)  # of the pixels, in a weights' gradient
REPEATS = 20


def convolution(
    states: int, layer: tuple[int, int, int], back: bool, lines: int, size: tuple[int, int]
) -> Callable[[], Any]:
    side, into, out = layer
    pixels, (block, warps) = states * side * side, size
    dense = {"dtype": torch.bfloat16, "device": "cuda"}
    goes_in, comes_out = (out, into) if back else (into, out)
    images, gate = torch.randn(pixels, goes_in, **dense), torch.randn(pixels, comes_out, **dense)
    taps, bias = torch.randn(9, into, out, **dense) / 20, torch.zeros(comes_out, device="cuda")
    made = torch.empty_like(gate)
    return lambda: kernels.convolve[triton.cdiv(states * triton.cdiv(side, lines) * side, block),](
        images, taps, bias, gate, gate, made, pixels, H=side, W=side, IN=goes_in, OUT=comes_out, BACK=back,
        RELU_IN=not back, BIAS=not back, RELU_OUT=not back, GATE=back, MORE=back, LINES=lines, BM=block,
        num_warps=warps,
    )  # fmt: skip


def weights(states: int, layer: tuple[int, int, int], parts: int, size: tuple[int, int]) -> Callable[[], Any]:
    side, into, out = layer
    pixels, (block, warps) = states * side * side, size
    dense = {"dtype": torch.bfloat16, "device": "cuda"}
    images, pull = torch.randn(pixels, into, **dense), torch.randn(pixels, out, **dense)
    gradient = torch.empty(parts, (9 * into + 1) * out, device="cuda")
    return lambda: kernels.taps_back[parts, 3](
        images, pull, gradient, pixels, H=side, W=side, IN=into, OUT=out, RELU_IN=True,
        SPAN=triton.cdiv(pixels, parts * block) * block, BM=block, num_warps=warps,
    )  # fmt: skip


def cases() -> Iterator[tuple[str, str, Callable[[], Callable[[], Any]]]]:
    """Row, column, and what makes the work."""
    for layer in LAYERS:
        name = "{0}x{0}, {1} to {2}".format(*layer)
        for states in BATCHES:
            for back in (False, True) if states == BATCHES[0] else (False,):
                for lines in (1, 2):
                    row = f"{name}, {states} states, {'back' if back else 'forth'}, {lines} lines"
                    for size in SIZES:
                        yield (
                            row,
                            str(size),
                            lambda s=states, y=layer, b=back, n=lines, z=size: convolution(s, y, b, n, z),
                        )
        for parts in PARTS:
            row = f"{name}, {BATCHES[0]} states, weights, {parts} parts"
            for size in SIZES[:4]:
                yield row, str(size), lambda y=layer, p=parts, z=size: weights(BATCHES[0], y, p, z)


def compile_some(first: int) -> None:
    """Into Triton's cache, which the process that times them reads."""
    for number, (_, _, make) in enumerate(cases()):
        if number % cores() == first:
            attempt(make)


def attempt(make: Callable[[], Callable[[], Any]]) -> Callable[[], Any] | None:
    work = make()
    try:
        work()
    except triton.runtime.errors.OutOfResources:
        return None
    return work


def microseconds(work: Callable[[], Any]) -> float:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(REPEATS):
            work()
    times = []
    for _ in range(5):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        began.record()
        graph.replay()
        ended.record()
        torch.cuda.synchronize()
        times.append(1000 * began.elapsed_time(ended) / REPEATS)
    return min(times)


def main() -> None:
    with ProcessPoolExecutor(cores(), get_context("spawn")) as pool:
        list(pool.map(compile_some, range(cores())))
    table: dict[str, dict[str, float]] = {}
    for row, column, make in cases():
        work = attempt(make)
        torch.cuda.synchronize()
        table.setdefault(row, {})[column] = float("inf") if work is None else microseconds(work)
    print(torch.cuda.get_device_name(), f"; stages.py: {stages.PIXELS} pixels of 4 warps")
    print("| µs, by pixels and warps of a program |", " | ".join(map(str, SIZES)), "|")
    print("| --- |" + " --- |" * len(SIZES))
    for row, found in table.items():
        shown = {column: f"{time:.1f}" for column, time in found.items()}
        shown[min(found, key=found.__getitem__)] += " *"
        print(f"| {row} |", " | ".join(shown.values()), "|")


if __name__ == "__main__":
    main()
