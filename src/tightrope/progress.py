"""What a run says while it trains: one live line in a terminal, plain lines with the time elsewhere, or JSON."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from tightrope.config import Config


def time_left(seconds: float) -> str:
    """
    >>> time_left(42), time_left(3 * 60 + 5), time_left(7 * 3600 + 120)
    ('42 s', '3:05 min', '7:02 h')
    """
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60}:{whole % 60:02d} min"
    return f"{whole // 3600}:{whole % 3600 // 60:02d} h"


def line(values: dict[str, Any], config: Config, evaluated: float | None) -> str:
    """One line of metrics as a person reads it; what is not known yet, or what the run does not have, is left out."""
    frames, rate = values["frames"], values["frames_per_second"]
    left = max(0, config.frames - frames)  # the last step of many environments goes beyond the budget
    parts = [
        f"{min(1, frames / config.frames):4.0%} {frames:,} frames",
        f"{rate:,.0f}/s",
        # Games without updates say nothing of how long they take with them.
        "not learning yet" if values.get("updates") == 0 else f"{time_left(left / max(rate, 1e-9))} left",
    ]
    if "evaluating" in values:
        parts[1:] = [f"evaluating: {values['evaluating']:,} games ended"]
    if values["score"] is not None:
        parts.append(f"score {values['score']:.4g}")
        if values["normalised_pct"] is not None:
            parts.append(f"human {values['normalised_pct']:.1f}%")
    if evaluated is not None:
        parts.append(f"evaluated {evaluated:.4g}")
    parts.append(f"ε {values['epsilon']:.3f}")
    if "loss" in values:
        parts.append(f"loss {values['loss']:.3g}")
        parts.append(f"Q {values['q']:.3g}")
        if config.bounds and (config.k or config.use_return or config.horizon != "window"):
            parts.append(f"L violated {values['lower_violated']:.0%} by {values['lower_gap']:.2g}")
        if config.bounds and config.use_upper and config.k >= (config.upper_from if config.upper_by == "behind" else 1):
            parts.append(f"U violated {values['upper_violated']:.0%} by {values['upper_gap']:.2g}")
        if config.bounds and config.use_return:
            parts.append(f"R tightest {values['return_tightest']:.0%}")
        if "crossings" in values:
            parts.append(f"crossings {values['crossings']:.0%}")
    return " · ".join(parts)


class Lines(Console):
    """A console that does not end the process when the reader of its pipe has left, as rich's own does."""

    def on_broken_pipe(self) -> None:
        raise  # the error in hand: `Progress` falls silent


class Progress:
    """Where a run's lines go: to a terminal, where the newest replaces the one before; to a file or a pipe, with the
    time before each; or, with `json`, to standard output as objects.

    Nobody listening is no reason to stop a run: when the pipe is closed or its disk is full, it goes on in silence.
    """

    def __init__(self, path: Path, config: Config, quiet: bool, json: bool = False) -> None:
        self.path, self.config, self.quiet, self.json = path, config, quiet, json
        self.over = False  # before it began: nothing is to be played
        self._console = Lines(file=sys.stderr, highlight=False)
        self._live: Live | None = None
        self._known: dict[str, Any] = {}  # the last full line of metrics
        self._evaluated: float | None = None
        self._printed = time.monotonic()

    def say(self, text: str) -> None:
        """A sentence."""
        if self.json:
            self._object("said", text=text)
        elif self._console.is_terminal:
            self._print(text)
        else:
            self._print(time.strftime("%Y-%m-%d %H:%M:%S ") + text)

    def _print(self, text: str) -> None:
        if self.quiet:
            return
        try:
            self._console.print(text, soft_wrap=True, markup=False)
        except OSError:
            self.quiet = True

    def _object(self, event: str, **values: Any) -> None:
        if self.quiet:
            return
        stamp = datetime.now(UTC).isoformat(timespec="seconds")
        try:
            print(json.dumps({"event": event, "time": stamp} | values), flush=True)
        except OSError:
            self.quiet = True

    def __enter__(self) -> Progress:
        if self.json:
            self._object("run", path=str(self.path), total_frames=self.config.frames)
            return self
        self.say(f"run {self.path}")
        if not self.quiet and not self.over and self._console.is_terminal:
            self._live = Live(Text("playing ..."), console=self._console, refresh_per_second=4, transient=False)
            self._live.__enter__()
        return self

    def show(self, values: dict[str, Any], evaluated: float | None) -> None:
        """A full line of metrics."""
        self._known, self._evaluated = values, evaluated
        if self.json:
            self._object("metrics", evaluated=evaluated, **values)
        else:
            self._put(values, every=0)

    def on_evaluation(self, row: Mapping[str, Any]) -> None:
        """As a callback: an evaluation, for programs; people are told in a sentence."""
        if self.json:
            self._object("evaluation", **row)

    def on_end(self, agent: Any) -> None:
        """As a callback: how it ended; without an agent it failed."""
        if self.json:
            facts = agent.facts if agent else None
            self._object("end", frames=facts and facts.frames, score=facts and facts.score)

    def glance(self, values: dict[str, Any]) -> None:
        """How far it is, between two full lines; without a terminal once a minute is enough."""
        if not self.json:
            self._put(self._known | values, every=60)

    def _put(self, values: dict[str, Any], every: float) -> None:
        if self.quiet:
            return
        text = line(values, self.config, self._evaluated)
        if self._live is not None:
            self._live.update(Text(text))
        elif time.monotonic() >= self._printed + every:
            self._printed = time.monotonic()
            self.say(text)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            with contextlib.suppress(OSError):
                self._live.__exit__(kind, error, trace)
            self._live = None
