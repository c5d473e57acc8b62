"""The page: which tables and figures there are, in which order, and what is said about them."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from importlib import resources
from pathlib import Path
from string import ascii_lowercase

from tightrope.checkpoint import write_bytes
from tightrope.errors import TightropeError, counted
from tightrope.report import further_figures, paper_figures, statistics, tables
from tightrope.report.data import Arm, Collection, frames_in_words, title_of
from tightrope.report.figure import Figure
from tightrope.report.paper_figures import Gain
from tightrope.report.statistics import Comparison, Scale
from tightrope.report.tables import Table
from tightrope.report.words import spread


@dataclass
class Section:
    id: str
    title: str
    text: list[str] = field(default_factory=list)
    parts: list[Figure | Table] = field(default_factory=list)


def write(collection: Collection, out: Path, with_videos: bool) -> Path:
    """index.html, and beside it each figure's data and each table as files."""
    try:
        import jinja2
        import scipy.stats  # noqa: F401  # noticed here, not halfway
    except ImportError as problem:
        raise TightropeError(f"a report needs {problem.name}: pip install 'tightrope[report]'") from None
    films: dict[str, tuple[str, str]] = {}
    film_problems: list[str] = []
    if with_videos and not collection.from_rows:
        from tightrope.report.videos import best_agents

        films, film_problems = best_agents(collection, out / "videos")
    sections = _sections(collection, films, film_problems, with_videos)
    assets = resources.files("tightrope") / "report" / "assets"
    world = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True,
        loader=jinja2.FunctionLoader(lambda name: (assets / name).read_text("utf-8")),
    )  # fmt: skip
    world.filters["data_uri"] = _data_uri
    world.tests["figure"] = lambda part: isinstance(part, Figure)
    html = world.get_template("page.html").render(
        collection=collection,
        facts=_facts(collection),
        caveats=_caveats(collection, with_videos),
        sections=sections,
        css=(assets / "page.css").read_text("utf-8"),
        script=(assets / "page.js").read_text("utf-8"),
    )
    for kind in ("figure-*.csv", "table-*.csv", "table-*.tex"):  # of an earlier report, which may have had more
        for old in out.glob(kind):
            old.unlink()
    for part in (part for section in sections for part in section.parts):
        if isinstance(part, Figure):
            write_bytes(out / f"{part.id}.csv", part.data.encode())
        else:
            write_bytes(out / f"{part.id}.csv", part.to_csv().encode())
            write_bytes(out / f"{part.id}.tex", part.to_latex().encode())
    page = out / "index.html"
    write_bytes(page, html.encode())
    return page


def _data_uri(text: str, kind: str = "text/csv") -> str:
    return f"data:{kind};base64," + base64.b64encode(text.encode()).decode()


# --------------------------------------------------------------------------------------------------------- the opening


def _facts(collection: Collection) -> list[tuple[str, str]]:
    runs = collection.runs
    seeds = {len(collection.of(game, arm)) for game in collection.games for arm in collection.arms} - {0}
    budgets = list(dict.fromkeys(frames_in_words(arm.frames) for arm in collection.arms))
    return [
        ("runs", f"{len(runs)}, {sum(run.finished for run in runs)} finished"),
        ("games", str(len(collection.games))),
        ("seeds of a game", spread(seeds)),
        ("frames", " and ".join(budgets)),
    ]


def _caveats(collection: Collection, with_videos: bool) -> list[str]:
    """What a reader must know before believing any number below."""
    said = []
    counts = [len(collection.finished(g, a)) for g in collection.games for a in collection.arms]
    if not any(counts):
        said.append(
            "No run has reached its budget yet. Aggregates count finished runs only, so there are none; the curves and "
            "raw scores show what there is."
        )
    elif max(counts) == 1:
        said.append(
            "One seed each: no interval can be given, and a difference between two arms may be one between two seeds."
        )
    elif max(counts) < 5:
        said.append(
            f"At most {max(counts)} seeds of a game: intervals that come from resampling so few are too narrow rather "
            "than too wide."
        )
    if collection.missing:
        noun = "run is" if len(collection.missing) == 1 else "runs are"
        said.append(
            f"Incomplete: {len(collection.missing)} {noun} missing or unfinished, and listed at the end. Aggregates "
            "count finished runs only, on the games that all compared arms have finished."
        )
    few = max((len(run.evaluations) for run in collection.runs if run.finished), default=0)
    if 0 < few < 20:
        said.append(
            f"At most {few} evaluations in a run: the mean of the last five reaches far back into training (the table "
            "of runs says how far), and the best is of few where the paper's is of 40."
        )
    uneven = [
        title_of(game)
        for game in collection.games
        if len({len(run.evaluations) for run in collection.runs if run.game == game and run.finished}) > 1
    ]
    if uneven:
        said.append(
            f"Not all arms were evaluated equally often on {', '.join(uneven)}: the best of more evaluations flatters "
            "more. The mean of the last five reaches as far back in all: there it is of fewer where there are fewer."
        )
    if collection.from_rows:
        said.append(
            "Made from result rows alone: they hold no agents, so no video either, and do not say what was planned, so "
            "that a study half run looks whole."
        )
    elif not with_videos:
        said.append("No videos: they are made when asked for (--videos).")
    return said


# -------------------------------------------------------------------------------------------------------- the sections


def _sections(
    collection: Collection, films: dict[str, tuple[str, str]], film_problems: list[str], with_videos: bool
) -> list[Section]:
    scales = statistics.scales(collection)
    blocks = [block for scale in scales for block in statistics.comparisons(collection, scale)]
    return [
        _paper(collection, scales, blocks, films, film_problems, with_videos),
        _beyond(collection, scales, blocks),
        _bounds(collection),
        _landmarks(collection, blocks),
        _runs(collection),
    ]


