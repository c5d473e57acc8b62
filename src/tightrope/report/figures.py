"""The figures: each with its drawing, its data as CSV, and its content in words."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup

from tightrope.report import statistics
from tightrope.report.data import KINDS, Arm, Collection, frames_in_words, rom_of, title_of
from tightrope.report.landmarks import landmarks, summaries
from tightrope.report.statistics import Comparison, Estimate, Scale, arm_scores, mean_score
from tightrope.report.svg import Level, Line, Mark, Row, bar_chart, interval_chart, line_chart, padded
from tightrope.report.words import clipped, counted, fixed, number, spread
from tightrope.scores import references

WIDE, NARROW = 760, 360
COLOURS = 6

#: Agents of other projects that are drawn, with their shapes; the table of landmarks has them all.
SHAPES = {"DQN (Dopamine)": "square", "Rainbow (Dopamine)": "triangle", "IQN (Dopamine)": "down", "BTR": "diamond"}


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


def styles(arms: Sequence[Arm]) -> dict[Arm, str]:
    """Plain DQN in the colour of ink, as in the paper; the others in colours that the colour-blind can tell apart."""
    found = {}
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


# --------------------------------------------------------------------------------------------------- figures 1 and 2


@dataclass(frozen=True)
class Gain:
    game: str
    ours: dict[str, float]  # by kind
    theirs: dict[str, float]
    percent: dict[str, float]


def against_200m(collection: Collection, scale: Scale, arm: Arm) -> list[Gain]:
    gains = []
    for game in scale.anchors:
        rom, runs = rom_of(game), collection.finished(game, arm)
        if rom is not None and runs:
            ours = {kind: mean_score(runs, kind) for kind in KINDS}
            theirs = dict.fromkeys(KINDS, references()[rom].dqn_200m)
            percent = {kind: scale.improvement(game, ours[kind], theirs[kind]) for kind in KINDS}
            gains.append(Gain(game, ours, theirs, percent))
    return gains


def against_own(collection: Collection, scale: Scale, arm: Arm) -> list[Gain]:
    gains = []
    for game in scale.anchors:
        runs, baseline = collection.finished(game, arm), collection.baseline(game, arm)
        if runs and baseline is not None:
            ours = {kind: mean_score(runs, kind) for kind in KINDS}
            theirs = {kind: mean_score(collection.finished(game, baseline), kind) for kind in KINDS}
            percent = {kind: scale.improvement(game, ours[kind], theirs[kind]) for kind in KINDS}
            gains.append(Gain(game, ours, theirs, percent))
    return gains


def wins(gains: Sequence[Gain], kind: str) -> str:
    return f"{sum(gain.percent[kind] > 0 for gain in gains)} of {len(gains)}"


def improvement(
    id_: str, title: str, against: str, rule: str, all_gains: dict[Arm, list[Gain]], notes: dict[Arm, str]
) -> Figure | None:
    """Bars by the paper's eq. 5; one panel for each arm."""
    all_gains = {arm: gains for arm, gains in all_gains.items() if gains}
    if not all_gains:
        return None
    panels, said = [], []
    shown = [gain.percent[kind] for gains in all_gains.values() for gain in gains for kind in ("best", "last_five")]
    extent = min(0.0, *shown), max(0.0, *shown)  # one for all panels, so that their bars compare
    for arm, gains in all_gains.items():
        ordered = sorted(gains, key=lambda gain: -gain.percent["best"])
        rows = [
            Row(title_of(g.game), g.percent["best"], f"{signed(g.percent['best'])}%", second=g.percent["last_five"])
            for g in ordered
        ]
        drawing = both_widths(lambda width, css, rows=rows: bar_chart(rows, width, extent, "improvement, %", css))  # type: ignore[misc]
        note = f"Better on {wins(gains, 'best')} games by the best evaluation, {wins(gains, 'last')} by the last, "
        note += f"{wins(gains, 'last_five')} by the mean of the last five. {notes[arm]}"
        panels.append(Panel(drawing, arm.name, note))
        said.append(
            f"{arm.name}: better on {wins(gains, 'best')} games; from {title_of(ordered[0].game)} "
            f"{signed(ordered[0].percent['best'])}% to {title_of(ordered[-1].game)} "
            f"{signed(ordered[-1].percent['best'])}%."
        )
    rows_of_data = [
        (arm.name, gain.game, kind, gain.ours[kind], gain.theirs[kind], gain.percent[kind])
        for arm, gains in all_gains.items()
        for gain in gains
        for kind in KINDS
    ]
    return Figure(
        id_, title,
        f"Improvement over {against}, in percent. {rule} Bars: best evaluation of all, as in the paper. Upright "
        "strokes: mean of the last five.",
        f"Bar chart of the improvement over {against}. " + " ".join(said),
        to_csv(("arm", "game", "score_kind", "score", "baseline", "improvement_pct"), rows_of_data),
        panels, [("gain", "better"), ("loss", "worse"), ("second", "mean of the last five")], layout="stack",
    )  # fmt: skip


def signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value, 3)


# ------------------------------------------------------------------------------------------------------------ figure 3


def learning_curves(collection: Collection, videos: dict[str, tuple[str, str]]) -> Figure:
    look = styles(collection.arms)
    panels, rows, said, shown = [], [], [], set()
    crowded = len(collection.arms) > 4  # then lines alone
    for game in collection.games:
        lines, budget = [], 1
        for arm in collection.arms:
            runs = collection.settled(game, arm)
            points = statistics.curve(runs)
            if not points:
                continue
            budget = max(budget, arm.frames)
            lines.append(
                Line(
                    arm.name, look[arm], [(p.frames, p.smooth) for p in points],
                    [(p.frames, p.low, p.high) for p in points] if len(runs) > 1 and not crowded else [],
                    [(p.frames, p.score) for p in points] if not crowded else [],
                )
            )  # fmt: skip
            rows += [
                (game, arm.name, len(runs), p.epoch, round(p.frames), p.score, p.smooth, p.low, p.high) for p in points
            ]
            said.append(f"{title_of(game)}, {arm.name}: ends at {number(points[-1].smooth)}")
        if not lines:
            continue
        values = [y for line in lines for _, y in (*line.points, *line.dots)]
        rom = rom_of(game)
        known = references()[rom] if rom else None
        # A reference far above the curves would flatten them: then it is in the line below the title only.
        low, high = padded(values)
        levels: list[Level] = []
        for label, score in [("human", known.human), ("DQN 200M", known.dqn_200m)] if known else []:
            if low <= score <= high + 0.35 * (high - low) and not any(
                abs(score - level.y) < 0.09 * (high - low) for level in levels
            ):
                levels.append(Level(score, label))
        marks = [
            Mark(m.frames, m.score, SHAPES[m.agent], f"{m.agent}: {number(m.score)}. {m.protocol}")
            for m in landmarks()
            if m.rom == rom
            and m.agent in SHAPES
            and m.frames <= budget
            and low <= m.score <= high + 0.35 * (high - low)
        ]
        shown |= {agent for agent in SHAPES if any(mark.title.startswith(agent + ":") for mark in marks)}
        drawing = line_chart(
            lines,
            x_range=(0, budget * 1.02),
            x_tick=frames_in_words,
            x_label="frames",
            levels=levels,
            marks=marks,
            direct=few(lines),
        )
        note = seeds_of(collection, game, [line.label for line in lines])
        if known:
            note += (
                f" · human {number(known.human)} · DQN 200M {number(known.dqn_200m)} · He et al. {number(known.paper)}"
            )
        video, video_note = videos.get(game, ("", ""))
        panels.append(Panel(drawing, title_of(game), note, video, video_note))
    legend = [(look[arm], arm.name) for arm in collection.arms if any(row[1] == arm.name for row in rows)]
    legend += [(SHAPES[agent], f"{agent}, by its own protocol") for agent in SHAPES if agent in shown]
    return Figure(
        "figure-3", "Figure 3. Learning curves",
        "Score of whole games over training, mean over seeds, as a moving average over 4 evaluations. "
        + ("" if crowded else "Dots: the evaluations themselves; bands: the range of the seeds' own averages. ")
        + "Dashed lines: references within reach of the curves; hollow marks: other agents at that budget, see the "
        "landmarks.",
        "Learning curves, one panel for each game. " + "; ".join(said) + ".",
        to_csv(("game", "arm", "seeds", "epoch", "frames", "score", "smoothed", "seeds_lowest", "seeds_highest"), rows),
        panels, legend,
    )  # fmt: skip


def seeds_of(collection: Collection, game: str, names: Sequence[str]) -> str:
    """How many seeds the curves of a game rest on, and which of them have not ended."""
    runs = {arm.name: collection.settled(game, arm) for arm in collection.arms if arm.name in names}
    unfinished = [name for name, own in runs.items() if not own[0].finished]
    said = spread((len(own) for own in runs.values()), "seed")
    return said + (f" ({', '.join(unfinished)} not finished)" if unfinished else "")


