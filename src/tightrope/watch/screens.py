"""Where a game is shown: a window, the terminal, a video."""

from __future__ import annotations

import errno
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from tightrope.checkpoint import disk_error
from tightrope.errors import TightropeError, counted
from tightrope.watch.scene import Scene


class Screen(Protocol):
    def say(self, text: str) -> None:
        """Before the game is shown."""

    def show(self, scene: Scene, times: Sequence[int], rate: float) -> str:
        """These moments, so many a second; returns what became of it, to stand before the score."""


def choose(video: Path | None) -> Screen:
    if video is not None:
        return Video(video)
    if has_display():
        try:
            return Window()
        except TightropeError as problem:
            print(f"no window: {problem}", file=sys.stderr)
    return Terminal() if sys.stdout.isatty() else Video(Path("watch.gif"))


def has_display() -> bool:
    """Whether somebody could see a window."""
    if sys.platform in ("darwin", "win32"):
        return True
    return bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


class Video:
    """An .mp4 or .gif, written picture by picture, so that a long game needs no memory."""

    #: Pictures a second that players show; faster ones are thinned out.
    MOST = {".mp4": 60, ".gif": 50}  # noqa: RUF012

    def __init__(self, path: Path) -> None:
        self.path = path

    def say(self, text: str) -> None:
        if sys.stderr.isatty():
            print(text, file=sys.stderr)

    def show(self, scene: Scene, times: Sequence[int], rate: float) -> str:
        every = math.ceil(rate / self.MOST[self.path.suffix])
        chosen = times[::every]
        write_video(self.path, (scene.draw(moment) for moment in chosen), rate / every)
        return f"{self.path}: {counted(len(chosen), 'picture')}, "


def write_video(path: Path, frames: Iterator[np.ndarray], rate: float) -> None:
    """Pictures of one size, its sides even. An older video stays until the new one is whole."""
    if path.is_dir():
        raise TightropeError(f"{path} is a folder")
    new = path.with_name(f".{path.stem}.new{path.suffix}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_video(new, frames, rate)
        os.replace(new, path)
    except OSError as problem:
        # ffmpeg's own words are many, and its pipe breaks whatever it was that went wrong.
        if problem.errno in (None, errno.EPIPE):
            raise TightropeError(f"cannot write {path}: is there room, and may you write there?") from None
        raise disk_error(path, problem) from None
    finally:
        new.unlink(missing_ok=True)


def _write_video(path: Path, frames: Iterator[np.ndarray], rate: float) -> None:
    if path.suffix == ".gif":
        from PIL import Image

        images = (Image.fromarray(frame).quantize(64) for frame in frames)
        first = next(images)
        # In hundredths of a second, as the format counts.
        first.save(path, save_all=True, append_images=images, duration=max(2, round(100 / rate)) * 10, loop=0)
        return
    import imageio_ffmpeg

    first_frame = next(frames)
    height, width = first_frame.shape[:2]
    writer = imageio_ffmpeg.write_frames(str(path), (width, height), fps=rate, macro_block_size=2)
    writer.send(None)
    for frame in chain([first_frame], frames):
        writer.send(np.ascontiguousarray(frame))
    writer.close()


class Window:
    """Space pauses, the right arrow goes on by one step, up and down change the speed, Escape closes."""

    def __init__(self) -> None:
        os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
        try:
            import pygame
        except ImportError:
            raise TightropeError("pygame is not installed (pip install 'tightrope[window]')") from None
        self._pygame: Any = pygame
        try:
            pygame.display.init()
        except pygame.error as problem:
            raise TightropeError(str(problem)) from None

    def say(self, text: str) -> None:
        print(text, file=sys.stderr)

    def show(self, scene: Scene, times: Sequence[int], rate: float) -> str:
        pygame = self._pygame
        pygame.display.init()  # a game that was drawn with pygame may have closed it
        pygame.display.set_caption(f"{scene.title}   (space: pause, right: one step, up and down: speed, Esc: close)")
        height, width = scene.draw(times[0]).shape[:2]
        surface = pygame.display.set_mode((width, height))
        at, paused, next_at = 0, False, time.monotonic()
        try:
            while at < len(times):
                picture = pygame.image.frombuffer(scene.draw(times[at]).tobytes(), (width, height), "RGB")
                surface.blit(picture, (0, 0))
                pygame.display.flip()
                next_at = max(time.monotonic(), next_at + 1 / rate)
                step = False
                while True:  # keys are read at least once a picture, however late it is
                    for event in pygame.event.get():
                        key = getattr(event, "key", None) if event.type == pygame.KEYDOWN else None
                        if event.type == pygame.QUIT or key in (pygame.K_ESCAPE, pygame.K_q):
                            return ""
                        if key == pygame.K_SPACE:
                            paused = not paused
                        elif key == pygame.K_RIGHT:
                            paused = step = True
                        elif key in (pygame.K_UP, pygame.K_DOWN):
                            rate = min(240.0, max(0.5, rate * (2 if key == pygame.K_UP else 0.5)))
                    if step or not (paused or time.monotonic() < next_at):
                        break
                    time.sleep(0.005)
                at += 1
        except KeyboardInterrupt:
            pass  # seen enough
        finally:
            pygame.display.quit()
        return ""


class Terminal:
    """Two pixels to a character, upper and lower half block; beside them what the agent thinks, in words."""

    def say(self, text: str) -> None:
        print(text, file=sys.stderr)

    def show(self, scene: Scene, times: Sequence[int], rate: float) -> str:
        try:
            for moment in times:
                sys.stdout.write("\x1b[H\x1b[2J" + terminal_page(scene, moment))
                sys.stdout.flush()
                time.sleep(1 / rate)
        except KeyboardInterrupt:
            pass  # seen enough
        sys.stdout.write("\n")
        return ""


#: Characters of the words beside the picture.
WORDS_WIDE = 40


def terminal_page(scene: Scene, moment: int) -> str:
    import shutil

    columns, lines = shutil.get_terminal_size()
    words = scene.words(moment, WORDS_WIDE)
    beside = len(words) > 1 and columns >= 2 * WORDS_WIDE
    room = columns - WORDS_WIDE - 2 if beside else columns
    blocks, wide = half_blocks(scene.played.picture(moment), room, lines - (2 if beside else 2 + len(words)))
    if not beside:
        return "\n".join([*words, *blocks])
    height = max(len(blocks), len(words))
    blocks += [" " * wide] * (height - len(blocks))
    words += [""] * (height - len(words))
    return "\n".join(f"{block}  {line}" for block, line in zip(blocks, words, strict=True))


def half_blocks(picture: np.ndarray, columns: int, lines: int) -> tuple[list[str], int]:
    """A picture as lines of text, and how many characters they are wide."""
    step = max(1, -(-picture.shape[0] // (2 * max(1, lines))), -(-picture.shape[1] // max(1, columns)))
    small = picture[::step, ::step]
    small = small[: small.shape[0] // 2 * 2]
    rows = []
    for upper, lower in zip(small[::2], small[1::2], strict=True):
        cells = (
            f"\x1b[38;2;{a[0]};{a[1]};{a[2]};48;2;{b[0]};{b[1]};{b[2]}m▀" for a, b in zip(upper, lower, strict=True)
        )
        rows.append("".join(cells) + "\x1b[0m")
    return rows, small.shape[1]
