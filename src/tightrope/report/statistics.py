"""Numbers over many runs: the paper's (mean and median over games) and those that a few seeds call for.

Interquartile mean, optimality gap, probability of improvement and performance profiles are those of Agarwal et al.,
"Deep Reinforcement Learning at the Edge of the Statistical Precipice" (NeurIPS 2021). The resampling is SciPy's: it
takes games with different numbers of seeds, as a study under way has them.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tightrope.report.data import Arm, Collection, Run, rom_of
from tightrope.scores import references

RESAMPLES = 2_000
CONFIDENCE = 0.95
LEAST_SEEDS = 3  # for an interval

#: For each game the scores of its seeds, in percent.
Scores = list[np.ndarray]


@dataclass(frozen=True)
class Estimate:
    """A number and, where there are seeds to resample, its 95% interval."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def ends(self) -> tuple[float | str, float | str]:
        """Of the interval, for a CSV file: empty where there is none."""
        return ("", "") if self.low is None or self.high is None else (self.low, self.high)


# ------------------------------------------------------------------------------------------------------------- scales


@dataclass(frozen=True)
class Scale:
    """What makes scores of different games comparable: two anchors for each game, 0% and 100%."""

    name: str
    unit: str
    rule: str
    anchors: dict[str, tuple[float, float]]

    def percent(self, game: str, score: float) -> float:
        low, high = self.anchors[game]
        return 100 * (score - low) / (high - low) if high > low else 0.0

    def improvement(self, game: str, score: float, baseline: float) -> float:
        """The paper's eq. 5: of max(top anchor, baseline) - bottom anchor."""
        low, high = self.anchors[game]
        room = max(high, baseline) - low
        return 100 * (score - baseline) / room if room > 0 else 0.0


HUMAN_RULE = (
    "Human-normalised (the paper's eq. 6): 0% is random play, 100% a professional human tester, both as the paper "
    "prints them."
)
RANGE_RULE = (
    "Games outside the paper's 49 have no human reference here and are range-normalised: for each game 0% is the "
    "lowest and 100% the highest evaluation that any run in this report had at any time. That orders the arms of this "
    "report and says nothing beyond it; adding a run can move it. No optimality gap is given on this scale, for 100% "
    "is no goal but an outcome."
)


def scales(collection: Collection) -> list[Scale]:
    """Human-normalised for the games of the paper, range-normalised for others; never mixed."""
    human, ranged = {}, {}
    for game in collection.games:
        rom = rom_of(game)
        if rom is not None:
            human[game] = (references()[rom].random, references()[rom].human)
        else:
            seen = [e.score for run in collection.runs if run.game == game for e in run.evaluations]
            if seen:
                ranged[game] = (min(seen), max(seen))
    found = []
    if human:
        found.append(Scale("human", "% human-normalised", HUMAN_RULE, human))
    if ranged:
        found.append(Scale("range", "% of the range seen", RANGE_RULE, ranged))
    return found


# -------------------------------------------------------------------------------------------------------- comparisons


@dataclass(frozen=True)
class Comparison:
    """Arms that may stand in one table: one scale, one budget, and the same games, all finished."""

    scale: Scale
    frames: int
    games: tuple[str, ...]
    arms: tuple[Arm, ...]


def comparisons(collection: Collection, scale: Scale) -> list[Comparison]:
    """Every set of games that at least two arms of one budget have finished, the largest first; where there is none,
    each arm alone. An arm's mean over seven games and another's over four would compare games, not arms."""
    found = []
    for frames in sorted({arm.frames for arm in collection.arms}):
        own = {
            arm: frozenset(game for game in scale.anchors if collection.finished(game, arm))
            for arm in collection.arms
            if arm.frames == frames
        }
        own = {arm: games for arm, games in own.items() if games}
        if not own:
            continue
        candidates = {*own.values(), frozenset.intersection(*own.values())} - {frozenset()}
        blocks: dict[tuple[Arm, ...], frozenset[str]] = {}
        for games in sorted(candidates, key=len, reverse=True):
            arms = tuple(arm for arm in own if own[arm] >= games)
            if len(arms) > 1:
                blocks.setdefault(arms, games)
        if not blocks:
            blocks = {(arm,): games for arm, games in own.items()}
        for arms, games in blocks.items():
            in_order = tuple(game for game in collection.games if game in games)
            found.append(Comparison(scale, frames, in_order, arms))
    return found


