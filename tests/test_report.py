"""The report: its numbers against ones reckoned by hand, and its page in a real browser."""

from __future__ import annotations

import base64
import csv
import io
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from chromium import Browser, find_chromium
from synthetic import write_run, write_study
from tightrope.errors import TightropeError
from tightrope.report import statistics, write_report
from tightrope.report.landmarks import PAPER, landmarks, summaries
from tightrope.report.read import collect
from tightrope.scores import references
from tightrope.study.rows import run_rows

ROOT = Path(__file__).parents[1]

# Six evaluations of each run, in percent between random play and human.
PERCENT = {
    ("breakout", "paper", 0): (10, 20, 90, 40, 50, 60),  # best 90, last 60, last five 52
    ("breakout", "paper", 1): (0, 10, 20, 30, 40, 110),  # 110, 110, 42
    ("pong", "paper", 0): (0, 0, 0, 0, 0, 50),  # 50, 50, 10
    ("pong", "paper", 1): (0, 0, 0, 0, 50, 100),  # 100, 100, 30
    ("freeway", "paper", 0): (10,) * 6,
    ("freeway", "paper", 1): (10,) * 6,
} | {
    (game, "dqn", seed): (level,) * 6
    for game, level in (("breakout", 40), ("pong", 60), ("freeway", 20))
    for seed in (0, 1)
}


def raw(rom: str, percent: float) -> float:
    row = references()[rom]
    return row.random + percent / 100 * (row.human - row.random)


def known_scores(game: str, arm: str, seed: int) -> list[float]:
    rom = game.removeprefix("atari/")
    return [raw(rom, percent) for percent in PERCENT[rom, arm, seed]]


GAMES = ("atari/breakout", "atari/pong", "atari/freeway")


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = write_study(tmp_path_factory.mktemp("known"), GAMES, {"paper": {}, "dqn": {}}, (0, 1), known_scores)
    write_report(folder)
    return folder / "report"


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))


def row_of(path: Path, **wanted: str) -> dict[str, str]:
    (found,) = [row for row in read(path) if all(row[name] == value for name, value in wanted.items())]
    return found


# ------------------------------------------------------------------------------------------------- numbers, by hand


def test_table_1(study: Path) -> None:
    ours = row_of(study / "table-1.csv", arm="paper")
    # Over seeds: Breakout 100, 85, 47; Pong 75, 75, 20; Freeway 10, 10, 10 (best, last, last five).
    for column, mean, median in (("best", 185 / 3, 75), ("last", 170 / 3, 75), ("last five", 77 / 3, 20)):
        assert float(ours[f"mean, %: {column}"]) == pytest.approx(mean)
        assert float(ours[f"median, %: {column}"]) == pytest.approx(median)
    assert (ours["games"], ours["seeds"], ours["frames"], ours["wall-clock"]) == ("3", "2", "10000000", "360.0")


def test_the_papers_own_rows(study: Path) -> None:
    """Its table 1, recomputed from its raw scores."""
    for arm, mean, median in (
        ("He et al. 2017, all 49", "345.70", "105.74"),
        ("Mnih et al. 2015, all 49", "241.06", "93.52"),
    ):
        row = row_of(study / "table-1.csv", arm=arm)
        assert f"{float(row['mean, %: best']):.2f}" == mean
        assert f"{float(row['median, %: best']):.2f}" == median
        html = (study / "index.html").read_text("utf-8")
        assert f">{mean}</td>" in html
        assert f">{median}</td>" in html


def test_raw_and_normalised_scores(study: Path) -> None:
    ours = row_of(study / "table-s1.csv", game="Breakout")
    assert float(ours["paper: best"]) == pytest.approx(31.8)  # 100%
    assert float(ours["paper: last"]) == pytest.approx(1.7 + 0.85 * 30.1)
    assert float(ours["paper: last five"]) == pytest.approx(1.7 + 0.47 * 30.1)
    assert (ours["published: DQN 200M"], ours["published: He et al."]) == ("401.2", "229.79")
    assert "2 × 10M" in (study / "index.html").read_text("utf-8")
    assert float(row_of(study / "table-s2.csv", game="Pong")["paper: last five"]) == pytest.approx(20)


def test_improvement_over_both_baselines(study: Path) -> None:
    def percent(figure: str, game: str, kind: str) -> float:
        found = row_of(study / f"{figure}.csv", game=f"atari/{game}", score_kind=kind, arm="paper")
        return float(found["improvement_pct"])

    # Eq. 5; the human is above our DQN on all three, so that the denominator is the human's.
    assert percent("figure-2", "breakout", "best") == pytest.approx(100 - 40)
    assert percent("figure-2", "pong", "best") == pytest.approx(75 - 60)
    assert percent("figure-2", "freeway", "best") == pytest.approx(10 - 20)
    assert percent("figure-2", "breakout", "last_five") == pytest.approx(47 - 40)
    # DQN at 200M has 401.2 on Breakout, above the human.
    assert percent("figure-1", "breakout", "best") == pytest.approx(100 * (31.8 - 401.2) / (401.2 - 1.7))
    said = "Better on 2 of 3 games by the best evaluation, 2 of 3 by the last, 1 of 3 by the mean of the last five."
    assert said in (study / "index.html").read_text("utf-8")


