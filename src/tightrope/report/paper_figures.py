"""The paper's figures: improvement over two baselines (1, 2), learning curves (3), mean and median in training (S1)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tightrope.errors import counted
from tightrope.report import statistics
from tightrope.report.data import KINDS, Arm, Collection, frames_in_words, rom_of, title_of
from tightrope.report.figure import (
    SHAPES,
    Figure,
    Panel,
    basis,
    both_widths,
    drawn,
    few,
    not_drawn,
    roms,
    seeds_of,
    styles,
    to_csv,
)
from tightrope.report.landmarks import landmarks, protocols, summaries
from tightrope.report.statistics import Comparison, Scale, mean_score
from tightrope.report.svg import Level, Line, Mark, Row, bar_chart, line_chart, padded
from tightrope.report.words import fixed, number, spread
from tightrope.scores import references

# --------------------------------------------------------------------------------------------------- figures 1 and 2


@dataclass(frozen=True)
class Gain:
    game: str
    against: str
    seeds: int
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
            gains.append(Gain(game, "DQN 200M", len(runs), ours, theirs, percent))
    return gains


def against_own(collection: Collection, scale: Scale, arm: Arm) -> list[Gain]:
    gains = []
    for game in scale.anchors:
        runs, baseline = collection.finished(game, arm), collection.baseline(game, arm)
        if runs and baseline is not None:
            ours = {kind: mean_score(runs, kind) for kind in KINDS}
            theirs = {kind: mean_score(collection.finished(game, baseline), kind) for kind in KINDS}
            percent = {kind: scale.improvement(game, ours[kind], theirs[kind]) for kind in KINDS}
            gains.append(Gain(game, baseline.name, len(runs), ours, theirs, percent))
    return gains


def wins(gains: Sequence[Gain], kind: str) -> str:
    return f"{sum(gain.percent[kind] > 0 for gain in gains)} of {len(gains)}"


def improvement(
    collection: Collection,
    id_: str,
    title: str,
    against: str,
    rule: str,
    all_gains: dict[Arm, list[Gain]],
    notes: dict[Arm, str],
) -> Figure | None:
    """Bars by the paper's eq. 5; one panel for each arm."""
    all_gains = {arm: gains for arm, gains in all_gains.items() if gains}
    if not all_gains:
        return None
    panels, said = [], []
    chosen = drawn(collection)
    shown = {arm: gains for arm, gains in all_gains.items() if arm in chosen} or all_gains
    ends = [gain.percent[kind] for gains in shown.values() for gain in gains for kind in ("best", "last_five")]
    extent = min(0.0, *ends), max(0.0, *ends)  # one for all panels, so that their bars compare
    for arm, gains in shown.items():
        ordered = sorted(gains, key=lambda gain: -gain.percent["best"])
        rows = [
            Row(title_of(g.game), g.percent["best"], f"{signed(g.percent['best'])}%", second=g.percent["last_five"])
            for g in ordered
        ]
        drawing = both_widths(lambda width, css, rows=rows: bar_chart(rows, width, extent, "improvement, %", css))  # type: ignore[misc]
        note = f"Better on {wins(gains, 'best')} games by the best evaluation, {wins(gains, 'last')} by the last, "
        note += f"{wins(gains, 'last_five')} by the mean of the last five. {notes[arm]}"
        panels.append(Panel(drawing, f"{arm.name}, against {' and '.join(sorted({g.against for g in gains}))}", note))
        said.append(
            f"{arm.name}: better on {wins(gains, 'best')} games; from {title_of(ordered[0].game)} "
            f"{signed(ordered[0].percent['best'])}% to {title_of(ordered[-1].game)} "
            f"{signed(ordered[-1].percent['best'])}%."
        )
    rows_of_data = [
        (arm.name, gain.game, gain.against, kind, gain.seeds, arm.frames, gain.ours[kind], gain.theirs[kind],
         gain.percent[kind])
        for arm, gains in all_gains.items()
        for gain in gains
        for kind in KINDS
    ]  # fmt: skip
    return Figure(
        id_, title,
        f"Improvement over {against}, in percent. {rule} Bars: best evaluation of all, as in the paper. Upright "
        f"strokes: mean of the last five.{not_drawn(collection)}",
        f"Bar chart of the improvement over {against}. " + " ".join(said),
        to_csv(("arm", "game", "against", "score_kind", "seeds", "frames", "score", "baseline", "improvement_pct"),
               rows_of_data),
        panels, [("gain", "better"), ("loss", "worse"), ("second", "mean of the last five")], layout="stack",
    )  # fmt: skip


