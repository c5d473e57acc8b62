"""What is seen of a moment: the game's picture and, beside it, the actions' values and the value's rope."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tightrope.watch.rope import Rope

if TYPE_CHECKING:
    from PIL.ImageDraw import ImageDraw

    from tightrope.agent import Agent
    from tightrope.watch.play import Played

#: Of the whole picture, and of what stands beside the game.
HEIGHT, PANEL = 480, 480
#: Steps of the rope that are seen: six seconds of Atari.
SEEN = 90
#: Of the range that is shown: Q is called outside its bounds only beyond this.
SLACK = 0.05
#: The panel is drawn so much larger and then reduced, which smooths its lines.
FINE = 2
MARGIN = 16

BACKGROUND, INK, FAINT, RULE = (24, 26, 31), (232, 232, 228), (140, 146, 156), (58, 62, 70)
CHOSEN, OTHER, LOWER, UPPER, BAND, CROSSED, BAD = (
    (240, 150, 50), (96, 108, 128), (86, 180, 233), (110, 200, 140), (56, 78, 94), (92, 52, 84), (235, 80, 80),
)  # fmt: skip


class Box(NamedTuple):
    """A rectangle of the panel, and the values that its upper and lower edge stand for."""

    left: float
    top: float
    right: float
    bottom: float
    low: float = 0.0
    high: float = 1.0

    def y(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.bottom - (self.bottom - self.top) * min(1.0, max(0.0, share))

    def x(self, value: float) -> float:
        share = (value - self.low) / (self.high - self.low)
        return self.left + (self.right - self.left) * min(1.0, max(0.0, share))


def _range(*columns: np.ndarray) -> tuple[float, float]:
    """Nearly from the smallest to the largest, with some air; infinite values are left out.

    One value in a hundred at either end may leave the picture: a game's first state, which some presets never learn
    from, can be valued at ten times the rest.
    """
    values = np.concatenate([column.ravel() for column in columns])
    low, high = (float(end) for end in np.percentile(values[np.isfinite(values)], (1, 99)))
    air = 0.1 * (high - low) or 0.5
    return low - air, high + air


def _advantage(values: np.ndarray) -> np.ndarray:
    """How far each lies above the mean of all."""
    above: np.ndarray = values - values.mean()
    return above


class Scene:
    """A played game. Scales are those of the whole game, so that nothing jumps."""

    def __init__(self, agent: Agent, seed: int, played: Played, rope: Rope | None) -> None:
        facts = agent.facts
        self.played, self.rope = played, rope
        self.names = agent.info.action_names
        self.title = facts.game.removeprefix("atari/").replace("_", " ")
        self.about = f"{facts.preset}, {facts.frames:,} frames, game {seed}"
        spread = np.stack([_advantage(moment.values) for moment in played.moments])
        self._spread = float(np.percentile(np.abs(spread), 99)) or 1.0
        if rope is not None:
            # Upper bounds far above everything else would flatten it: they leave the picture at its edge.
            low, high = _range(rope.q, rope.lower)
            near = rope.upper[np.isfinite(rope.upper)]
            top = float(np.percentile(near, 90)) if len(near) else high
            self._span = low, min(max(high, top), high + (high - low))

    def violated(self, time: int) -> bool:
        """Whether Q lies so far outside its bounds that it is seen: values are noisy, and the highest of some lower
        bounds lies a little above Q nearly always."""
        assert self.rope is not None
        q, lower, upper = (float(column[time]) for column in self.rope)
        slack = SLACK * (self._span[1] - self._span[0])
        return q < lower - slack or q > upper + slack

    def told(self, time: int) -> str:
        """Where Q lies, by its three numbers as they are shown."""
        assert self.rope is not None
        q, lower, upper = (round(float(column[time]), 3) for column in self.rope)
        if lower > upper:
            return f"the bounds contradict by {lower - upper:.3f}"
        if lower <= q <= upper:
            return "within its bounds" if np.isfinite([lower, upper]).any() else "no bounds here"
        side = "below its lower bound" if q < lower else "above its upper bound"
        return side if self.violated(time) else f"a little {side}"

    # ---------------------------------------------------------------------------------------------------- as a picture

    def draw(self, time: int) -> np.ndarray:
        """[height, width, 3], sides even."""
        picture = fitted(self.played.picture(time), HEIGHT)
        if self.rope is None:
            return picture
        return np.concatenate([picture, self._panel(time)], axis=1)

    def _panel(self, time: int) -> np.ndarray:
        from PIL import Image, ImageDraw

        image = Image.new("RGB", (PANEL * FINE, HEIGHT * FINE), BACKGROUND)
        pen = ImageDraw.Draw(image)
        moment = self.played.moments[time]
        _text(pen, MARGIN, 14, self.title, 22)
        _text(pen, PANEL - MARGIN, 14, f"score {moment.score:g}", 22, anchor="ra")
        _text(pen, MARGIN, 44, self.about, 13, FAINT)
        _text(pen, PANEL - MARGIN, 44, f"step {time:,}", 13, FAINT, anchor="ra")
        split = self._bars(pen, time, 74)
        self._chart(pen, time, split + 14)
        return np.asarray(image.reduce(FINE))

    def _bars(self, pen: ImageDraw, time: int, top: int) -> int:
        """The value of each action, the chosen one marked; returns where it ends. Bars show how far it lies above or
        below the mean of all: the actions of one state differ little, beside what states differ by."""
        moment = self.played.moments[time]
        action, best = moment.action, int(moment.values.argmax())
        _text(pen, MARGIN, top, "Q of each action", 14)
        if action < 0:
            _text(pen, PANEL - MARGIN, top, "the game is over", 14, FAINT, anchor="ra")
        else:
            why = "the best" if action == best else "at random"
            _text(pen, PANEL - MARGIN, top, f"chosen: {self.names[action]}, {why}", 14, CHOSEN, anchor="ra")
        tall = min(22.0, 180 / len(moment.values))
        size = int(min(13, tall - 1))
        box = Box(MARGIN + 130, 0, PANEL - MARGIN - 74, 0, -self._spread, self._spread)
        y = top + 24.0
        _line(pen, [(box.x(0), y), (box.x(0), y + tall * len(moment.values))], RULE, 2)
        for index, (value, above) in enumerate(zip(moment.values, _advantage(moment.values), strict=True)):
            ink = CHOSEN if index == action else INK if index == best else FAINT
            _text(pen, MARGIN, y + tall / 2, self.names[index], size, ink, anchor="lm")
            left, right = sorted((box.x(0), box.x(float(above))))
            _rectangle(pen, left, y + 3, max(right, left + 1), y + tall - 3, CHOSEN if index == action else OTHER)
            _text(pen, PANEL - MARGIN, y + tall / 2, f"{value:.3f}", size, ink, anchor="rm")
            y += tall
        _text(pen, box.x(0) - 8, y + 2, "below their mean", 12, FAINT, anchor="ra")
        _text(pen, box.x(0) + 8, y + 2, "above it", 12, FAINT)
        return int(y) + 14

    def _chart(self, pen: ImageDraw, time: int, top: int) -> None:
        """Q of the actions taken, and the two bounds between which it should walk, over the last seconds."""
        assert self.rope is not None
        _text(pen, MARGIN, top, "The value's rope", 14)
        right = float(PANEL - MARGIN)
        for words, colour in (("lower bound", LOWER), ("Q", CHOSEN), ("upper bound", UPPER)):
            right -= _text(pen, right, top, words, 13, colour, anchor="ra") + 14
        left = float(MARGIN)
        for words, colour in (("Q belongs here", BAND), ("bounds contradict", CROSSED), ("Q clearly outside", BAD)):
            _rectangle(pen, left, top + 25, left + 10, top + 33, colour)
            left += _text(pen, left + 16, top + 22, words, 12, FAINT) + 34
        box = Box(MARGIN + 44, top + 46, PANEL - MARGIN - 6, HEIGHT - MARGIN - 16, *self._span)
        for value in (box.low, (box.low + box.high) / 2, box.high):
            _line(pen, [(box.left, box.y(value)), (box.right, box.y(value))], RULE, 1)
            _text(pen, box.left - 6, box.y(value), f"{value:.2f}", 12, FAINT, anchor="rm")
        _text(pen, box.left, box.bottom + 4, f"{SEEN} steps ago", 12, FAINT)
        last = min(time, len(self.rope.q) - 1)
        ink = BAD if self.violated(last) else FAINT
        _text(pen, box.right, box.bottom + 4, f"now: {self.told(last)}", 12, ink, anchor="ra")
        steps = range(max(0, last - SEEN), last + 1)

        def points(column: np.ndarray, stretch: list[int]) -> list[tuple[float, float]]:
            wide = (box.right - box.left) / SEEN
            return [(box.right - (last - step) * wide, box.y(column[step])) for step in stretch]

        q, lower, upper = self.rope
        both = np.isfinite(lower) & np.isfinite(upper)
        for there, colour in ((both & (lower <= upper), BAND), (both & (lower > upper), CROSSED)):
            for stretch in self._stretches(steps, there):
                _polygon(pen, points(lower, stretch) + points(upper, stretch)[::-1], colour)
        for column, colour, wide in ((upper, UPPER, 3), (lower, LOWER, 3), (q, CHOSEN, 5)):
            for stretch in self._stretches(steps, np.isfinite(column)):
                _line(pen, points(column, stretch), colour, wide)
        for at in points(q, [step for step in steps if self.violated(step)]):
            _dot(pen, *at, 2, BAD)
        _dot(pen, *points(q, [last])[0], 5, BAD if self.violated(last) else CHOSEN)

    def _stretches(self, steps: range, there: np.ndarray) -> list[list[int]]:
        """Steps in a row that are there and of one episode, at least two."""
        found: list[list[int]] = [[]]
        for step in steps:
            if there[step]:
                found[-1].append(step)
            if not there[step] or self.played.moments[step].terminal:
                found.append([])
        return [stretch for stretch in found if len(stretch) > 1]

    # ------------------------------------------------------------------------------------------------------- in words

    def words(self, time: int, wide: int) -> list[str]:
        """The same as lines of text, with the colours of a terminal."""
        moment = self.played.moments[time]
        lines = [f"{self.title}  score {moment.score:g}"]
        if self.rope is None:
            return lines
        lines += [self.about[:wide], f"step {time:,}", "", "Q of each action"]
        box = Box(0, 0, wide - 24, 0, -self._spread, self._spread)
        for index, (value, above) in enumerate(zip(moment.values, _advantage(moment.values), strict=True)):
            bar = "█" * round(box.x(float(above)))
            line = f"{self.names[index]:<14}{value:8.3f} {bar}"
            lines.append(_coloured(line, CHOSEN) if index == moment.action else line)
        step = min(time, len(self.rope.q) - 1)
        q, lower, upper = (float(column[step]) for column in self.rope)
        lines += ["", "The value's rope", self._rope_line(q, lower, upper, wide)]
        said = [f"{name} {value:.3f}" if np.isfinite(value) else f"no {name}"
                for name, value in (("lower", lower), ("Q", q), ("upper", upper))]  # fmt: skip
        lines.append("  ".join(said))
        told = self.told(step)
        lines.append(_coloured(told, BAD) if self.violated(step) else told)
        # A line in any case, so that nothing jumps.
        lines.append("(they rest on Q, which is not exact)" if "contradict" in told else "")
        return lines

    def _rope_line(self, q: float, lower: float, upper: float, wide: int) -> str:
        """[----o-----]: Q on its rope."""
        box = Box(0, 0, wide - 1, 0, *self._span)
        cells = [" "] * wide
        left, right = round(box.x(lower)), round(box.x(upper))
        for place in range(left, right + 1):
            cells[place] = "─"
        cells[left], cells[right], cells[round(box.x(q))] = "├", "┤", "●"
        return "".join(cells)


def fitted(picture: np.ndarray, height: int) -> np.ndarray:
    """The picture at this height or a little below, by whole numbers where it is enlarged, centred on black."""
    if picture.shape[0] > height:
        from PIL import Image

        wide = round(picture.shape[1] * height / picture.shape[0])
        large = np.asarray(Image.fromarray(picture).resize((wide, height)))
    else:
        factor = height // picture.shape[0]
        large = picture.repeat(factor, 0).repeat(factor, 1)
    wide = large.shape[1] + large.shape[1] % 2
    canvas = np.zeros((height, wide, 3), np.uint8)
    top, left = (height - large.shape[0]) // 2, (wide - large.shape[1]) // 2
    canvas[top : top + large.shape[0], left : left + large.shape[1]] = large
    return canvas


# ------------------------------------------------------------------------------------- drawing, in units of the panel


@cache
def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size * FINE)


def _text(
    pen: ImageDraw, x: float, y: float, words: str, size: int, colour: tuple[int, int, int] = INK, anchor: str = "la"
) -> float:
    """Returns how wide it is."""
    pen.text((x * FINE, y * FINE), words, colour, _font(size), anchor)
    return float(pen.textlength(words, _font(size))) / FINE


def _line(pen: ImageDraw, points: list[tuple[float, float]], colour: tuple[int, int, int], wide: int) -> None:
    pen.line([(x * FINE, y * FINE) for x, y in points], colour, wide)


def _polygon(pen: ImageDraw, points: list[tuple[float, float]], colour: tuple[int, int, int]) -> None:
    pen.polygon([(x * FINE, y * FINE) for x, y in points], colour)


def _rectangle(
    pen: ImageDraw, left: float, top: float, right: float, bottom: float, colour: tuple[int, int, int]
) -> None:
    pen.rectangle([left * FINE, top * FINE, right * FINE, bottom * FINE], colour)


def _dot(pen: ImageDraw, x: float, y: float, radius: float, colour: tuple[int, int, int]) -> None:
    pen.ellipse([(x - radius) * FINE, (y - radius) * FINE, (x + radius) * FINE, (y + radius) * FINE], colour)


def _coloured(line: str, colour: tuple[int, int, int]) -> str:
    return "\x1b[38;2;{};{};{}m{}\x1b[0m".format(*colour, line)