# ----------------------------------------------------------------------------------------------------------- figure S1


def over_training(collection: Collection, blocks: Sequence[Comparison]) -> Figure | None:
    look = styles(collection.arms)
    panels, rows, said, shown = [], [], [], set()
    for block in blocks:
        training = {arm: statistics.over_training(collection, block, arm) for arm in block.arms}
        training = {arm: points for arm, points in training.items() if points}
        if not training:
            continue
        others = [s for s in summaries(roms(block)) if s.agent in SHAPES and s.frames <= block.frames]
        seeds = spread((len(collection.finished(g, arm)) for g in block.games for arm in training), "seed")
        for which in ("mean", "median"):
            lines = [
                Line(arm.name, look[arm], [(p.frames, getattr(p, which)) for p in points])
                for arm, points in training.items()
            ]
            values = [y for line in lines for _, y in line.points]
            high = padded(values)[1]
            marks = [
                Mark(s.frames, getattr(s, which), SHAPES[s.agent], f"{s.agent}: {number(getattr(s, which))}%")
                for s in others
                if getattr(s, which) <= 1.6 * high
            ]
            shown |= {agent for agent in SHAPES if any(mark.title.startswith(agent + ":") for mark in marks)}
            levels = [Level(100, "human")] if block.scale.name == "human" and 60 < high < 1000 else []
            drawing = line_chart(
                lines, height=240, x_range=(0, block.frames * 1.02), x_tick=frames_in_words, x_label="frames",
                y_tick=lambda v: number(v, 3) + "%", marks=marks, levels=levels, direct=few(lines),
            )  # fmt: skip
            title = f"{which.capitalize()} over {counted(len(block.games), 'game')}"
            panels.append(Panel(drawing, title, f"{basis(block)}, {seeds}"))
        for arm, points in training.items():
            rows += [(arm.name, block.scale.name, len(block.games), p.epoch, round(p.frames), p.mean, p.median)
                     for p in points]  # fmt: skip
            said.append(
                f"{arm.name} over {counted(len(block.games), 'game')} ends at mean {fixed(points[-1].mean, 1)}%, "
                f"median {fixed(points[-1].median, 1)}%"
            )
    if not panels:
        return None
    legend = [(look[arm], arm.name) for arm in collection.arms if any(row[0] == arm.name for row in rows)]
    legend += [(SHAPES[agent], f"{agent}, by its own protocol") for agent in SHAPES if agent in shown]
    return Figure(
        "figure-s1", "Figure S1. Mean and median over training",
        "Normalised score after each evaluation, not smoothed, mean over seeds first; finished runs on the games that "
        "all arms of a panel have.",
        "Mean and median normalised score over training. " + "; ".join(said) + ".",
        to_csv(("arm", "scale", "games", "epoch", "frames", "mean_pct", "median_pct"), rows),
        panels, legend, layout="pairs",
    )  # fmt: skip


def roms(block: Comparison) -> list[str]:
    return [rom for game in block.games if (rom := rom_of(game)) is not None]


def basis(block: Comparison) -> str:
    return f"{block.scale.unit}, {frames_in_words(block.frames)} frames"


# -------------------------------------------------------------------------------------------------- beyond the paper


