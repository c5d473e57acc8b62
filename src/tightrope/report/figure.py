"""What a figure is: its drawing, its data as CSV, and its content in words; and what all figures share."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

from tightrope.report.data import Arm, Collection, frames_in_words, rom_of
from tightrope.report.landmarks import PAPER
from tightrope.report.statistics import Comparison, Estimate, mean_score, scales
from tightrope.report.svg import Line
from tightrope.report.words import fixed, spread

WIDE, NARROW = 760, 360
COLOURS = 6
MOST_DRAWN = 8  # arms in one drawing: more could not be told apart

#: The paper's own agent and those of others that are drawn, with their shapes; the table of landmarks has them all.
SHAPES = {
    PAPER: "cross",
    "DQN (Dopamine)": "square",
    "IQN (Dopamine)": "down",
    "IQN, IMPALA (Dopamine)": "triangle",
    "BTR": "diamond",
}


@dataclass(frozen=True)
class Panel:
    drawing: Markup
    title: str = ""
    note: str = ""
    video: str = ""  # a data URI
    video_note: str = ""


@dataclass
class Figure:
    id: str
    title: str
    caption: str
    alt: str
    data: str  # CSV
    panels: list[Panel]
    legend: list[tuple[str, str]] = field(default_factory=list)  # (CSS classes or shape, text)
    layout: str = "panels"  # side by side; "pairs": two by two; "stack": each over the page's width


def to_csv(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()


def drawn(collection: Collection) -> list[Arm]:
    """The arms that drawings show: all, or of many the plain ones (at most two) and those with the best means."""
    if len(collection.arms) <= MOST_DRAWN:
        return collection.arms
    anchored = [(scale, game) for scale in scales(collection) for game in scale.anchors]
    standing = {}
    for arm in collection.arms:
        found = [
            scale.percent(game, mean_score(runs, "last_five"))
            for scale, game in anchored
            if (runs := collection.settled(game, arm))
        ]
        standing[arm] = len(found), sum(found)
    best_first = sorted(collection.arms, key=lambda arm: standing[arm], reverse=True)
    plain = [arm for arm in best_first if arm.plain][:2]
    chosen = plain + [arm for arm in best_first if arm not in plain][: MOST_DRAWN - len(plain)]
    return [arm for arm in collection.arms if arm in chosen]


def not_drawn(collection: Collection) -> str:
    """For a caption: which arms its drawing leaves out."""
    left_out = len(collection.arms) - len(drawn(collection))
    if not left_out:
        return ""
    return (
        f" Of {len(collection.arms)} arms those without bounds (at most two) and the best of the others are drawn; the "
        f"other {left_out} are in the CSV."
    )


def styles(collection: Collection) -> dict[Arm, str]:
    """Plain DQN in the colour of ink, as in the paper; the others in colours that the colour-blind can tell apart."""
    found = {}
    arms = drawn(collection)
    arms = arms + [arm for arm in collection.arms if arm not in arms]
    for plain in (False, True):
        for i, arm in enumerate(arm for arm in arms if arm.plain == plain):
            colour = "plain" if plain else f"c{i % COLOURS}"
            dash = ("", "dash-1", "dash-2", "dash-3")[(i if plain else i // COLOURS) % 4]
            found[arm] = f"{colour} {dash}".strip()
    return found


def both_widths(draw: Callable[[float, str], Markup]) -> Markup:
    """For a wide page and for a phone: scaled down, its letters could not be read."""
    return draw(WIDE, "wide-only") + draw(NARROW, "narrow-only")


def few(lines: Sequence[Line]) -> bool:
    """So few curves, with names so short, that the names fit beside their ends; a legend there is anyway."""
    return len(lines) <= 3 and all(len(line.label) <= 10 for line in lines)


def seeds_of(collection: Collection, game: str, names: Sequence[str]) -> str:
    """How many seeds the curves of a game rest on, and which of them have not ended."""
    runs = {arm.name: collection.settled(game, arm) for arm in collection.arms if arm.name in names}
    unfinished = [name for name, own in runs.items() if not own[0].finished]
    said = spread((len(own) for own in runs.values()), "seed")
    return said + (f" ({', '.join(unfinished)} not finished)" if unfinished else "")


def roms(block: Comparison) -> list[str]:
    return [rom for game in block.games if (rom := rom_of(game)) is not None]


def basis(block: Comparison) -> str:
    return f"{block.scale.unit}, {frames_in_words(block.frames)} frames"


def with_interval(found: Estimate, decimals: int = 1) -> str:
    """
    >>> with_interval(Estimate(2.0)), with_interval(Estimate(2.0, 1.0, 3.0))
    ('2.0', '2.0 [1.0, 3.0]')
    """
    if found.low is None or found.high is None:
        return fixed(found.value, decimals)
    return f"{fixed(found.value, decimals)} [{fixed(found.low, decimals)}, {fixed(found.high, decimals)}]"
