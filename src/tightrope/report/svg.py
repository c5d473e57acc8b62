"""Drawing: charts as inline SVG whose colours are the page's CSS variables, so that they follow its theme."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from tightrope.report.words import number

CHARACTER, LETTER, BOLD = 6.8, 7.0, 7.6  # widths at the charts' 11.5 px: of a digit, of a name's letters, of bold ones
ROW = 22


def tag(name: str, *children: object, **attributes: object) -> Markup:
    """An element, everything in it escaped.

    >>> tag("text", "a < b", x=1.25, text_anchor="end", class_="label")
    Markup('<text x="1.2" text-anchor="end" class="label">a &lt; b</text>')
    """
    written = Markup("").join(
        Markup(' {}="{}"').format(
            key.rstrip("_").replace("_", "-"), f"{value:.1f}" if isinstance(value, float) else value
        )
        for key, value in attributes.items()
        if value is not None
    )
    inner = Markup("").join(escape(child) for child in children)
    return Markup("<{}{}>{}</{}>").format(Markup(name), written, inner, Markup(name))


def picture(width: float, height: float, parts: Sequence[Markup], class_: str) -> Markup:
    # Hidden from readers of screens: the figure around it has the words.
    box = {"viewBox": f"0 0 {width:g} {height:g}", "preserveAspectRatio": "xMinYMin"}
    return tag("svg", *parts, **box, class_=class_, aria_hidden="true", focusable="false")


# ------------------------------------------------------------------------------------------------------------- scales


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high.

    >>> ticks(0, 97), ticks(-21, 3, 4)
    ([0.0, 20.0, 40.0, 60.0, 80.0], [-20.0, -10.0, 0.0])
    """
    if high <= low:
        return [low]
    raw = (high - low) / about
    size = 10.0 ** math.floor(math.log10(raw))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= raw * 0.999)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 10) + 0.0 for i in range(first, last + 1)]


def linear(low: float, high: float, start: float, end: float) -> Callable[[float], float]:
    span = (high - low) or 1.0
    return lambda value: start + (value - low) / span * (end - start)


def squeezed(value: float) -> float:
    """Linear near zero, logarithmic far away, for percentages that run from -100 to many thousands."""
    return math.asinh(value / 20)


# -------------------------------------------------------------------------------------------------------- line charts


@dataclass(frozen=True)
class Line:
    label: str
    style: str  # CSS classes
    points: Sequence[tuple[float, float]]
    band: Sequence[tuple[float, float, float]] = ()  # x, low, high
    dots: Sequence[tuple[float, float]] = ()


@dataclass(frozen=True)
class Mark:
    """Somebody else's result: a hollow shape."""

    x: float
    y: float
    shape: str  # diamond, square, triangle, circle
    title: str


@dataclass(frozen=True)
class Level:
    """A reference: a dashed line across, with its name on it."""

    y: float
    label: str


