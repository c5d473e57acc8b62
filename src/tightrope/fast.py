"""The same updates, faster: on a GPU compiled and captured as one CUDA graph. learner.py is the algorithm; this is not.

What is captured are `Learner`'s own functions, several groups at once: while one group learns, the next is sampled and
valued by the target network beside it, for neither depends on the other. What is compiled are the pure parts. The one
thing written twice is the network's arithmetic: the first two convolutions as blocks of pixels made channels and 2x2
convolutions, in bfloat16, the weights staying float32 and in their own order (tests show that both agree with the plain
network).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from tightrope.learner import Learner
from tightrope.network import QNetwork
from tightrope.replay import Replay

WARM_UPS = 3


class BlockNetwork(QNetwork):
    """The paper's network, its strided convolutions as space-to-depth and 2x2."""

    def __init__(self, network: QNetwork, dtype: torch.dtype) -> None:
        super().__init__(network.body, network.scale, network.kind)
        self.dtype = dtype

    def forward(self, states: Tensor) -> Tensor:
        conv1, conv2, conv3, fc1, fc2 = (p for p in self.body.modules() if isinstance(p, nn.Conv2d | nn.Linear))
        dtype = self.dtype
        last = torch.channels_last

        def bias(layer: nn.Module) -> Tensor:
            assert isinstance(layer.bias, Tensor)
            return layer.bias.to(dtype)

        x = functional.pixel_unshuffle(states, 4).to(dtype, memory_format=last)
        # The scale goes into the weights, which are fewer than the pixels.
        x = functional.conv2d(x, (blocks(conv1.weight, 4) * self.scale).to(dtype, memory_format=last), bias(conv1))
        x = functional.pixel_unshuffle(x.relu(), 2)
        x = functional.conv2d(x, blocks(conv2.weight, 2).to(dtype, memory_format=last), bias(conv2)).relu()
        x = functional.conv2d(x, conv3.weight.to(dtype, memory_format=last), bias(conv3)).relu()
        x = functional.linear(x.flatten(1), fc1.weight.to(dtype), bias(fc1)).relu()
        return functional.linear(x, fc2.weight.to(dtype), bias(fc2)).float()


def blocks(weight: Tensor, side: int) -> Tensor:
    """A strided convolution's weight for input whose blocks of side x side pixels have become channels."""
    out, channels, height, width = weight.shape
    parts = weight.reshape(out, channels, height // side, side, width // side, side)
    return parts.permute(0, 1, 3, 5, 2, 4).reshape(out, channels * side * side, height // side, width // side)


def speed_up(learner: Learner, replay: Replay, dtype: torch.dtype = torch.bfloat16) -> None:
    """Captures the learner's updates over this replay. The replay must hold rows; nothing is learned here."""
    if learner.device.type != "cuda":
        raise ValueError("capture needs a GPU")
    compile_parts(learner, dtype)
    # As many groups as one step of all environments makes due, in step with the target network.
    groups = learner.config.target_every_updates // learner.group_size
    fitting = max(n for n in range(1, groups + 1) if groups % n == 0 and n * learner.group_size <= learner.due_at_once)
    learner.captured = Captured(learner, replay, fitting)
    learner.at_once = fitting * learner.group_size


def compile_parts(learner: Learner, dtype: torch.dtype) -> None:
    """The pure parts of an update, compiled for the shapes at hand."""
    learner.online, learner.target = quick(learner.online, dtype), quick(learner.target, dtype)
    options: dict[str, Any] = {"fullgraph": True, "dynamic": False}
    learner.prepare = torch.compile(learner.prepare, **options)  # type: ignore[method-assign]
    learner.pull = torch.compile(learner.pull, **options)  # type: ignore[method-assign]
    learner.online.forward = torch.compile(learner.online.forward, **options)  # type: ignore[method-assign]
    learner.optimiser.step = torch.compile(learner.optimiser.step, **options)  # type: ignore[method-assign]


def quick(network: QNetwork, dtype: torch.dtype = torch.bfloat16) -> QNetwork:
    """A network over the same weights: the paper's in its faster form, any other as it is.

    Always a new one: compiling it leaves the plain network, which acts on other numbers of states, alone.
    """
    if network.kind == "paper":
        return BlockNetwork(network, dtype)
    return QNetwork(network.body, network.scale, network.kind)


class Captured:
    """So many groups of updates as one graph; calling it runs them. `chances`: the random numbers of the last call."""

    def __init__(self, learner: Learner, replay: Replay, groups: int) -> None:
        # Warming up learns, so all that it changes is put back.
        changed = [*learner.online.parameters(), *learner.optimiser.mean, *learner.optimiser.square, learner.telemetry]
        before = [tensor.detach().clone() for tensor in changed]
        random_state = learner.generator.get_state()
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(learner.generator)
        warm, beside = torch.cuda.Stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
        warm.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(warm):
            for _ in range(WARM_UPS):
                learner.group(replay)
        torch.cuda.current_stream().wait_stream(warm)
        with torch.cuda.graph(self.graph):
            self.chances = [learner.draw(replay) for _ in range(groups)]
            # All batches stay referenced until the end: memory of one stream must not be given to the other.
            batches = [learner.prepare(replay, self.chances[0])]
            for group in range(groups):
                main = torch.cuda.current_stream()
                beside.wait_stream(main)
                if group + 1 < groups:
                    with torch.cuda.stream(beside):
                        batches.append(learner.prepare(replay, self.chances[group + 1]))
                learner.learn_all(batches[group])
                main.wait_stream(beside)
        with torch.no_grad():
            for tensor, value in zip(changed, before, strict=True):
                tensor.copy_(value)
        learner.generator.set_state(random_state)

    def __call__(self) -> None:
        self.graph.replay()