def aggregates(collection: Collection, blocks: Sequence[Comparison]) -> Figure | None:
    """Interquartile mean, median, mean and optimality gap, with intervals where there are seeds."""
    look = styles(collection.arms)
    panels, rows, said = [], [], []
    for block in blocks:
        measures: dict[str, Callable[[statistics.Scores], Estimate]] = {
            "Interquartile mean": statistics.interquartile_mean,
            "Median": statistics.median_estimate,
            "Mean": statistics.mean_estimate,
        }
        if block.scale.name == "human":
            measures["Optimality gap"] = statistics.optimality_gap
        for title, measure in measures.items():
            charted = []
            for arm in block.arms:
                for kind in KINDS:
                    scores = arm_scores(collection, block, arm, kind)
                    found = measure(scores)
                    rows.append(
                        (title, arm.name, kind, block.scale.name, len(block.games), sum(map(len, scores)),
                         block.frames, found.value, *found.ends)
                    )  # fmt: skip
                    if kind == "last_five":
                        label, text = clipped(arm.name, 20), with_interval(found)
                        charted.append(Row(label, found.value, text, look[arm], found.low, found.high))
                        if title == "Interquartile mean":
                            said.append(f"{arm.name}: interquartile mean {with_interval(found)}%")
            lower = " (lower is better)" if title == "Optimality gap" else ""
            seeds = spread((len(collection.finished(g, arm)) for g in block.games for arm in block.arms), "seed")
            note = f"{counted(len(block.games), 'game')}, {basis(block)}, {seeds}"
            panels.append(Panel(interval_chart(charted), title + lower, note))
    if not panels:
        return None
    return Figure(
        "figure-aggregates", "Aggregates with their uncertainty",
        "Of each run the mean of its last five evaluations, normalised. Lines: 95% intervals from a stratified "
        f"bootstrap over seeds ({statistics.RESAMPLES:,} resamples). {interval_remark(collection, blocks)}",
        "Aggregate scores with intervals. " + "; ".join(said) + ".",
        to_csv(
            ("measure", "arm", "score_kind", "scale", "games", "runs", "frames", "value_pct", "low_95", "high_95"), rows
        ),
        panels, layout="pairs",
    )  # fmt: skip


def with_interval(found: Estimate, decimals: int = 1) -> str:
    """
    >>> with_interval(Estimate(2.0)), with_interval(Estimate(2.0, 1.0, 3.0))
    ('2.0', '2.0 [1.0, 3.0]')
    """
    if found.low is None or found.high is None:
        return fixed(found.value, decimals)
    return f"{fixed(found.value, decimals)} [{fixed(found.low, decimals)}, {fixed(found.high, decimals)}]"


def interval_remark(collection: Collection, blocks: Sequence[Comparison]) -> str:
    """Says where no interval can be given, and why."""
    alone = sorted(
        {
            arm.name
            for block in blocks
            for arm in block.arms
            if not statistics.can_resample(arm_scores(collection, block, arm, "last"))
        }
    )
    if not alone:
        return ""
    return (
        f"No interval can be given for {', '.join(alone)}: one seed of a game says nothing about how seeds vary, and "
        "every game needs at least two."
    )


def probability(collection: Collection, scales: Sequence[Scale]) -> Figure | None:
    look = styles(collection.arms)
    panels, rows, said = [], [], []
    for scale in scales:
        charted = []
        for arm in collection.arms:
            pairs = {
                game: baseline
                for game in scale.anchors
                if collection.finished(game, arm) and (baseline := collection.baseline(game, arm)) is not None
            }
            if arm.plain or not pairs:
                continue
            ours = [np.array([run.last_five for run in collection.finished(game, arm)]) for game in pairs]
            theirs = [np.array([run.last_five for run in collection.finished(game, pairs[game])]) for game in pairs]
            found = statistics.probability_of_improvement(ours, theirs)
            names = " and ".join(sorted({baseline.name for baseline in pairs.values()}))
            label, text = f"{clipped(arm.name, 18)} > {clipped(names, 14)}", with_interval(found, 2)
            charted.append(Row(label, found.value, text, look[arm], found.low, found.high))
            rows.append((arm.name, names, scale.name, len(pairs), sum(map(len, ours)), sum(map(len, theirs)),
                         found.value, *found.ends))  # fmt: skip
            said.append(f"{arm.name} beats {names} with probability {with_interval(found, 2)}")
        if charted:
            games = f"Games {'with' if scale.name == 'human' else 'without'} a human reference"
            drawing = both_widths(
                lambda width, css, charted=charted: interval_chart(  # type: ignore[misc]
                    charted, width=width, x_range=(0, 1), middle=0.5, unit="probability of improvement", class_=css
                )
            )
            panels.append(Panel(drawing, games if len(scales) > 1 else ""))
    if not panels:
        return None
    return Figure(
        "figure-probability", "Probability of improvement",
        "The chance that a run of the first arm beats a run of the second on a game picked at random, a draw counting "
        "half; by the mean of the last five evaluations. At 0.5 there is nothing between them. It needs no "
        "normalisation. Lines: 95% intervals, stratified bootstrap over seeds, where every game has two seeds or more.",
        "Probability of improvement over the plain arm. " + "; ".join(said) + ".",
        to_csv(("arm", "against", "scale", "games", "runs", "runs_against", "probability", "low_95", "high_95"), rows),
        panels, layout="stack",
    )  # fmt: skip