def line_chart(
    lines: Sequence[Line],
    *,
    width: float = 360,
    height: float = 220,
    x_range: tuple[float, float],
    y_range: tuple[float, float] | None = None,
    x_tick: Callable[[float], str],
    y_tick: Callable[[float], str] = lambda value: number(value, 3),
    x_label: str = "",
    levels: Sequence[Level] = (),
    marks: Sequence[Mark] = (),
    direct: bool = False,
    class_: str = "panel",
) -> Markup:
    """Curves, bands and dots over x; with `direct` each curve's name stands at its end."""
    values = [y for line in lines for _, y in (*line.points, *line.dots)]
    values += [y for line in lines for _, low, high in line.band for y in (low, high)]
    values += [mark.y for mark in marks] + [level.y for level in levels]
    low, high = y_range or padded(values)
    y_ticks = ticks(low, high, 4)
    left = 12 + CHARACTER * max(len(y_tick(value)) for value in y_ticks)
    right = 10 + (BOLD * max(len(line.label) for line in lines) if direct else 4)
    top, bottom = 8, 36 if x_label else 22
    x = linear(*x_range, left, width - right)
    y = linear(low, high, height - bottom, top)
    parts = []
    for value in y_ticks:
        parts.append(tag("line", x1=left, x2=width - right, y1=y(value), y2=y(value), class_="grid"))
        parts.append(tag("text", y_tick(value), x=left - 6, y=y(value) + 4, text_anchor="end"))
    x_ticks = ticks(*x_range, max(2, int((width - left - right) / 80)))
    for value in x_ticks:
        parts.append(tag("line", x1=x(value), x2=x(value), y1=height - bottom, y2=height - bottom + 4, class_="tick"))
        parts.append(tag("text", x_tick(value), x=x(value), y=height - bottom + 16, text_anchor="middle"))
    if x_label:
        parts.append(tag("text", x_label, x=(left + width - right) / 2, y=height - 5, text_anchor="middle"))
    for level in levels:
        parts.append(tag("line", x1=left, x2=width - right, y1=y(level.y), y2=y(level.y), class_="level"))
    for line in lines:
        if line.band:
            upper = [f"{x(a):.1f},{y(c):.1f}" for a, _, c in line.band]
            lower = [f"{x(a):.1f},{y(b):.1f}" for a, b, _ in reversed(line.band)]
            parts.append(tag("polygon", points=" ".join(upper + lower), class_=f"band {line.style}"))
    for line in lines:
        parts += [
            tag("circle", cx=x(a), cy=y(b), r=2.4 if len(line.dots) < 12 else 1.8, class_=f"dot {line.style}")
            for a, b in line.dots
        ]
        if len(line.points) == 1:
            parts.append(tag("circle", cx=x(line.points[0][0]), cy=y(line.points[0][1]), r=3, class_=line.style))
        path = " ".join(f"{x(a):.1f},{y(b):.1f}" for a, b in line.points)
        parts.append(tag("polyline", points=path, class_=f"curve {line.style}"))
    parts += [shape(mark, x(mark.x), y(mark.y)) for mark in marks]
    parts += [tag("text", lv.label, x=left + 4, y=y(lv.y) - 4, class_="level-name") for lv in levels]
    if direct:
        ends = [(y(line.points[-1][1]), line) for line in lines if line.points]
        for place, (_, line) in zip(apart([end for end, _ in ends]), ends, strict=True):
            beside = min(x(line.points[-1][0]) + 8, width - right + 5)
            parts.append(tag("text", line.label, x=beside, y=place + 4, class_=f"name {line.style}"))
    return picture(width, height, parts, class_)


def padded(values: Sequence[float]) -> tuple[float, float]:
    """A range with some air; down to zero where that is near."""
    low, high = min(values, default=0.0), max(values, default=1.0)
    if 0 < low < 0.5 * high:
        low = 0.0
    air = 0.06 * (high - low) or max(1.0, abs(high) * 0.1)
    return (low if low == 0 else low - air), high + air


def apart(places: Sequence[float], least: float = 13) -> list[float]:
    """The same places, moved down where two would overlap."""
    moved = dict.fromkeys(range(len(places)), 0.0)
    last = -math.inf
    for index in sorted(moved, key=lambda i: places[i]):
        last = moved[index] = max(places[index], last + least)
    return [moved[index] for index in range(len(places))]


def shape(mark: Mark, x: float, y: float) -> Markup:
    corners = {
        "diamond": [(0, -5), (5, 0), (0, 5), (-5, 0)],
        "square": [(-4, -4), (4, -4), (4, 4), (-4, 4)],
        "triangle": [(0, -5), (5, 4), (-5, 4)],
        "down": [(0, 5), (5, -4), (-5, -4)],
        "cross": [(-5, -2), (-2, -2), (-2, -5), (2, -5), (2, -2), (5, -2),
                  (5, 2), (2, 2), (2, 5), (-2, 5), (-2, 2), (-5, 2)],
    }[mark.shape]  # fmt: skip
    points = " ".join(f"{x + a:.1f},{y + b:.1f}" for a, b in corners)
    return tag("polygon", tag("title", mark.title), points=points, class_="mark")


# --------------------------------------------------------------------------------------------------------- row charts


@dataclass(frozen=True)
class Row:
    """One line of a chart that is read like a table: its name, a bar or a dot, perhaps an interval."""

    label: str
    value: float
    text: str
    style: str = ""
    low: float | None = None
    high: float | None = None
    second: float | None = None  # another reckoning of the same, as a small mark