def test_curves_are_smoothed_over_four(study: Path) -> None:
    curve = [row for row in read(study / "figure-3.csv") if row["game"] == "atari/breakout" and row["arm"] == "paper"]
    # The mean over seeds is 5, 15, 55, 35, 45, 85%.
    expected = [5, 10, 25, 27.5, 37.5, 55]
    assert [float(row["smoothed"]) for row in curve] == pytest.approx([raw("breakout", p) for p in expected])
    # At the last epoch the seeds' own averages are 60 and 50.
    ends = [float(curve[-1][name]) for name in ("seeds_lowest", "seeds_highest")]
    assert ends == pytest.approx([raw("breakout", 50), raw("breakout", 60)])


def test_mean_and_median_over_training(study: Path) -> None:
    ours = [row for row in read(study / "figure-s1.csv") if row["arm"] == "paper"]
    # After the last epoch 85, 75 and 10%, after the fifth 45, 25 and 10%.
    assert [float(ours[-1]["mean_pct"]), float(ours[-1]["median_pct"])] == pytest.approx([170 / 3, 75])
    assert [float(ours[-2]["mean_pct"]), float(ours[-2]["median_pct"])] == pytest.approx([80 / 3, 25])


def test_mean_and_median_against_the_clock(study: Path) -> None:
    """A run of 10M frames takes 6 minutes: after five of its six epochs 5 have passed."""
    ours = [row for row in read(study / "figure-clock.csv") if row["arm"] == "paper"]
    assert [float(row["minutes"]) for row in ours[-2:]] == pytest.approx([5, 6], abs=0.01)
    assert float(ours[-1]["median_pct"]) == pytest.approx(75)


def test_aggregates_by_definition(study: Path) -> None:
    def value(measure: str) -> float:
        found = row_of(study / "figure-aggregates.csv", measure=measure, arm="paper", score_kind="last_five")
        assert (found["low_95"], found["high_95"]) == ("", ""), "of two seeds"
        return float(found["value_pct"])

    # The six runs' means of the last five are 10, 10, 10, 30, 42, 52: a quarter of six off each end is one run.
    assert value("Interquartile mean") == pytest.approx((10 + 10 + 30 + 42) / 4)
    assert value("Optimality gap") == pytest.approx((90 + 90 + 90 + 70 + 58 + 48) / 6)
    # Against 40, 60 and 20: sure on Breakout, hopeless on the others.
    assert float(read(study / "figure-probability.csv")[0]["probability"]) == pytest.approx(1 / 3)
    # Above 20%: both runs of Breakout, one of Pong, none of Freeway.
    profile = [
        r for r in read(study / "figure-profiles.csv") if r["arm"] == "paper" and float(r["threshold_pct"]) >= 20
    ]
    assert float(profile[0]["share_above_pct"]) == pytest.approx(50)


def test_aggregates_agree_with_rliable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expected values from rliable 1.2.0 (with arch 7.2 and pandas 2.3.3): the same data, 50,000 resamples."""
    monkeypatch.setattr(statistics, "RESAMPLES", 20_000)
    ours = [np.array([1.0, 2, 3, 50]), np.array([10.0, 200, 30, 110])]
    theirs = [np.array([1.0, 1, 4, 20]), np.array([15.0, 100, 30, 90])]
    found = {
        "iqm": (statistics.interquartile_mean(ours), 23.25, 6.25, 80.0),
        "gap": (statistics.optimality_gap(ours), 63.0, 42.125, 85.375),
        "median": (statistics.median_estimate(ours), 50.75, 14.625, 90.375),
        "mean": (statistics.mean_estimate(ours), 50.75, 14.625, 90.375),
        "probability": (statistics.probability_of_improvement(ours, theirs), 0.578125, 0.25, 0.875),
    }
    for estimate, value, low, high in found.values():
        assert estimate.value == pytest.approx(value)
        # Few distinct resamples exist, so that the ends of the intervals jump a little from one draw to the next.
        assert estimate.low == pytest.approx(low, abs=0.03 * (high - low))
        assert estimate.high == pytest.approx(high, abs=0.03 * (high - low))
    profile = statistics.performance_profile(ours, np.array([0.0, 50, 100]))
    assert [p.value for p in profile] == [100, 25, 25]
    assert [(p.low, p.high) for p in profile] == [(100, 100), (0, 50), (0, 50)]


def test_three_seeds_of_every_game_have_an_interval(tmp_path: Path) -> None:
    """And no more seeds of one game count than of another: Pong's fourth would move the mean of all runs to 16."""
    percents = {"atari/pong": (1, 2, 3, 100), "atari/freeway": (1, 2, 3)}
    for game, own in percents.items():
        rom = game.removeprefix("atari/")
        for seed, percent in enumerate(own):
            write_run(tmp_path / "cells" / rom / "paper" / f"seed-{seed}", game, "paper", seed, [raw(rom, percent)])
    write_report(tmp_path)
    found = row_of(tmp_path / "report" / "figure-aggregates.csv", measure="Interquartile mean", score_kind="last")
    assert float(found["value_pct"]) == pytest.approx(2)
    assert 1 <= float(found["low_95"]) < 2 < float(found["high_95"]) <= 3
    table = row_of(tmp_path / "report" / "table-aggregates.csv", **{"score of a run": "last"})
    assert [table[f"interquartile mean: {end}"] for end in ("low", "high")] == [found["low_95"], found["high_95"]]
    assert row_of(tmp_path / "report" / "table-1.csv", arm="paper")["seeds"] == "3"