def even_runs(collection: Collection, comparison: Comparison, arm: Arm) -> dict[str, list[Run]]:
    """An arm's finished runs, as many of one game as of another, the first seeds of each: or the game with most seeds
    would count most."""
    runs = {game: collection.finished(game, arm) for game in comparison.games}
    seeds = min(map(len, runs.values()))
    return {game: own[:seeds] for game, own in runs.items()}


def arm_scores(collection: Collection, comparison: Comparison, arm: Arm, kind: str) -> Scores:
    return [
        np.array([comparison.scale.percent(game, run.score(kind)) for run in runs])
        for game, runs in even_runs(collection, comparison, arm).items()
    ]


def seed_counts(collection: Collection, comparison: Comparison, arms: Iterable[Arm]) -> list[int]:
    return [len(runs) for arm in arms for runs in even_runs(collection, comparison, arm).values()]


def mean_score(runs: list[Run], kind: str) -> float:
    """Over seeds: each seed's own best, last or mean of the last five, averaged."""
    return statistics.fmean(run.score(kind) for run in runs)


# --------------------------------------------------------------------------------------------------------- aggregates


def mean_over_games(scores: Scores) -> float:
    return float(np.mean([own.mean() for own in scores]))


def median_over_games(scores: Scores) -> float:
    return float(np.median([own.mean() for own in scores]))


