"""The tables: for the page, as CSV with every digit, and as LaTeX for a paper."""

from __future__ import annotations

import re
import statistics as plain_statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tightrope.errors import counted
from tightrope.report import statistics
from tightrope.report.data import KINDS, Arm, Collection, frames_in_words, rom_of, title_of
from tightrope.report.figure import basis, roms, to_csv, with_interval
from tightrope.report.landmarks import summaries
from tightrope.report.statistics import Comparison, Scale, arm_scores, mean_score
from tightrope.report.words import fixed, hours, score_text, spread
from tightrope.scores import references, summary


@dataclass(frozen=True)
class Cell:
    text: str
    value: float | str  # what sorting goes by, and what the CSV holds


@dataclass(frozen=True)
class Column:
    name: str
    group: str = ""  # a heading over several columns
    numeric: bool = True


@dataclass
class Table:
    id: str
    title: str
    caption: str
    columns: list[Column]
    rows: list[list[Cell]]
    reference_rows: int = 0  # the last so many are not ours
    #: For the CSV alone, beside each row: what its cells' texts say and their values do not.
    further_columns: list[str] = field(default_factory=list)
    further_values: list[list[float | str]] = field(default_factory=list)

    @property
    def groups(self) -> list[tuple[str, int]]:
        """Headings over the columns, with how many each covers."""
        found: list[tuple[str, int]] = []
        for column in self.columns:
            if found and found[-1][0] == column.group and column.group:
                found[-1] = (column.group, found[-1][1] + 1)
            else:
                found.append((column.group, 1))
        return found

    def to_csv(self) -> str:
        names = [f"{column.group}: {column.name}" if column.group else column.name for column in self.columns]
        further = self.further_values or [[] for _ in self.rows]
        rows = [[*(cell.value for cell in row), *more] for row, more in zip(self.rows, further, strict=True)]
        return to_csv([*names, *self.further_columns], rows)

    def to_latex(self) -> str:
        """With booktabs; \\input it."""
        shape = "".join("r" if column.numeric else "l" for column in self.columns)
        lines = ["% needs \\usepackage{booktabs}", f"\\begin{{tabular}}{{{shape}}}", "\\toprule"]
        if any(group for group, _ in self.groups):
            heads, rules, start = [], [], 1
            for group, span in self.groups:
                heads.append(f"\\multicolumn{{{span}}}{{c}}{{{latex(group)}}}")
                if group:
                    rules.append(f"\\cmidrule(lr){{{start}-{start + span - 1}}}")
                start += span
            lines += [" & ".join(heads) + r" \\", " ".join(rules)]
        lines += [" & ".join(latex(column.name) for column in self.columns) + r" \\", "\\midrule"]
        for i, row in enumerate(self.rows):
            if self.reference_rows and i == len(self.rows) - self.reference_rows and i:
                lines.append("\\midrule")
            lines.append(" & ".join(latex(cell.text) for cell in row) + r" \\")
        return "\n".join([*lines, "\\bottomrule", "\\end{tabular}"]) + "\n"


LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "−": "$-$", "×": r"$\times$", "†": r"$\dagger$",
    "‡": r"$\ddagger$", "ε": r"$\varepsilon$", "–": "--", ">": "$>$", "<": "$<$", "λ": r"$\lambda$",
}  # fmt: skip


def latex(text: str) -> str:
    r"""
    >>> latex("lam_1 & 5%")
    'lam\\_1 \\& 5\\%'
    """
    return re.sub("|".join(map(re.escape, LATEX)), lambda found: LATEX[found[0]], text)


EMPTY = Cell("–", "")


def words(text: str) -> Cell:
    return Cell(text, text)


def score_cell(value: float) -> Cell:
    return Cell(score_text(value), value)


def percent_cell(value: float, decimals: int = 1) -> Cell:
    return Cell(fixed(value, decimals), value)


# ------------------------------------------------------------------------------------------------------------- table 1


