"""Who follows a run: TensorBoard, Weights & Biases, or a class of your own. None of them is needed.

A callback is any object with some of the methods of `Callback`. It is handed to `tightrope.train(callbacks=[...])`, or
named on the command line: `--callbacks tensorboard,my_module:MyCallback`.
"""

from __future__ import annotations

import contextlib
import importlib
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from tightrope.checkpoint import disk_error
from tightrope.errors import TightropeError
from tightrope.modules import here_first

if TYPE_CHECKING:
    from tightrope.agent import Agent


@dataclass(frozen=True)
class Start:
    """What a callback is told when a run begins or goes on."""

    folder: Path
    game: str
    preset: str
    seed: int
    device: str
    config: dict[str, Any]  # every number of the run
    frames: int  # played already: 0, or where a resumed run goes on. What came after that is told again


class Callback:
    """The protocol; every method may be left out, and this base class is not needed either.

    >>> class Best:
    ...     score = float("-inf")
    ...     def on_evaluation(self, row):
    ...         self.score = max(self.score, row["score"])
    >>> import tightrope
    >>> best = Best()
    >>> agent = tightrope.train("maze", frames=400, learn_start_steps=100, epoch_frames=200, eval_max_game_frames=50,
    ...                         callbacks=[best], out=tmp / "callbacks", quiet=True)
    >>> best.score == agent.facts.score or best.score > agent.facts.score
    True
    """

    def on_start(self, start: Start) -> None:
        """Before the first step of a run, or of its continuation."""

    def on_metrics(self, values: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl: frames, score, epsilon, loss, q, how often each bound is violated ..."""

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        """A line of evaluations.csv: frames, epoch, score, std, games, protocol ..."""

    def on_end(self, agent: Agent | None) -> None:
        """The run has ended or was stopped; None where it failed."""


class Callbacks:
    """Several as one. One that cannot start stops the run, for nothing is lost yet; one that raises later is left out
    from there on, and the run goes on without it."""

    def __init__(self, callbacks: Iterable[Any] = (), report: Callable[[str], None] = lambda line: None) -> None:
        self.callbacks = [made for given in callbacks for made in (named(given) if isinstance(given, str) else [given])]
        self.report = report

    def tell(self, event: str, facts: Any) -> None:
        """Calls the method `on_EVENT` of all that have it."""
        for callback in list(self.callbacks):
            try:
                getattr(callback, f"on_{event}", lambda facts: None)(facts)
            except TightropeError:
                raise  # a full disk: the run would not get far either
            except Exception as problem:
                what = f"{type(problem).__name__} in {type(callback).__name__}.on_{event}: {problem}"
                if event == "start":
                    raise TightropeError(f"a callback cannot start: {what}") from problem
                self.callbacks.remove(callback)
                self.report(f"callback left out from here on: {what}")


class TensorBoard:
    """Every number of the metrics and the evaluations' scores, as TensorBoard's events in the run's folder.

    Written here and now: TensorBoard's own writer does so in a thread, which dies alone when the disk is full.
    """

    def __init__(self) -> None:
        try:
            from tensorboard.compat.proto import event_pb2, summary_pb2
            from tensorboard.summary.writer.record_writer import RecordWriter
        except ImportError:
            raise TightropeError("TensorBoard is not installed: pip install 'tightrope[tensorboard]'") from None
        self._events, self._summaries, self._writer = event_pb2, summary_pb2, RecordWriter
        self._folder = Path()
        self._file: IO[bytes] | None = None

    def on_start(self, start: Start) -> None:
        self._folder = start.folder / "tensorboard"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            self._file = open(self._folder / f"events.out.tfevents.{time.time_ns()}", "wb")  # noqa: SIM115
        except OSError as problem:
            raise disk_error(self._folder, problem) from None
        self._write(file_version="brain.Event:2")
        if start.frames:  # a resumed run tells again what came after its checkpoint: forget what was told of it
            log = self._events.SessionLog(status=self._events.SessionLog.START)
            self._write(step=start.frames + 1, session_log=log)

    def on_metrics(self, values: Mapping[str, Any]) -> None:
        self._scalars(values["frames"], {name: value for name, value in values.items() if name != "frames"})

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        self._scalars(row["frames"], {"evaluation/score": row["score"]})

    def on_end(self, agent: Agent | None) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):  # the disk is full: whoever wrote last has said so
                self._file.close()
        self._file = None

    def _scalars(self, frames: int, values: dict[str, Any]) -> None:
        Summary = self._summaries.Summary
        numbers = {name: value for name, value in values.items() if isinstance(value, int | float)}
        summary = Summary(value=[Summary.Value(tag=name, simple_value=value) for name, value in numbers.items()])
        self._write(step=frames, summary=summary)

    def _write(self, **what: Any) -> None:
        assert self._file is not None
        event = self._events.Event(wall_time=time.time(), **what)
        try:
            self._writer(self._file).write(event.SerializeToString())
            self._file.flush()
        except OSError as problem:
            raise disk_error(self._folder, problem) from None


class WandB:
    """The same to Weights & Biases. Its account, project and so on: by its own environment variables, or `options`,
    which go to wandb.init."""

    def __init__(self, **options: Any) -> None:
        try:
            import wandb
        except ImportError:
            raise TightropeError("Weights & Biases is not installed: pip install 'tightrope[wandb]'") from None
        self._wandb, self._options = wandb, options
        self._run: Any = None

    def on_start(self, start: Start) -> None:
        note = start.folder / "wandb-id.txt"  # a resumed run goes on where it is known already
        if not note.exists():
            try:
                note.write_text(secrets.token_hex(8), "utf-8")
            except OSError as problem:
                raise disk_error(note, problem) from None
        facts = {"game": start.game, "preset": start.preset, "seed": start.seed, "device": start.device}
        options = {
            "project": "tightrope",
            "name": start.folder.name,
            "id": note.read_text("utf-8").strip(),
            "resume": "allow",
            "config": facts | start.config,
        }
        self._run = self._wandb.init(**options | self._options)
        # Frames are an axis of their own: W&B's steps may not go back, and those of a resumed run do.
        self._run.define_metric("*", step_metric="frames")

    def on_metrics(self, values: Mapping[str, Any]) -> None:
        self._run.log(dict(values))

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        self._run.log({"frames": row["frames"], "evaluation/score": row["score"]})

    def on_end(self, agent: Agent | None) -> None:
        self._run.finish(exit_code=1 if agent is None else 0)


NAMED: dict[str, Callable[[], Any]] = {"tensorboard": TensorBoard, "wandb": WandB}


def named(names: str) -> list[Any]:
    """The callbacks of these names, with commas between them; a class of one's own is module:Class."""
    return [_named(name.strip()) for name in names.split(",") if name.strip()]


def _named(name: str) -> Any:
    if name in NAMED:
        return NAMED[name]()
    module, colon, attribute = name.partition(":")
    if not colon:
        raise TightropeError(f"callbacks = {name!r}: must be one of {', '.join(NAMED)}, or module:Class")
    with here_first():
        try:
            maker = getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError, ValueError) as problem:
            raise TightropeError(f"callbacks = {name!r}: cannot be imported: {problem}") from None
    try:
        return maker()
    except TypeError as problem:
        raise TightropeError(f"callbacks = {name!r}: cannot be made without arguments: {problem}") from None