def test_a_tightened_arm_is_compared_with_the_plain_one_that_is_most_like_it(tmp_path: Path) -> None:
    arms: dict[str, dict[str, object]] = {
        "none-0": {"preset": "dqn"},
        "none-25": {"preset": "dqn", "sticky": 0.25},
        "paper-0": {"preset": "paper"},
        "paper-25": {"preset": "paper", "sticky": 0.25},
        "lower-25": {"preset": "paper", "sticky": 0.25, "use_upper": False},
    }
    write_study(tmp_path, GAMES[:2], arms, (0,), lambda game, arm, seed: [1.0, 2.0])
    write_report(tmp_path)
    pairs = {(row["arm"], row["against"]) for row in read(tmp_path / "report" / "figure-2.csv")}
    assert pairs == {("paper-0", "none-0"), ("paper-25", "none-25"), ("lower-25", "none-25")}
    assert {(r["arm"], r["against"]) for r in read(tmp_path / "report" / "figure-probability.csv")} == pairs


def test_averages_reach_as_far_back_in_all_arms(tmp_path: Path) -> None:
    """One arm was evaluated eight times, another after every second of those: four of the one are two of the other.
    Each is drawn where it was evaluated. A run that was cut off after an early evaluation changes nothing."""
    for name, scores in (("paper", [1.0, 2, 3, 4, 5, 6, 7, 8]), ("dqn", [20.0, 40, 60, 80])):
        write_run(tmp_path / "cells" / "pong" / name / "seed-0", "atari/pong", name, 0, scores)
    write_run(
        tmp_path / "cells" / "pong" / "early" / "seed-0", "atari/pong", "paper", 0, [9.0, 9.0], epochs=40, lam=1.0
    )
    html = write_report(tmp_path).read_text("utf-8")
    rows = read(tmp_path / "report" / "figure-3.csv")
    smoothed = {arm: [float(row["smoothed"]) for row in rows if row["arm"] == arm] for arm in ("paper", "dqn")}
    assert smoothed == {"paper": [1, 1.5, 2, 2.5, 3.5, 4.5, 5.5, 6.5], "dqn": [20, 30, 50, 70]}
    assert "averages over 5M frames" in html
    runs = {row["arm"]: row["last five since"] for row in read(tmp_path / "report" / "table-runs.csv")}
    assert (runs["paper"], runs["dqn"]) == ("5000000", "5000000")  # 4 to 8 of the one, 3 and 4 of the other


@pytest.fixture(scope="module")
def many_arms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eleven arms with bounds, each better than the one before it, and three without."""
    arms: dict[str, dict[str, object]] = {f"lam-{i}": {"preset": "paper", "lam": i} for i in range(1, 12)}
    arms |= {f"plain-{i}": {"preset": "dqn", "gamma": 1 - 0.01 * i} for i in range(1, 4)}
    folder = tmp_path_factory.mktemp("many")
    write_study(folder, GAMES, arms, (0,), lambda game, arm, seed: [float(arm.split("-")[1])] * 6)
    write_report(folder)
    return folder / "report"


def test_of_many_arms_the_best_are_drawn_and_all_are_in_the_data(many_arms: Path) -> None:
    html = (many_arms / "index.html").read_text("utf-8")
    figure = html[html.index('<figure id="figure-3"') :]
    legend = re.findall(r"</svg>([a-z]+-[0-9]+)</li>", figure[: figure.index("</ul>")])
    assert legend == ["lam-6", "lam-7", "lam-8", "lam-9", "lam-10", "lam-11", "plain-2", "plain-3"]
    for name in ("figure-2.csv", "figure-3.csv", "figure-s1.csv", "figure-profiles.csv", "figure-telemetry.csv"):
        assert {row["arm"] for row in read(many_arms / name)} >= {f"lam-{i}" for i in range(1, 12)}, name
    assert "the other 6 are in the CSV" in html


def test_tables_of_many_arms_have_a_line_for_each(many_arms: Path) -> None:
    found = read(many_arms / "table-s1.csv")
    assert len(found) == 3 * 14
    row = row_of(many_arms / "table-s1.csv", game="Pong", arm="lam-7")
    assert float(row["this report: best"]) == 7
    assert float(row["published: He et al."]) == 19.4


def test_a_report_goes_where_it_is_told_to(tmp_path: Path) -> None:
    rows = (ROOT / "results" / "atari.csv").read_text("utf-8")
    (tmp_path / "one.csv").write_text(rows, "utf-8")
    assert write_report(tmp_path / "one.csv") == tmp_path / "report-one" / "index.html"
    assert write_report(tmp_path / "one.csv", out=tmp_path / "here").parent == tmp_path / "here"


def test_telemetry_of_the_bounds(study: Path) -> None:
    last = [row for row in read(study / "figure-telemetry.csv") if row["game"] == "atari/pong"][-1]
    assert [float(last[f"{name}_pct"]) for name in statistics.TELEMETRY] == pytest.approx([0, 20, 10])
    assert all(row["arm"] == "paper" for row in read(study / "figure-telemetry.csv")), "DQN has no bounds"


def test_landmarks_are_those_of_their_authors() -> None:
    """Median / mean over the 49 games of Dopamine's published training scores at 10M frames, rounded."""
    found = {(s.agent, s.frames): (round(s.median, 1), round(s.mean)) for s in summaries(references())}
    assert found["DQN (Dopamine)", 10_000_000] == (12.2, 36)
    assert found["Rainbow (Dopamine)", 10_000_000] == (57.3, 158)
    assert found["IQN (Dopamine)", 40_000_000] == (136.1, 1081)
    assert found["Rainbow, IMPALA (Dopamine)", 10_000_000] == (105.5, 454)
    assert found["IQN, IMPALA (Dopamine)", 10_000_000] == (112.0, 428)
    assert found[PAPER, 10_000_000] == (105.7, 346), "of its own tables, as it says"
    assert not any(agent == "BTR" for agent, _ in found), "it has 18 of the 49 games"
    assert all(mark.source and mark.protocol for mark in landmarks())