def profiles(collection: Collection, blocks: Sequence[Comparison]) -> Figure | None:
    look = styles(collection.arms)
    panels, rows, said = [], [], []
    for block in blocks:
        scores = {arm: arm_scores(collection, block, arm, "last_five") for arm in block.arms}
        top = max(float(own.max()) for found in scores.values() for own in found)
        # Up to eight times the human; one outlier should not squeeze the rest.
        thresholds = np.linspace(0, max(50.0, min(top * 1.05, 800.0)), 81)
        lines = []
        for arm, found in scores.items():
            profile = statistics.performance_profile(found, thresholds)
            shares = list(zip(thresholds.tolist(), profile, strict=True))
            band = [(t, p.low, p.high) for t, p in shares if p.low is not None and p.high is not None]
            lines.append(Line(arm.name, look[arm], [(t, p.value) for t, p in shares], band))
            rows += [(arm.name, block.scale.name, len(block.games), t, p.value, *p.ends) for t, p in shares]
            level = 100.0 if thresholds[-1] >= 100 else float(thresholds[40])
            above = statistics.performance_profile(found, np.array([level]))[0].value
            said.append(f"{arm.name}: {fixed(above, 0)}% of runs above {level:.0f}%")
        drawing = both_widths(
            lambda width, css, lines=lines, thresholds=thresholds, block=block: line_chart(  # type: ignore[misc]
                lines, width=width, height=260, x_range=(0, float(thresholds[-1])), y_range=(0, 100),
                x_tick=lambda v: f"{v:g}%", y_tick=lambda v: f"{v:g}%", x_label=f"score τ, {block.scale.unit}",
                class_=css,
            )
        )  # fmt: skip
        panels.append(Panel(drawing, f"{counted(len(block.games), 'game')}, {frames_in_words(block.frames)} frames"))
    if not panels:
        return None
    legend = [(look[arm], arm.name) for arm in collection.arms if any(row[0] == arm.name for row in rows)]
    return Figure(
        "figure-profiles", "Performance profiles",
        "The share of runs that score above τ, every game counting the same; higher is better. By the mean of the last "
        "five evaluations. Bands: 95% intervals, stratified bootstrap over seeds. "
        + interval_remark(collection, blocks),
        "Performance profiles. " + "; ".join(said) + ".",
        to_csv(("arm", "scale", "games", "threshold_pct", "share_above_pct", "low_95", "high_95"), rows),
        panels, legend, layout="stack",
    )  # fmt: skip


def bound_telemetry(collection: Collection) -> Figure | None:
    panels, rows, said = [], [], []
    colours = dict(zip(statistics.TELEMETRY, ("c0", "c1", "c2 dash-1"), strict=True))
    for arm in collection.arms:
        for game in collection.games:
            points = statistics.telemetry(collection.settled(game, arm)) if not arm.plain else []
            if not points:
                continue
            lines = [
                Line(label, colours[name], [(p["frames"], p[name]) for p in points])
                for name, label in statistics.TELEMETRY.items()
            ]
            high = max(max(y for _, y in line.points) for line in lines)
            drawing = line_chart(
                lines, height=190, x_range=(0, arm.frames * 1.02), y_range=(0, min(100, max(5, 1.1 * high))),
                x_tick=frames_in_words, y_tick=lambda v: f"{v:g}%", x_label="frames",
            )  # fmt: skip
            panels.append(Panel(drawing, title_of(game), f"{arm.name}, {seeds_of(collection, game, [arm.name])}"))
            rows += [(game, arm.name, round(p["frames"]), *(p[name] for name in statistics.TELEMETRY)) for p in points]
            said.append(
                f"{title_of(game)}, {arm.name}, at the end: lower {fixed(points[-1]['lower_violated'], 0)}%, "
                f"upper {fixed(points[-1]['upper_violated'], 0)}%, return {fixed(points[-1]['return_tightest'], 0)}%"
            )
    if not panels:
        return None
    return Figure(
        "figure-telemetry", "How often each bound binds",
        "Share of sampled steps whose lower or upper bound is violated, and share whose tightest lower bound is the "
        "return R_j that the episode really achieved; mean over seeds.",
        "Bound violations over training. " + "; ".join(said) + ".",
        to_csv(("game", "arm", "frames", *(f"{name}_pct" for name in statistics.TELEMETRY)), rows),
        panels, [(colours[name], label) for name, label in statistics.TELEMETRY.items()],
    )  # fmt: skip