def bar_chart(rows: Sequence[Row], width: float, extent: tuple[float, float], unit: str, class_: str) -> Markup:
    """Bars left and right of zero, which `extent` contains."""
    low, high = extent
    squeeze = max(-low, high) > 400
    bend = squeezed if squeeze else float
    left = 14 + LETTER * max(len(row.label) for row in rows)
    air = 14 + CHARACTER * max(len(row.text) for row in rows)
    x = linear(bend(low), bend(high), left + 4, width - air)
    bottom = 8 + ROW * len(rows)
    parts = []
    if squeeze:
        marks = [v for v in (-1e3, -100.0, -20.0, 0.0, 20.0, 100.0, 1e3, 1e4) if low <= v <= high]
    else:
        marks = ticks(low, high, max(2, int(width / 130)))
    for value in marks:
        style = "tick" if value == 0 else "grid"
        parts.append(tag("line", x1=x(bend(value)), x2=x(bend(value)), y1=2, y2=bottom, class_=style))
        parts.append(tag("text", number(value, 5), x=x(bend(value)), y=bottom + 15, text_anchor="middle"))
    parts.append(tag("text", unit, x=width, y=bottom + 32, text_anchor="end"))
    for i, row in enumerate(rows):
        y = 8 + ROW * i
        start, end = sorted((x(0.0), x(bend(row.value))))
        style = "gain" if row.value >= 0 else "loss"
        parts.append(tag("text", row.label, x=left - 8, y=y + 13, text_anchor="end", class_="row-name"))
        parts.append(tag("rect", x=start, y=y + 3, width=max(end - start, 0.8), height=ROW - 9, class_=style))
        if row.second is not None:
            other = x(bend(row.second))
            parts.append(tag("line", x1=other, x2=other, y1=y + 0.5, y2=y + ROW - 3.5, class_="second"))
            end = max(end, other)
        # The number stands right of everything, where a bar to the left leaves room.
        parts.append(tag("text", row.text, x=end + 5, y=y + 13, class_="value"))
    return picture(width, bottom + 38, parts, class_)


def interval_chart(
    rows: Sequence[Row],
    *,
    width: float = 360,
    x_range: tuple[float, float] | None = None,
    middle: float | None = None,
    unit: str = "",
    class_: str = "panel",
) -> Markup:
    """A dot for each row, with its interval where there is one, and the numbers at the right."""
    values = [value for row in rows for value in (row.value, row.low, row.high) if value is not None]
    low, high = x_range or padded(values)
    left = 14 + LETTER * max(len(row.label) for row in rows)
    air = 10 + CHARACTER * max(len(row.text) for row in rows)
    x = linear(low, high, left, max(left + 60, width - air))
    width = max(width, left + 60 + air)
    bottom = 6 + ROW * len(rows)
    parts = []
    for value in ticks(low, high, max(3, int((x(high) - left) / 55))):
        parts.append(tag("line", x1=x(value), x2=x(value), y1=2, y2=bottom, class_="grid"))
        parts.append(tag("text", number(value, 5), x=x(value), y=bottom + 15, text_anchor="middle"))
    if middle is not None:
        parts.append(tag("line", x1=x(middle), x2=x(middle), y1=2, y2=bottom, class_="tick"))
    if unit:
        parts.append(tag("text", unit, x=(left + x(high)) / 2, y=bottom + 31, text_anchor="middle"))
    for i, row in enumerate(rows):
        y = 6 + ROW * i + ROW / 2
        parts.append(tag("text", row.label, x=left - 8, y=y + 4, text_anchor="end", class_="row-name"))
        if row.low is not None and row.high is not None:
            parts.append(tag("line", x1=x(row.low), x2=x(row.high), y1=y, y2=y, class_=f"interval {row.style}"))
        parts.append(tag("circle", cx=x(row.value), cy=y, r=4, class_=f"point {row.style}"))
        parts.append(tag("text", row.text, x=width, y=y + 4, text_anchor="end", class_="value"))
    return picture(width, bottom + (38 if unit else 22), parts, class_)
