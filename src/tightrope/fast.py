"""The same updates, faster: on a GPU compiled and captured as one CUDA graph. learner.py is the algorithm; this is not.

What is captured are `Learner`'s own functions, several groups at once: while one group learns, the next is sampled and
valued by the target network beside it, where neither depends on the other. What is compiled are the pure parts. The one
thing written twice is the networks' arithmetic (the paper's in fused.py, IMPALA's convolutions in entrance.py and
stages.py), and tests show that it is the plain networks'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from tightrope.actor import Actor
from tightrope.learner import Learner
from tightrope.network import QNetwork
from tightrope.replay import Replay

WARM_UPS = 3
OPTIONS: dict[str, Any] = {"fullgraph": True, "dynamic": False}
COMPILED = ("bounds", "pull", "advance")


def speed_up(learner: Learner, replay: Replay, dtype: torch.dtype = torch.bfloat16) -> None:
    """Captures the learner's updates over this replay. The replay must hold rows; nothing is learned here."""
    if learner.device.type != "cuda":
        raise ValueError("capture needs a GPU")
    compile_parts(learner, replay, dtype)
    # As many groups as one step of all environments makes due, in step with the target network.
    groups = learner.config.target_every_updates // learner.group_size
    fitting = max(n for n in range(1, groups + 1) if groups % n == 0 and n * learner.group_size <= learner.due_at_once)
    learner.captured = CapturedUpdates(learner, replay, fitting)
    learner.at_once = fitting * learner.group_size


def compile_parts(learner: Learner, replay: Replay, dtype: torch.dtype = torch.float32, fuse: bool = True) -> None:
    """The pure parts of an update, compiled for the shapes at hand, and the networks in their faster form."""
    for name in COMPILED:
        setattr(learner, name, torch.compile(getattr(learner, name), **OPTIONS))
    for name, moves_all in (("online", learner.moves_all), ("target", False)):
        network = getattr(learner, name)
        setattr(learner, name, quick(network, learner.config.batch_size, replay, dtype, fuse, moves_all))


def quick(
    network: QNetwork,
    batch_size: int,
    replay: Replay,
    dtype: torch.dtype,
    fuse: bool = True,
    moves_all: bool = False,
) -> QNetwork:
    """A network over the same weights: the paper's as fused kernels, any other compiled, IMPALA's but for its stages.

    Always a new one: the plain network, which may be asked for other numbers of states, stays as it is.
    """
    if fuse:
        from tightrope import fused, stages

        frames = (replay.frames.shape[2:], replay.frames.dtype, replay.stack)
        # The paper's kernels know the gradient of the action that was taken, and no other.
        if not moves_all and fused.fits(network, batch_size, *frames):
            return fused.FusedNetwork(network, dtype)
        if stages.fits(network, *frames):
            return stages.StagedNetwork(network, dtype, **OPTIONS)
    compiled = QNetwork(network.body, network.scale, network.kind, network.form)
    compiled.use_bfloat16 = dtype == torch.bfloat16
    compiled.outputs = torch.compile(compiled.outputs, **OPTIONS)  # type: ignore[method-assign]
    return compiled


def compile_optimiser(learner: Learner) -> bool:
    """On a CPU: the optimiser in one pass over the weights instead of eleven. False where nothing can be compiled."""
    from torch._dynamo.exc import TorchDynamoException

    try:
        torch.compile(torch.neg, fullgraph=True)(torch.zeros(8))
    except (TorchDynamoException, RuntimeError, OSError):  # no compiler, or one without its headers
        return False
    learner.advance = torch.compile(learner.advance, **OPTIONS)  # type: ignore[method-assign]
    return True


class CapturedUpdates:
    """So many groups of updates as one graph; calling it runs them. `chances`: the random numbers of the last call."""

    def __init__(self, learner: Learner, replay: Replay, groups: int) -> None:
        # Warming up learns, so all that it changes is put back.
        changed = list(learner.state().values())
        before = [tensor.detach().clone() for tensor in changed]
        random_state = learner.generator.get_state()
        self.graph = torch.cuda.CUDAGraph()
        self.graph.register_generator_state(learner.generator)
        # Learning is a chain of small kernels; what runs beside it must not make them queue.
        main, beside = torch.cuda.Stream(priority=-1), torch.cuda.Stream(priority=0)  # type: ignore[no-untyped-call]
        warm_up(lambda: learner.group(replay))
        with torch.cuda.graph(self.graph, stream=main):
            self.chances = [learner.draw(replay) for _ in range(groups)]
            # All batches stay referenced until the end: memory of one stream must not be given to the other.
            batches = [learner.prepare(replay, self.chances[0])]
            for group in range(groups):
                beside.wait_stream(main)
                if group + 1 < groups and learner.prepares_ahead:
                    with torch.cuda.stream(beside):
                        batches.append(learner.prepare(replay, self.chances[group + 1]))
                learner.learn_all(replay, batches[group])
                main.wait_stream(beside)
                if group + 1 < groups and not learner.prepares_ahead:
                    batches.append(learner.prepare(replay, self.chances[group + 1]))
        with torch.no_grad():
            for tensor, value in zip(changed, before, strict=True):
                tensor.copy_(value)
        learner.online.refresh()
        for tensor, value in zip(changed, before, strict=True):
            tensor.copy_(value)  # again: refreshing moved what spectral normalisation keeps
        learner.generator.set_state(random_state)

    def __call__(self) -> None:
        self.graph.replay()


def speed_up_actor(actor: Actor, network: QNetwork) -> None:
    """The actor's work on the device as two graphs: taking the newest frames in, and choosing."""
    torch.cuda.synchronize()
    actor.network = network
    kept = [actor.frames, actor.start_values]
    before = [tensor.clone() for tensor in kept]
    random_state = actor.generator.get_state()
    actor.take_in = captured(actor.take_in, actor.generator, actor.stream)  # type: ignore[method-assign]
    actor.choose = captured(actor.choose, actor.generator, actor.stream)  # type: ignore[method-assign]
    for tensor, value in zip(kept, before, strict=True):
        tensor.copy_(value)
    actor.generator.set_state(random_state)
    torch.cuda.synchronize()


Result = TypeVar("Result")


def captured(
    work: Callable[[], Result], generator: torch.Generator, stream: torch.cuda.Stream | None = None
) -> Callable[[], Result]:
    """Work that reads and writes the same tensors every time, as a graph; of this stream's priority."""
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    warm_up(work)
    with torch.cuda.graph(graph, stream=stream):
        result = work()

    def replay() -> Result:
        graph.replay()
        return result

    return replay


def warm_up(work: Callable[[], Any]) -> None:
    """Compiles and allocates before capture, on a stream of its own as PyTorch asks."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            work()
    torch.cuda.current_stream().wait_stream(stream)
