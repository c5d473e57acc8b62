"""What the paper did not draw: aggregates with their uncertainty, and the bounds at work."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tightrope.errors import counted
from tightrope.report import statistics
from tightrope.report.data import KINDS, Collection, frames_in_words, title_of
from tightrope.report.figure import (
    MOST_DRAWN,
    Figure,
    Panel,
    basis,
    both_widths,
    drawn,
    not_drawn,
    seeds_of,
    styles,
    to_csv,
    with_interval,
)
from tightrope.report.statistics import Comparison, Estimate, Scale, arm_scores
from tightrope.report.svg import Line, Row, interval_chart, line_chart
from tightrope.report.words import clipped, fixed, spread


def aggregates(collection: Collection, blocks: Sequence[Comparison]) -> Figure | None:
    """Interquartile mean, median, mean and optimality gap, with intervals where there are seeds."""
    look, many = styles(collection), len(collection.arms) > MOST_DRAWN
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
            seeds = spread(statistics.seed_counts(collection, block, block.arms), "seed")
            note = f"{counted(len(block.games), 'game')}, {basis(block)}, {seeds}"
            if not many:
                drawing = interval_chart(charted)
            else:  # ranked, and over the page's width: beside long names there would be no room
                charted.sort(key=lambda row: row.value, reverse=not lower)
                drawing = both_widths(
                    lambda width, css, charted=charted: interval_chart(charted, width=width, class_=css)  # type: ignore[misc]
                )
            panels.append(Panel(drawing, title + lower, note))
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
        panels, layout="stack" if many else "pairs",
    )  # fmt: skip


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
    return f"No interval is given for {', '.join(alone)}: every game needs at least {statistics.LEAST_SEEDS} seeds."


def probability(collection: Collection, scales: Sequence[Scale]) -> Figure | None:
    look = styles(collection)
    panels, rows, said = [], [], []
    for scale in scales:
        charted, seeds, budgets = [], [], set()
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
                         arm.frames, found.value, *found.ends))  # fmt: skip
            seeds += [*map(len, ours), *map(len, theirs)]
            budgets.add(arm.frames)
            said.append(f"{arm.name} beats {names} with probability {with_interval(found, 2)}")
        if charted:
            games = f"Games {'with' if scale.name == 'human' else 'without'} a human reference"
            drawing = both_widths(
                lambda width, css, charted=charted: interval_chart(  # type: ignore[misc]
                    charted, width=width, x_range=(0, 1), middle=0.5, unit="probability of improvement", class_=css
                )
            )
            frames = " and ".join(frames_in_words(budget) for budget in sorted(budgets))
            panels.append(Panel(drawing, games if len(scales) > 1 else "", f"{frames} frames, {spread(seeds, 'seed')}"))
    if not panels:
        return None
    return Figure(
        "figure-probability", "Probability of improvement",
        "The chance that a run of the first arm beats a run of the second on a game picked at random, a draw counting "
        "half; by the mean of the last five evaluations. At 0.5 there is nothing between them. It needs no "
        "normalisation. Lines: 95% intervals, stratified bootstrap over seeds, "
        f"where every game has {statistics.LEAST_SEEDS} seeds or more.",
        "Probability of improvement over the plain arm. " + "; ".join(said) + ".",
        to_csv(("arm", "against", "scale", "games", "runs", "runs_against", "frames", "probability", "low_95",
                "high_95"), rows),
        panels, layout="stack",
    )  # fmt: skip


def profiles(collection: Collection, blocks: Sequence[Comparison]) -> Figure | None:
    look, shown = styles(collection), drawn(collection)
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
            if arm in shown:
                lines.append(Line(arm.name, look[arm], [(t, p.value) for t, p in shares], band))
            rows += [
                (arm.name, block.scale.name, len(block.games), len(found[0]), block.frames, t, p.value, *p.ends)
                for t, p in shares
            ]
            level = 100.0 if thresholds[-1] >= 100 else float(thresholds[40])
            above = statistics.performance_profile(found, np.array([level]))[0].value
            said.append(f"{arm.name}: {fixed(above, 0)}% of runs above {level:.0f}%")
        if not lines:
            continue
        drawing = both_widths(
            lambda width, css, lines=lines, thresholds=thresholds, block=block: line_chart(  # type: ignore[misc]
                lines, width=width, height=260, x_range=(0, float(thresholds[-1])), y_range=(0, 100),
                x_tick=lambda v: f"{v:g}%", y_tick=lambda v: f"{v:g}%", x_label=f"score τ, {block.scale.unit}",
                class_=css,
            )
        )  # fmt: skip
        seeds = spread((len(found[0]) for found in scores.values()), "seed")
        games = counted(len(block.games), "game")
        panels.append(Panel(drawing, f"{games}, {frames_in_words(block.frames)} frames, {seeds}"))
    if not panels:
        return None
    legend = [(look[arm], arm.name) for arm in shown if any(row[0] == arm.name for row in rows)]
    return Figure(
        "figure-profiles", "Performance profiles",
        "The share of runs that score above τ, every game counting the same; higher is better. By the mean of the last "
        "five evaluations. Bands: 95% intervals, stratified bootstrap over seeds. "
        + interval_remark(collection, blocks)
        + not_drawn(collection),
        "Performance profiles. " + "; ".join(said) + ".",
        to_csv(("arm", "scale", "games", "seeds", "frames", "threshold_pct", "share_above_pct", "low_95", "high_95"),
               rows),
        panels, legend, layout="stack",
    )  # fmt: skip


def bound_telemetry(collection: Collection) -> Figure | None:
    shown = drawn(collection)
    panels, rows, said = [], [], []
    colours = dict(zip(statistics.TELEMETRY, ("c0", "c1", "c2 dash-1"), strict=True))
    for arm in collection.arms:
        for game in collection.games:
            runs = collection.settled(game, arm)
            points = statistics.telemetry(runs) if not arm.plain else []
            if not points:
                continue
            rows += [
                (game, arm.name, len(runs), round(p["frames"]), *(p[name] for name in statistics.TELEMETRY))
                for p in points
            ]
            if arm not in shown:
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
            said.append(
                f"{title_of(game)}, {arm.name}, at the end: lower {fixed(points[-1]['lower_violated'], 0)}%, "
                f"upper {fixed(points[-1]['upper_violated'], 0)}%, return {fixed(points[-1]['return_tightest'], 0)}%"
            )
    if not panels:
        return None
    return Figure(
        "figure-telemetry", "How often each bound binds",
        "Share of sampled steps whose lower or upper bound is violated, and share whose tightest lower bound is the "
        f"return R_j that the episode really achieved; mean over seeds.{not_drawn(collection)}",
        "Bound violations over training. " + "; ".join(said) + ".",
        to_csv(("game", "arm", "seeds", "frames", *(f"{name}_pct" for name in statistics.TELEMETRY)), rows),
        panels, [(colours[name], label) for name, label in statistics.TELEMETRY.items()],
    )  # fmt: skip
