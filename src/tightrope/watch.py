"""One game, seen: in the terminal, or as a video."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np

from tightrope.actor import Actor
from tightrope.agent import Agent
from tightrope.checkpoint import disk_error
from tightrope.config import Config
from tightrope.errors import TightropeError
from tightrope.evaluation import protocol
from tightrope.games import make_game

PICTURES_PER_SECOND = 15  # Atari's 60 frames a second, 4 to a step


def pictures(agent: Agent, seed: int) -> Iterator[tuple[np.ndarray, float]]:
    """One game under the paper's protocol: each picture with the score so far."""
    plan = protocol("paper", Config.stored(agent.facts.config), agent.facts.game)
    game = make_game(agent.facts.game, 1, seed, replace(plan.options, render=True), agent.env)
    actor = Actor(agent.network, 1, agent.info, agent.device, seed)
    try:
        actor.observe(game.reset(), np.ones(1, dtype=bool))
        yield game.picture(), 0.0
        while True:
            game.send(actor.act(plan.epsilon))
            step = game.receive()
            actor.observe(step.frames, step.begins)
            yield game.picture(), float(step.scores[0])
            if step.game_over[0]:
                return
    finally:
        game.close()


def watch(agent: Agent, seed: int = 0, video: Path | None = None) -> str:
    """Shows one game; returns a sentence on it. Without a terminal it goes to watch.gif."""
    if seed < 0:
        raise TightropeError(f"seed = {seed}: must be a whole number of at least 0")
    if video is None and not sys.stdout.isatty():
        video = Path("watch.gif")
    # Pictures come from memory: where pygame draws them it needs no screen, and need not complain of one.
    os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    os.environ.setdefault("XDG_RUNTIME_DIR", tempfile.gettempdir())
    score = 0.0
    if video is None:
        try:
            for picture, score in pictures(agent, seed):
                show(picture, f"{agent.facts.game}  score {score:g}")
                time.sleep(1 / PICTURES_PER_SECOND)
        except KeyboardInterrupt:
            pass  # seen enough
        sys.stdout.write("\n")
        return f"score {score:g}"
    if video.suffix not in (".mp4", ".gif"):
        raise TightropeError(f"video = {str(video)!r}: must end in .mp4 or .gif")
    shown = 0

    def frames() -> Iterator[np.ndarray]:
        nonlocal shown, score
        for picture, so_far in pictures(agent, seed):
            shown, score = shown + 1, so_far
            yield enlarged(picture)

    write_video(video, frames())
    return f"{video}: {shown} pictures, score {score:g}"


def enlarged(picture: np.ndarray) -> np.ndarray:
    """At least 320 pixels high, and even sides, which video formats want."""
    factor = max(1, -(-320 // picture.shape[0]))
    large = picture.repeat(factor, 0).repeat(factor, 1)
    return large[: large.shape[0] // 2 * 2, : large.shape[1] // 2 * 2]


def write_video(path: Path, frames: Iterator[np.ndarray]) -> None:
    """Picture by picture, so that a long game needs no memory."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".gif":
            from PIL import Image

            images = (Image.fromarray(frame).quantize(64) for frame in frames)
            first = next(images)
            first.save(path, save_all=True, append_images=images, duration=1000 // PICTURES_PER_SECOND, loop=0)
            return
        import imageio_ffmpeg

        first_frame = next(frames)
        height, width = first_frame.shape[:2]
        writer = imageio_ffmpeg.write_frames(str(path), (width, height), fps=PICTURES_PER_SECOND, macro_block_size=2)
        writer.send(None)
        for frame in chain([first_frame], frames):
            writer.send(np.ascontiguousarray(frame))
        writer.close()
    except OSError as problem:
        raise disk_error(path, problem) from None


def show(picture: np.ndarray, title: str) -> None:
    """A picture in a terminal: two pixels to a character, upper and lower half block."""
    import shutil

    columns, lines = shutil.get_terminal_size()
    step = max(1, -(-picture.shape[0] // (2 * (lines - 2))), -(-picture.shape[1] // columns))
    small = picture[::step, ::step]
    small = small[: small.shape[0] // 2 * 2]
    rows = []
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        cells = (
            f"\x1b[38;2;{a[0]};{a[1]};{a[2]};48;2;{b[0]};{b[1]};{b[2]}m▀" for a, b in zip(upper, lower, strict=True)
        )
        rows.append("".join(cells) + "\x1b[0m")
    sys.stdout.write("\x1b[H\x1b[2J" + title + "\n" + "\n".join(rows))
    sys.stdout.flush()