def signed(value: float) -> str:
    return ("+" if value > 0 else "") + number(value, 3)


# ------------------------------------------------------------------------------------------------------------ figure 3


def learning_curves(collection: Collection, videos: dict[str, tuple[str, str]]) -> Figure:
    look, shown = styles(collection), drawn(collection)
    panels, rows, said, shapes = [], [], [], set()
    crowded = len(shown) > 4  # then lines alone
    for game in collection.games:
        lines, budget, widths = [], 1, set()
        for arm in collection.arms:
            runs = collection.settled(game, arm)
            points = statistics.curve(runs)
            if not points:
                continue
            rows += [
                (game, arm.name, len(runs), p.epoch, round(p.frames), p.score, p.smooth, p.low, p.high) for p in points
            ]
            if arm not in shown:
                continue
            budget = max(budget, arm.frames)
            if len(points) > 1:
                widths.add(statistics.SMOOTHED_OVER * runs[0].spacing)
            lines.append(
                Line(
                    arm.name, look[arm], [(p.frames, p.smooth) for p in points],
                    [(p.frames, p.low, p.high) for p in points] if len(runs) > 1 and not crowded else [],
                    [(p.frames, p.score) for p in points] if not crowded else [],
                )
            )  # fmt: skip
            said.append(f"{title_of(game)}, {arm.name}: ends at {number(points[-1].smooth)}")
        if not lines:
            continue
        levels, marks = _within_reach(game, budget, [y for line in lines for _, y in (*line.points, *line.dots)])
        shapes |= {mark.shape for mark in marks}
        drawing = line_chart(
            lines, x_range=(0, budget * 1.02), x_tick=frames_in_words, x_label="frames", levels=levels, marks=marks,
            direct=few(lines),
        )  # fmt: skip
        note = seeds_of(collection, game, [line.label for line in lines])
        if widths:
            note += f" · averages over {' and '.join(map(frames_in_words, sorted(widths)))} frames"
        if known := references().get(rom_of(game) or ""):
            published = (("human", known.human), ("DQN 200M", known.dqn_200m), ("He et al.", known.paper))
            note = " · ".join([note, *(f"{name} {number(score)}" for name, score in published)])
        panels.append(Panel(drawing, title_of(game), note, *videos.get(game, ("", ""))))
    legend = [(look[arm], arm.name) for arm in shown if any(row[1] == arm.name for row in rows)]
    legend += [(shape, f"{agent}, by its own protocol") for agent, shape in SHAPES.items() if shape in shapes]
    return Figure(
        "figure-3", "Figure 3. Learning curves",
        "Score of whole games over training, mean over seeds, as a moving average over 4 evaluations of the arm that "
        f"was evaluated most often and over as many frames of the others.{not_drawn(collection)} "
        + ("" if crowded else "Dots: the evaluations themselves; bands: the range of the seeds' own averages. ")
        + "Dashed lines: references within reach of the curves; hollow marks: other agents at that budget, each by its "
        f"own protocol. {protocols(agent for agent, shape in SHAPES.items() if shape in shapes)}",
        "Learning curves, one panel for each game. " + "; ".join(said) + ".",
        to_csv(("game", "arm", "seeds", "epoch", "frames", "score", "smoothed", "seeds_lowest", "seeds_highest"), rows),
        panels, legend,
    )  # fmt: skip


def _within_reach(game: str, budget: int, scores: Sequence[float]) -> tuple[list[Level], list[Mark]]:
    """References and other agents that do not lie so far from the curves that they would flatten them."""
    known = references().get(rom_of(game) or "")
    if known is None:
        return [], []
    low, high = padded(scores)
    top = high + 0.35 * (high - low)
    levels: list[Level] = []
    for label, score in (("human", known.human), ("DQN 200M", known.dqn_200m)):
        apart = all(abs(score - level.y) > 0.09 * (high - low) for level in levels)  # or their names would overlap
        if low <= score <= top and apart:
            levels.append(Level(score, label))
    marks = [
        Mark(m.frames, m.score, SHAPES[m.agent], f"{m.agent}: {number(m.score)}. {m.protocol}")
        for m in landmarks()
        if m.rom == known.rom and m.agent in SHAPES and m.frames <= budget and low <= m.score <= top
    ]
    return levels, marks