def table_1(collection: Collection, block: Comparison, number_: str) -> Table:
    """Mean and median normalised score and wall-clock time; beside them what the paper says."""
    columns = [
        Column("arm", numeric=False),
        *(Column(KINDS[kind], "mean, %") for kind in KINDS),
        *(Column(KINDS[kind], "median, %") for kind in KINDS),
        Column("games"),
        Column("seeds"),
        Column("frames"),
        Column("wall-clock"),
    ]
    rows = []
    for arm in block.arms:
        scores = {kind: arm_scores(collection, block, arm, kind) for kind in KINDS}
        runs = [run for own in statistics.even_runs(collection, block, arm).values() for run in own]
        seconds = [run.seconds for run in runs if run.seconds is not None]
        took = Cell(hours(plain_statistics.median(seconds)), plain_statistics.median(seconds)) if seconds else EMPTY
        rows.append(
            [
                words(arm.name),
                *(percent_cell(statistics.mean_over_games(scores[kind]), 2) for kind in KINDS),
                *(percent_cell(statistics.median_over_games(scores[kind]), 2) for kind in KINDS),
                Cell(str(len(block.games)), len(block.games)),
                Cell(str(len(scores["last"][0])), len(scores["last"][0])),
                Cell(frames_in_words(block.frames), block.frames),
                took,
            ]
        )
    reference = []
    if block.scale.name == "human":
        own, every = roms(block), list(references())
        sets = [(own, "these games")] if len(own) < len(every) else []
        for games, which in [*sets, (every, "all 49")]:
            published = {rom: references()[rom].paper for rom in games}
            baseline = {rom: references()[rom].dqn_200m for rom in games}
            reference.append(_published(f"He et al. 2017, {which}", published, 10e6, "< 1 day"))
            reference.append(_published(f"Mnih et al. 2015, {which}", baseline, 200e6, "> 10 days"))
        # Printed in the paper's table 1, from van Hasselt et al. (2015); its games' scores are not.
        ddqn = [Cell("330.3", 330.3), EMPTY, EMPTY, Cell("114.7", 114.7), EMPTY, EMPTY]
        size = [Cell("49", 49), EMPTY, Cell("200M", 200e6), words("> 10 days")]
        reference.append([words("D-DQN, as printed"), *ddqn, *size])
    return Table(
        f"table-{number_.lower()}", f"Table {number_}. Mean and median over {counted(len(block.games), 'game')}",
        f"In {block.scale.unit}; mean over the seeds of a game first, then over games; of an arm as many seeds of one "
        "game as of another. "
        f"Finished runs of {frames_in_words(block.frames)} frames on the games that all these arms have: "
        f"{listed(block)}. “Best”: of all "
        "evaluations of a run, as in the paper; “last five”: the mean of the last five, and of fewer that lie as far "
        "back for an arm that was evaluated less often. "
        "Wall-clock: median over runs, evaluations included; runs may have shared their machine, and not all alike.",
        columns, rows + reference, len(reference),
    )  # fmt: skip


def listed(block: Comparison) -> str:
    if len(block.games) > 12:
        return f"{len(block.games)} of those in the raw scores" if len(block.games) < 49 else "all 49 of the paper"
    return ", ".join(title_of(game) for game in block.games)