def _paper(
    collection: Collection,
    scales: list[Scale],
    blocks: list[Comparison],
    films: dict[str, tuple[str, str]],
    film_problems: list[str],
    with_videos: bool,
) -> Section:
    section = Section("paper", "The paper's tables and figures", [scale.rule for scale in scales])
    if with_videos and film_problems:
        section.text.append("Not filmed: " + " ".join(film_problems))
    for i, block in enumerate(blocks):
        section.parts.append(
            tables.table_1(collection, block, "1" + ("" if len(blocks) == 1 else ascii_lowercase[i % 26]))
        )
    tightened = [arm for arm in collection.arms if not arm.plain] or collection.arms
    parts: list[Figure | None] = []
    for scale in scales:
        rule = "By the paper's eq. 5: the difference as a share of max(human, baseline) − random."
        if scale.name == "human":
            gains = {arm: paper_figures.against_200m(collection, scale, arm) for arm in tightened}
            parts.append(
                paper_figures.improvement(
                    collection, "figure-1", "Figure 1. Improvement over DQN at 200M frames",
                    "DQN trained for 200M frames (Mnih et al., 2015)", rule, gains, _sizes(collection, gains),
                )
            )  # fmt: skip
        else:
            rule = "The difference as a share of the range seen: the paper's eq. 5 with that range for human − random."
        own = {arm: paper_figures.against_own(collection, scale, arm) for arm in tightened if not arm.plain}
        suffix, more = ("", "") if scale.name == "human" else ("-range", ", games without a human reference")
        parts.append(
            paper_figures.improvement(
                collection, f"figure-2{suffix}", f"Figure 2. Improvement over our own DQN at the same budget{more}",
                "the plain arm that is nearest in its settings and of the same budget", rule, own,
                _sizes(collection, own),
            )
        )  # fmt: skip
        if parts[-1] is None and len(scales) == 1:
            section.text.append(
                "Figure 2 needs a tightened and a plain arm that finished the same game; there is none."
            )
    parts += [paper_figures.learning_curves(collection, films), paper_figures.over_training(collection, blocks)]
    section.parts += [part for part in parts if part is not None]
    for scale in scales:
        section.parts += [tables.raw_scores(collection, scale), tables.normalised_scores(collection, scale)]
    return section


def _sizes(collection: Collection, gains: dict[Arm, list[Gain]]) -> dict[Arm, str]:
    """What each panel's numbers rest on."""
    said = {}
    for arm, found in gains.items():
        counts = [len(collection.finished(gain.game, arm)) for gain in found]
        said[arm] = f"{spread(counts, 'seed')} of {frames_in_words(arm.frames)} frames." if counts else ""
    return said


def _beyond(collection: Collection, scales: list[Scale], blocks: list[Comparison]) -> Section:
    section = Section(
        "beyond", "Beyond the paper",
        [
            "A few seeds say less than their mean suggests. The measures below are those of Agarwal et al., “Deep "
            "Reinforcement Learning at the Edge of the Statistical Precipice” (NeurIPS 2021): the interquartile mean "
            "heeds neither one lucky game nor one hopeless one, the optimality gap is what is lacking to 100%."
        ],
    )  # fmt: skip
    if not blocks:
        section.text.append("No run is finished, so there is nothing to aggregate yet.")
        return section
    wide = [block for block in blocks if len(block.games) > 1]
    if len(wide) < len(blocks):
        section.text.append("An aggregate over a single game would be that game's score, and is left out.")
    parts: list[Figure | Table | None] = [further_figures.aggregates(collection, wide)]
    parts += [tables.aggregate_table(collection, b, "" if i == 0 else f"-{i + 1}") for i, b in enumerate(wide)]
    parts += [further_figures.probability(collection, scales), further_figures.profiles(collection, wide)]
    parts.append(paper_figures.over_training(collection, wide, clock=True))
    section.parts = [part for part in parts if part is not None]
    return section


def _bounds(collection: Collection) -> Section:
    section = Section("bounds", "The bounds at work")
    found = further_figures.bound_telemetry(collection)
    if found is not None:
        section.parts.append(found)
    elif collection.from_rows:
        section.text.append("These rows hold no telemetry; a report of the run folders themselves shows it here.")
    else:
        section.text.append("No run with bounds has logged telemetry yet.")
    return section


def _landmarks(collection: Collection, blocks: list[Comparison]) -> Section:
    section = Section("landmarks", "Landmarks")
    for i, block in enumerate(b for b in blocks if b.scale.name == "human"):
        table = tables.landmark_table(collection, block, "" if i == 0 else f"-{i + 1}")
        if table is not None:
            section.parts.append(table)
    if not section.parts:
        section.text.append("No published scores of other agents cover the games compared here.")
    return section


def _runs(collection: Collection) -> Section:
    section = Section("runs", "Runs, and what is missing")
    for arm in collection.arms:
        section.text.append(f"{arm.name}: {arm.about}, {frames_in_words(arm.frames)} frames.")
    if collection.missing:
        section.parts.append(
            Table(
                "table-missing", f"Missing or unfinished: {counted(len(collection.missing), 'run')}", "",
                [tables.Column(name, numeric=False) for name in ("game", "arm", "seed", "state")],
                [[tables.words(text) for text in (m.game, m.arm, m.seed, m.why)] for m in collection.missing],
            )
        )  # fmt: skip
    elif not collection.from_rows:
        section.text.append("Nothing that was planned is missing.")
    section.parts.append(tables.all_runs(collection))
    return section