# ----------------------------------------------------------------------------------------------------------- figure S1


def over_training(collection: Collection, blocks: Sequence[Comparison], clock: bool = False) -> Figure | None:
    """Mean and median against frames; with `clock` against the time that they took, which the paper does not show."""
    look, shown = styles(collection), drawn(collection)
    panels, rows, said, shapes = [], [], [], set()
    for block in blocks:
        training = {arm: statistics.over_training(collection, block, arm) for arm in block.arms}
        paces = {arm: statistics.minutes_of_a_frame(collection, block, arm) if clock else 1.0 for arm in training}
        # What a frame is worth along the axis: itself, or a part of a minute.
        worth = {arm: pace for arm, pace in paces.items() if pace is not None and training[arm]}
        training = {arm: training[arm] for arm in worth}
        if not training:
            continue
        others = [] if clock else [s for s in summaries(roms(block)) if s.agent in SHAPES and s.frames <= block.frames]
        seeds = spread(statistics.seed_counts(collection, block, training), "seed")
        furthest = max((worth[arm] for arm in training if arm in shown), default=max(worth.values()))
        for which in ("mean", "median"):
            lines = [
                Line(arm.name, look[arm], [(p.frames * worth[arm], getattr(p, which)) for p in points])
                for arm, points in training.items()
                if arm in shown
            ]
            if not lines:
                continue
            values = [y for line in lines for _, y in line.points]
            high = padded(values)[1]
            marks = [
                Mark(s.frames, getattr(s, which), SHAPES[s.agent], f"{s.agent}: {number(getattr(s, which))}%")
                for s in others
                if getattr(s, which) <= 1.6 * high
            ]
            shapes |= {mark.shape for mark in marks}
            levels = [Level(100, "human")] if block.scale.name == "human" and 60 < high < 1000 else []
            drawing = line_chart(
                lines, height=240, x_range=(0, block.frames * furthest * 1.02),
                x_tick=number if clock else frames_in_words, x_label="minutes" if clock else "frames",
                y_tick=lambda v: number(v, 3) + "%", marks=marks, levels=levels, direct=few(lines),
            )  # fmt: skip
            title = f"{which.capitalize()} over {counted(len(block.games), 'game')}"
            panels.append(Panel(drawing, title, f"{basis(block)}, {seeds}"))
        for arm, points in training.items():
            own = max(statistics.seed_counts(collection, block, [arm]))
            rows += [
                (arm.name, block.scale.name, len(block.games), own, p.epoch, round(p.frames), p.mean, p.median)
                + ((round(p.frames * worth[arm], 3),) if clock else ())
                for p in points
            ]
            end = f" after {number(points[-1].frames * worth[arm], 2)} minutes" if clock else ""
            said.append(
                f"{arm.name} over {counted(len(block.games), 'game')} ends at mean {fixed(points[-1].mean, 1)}%, "
                f"median {fixed(points[-1].median, 1)}%{end}"
            )
    if not panels:
        return None
    legend = [(look[arm], arm.name) for arm in shown if any(row[0] == arm.name for row in rows)]
    legend += [(shape, f"{agent}, by its own protocol") for agent, shape in SHAPES.items() if shape in shapes]
    columns = ["arm", "scale", "games", "seeds", "epoch", "frames", "mean_pct", "median_pct"]
    columns += ["minutes"] if clock else []
    if clock:
        name, title = "figure-clock", "Mean and median against the clock"
        caption = (
            "The same against wall-clock time, evaluations included: each arm at the median pace of its finished runs. "
            "Runs that shared a machine took longer than they would have alone, and arms may have shared it unequally."
            f"{not_drawn(collection)}"
        )
    else:
        name, title = "figure-s1", "Figure S1. Mean and median over training"
        caption = (
            "Normalised score after each evaluation, not smoothed, mean over seeds first; finished runs on the games "
            f"that all arms of a panel have.{not_drawn(collection)}"
        )
    alt = f"Mean and median normalised score {'against the clock' if clock else 'over training'}. " + "; ".join(said)
    return Figure(name, title, caption, alt + ".", to_csv(columns, rows), panels, legend, layout="pairs")