def _published(name: str, scores: dict[str, float], frames: float, took: str) -> list[Cell]:
    mean, median = summary(scores)
    return [
        words(name), percent_cell(mean, 2), EMPTY, EMPTY, percent_cell(median, 2), EMPTY, EMPTY,
        Cell(str(len(scores)), len(scores)), EMPTY, Cell(frames_in_words(frames), frames), words(took),
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------ tables S1, S2


#: With more arms a table of games has a line for each arm of each game: side by side they would be wider than a page.
MOST_ABREAST = 3


def of_games(
    collection: Collection,
    scale: Scale,
    published: Sequence[str],
    known: Callable[[str], list[Cell]] | None,
    names: Sequence[str],
    cells: Callable[[str, Arm], list[Cell]],
) -> tuple[list[Column], list[list[Cell]]]:
    """Columns and rows of a table of games: what is published of each (`known`), and what each arm has there."""
    known = known or (lambda game: [])
    arms = [arm for arm in collection.arms if any(collection.of(game, arm) for game in scale.anchors)]
    first = Column("game", numeric=False)
    beside = [Column(name, "published") for name in published]
    if len(arms) <= MOST_ABREAST:
        columns = [first, *beside, *(Column(name, arm.name) for arm in arms for name in names)]
        rows = [
            [words(title_of(game)), *known(game), *(cell for arm in arms for cell in cells(game, arm))]
            for game in scale.anchors
        ]
        return columns, rows
    columns = [first, Column("arm", numeric=False), *(Column(name, "this report") for name in names), *beside]
    rows = [
        [words(title_of(game)), words(arm.name), *cells(game, arm), *known(game)]
        for game in scale.anchors
        for arm in arms
        if collection.of(game, arm)
    ]
    return columns, rows


def raw_scores(collection: Collection, scale: Scale) -> Table:
    human = scale.name == "human"

    def known(game: str) -> list[Cell]:
        one = references()[rom_of(game) or ""]
        return [score_cell(score) for score in (one.random, one.human, one.dqn_200m, one.paper)]

    def cells(game: str, arm: Arm) -> list[Cell]:
        runs = collection.settled(game, arm)
        if not runs:
            return [EMPTY] * (len(KINDS) + 1)
        mark = "" if runs[0].finished else "†"
        frames = arm.frames if runs[0].finished else max(run.frames for run in runs)
        scores = [mean_score(runs, kind) for kind in KINDS]
        size = Cell(f"{len(runs)} × {frames_in_words(frames)}{mark}", len(runs) * frames)
        return [*(Cell(score_text(score) + mark, score) for score in scores), size]

    published = ("random", "human", "DQN 200M", "He et al.") if human else ()
    columns, rows = of_games(
        collection, scale, published, known if human else None, [*KINDS.values(), "seeds × frames"], cells
    )
    return Table(
        "table-s1" if human else "table-s1-range",
        "Table S1. Raw scores" if human else "Raw scores of games without a human reference",
        "Mean score of whole games, unclipped: of each seed its best evaluation, its last, and the mean of the last "
        "five (of fewer, as far back, for an arm that was evaluated less often); then the mean over seeds. The best of "
        "many evaluations flatters; the paper gives that one. † not finished, at the frames given.",
        columns, rows,
    )  # fmt: skip


def normalised_scores(collection: Collection, scale: Scale) -> Table:
    human = scale.name == "human"

    def known(game: str) -> list[Cell]:
        one = references()[rom_of(game) or ""]
        return [percent_cell(scale.percent(game, score), 2) for score in (one.dqn_200m, one.paper)]

    def cells(game: str, arm: Arm) -> list[Cell]:
        runs = collection.settled(game, arm)
        if not runs:
            return [EMPTY] * len(KINDS)
        mark = "" if runs[0].finished else "†"
        percents = [scale.percent(game, mean_score(runs, kind)) for kind in KINDS]
        return [Cell(fixed(percent, 2) + mark, percent) for percent in percents]

    published = ("DQN 200M", "He et al.") if human else ()
    columns, rows = of_games(collection, scale, published, known if human else None, list(KINDS.values()), cells)
    arms = [arm for arm in collection.arms if any(collection.of(game, arm) for game in scale.anchors)]
    seeds = {len(collection.settled(game, arm)) for game in scale.anchors for arm in arms} - {0}
    budgets = ", ".join(dict.fromkeys(frames_in_words(arm.frames) for arm in arms))
    return Table(
        "table-s2" if human else "table-s2-range",
        "Table S2. Human-normalised scores, %" if human else "Range-normalised scores, %",
        f"{scale.rule} {misprints(scale)}Seeds: {spread(seeds)}; frames: "
        f"{budgets}. † not finished, see the raw scores.",
        columns, rows,
    )  # fmt: skip


def misprints(scale: Scale) -> str:
    """The published columns are recomputed; says where the paper prints something else, rounding apart."""
    off = []
    for game in scale.anchors:
        known = references().get(rom_of(game) or "")
        if known is not None:
            pairs = ((known.dqn_200m, known.dqn_200m_printed_pct), (known.paper, known.paper_printed_pct))
            off += [
                f"{known.game} {fixed(printed, 2)}"
                for score, printed in pairs
                if abs(scale.percent(game, score) - printed) > 0.01
            ]
    if not off:
        return ""
    return f"The published columns are recomputed from the raw scores; the paper prints {' and '.join(off)}. "


# ---------------------------------------------------------------------------------------------------- beyond the paper


def aggregate_table(collection: Collection, block: Comparison, suffix: str) -> Table:
    gap = block.scale.name == "human"
    columns = [Column("arm", numeric=False), Column("score of a run", numeric=False), Column("runs")]
    columns += [
        Column("interquartile mean"),
        *([Column("optimality gap")] if gap else []),
        Column("median"),
        Column("mean"),
    ]
    rows = []
    ends: list[list[float | str]] = []
    for arm in block.arms:
        for kind in KINDS:
            scores = arm_scores(collection, block, arm, kind)
            found = [statistics.interquartile_mean(scores)]
            found += [statistics.optimality_gap(scores)] if gap else []
            found += [statistics.median_estimate(scores), statistics.mean_estimate(scores)]
            runs = sum(map(len, scores))
            cells = [Cell(with_interval(estimate), estimate.value) for estimate in found]
            rows.append([words(arm.name), words(KINDS[kind]), Cell(str(runs), runs), *cells])
            ends.append([end for estimate in found for end in estimate.ends])
    return Table(
        f"table-aggregates{suffix}",
        f"Aggregates over {counted(len(block.games), 'game')}, {frames_in_words(block.frames)} frames",
        f"In {basis(block)}; in brackets 95% intervals, stratified bootstrap over seeds, where every game has at least "
        f"{statistics.LEAST_SEEDS} seeds. Of an arm as many seeds of one game as of another count.",
        columns, rows, further_columns=[f"{column.name}: {end}" for column in columns[3:] for end in ("low", "high")],
        further_values=ends,
    )  # fmt: skip


def landmark_table(collection: Collection, block: Comparison, suffix: str) -> Table | None:
    found = summaries(roms(block))
    if not found:
        return None
    columns = [
        Column("agent", numeric=False), Column("frames"), Column("games"), Column("mean, %"), Column("median, %"),
        Column("protocol", numeric=False), Column("source", numeric=False),
    ]  # fmt: skip
    rows = []
    for arm in block.arms:
        scores = arm_scores(collection, block, arm, "last_five")
        rows.append(
            [
                words(arm.name),
                Cell(frames_in_words(block.frames), block.frames),
                Cell(str(len(block.games)), len(block.games)),
                percent_cell(statistics.mean_over_games(scores)),
                percent_cell(statistics.median_over_games(scores)),
                words(f"{protocols(collection, block, arm)}; {counted(len(scores[0]), 'seed')}"),
                words("this report"),
            ]
        )
    for mark in found:
        rows.append(
            [
                words(mark.agent), Cell(frames_in_words(mark.frames), mark.frames), Cell(str(mark.games), mark.games),
                percent_cell(mark.mean), percent_cell(mark.median), words(mark.protocol), words(mark.source),
            ]
        )  # fmt: skip
    return Table(
        f"table-landmarks{suffix}", f"Landmarks on {counted(len(block.games), 'game')}",
        "The paper's own and other agents on the same games, as their authors published it, normalised by the paper's "
        "random and human scores. Protocols differ, so these are landmarks and no fair race. Agents that lack one of "
        "the games are left out.",
        columns, rows, len(found),
    )  # fmt: skip


def protocols(collection: Collection, block: Comparison, arm: Arm) -> str:
    names = {e.protocol for game in block.games for run in collection.finished(game, arm) for e in run.evaluations}
    return "mean of the last five evaluations; protocol " + " and ".join(sorted(names))


def all_runs(collection: Collection) -> Table:
    columns = [
        Column("game", numeric=False), Column("arm", numeric=False), Column("seed"), Column("frames"),
        Column("evaluations"), Column("best"), Column("last"), Column("last five since"), Column("games each"),
        Column("protocol", numeric=False),
        Column("wall-clock"), Column("device", numeric=False), Column("commit", numeric=False),
    ]  # fmt: skip
    rows = []
    for run in sorted(collection.runs + collection.again, key=lambda r: (title_of(r.game), r.arm.name, r.seed)):
        five = run.recent(5) if run.evaluations else []
        mark = "‡" if run in collection.again else ""
        rows.append(
            [
                words(title_of(run.game)), words(run.arm.name), Cell(f"{run.seed}{mark}", run.seed),
                Cell(frames_in_words(run.frames) + ("" if run.finished else "†"), run.frames),
                Cell(str(len(run.evaluations)), len(run.evaluations)),
                *([score_cell(run.best), score_cell(run.last)] if five else [EMPTY, EMPTY]),
                Cell(frames_in_words(five[0].frames), five[0].frames) if five else EMPTY,
                Cell(str(five[-1].games), five[-1].games) if five else EMPTY,
                words(" and ".join(sorted({e.protocol for e in run.evaluations}))),
                Cell(hours(run.seconds), run.seconds) if run.seconds is not None else EMPTY,
                words(run.device), Cell(run.commit[:10], run.commit),
            ]
        )  # fmt: skip
    return Table(
        "table-runs", "All runs",
        "“Last five since” says how far back the mean of the last five evaluations reaches. Protocol “paper”: 30 games "
        "from up to 30 random no-ops, ε 0.05, at most 18,000 frames each (outside Atari no no-ops and the run's own "
        "limit); “run”: the run's own settings differ from it. † not finished. ‡ not counted: of the runs "
        "of one seed counts one that was finished, of these the one evaluated most often, of these the newest.",
        columns, rows,
    )  # fmt: skip