def test_latex_tables_are_rectangular(study: Path) -> None:
    texts = {path.name: path.read_text("utf-8") for path in study.glob("*.tex")}
    assert {"table-1.tex", "table-s1.tex", "table-s2.tex", "table-aggregates.tex"} <= set(texts)
    for text in texts.values():
        shape = re.search(r"\\begin\{tabular\}\{([lr]+)\}", text)
        assert shape is not None
        rows = [line for line in text.splitlines() if line.endswith(r"\\") and "multicolumn" not in line]
        assert len(rows) > 1
        assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {len(shape[1])}
    assert r"mean, \%" in texts["table-1.tex"]


# ------------------------------------------------------------------------------------------------------ what is missing


def test_games_without_a_human_reference(tmp_path: Path) -> None:
    """Range-normalised: 0% is the lowest and 100% the highest evaluation of all, here 2 and 12."""
    scores = {"tightened": (2.0, 7.0, 12.0), "dqn": (2.0, 4.0, 6.0)}
    arms: dict[str, dict[str, object]] = {
        "tightened": {"preset": "minatar"},
        "dqn": {"preset": "minatar", "bounds": False},
    }
    write_study(tmp_path, ["minatar/breakout"], arms, (0,), lambda game, arm, seed: scores[arm])
    html = write_report(tmp_path).read_text("utf-8")
    ours = row_of(tmp_path / "report" / "table-s2-range.csv", game="MinAtar Breakout")
    assert [float(ours[f"tightened: {kind}"]) for kind in ("best", "last", "last five")] == pytest.approx(
        [100, 100, 50]
    )
    assert float(ours["dqn: best"]) == pytest.approx(40)
    improved = row_of(tmp_path / "report" / "figure-2-range.csv", score_kind="best")
    assert float(improved["improvement_pct"]) == pytest.approx(60)
    assert "no human reference" in html
    assert "Optimality gap" not in html
    assert "One seed each: no interval can be given" in html
    assert "An aggregate over a single game" in html
    assert not (tmp_path / "report" / "figure-aggregates.csv").exists()