def interquartile_mean(scores: Scores) -> Estimate:
    """The mean of the middle half of all runs of all games."""
    from scipy.stats import trim_mean

    def statistic(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(trim_mean(np.concatenate(samples, axis=axis), 0.25, axis=axis))

    return _estimate(scores, statistic)


def optimality_gap(scores: Scores) -> Estimate:
    """How far runs fall short of 100%, on average; what exceeds it does not make up for what does not reach it."""

    def statistic(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(np.mean(np.maximum(100 - np.concatenate(samples, axis=axis), 0), axis=axis))

    return _estimate(scores, statistic)


def mean_estimate(scores: Scores) -> Estimate:
    def statistic(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(np.mean([own.mean(axis=axis) for own in samples], axis=0))

    return _estimate(scores, statistic)


def median_estimate(scores: Scores) -> Estimate:
    def statistic(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(np.median([own.mean(axis=axis) for own in samples], axis=0))

    return _estimate(scores, statistic)


def probability_of_improvement(ours: Scores, theirs: Scores) -> Estimate:
    """The chance that a run of ours beats one of theirs on a game picked at random; a draw counts half."""
    games = len(ours)

    def statistic(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
        wins = []
        for own, other in zip(samples[:games], samples[games:], strict=True):
            pairs = own[..., :, None] - other[..., None, :]
            wins.append(np.mean((np.sign(pairs) + 1) / 2, axis=(-2, -1)))
        return np.asarray(np.mean(wins, axis=0))

    return _estimate([*ours, *theirs], statistic)


def performance_profile(scores: Scores, thresholds: np.ndarray) -> list[Estimate]:
    """For each threshold the share of runs above it, every game counting the same."""

    def statistic(*samples: np.ndarray, axis: int = -1) -> np.ndarray:
        above = [(own[None] > thresholds.reshape(-1, *[1] * own.ndim)).mean(axis=axis) for own in samples]
        return np.asarray(100 * np.mean(above, axis=0))

    values, low, high = _resampled(scores, statistic)
    if low is None or high is None:
        return [Estimate(float(value)) for value in values]
    return [Estimate(*map(float, three)) for three in zip(values, low, high, strict=True)]


def can_resample(scores: Scores) -> bool:
    """Two seeds of a game can be drawn in three ways: an interval from so few would look certain."""
    return all(len(own) >= LEAST_SEEDS for own in scores)


def _estimate(scores: Scores, statistic: Callable[..., np.ndarray]) -> Estimate:
    value, low, high = _resampled(scores, statistic)
    return Estimate(float(value), None if low is None else float(low), None if high is None else float(high))


def _resampled(scores: Scores, statistic: Callable[..., np.ndarray]) -> tuple[Any, Any, Any]:
    """The statistic and its percentile interval, the seeds of each game resampled by themselves (stratified)."""
    from scipy.stats import bootstrap

    value = statistic(*scores)
    if not can_resample(scores):
        return value, None, None
    found = bootstrap(
        scores, statistic, n_resamples=RESAMPLES, batch=200, vectorized=True, axis=-1, confidence_level=CONFIDENCE,
        method="percentile", rng=np.random.default_rng(0),
    )  # fmt: skip
    return value, found.confidence_interval.low, found.confidence_interval.high


# ------------------------------------------------------------------------------------------------------------- curves


SMOOTHED_OVER = 4  # evaluations: the paper's moving average


@dataclass(frozen=True)
class CurvePoint:
    epoch: int
    frames: float
    score: float  # mean over seeds
    smooth: float
    low: float  # of the seeds' smoothed curves
    high: float


def curve(runs: list[Run]) -> list[CurvePoint]:
    """One arm's learning curve on one game, over the epochs after which all its runs were evaluated; smoothed as the
    paper's, each point with the up to three before it, and with fewer where the arm was evaluated less often."""
    if not runs:
        return []
    # A run's end may be evaluated within an epoch that has been: the later one counts.
    by_epoch = [{e.epoch: e for e in run.evaluations} for run in runs]
    points = []
    for epoch in sorted(set.intersection(*map(set, by_epoch))):
        here = [own[epoch] for own in by_epoch]
        smooth = [
            statistics.fmean(e.score for e in run.recent(SMOOTHED_OVER, until=evaluated.frames))
            for run, evaluated in zip(runs, here, strict=True)
        ]
        points.append(
            CurvePoint(
                epoch, statistics.fmean(e.frames for e in here), statistics.fmean(e.score for e in here),
                statistics.fmean(smooth), min(smooth), max(smooth),
            )
        )  # fmt: skip
    return points


@dataclass(frozen=True)
class TrainingPoint:
    epoch: int
    frames: float
    mean: float
    median: float


def over_training(collection: Collection, comparison: Comparison, arm: Arm) -> list[TrainingPoint]:
    """The paper's figure S1: mean and median over games after each epoch, not smoothed."""
    curves = {game: curve(runs) for game, runs in even_runs(collection, comparison, arm).items()}
    epochs = sorted(set.intersection(*({point.epoch for point in points} for points in curves.values())))
    found = []
    for epoch in epochs:
        points = {game: next(p for p in points if p.epoch == epoch) for game, points in curves.items()}
        percents = [comparison.scale.percent(game, point.score) for game, point in points.items()]
        frames = statistics.fmean(point.frames for point in points.values())
        found.append(TrainingPoint(epoch, frames, statistics.fmean(percents), statistics.median(percents)))
    return found


def minutes_of_a_frame(collection: Collection, comparison: Comparison, arm: Arm) -> float | None:
    """Wall-clock time, evaluations included: the median over an arm's finished runs; None where nobody noted it."""
    runs = [run for own in even_runs(collection, comparison, arm).values() for run in own]
    paces = [run.seconds / 60 / run.frames for run in runs if run.seconds]
    return statistics.median(paces) if paces else None


TELEMETRY = {
    "lower_violated": "lower bound violated",
    "upper_violated": "upper bound violated",
    "return_tightest": "return R_j is the tightest",
}


def telemetry(runs: list[Run], points: int = 60) -> list[dict[str, float]]:
    """How often bounds bind, in percent, mean over seeds, in at most `points` equal stretches of training."""
    budget = max((run.arm.frames for run in runs), default=1)
    bins: dict[int, list[dict[str, float]]] = {}
    for run in runs:
        for line in run.telemetry:
            if all(isinstance(line.get(name), int | float) for name in TELEMETRY):
                bins.setdefault(min(points - 1, int(line["frames"] * points / budget)), []).append(line)
    return [
        {"frames": statistics.fmean(line["frames"] for line in lines)}
        | {name: 100 * statistics.fmean(line[name] for line in lines) for name in TELEMETRY}
        for _, lines in sorted(bins.items())
    ]