def test_an_incomplete_study_says_what_is_missing(tmp_path: Path) -> None:
    write_study(tmp_path, GAMES, {"paper": {}, "dqn": {}}, (0, 1), known_scores)
    cells = tmp_path / "cells"
    shutil.rmtree(cells / "atari-pong" / "paper")
    write_run(cells / "atari-pong/paper/seed-0", "atari/pong", "paper", 0, [-20.0, -19.0], epochs=6)
    with open(cells / "atari-pong/paper/seed-0/metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"frames": 33')  # it is being written to
    (cells / "atari-pong/paper/seed-1").mkdir()
    (cells / "atari-pong/paper/seed-1/status.json").write_text('{"state": "failed", "error": "no memory left"}')
    (cells / "atari-freeway/dqn/seed-1/config.toml").write_text("game = ", "utf-8")
    html = write_report(tmp_path).read_text("utf-8")
    missing = read(tmp_path / "report" / "table-missing.csv")
    said = {(row["game"], row["arm"], row["seed"]): row["state"] for row in missing}
    assert said["Pong", "paper", "1"] == "failed (no memory left)"
    assert said["Pong", "paper", "0"] == "unfinished: at 3,333,334 of 10,000,000 frames"
    assert "damaged" in said["Freeway", "dqn", "1"]
    assert "Incomplete: " in html
    table = row_of(tmp_path / "report" / "table-1.csv", arm="paper")
    assert table["games"] == "2", "Pong has no finished run of this arm"
    raw_scores = row_of(tmp_path / "report" / "table-s1.csv", game="Pong")
    assert float(raw_scores["paper: last"]) == -19, "shown, with a dagger"
    assert "−19.00†" in html


def test_a_study_whose_runs_are_all_under_way(tmp_path: Path) -> None:
    cells = tmp_path / "cells"
    write_run(cells / "atari-pong/paper/seed-0", "atari/pong", "paper", 0, [-20.0, -19.0], epochs=6)
    write_run(cells / "atari-pong/dqn/seed-0", "atari/pong", "dqn", 0, [], epochs=6)
    html = write_report(tmp_path).read_text("utf-8")
    assert "No run has reached its budget yet" in html
    assert "nothing to aggregate yet" in html
    assert "1 seed (paper not finished)" in html
    assert not (tmp_path / "report" / "table-1.csv").exists()


def test_cells_not_begun_are_missing(tmp_path: Path) -> None:
    pytest.importorskip("tightrope.study.plan")
    write_study(tmp_path, GAMES, {"paper": {}, "dqn": {}}, (0, 1), known_scores)
    shutil.rmtree(tmp_path / "cells" / "atari-pong" / "dqn" / "seed-1")
    (missing,) = collect(tmp_path).missing
    assert (missing.arm, missing.seed, missing.why) == ("dqn", "1", "not begun")


def test_arms_compare_on_the_games_that_they_share(tmp_path: Path) -> None:
    write_study(tmp_path, GAMES, {"paper": {}, "dqn": {}}, (0, 1), known_scores)
    for seed in (0, 1):
        path = tmp_path / "cells" / "atari-pong" / "lam-1" / f"seed-{seed}"
        write_run(path, "atari/pong", "paper", seed, [0.0] * 6, lam=1.0)
    collection = collect(tmp_path)
    (human,) = statistics.scales(collection)
    found = [(block.games, {arm.name for arm in block.arms}) for block in statistics.comparisons(collection, human)]
    assert found == [
        (("atari/breakout", "atari/freeway", "atari/pong"), {"paper", "dqn"}),
        (("atari/pong",), {"paper", "dqn", "lam-1"}),
    ]


def test_rows_of_runs_made_elsewhere(tmp_path: Path) -> None:
    """The repository's first real results: Breakout by both, and Pong stopped at 8M frames."""
    for name in ("atari.csv", "maze.csv"):
        shutil.copy(ROOT / "results" / name, tmp_path)
    text = (tmp_path / "atari.csv").read_text("utf-8").splitlines()
    firsts = ("d880f8b04b19f69a6c77f4be1a053d9a40bedbf5", "c1014f8e190a9721643998c637c37e9c7dcc6109")
    # Those of these commits, whatever was added since.
    kept = [line for line in text[1:] if any(commit in line for commit in firsts)]
    (tmp_path / "atari.csv").write_text("\n".join([text[0], *kept]) + "\n", "utf-8")
    html = write_report(tmp_path).read_text("utf-8")
    assert "Made from result rows alone" in html
    assert "hold no telemetry" in html
    ours = row_of(tmp_path / "report" / "table-s1.csv", game="Breakout")
    assert [round(float(ours[f"{arm}: best"]), 1) for arm in ("paper", "dqn")] == [51.7, 96.2]
    assert "stopped at 8,000,488 of 10,000,000 frames" in html
    assert write_report(tmp_path / "atari.csv") == tmp_path / "report-atari" / "index.html"


def test_budgets_are_arms_of_their_own(tmp_path: Path) -> None:
    header = (ROOT / "results" / "atari.csv").read_text("utf-8").splitlines()[0]
    line = "atari/pong,{},{},0,{},40,{},1,30,0,paper,{},60,gpu,2,c"
    rows = [
        line.format("paper", "--eval_every_epochs 4", 10_000_000, 1.0, 10_000_000),
        line.format("dqn", "", 10_000_000, 2.0, 10_000_000),
        line.format("dqn", "--frames 40000000", 40_000_000, 3.0, 40_000_000),
        line.format("from-the-future", "--warp 9", 5_000_000, 4.0, 5_000_000),
    ]
    (tmp_path / "rows.csv").write_text("\n".join([header, *rows]), "utf-8")
    collection = collect(tmp_path)
    assert {arm.name: (arm.frames, arm.plain) for arm in collection.arms} == {
        "from-the-future": (5_000_000, False),
        "paper": (10_000_000, False),
        "dqn": (10_000_000, True),
        "dqn (frames=40000000)": (40_000_000, True),
    }
    paper = next(arm for arm in collection.arms if arm.name == "paper")
    baseline = collection.baseline("atari/pong", paper)
    assert baseline is not None
    assert baseline.frames == 10_000_000


def test_rows_of_one_seed_run_twice_and_of_a_run_that_went_on(tmp_path: Path) -> None:
    header = (ROOT / "results" / "atari.csv").read_text("utf-8").splitlines()[0]
    line = "atari/pong,minatar,--frames 300 --sticky 0.0{},0,{},1,{},1,30,0,paper,{},60,gpu,2,c"
    rows = [
        line.format("", 100, 1.0, 100),
        line.format("", 200, 2.0, 300),  # resumed later, to its end
        line.format("", 300, 3.0, 300),
        line.format("", 100, 5.0, 300),  # again from the start
        line.format("", 300, 6.0, 300),
        line.format(" --bounds False", 300, 7.0, ""),
    ]
    (tmp_path / "rows.csv").write_text("\n".join([header, *rows]), "utf-8")
    collection = collect(tmp_path)
    found, again = (
        [(run.arm.name, [e.score for e in run.evaluations], run.frames) for run in runs]
        for runs in (collection.runs, collection.again)
    )
    # What both arms changed is in neither's name.
    assert found == [("minatar", [1, 2, 3], 300), ("minatar (bounds=False)", [7], 300)]
    assert again == [("minatar", [5, 6], 300)]
    assert [arm.plain for arm in collection.arms] == [False, True]
    assert all(run.finished for run in collection.runs)


def test_a_run_that_was_cut_off_in_its_last_evaluation_is_not_finished(tmp_path: Path) -> None:
    """All its frames played, its last score that of the half: by a study's folder and by rows."""
    write_study(tmp_path / "study", ["atari/pong"], {"paper": {}, "dqn": {}}, [0], lambda *_: [1.0, 2.0])
    run = tmp_path / "study" / "cells" / "atari-pong" / "paper" / "seed-0"
    (run / "evaluations.csv").write_text("".join((run / "evaluations.csv").read_text().splitlines(True)[:-1]))
    rows = run_rows(run) + run_rows(run.parents[1] / "dqn" / "seed-0")
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    for source, said in (
        ("study", "unfinished: in its last evaluation"),
        ("rows.csv", "stopped in its last evaluation"),
    ):
        collection = collect(tmp_path / source)
        assert {run.arm.name: run.finished for run in collection.runs} == {"paper": False, "dqn": True}
        assert [(gone.arm, gone.why) for gone in collection.missing] == [("paper", said)]


def test_two_things_of_one_name_are_told_apart(tmp_path: Path) -> None:
    """By their budgets, where these differ; else by what was changed. Never are two arms one line of a table."""
    header = (ROOT / "results" / "atari.csv").read_text("utf-8").splitlines()[0]
    line = "atari/pong,{},{},0,{},40,{},1,30,0,paper,{},60,gpu,2,c,{},finished"
    rows = [
        line.format("paper", "", 10_000_000, 1.0, 10_000_000, "long"),
        line.format("paper", "--frames 5000000", 5_000_000, 2.0, 5_000_000, "long"),
        line.format("paper", "--lam 1.0 --double True", 10_000_000, 3.0, 10_000_000, "ours"),
        line.format("paper", "--lam 2.0 --double True", 10_000_000, 4.0, 10_000_000, "ours"),
        line.format("paper", "--double True", 10_000_000, 5.0, 10_000_000, "ours"),
        line.format("future", "--warp 9", 10_000_000, 6.0, 10_000_000, "new"),
        line.format("later", "--warp 9", 10_000_000, 7.0, 10_000_000, "new"),
    ]
    (tmp_path / "rows.csv").write_text("\n".join([header, *rows]), "utf-8")
    found = {run.arm.name: run.last for run in collect(tmp_path).runs}
    assert found == {
        "long, 10M": 1, "long, 5M": 2, "ours (lam=1.0)": 3, "ours (lam=2.0)": 4, "ours": 5, "new": 6, "new #2": 7,
    }  # fmt: skip


def test_every_file_of_results_can_be_reported(tmp_path: Path) -> None:
    read_ones = [path for path in sorted((ROOT / "results").glob("*.csv")) if "run_frames" in path.read_text("utf-8")]
    assert len(read_ones) >= 8
    for path in read_ones:
        names = [arm.name for arm in collect(path).arms]
        assert len(set(names)) == len(names), path
    # Of two versions of a study, with runs that were cut off.
    assert write_report(ROOT / "results" / "tuning.csv", out=tmp_path / "page").exists()
    for name in (
        "figure-1",
        "figure-2",
        "figure-3",
        "figure-s1",
        "figure-clock",
        "figure-profiles",
        "figure-telemetry",
    ):
        file = tmp_path / "page" / f"{name}.csv"
        assert not file.exists() or {"seeds", "frames"} <= set(read(file)[0]), name
    assert {"runs", "runs_against", "frames"} <= set(read(tmp_path / "page" / "figure-probability.csv")[0])


def test_a_run_that_failed_is_a_row_and_is_named(tmp_path: Path) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    write_run(whole, "atari/pong", "paper", 0, [1.0, 2.0])
    write_run(broken, "atari/pong", "paper", 1, [], epochs=2)
    rows = run_rows(whole, arm="ours") + run_rows(broken, arm="ours", error="the disk is full")
    assert [(row["score"], row["state"]) for row in rows] == [
        ("1.0", "finished"), ("2.0", "finished"), ("", "failed: the disk is full"),
    ]  # fmt: skip
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    collection = collect(tmp_path)
    assert [(run.arm.name, run.seed) for run in collection.runs] == [("ours", 0)]
    assert [(gone.arm, gone.seed, gone.why) for gone in collection.missing] == [
        ("ours", "1", "failed: the disk is full")
    ]
    # Half of training: lower bounds were violated in a quarter of the samples, upper ones in a tenth.
    assert [run.telemetry[0] for run in collection.runs] == [
        {"frames": 5_000_000, "lower_violated": 0.25, "upper_violated": 0.1, "return_tightest": 0.1}
    ]


def test_the_last_five_are_fewer_of_an_arm_that_was_evaluated_less_often(tmp_path: Path) -> None:
    """One arm was evaluated six times, the other after every second of those: means of the last five and of three."""
    for seed, (preset_name, scores) in enumerate((("paper", [1.0, 2, 3, 4, 5, 60]), ("dqn", [20.0, 40, 60]))):
        write_run(tmp_path / "cells" / "pong" / preset_name / f"seed-{seed}", "atari/pong", preset_name, seed, scores)
    (tmp_path / "study.toml").write_text("games = ['pong']\nseeds = [0, 1]\n[arms]\npaper = {}\ndqn = {}\n")
    found = {run.arm.name: run.last_five for run in collect(tmp_path).runs}
    assert found == {"paper": (2 + 3 + 4 + 5 + 60) / 5, "dqn": (20 + 40 + 60) / 3}
    assert "equally often on Pong" in write_report(tmp_path).read_text("utf-8")


def test_of_a_seed_that_was_run_again_one_run_counts(tmp_path: Path) -> None:
    """Finished before unfinished, then evaluated most often, then newest; whatever they scored. All are listed."""
    header = (ROOT / "results" / "atari.csv").read_text("utf-8").splitlines()[0]

    def rows(commit: str, seed: int, reached: int, scores: list[float]) -> list[str]:
        frames = [10_000_000 * (i + 1) // len(scores) for i in range(len(scores))]
        return [
            f"atari/pong,paper,,{seed},{when},1,{score},1,30,0,paper,{reached},60,gpu,2,{commit}"
            for when, score in zip(frames, scores, strict=True)
        ]

    lines = [
        *rows("rarely", 0, 10_000_000, [20.0]),
        *rows("chosen", 0, 10_000_000, [1.0, 2.0]),
        *rows("unfinished", 0, 9_000_000, [1.0, 2.0, 3.0]),
        *rows("older", 1, 10_000_000, [5.0]),
        *rows("newer", 1, 10_000_000, [4.0]),
    ]
    (tmp_path / "rows.csv").write_text("\n".join([header, *lines]), "utf-8")
    collection = collect(tmp_path)
    assert [run.commit for run in collection.runs] == ["chosen", "newer"]
    assert [run.commit for run in collection.again] == ["rarely", "unfinished", "older"]
    assert collection.missing == [], "nothing is missing where another run of the seed was finished"
    write_report(tmp_path)
    listed = list(csv.DictReader((tmp_path / "report" / "table-runs.csv").read_text("utf-8").splitlines()))
    assert sorted(row["commit"] for row in listed) == ["chosen", "newer", "older", "rarely", "unfinished"]
    assert {row["commit"]: row["best"] for row in listed}["rarely"] == "20.0"
    assert (tmp_path / "report" / "table-runs.tex").read_text("utf-8").count(r"$\ddagger$") == 3


def test_what_cannot_be_reported_is_said(tmp_path: Path) -> None:
    with pytest.raises(TightropeError, match="is no study"):
        write_report(tmp_path)
    (tmp_path / "other.csv").write_text("a,b\n1,2\n", "utf-8")
    with pytest.raises(TightropeError, match="no rows of runs"):
        write_report(tmp_path)
    (tmp_path / "cells").mkdir()
    with pytest.raises(TightropeError, match="nothing to report yet"):
        write_report(tmp_path)


def test_what_comes_from_files_is_escaped(tmp_path: Path) -> None:
    header = (ROOT / "results" / "atari.csv").read_text("utf-8").splitlines()[0]
    evil = "</script><img src=x onerror=alert(1)>"
    rows = [f"{evil},{evil},,0,9,1,1,1,30,0,{evil},9,60,{evil},2,{evil}"]
    (tmp_path / "rows.csv").write_text("\n".join([header, *rows]), "utf-8")
    html = write_report(tmp_path).read_text("utf-8")
    assert "<img" not in html
    assert html.count("</script>") == 1


def test_the_best_agent_is_filmed(tmp_path: Path) -> None:
    import tightrope

    run = tmp_path / "cells" / "tightrope-maze-v0" / "maze" / "seed-0"
    tightrope.train("maze", frames=600, epoch_frames=200, learn_start_steps=100, eval_episodes=2, out=run, quiet=True)
    html = write_report(tmp_path, videos=True).read_text("utf-8")
    (video,) = re.findall(r'<video [^>]*src="data:video/mp4;base64,([^"]+)" aria-label="([^"]+)"', html)
    film = base64.b64decode(video[0])
    assert film[4:8] == b"ftyp"
    assert 1000 < len(film) < 700_000
    assert "the best agent, maze, seed 0" in video[1]
    assert (tmp_path / "report" / "videos" / "tightrope-Maze-v0.mp4").read_bytes() == film


# ------------------------------------------------------------------------------------------------------------ a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    found = Browser(find_chromium(), tmp_path_factory.mktemp("profile"))
    yield found
    found.close()


def test_the_page_renders_quietly_and_without_a_network(browser: Browser, study: Path) -> None:
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(study / "index.html")
    assert browser.run("document.querySelector('h1').innerText") == study.parent.name
    assert browser.run("[...document.querySelectorAll('main svg.panel')].every(s => s.getBBox().width > 100)")
    assert browser.complaints == []
    assert all(url.startswith(("file://", "data:")) for url in browser.requests)
    assert sum(url.startswith("file://") for url in browser.requests) == 1, "the page itself and nothing beside it"


def test_every_figure_has_its_data_and_its_words(browser: Browser, study: Path) -> None:
    browser.open(study / "index.html")
    figures = browser.run("""[...document.querySelectorAll("figure")].map(figure => ({
        id: figure.id,
        name: figure.querySelector("a[download]").download,
        data: figure.querySelector("a[download]").href,
        drawings: figure.querySelectorAll("svg:not(.swatch)").length,
        described: [...figure.querySelectorAll("[role=img]")].map(image =>
            [image.ariaLabel, document.getElementById(image.getAttribute("aria-describedby")).textContent]),
    }))""")
    ids = {figure["id"] for figure in figures}
    assert ids == {
        "figure-1", "figure-2", "figure-3", "figure-s1", "figure-aggregates", "figure-probability", "figure-profiles",
        "figure-clock",
        "figure-telemetry",
    }  # fmt: skip
    for figure in figures:
        assert figure["name"] == f"{figure['id']}.csv"
        data = base64.b64decode(figure["data"].partition("base64,")[2]).decode()
        assert data == (study / figure["name"]).read_text("utf-8")
        assert len(data.splitlines()) > 1
        assert figure["drawings"] >= 1
        assert figure["described"]
        for label, words in figure["described"]:
            assert len(label) > 10
            assert len(words) > 40


def test_tables_sort_by_mouse_and_by_keyboard(browser: Browser, study: Path) -> None:
    browser.open(study / "index.html")
    games = "[...document.querySelectorAll('#table-s1 tbody th')].map(cell => cell.innerText)"
    sorted_by = "[...document.querySelectorAll('#table-s1 [aria-sort]')].map(head => head.ariaSort)"
    assert browser.run(games) == ["Breakout", "Freeway", "Pong"]
    head = "#table-s1 thead tr:last-child th:nth-child(2) button"  # random play: 1.7, 0.0, -20.7
    browser.click(head)
    assert browser.run(games) == ["Pong", "Freeway", "Breakout"]
    assert browser.run(sorted_by)[:3] == ["none", "ascending", "none"]
    browser.run(f"document.querySelector('{head}').focus()")
    browser.press_enter()
    assert browser.run(games) == ["Breakout", "Freeway", "Pong"]
    assert browser.run(sorted_by)[:3] == ["none", "descending", "none"]
    browser.click("#table-1 thead tr:last-child th:nth-child(2) button")  # mean, by the best evaluation
    arms = browser.run("[...document.querySelectorAll('#table-1 tbody th')].map(cell => cell.innerText)")
    assert arms[:3] == ["dqn", "paper", "He et al. 2017, these games"], "references stay below"


def test_light_and_dark(browser: Browser, study: Path) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('svg .row-name')).fill"
    seen = {}
    for scheme in ("light", "dark"):
        browser.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        browser.open(study / "index.html")
        browser.run("localStorage.clear()")
        browser.open(study / "index.html")
        seen[scheme] = browser.run(ground), browser.run(ink)
    assert seen["light"][0] != seen["dark"][0]
    assert seen["light"][1] != seen["dark"][1], "figures follow the theme"
    browser.click("#theme")
    assert (browser.run(ground), browser.run(ink)) == seen["light"]
    assert browser.run("document.getElementById('theme').ariaLabel") == "Switch to dark colours"
    browser.open(study / "index.html")
    assert browser.run(ground) == seen["light"][0], "the choice is remembered"
    browser.call("Emulation.setEmulatedMedia", media="print")
    assert browser.run(ground) == "rgb(255, 255, 255)"
    assert browser.run("getComputedStyle(document.querySelector('nav')).display") == "none"
    browser.call("Emulation.setEmulatedMedia", media="", features=[])


def test_in_print_no_table_is_wider_than_the_page(browser: Browser, study: Path, many_arms: Path) -> None:
    """An A4 page less its margins is 182 mm, 688 pixels."""
    browser.call("Emulation.setEmulatedMedia", media="print")
    browser.call("Emulation.setDeviceMetricsOverride", width=688, height=1000, deviceScaleFactor=1, mobile=False)
    for report in (study, many_arms):
        browser.open(report / "index.html")
        assert browser.run("Math.max(...[...document.querySelectorAll('table')].map(t => t.scrollWidth))") <= 688
        # Buttons are not painted in the heading that a table repeats on its next page.
        displays = "[...new Set([...document.querySelectorAll('th button')].map(b => getComputedStyle(b).display))]"
        assert browser.run(displays) == ["contents"]
    browser.call("Emulation.clearDeviceMetricsOverride")
    browser.call("Emulation.setEmulatedMedia", media="", features=[])


def test_on_a_phone_nothing_hangs_over(browser: Browser, study: Path) -> None:
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=844, deviceScaleFactor=1, mobile=True)
    browser.open(study / "index.html")
    assert browser.run("document.documentElement.scrollWidth") == 390
    shown = "[...document.querySelectorAll('figure svg:not(.swatch)')].filter(s => s.getBoundingClientRect().width)"
    assert browser.run(f"{shown}.length") > 5
    assert browser.run(f"{shown}.every(s => s.getBoundingClientRect().right <= 390)")
    assert browser.run(f"{shown}.every(s => !s.classList.contains('wide-only'))")
    # Letters of at least 9 pixels, as drawn.
    smallest = f"Math.min(...{shown}.map(s => s.getBoundingClientRect().width / s.viewBox.baseVal.width * 11.5))"
    assert browser.run(smallest) > 9
    browser.call("Emulation.clearDeviceMetricsOverride")
