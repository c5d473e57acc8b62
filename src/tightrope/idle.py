"""Which numbers have no effect, since the switch that they belong to is off: to be said before a run, not found out
after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from tightrope.config import Config, groups


class Rule(NamedTuple):
    fields: tuple[str, ...]
    needs: Callable[[Config], bool]
    switch: str  # whose value tells why


#: cut_return says how the end of an episode is stored, for plain DQN too.
_BOUNDS = tuple(name for name in groups()["bounds"] if name not in ("bounds", "cut_return"))
_UPPER = ("upper_from", "upper_draws", "upper_by", "upper_settled", "both_violated")

RULES = (
    Rule(_BOUNDS, lambda c: c.bounds, "bounds"),
    Rule(_UPPER, lambda c: c.use_upper, "use_upper"),
    Rule(("use_upper", "upper_by", "upper_settled"), lambda c: c.upper_by == "behind" or c.k > 0, "k"),
    Rule(("upper_from", "upper_draws"), lambda c: c.upper_by == "behind", "upper_by"),
    Rule(("crossing_step",), lambda c: c.horizon == "crossings", "horizon"),
    Rule(("lower_draws",), lambda c: c.horizon != "crossings", "horizon"),
    Rule(
        ("draw", "slide_steps"),
        lambda c: c.horizon != "crossings" or c.upper_draws > 0 or c.lower_draws == 0,
        "horizon",
    ),
    Rule(("slide_steps",), lambda c: c.draw == "slide", "draw"),
    Rule(("draw", "slide_steps"), lambda c: c.lower_draws > 0 or c.upper_draws > 0, "lower_draws"),
    Rule(("lam_end", "lam_steps"), lambda c: c.lam_schedule == "annealed", "lam_schedule"),
    Rule(("multiplier_step", "multiplier_max"), lambda c: c.lam_schedule == "multipliers", "lam_schedule"),
    Rule(("penalty_width",), lambda c: c.penalty != "quadratic", "penalty"),
    Rule(("margin_updates",), lambda c: c.margin > 0 or c.lam_schedule == "excess", "margin"),
    Rule(
        ("priority_exponent", "priority_floor", "priority_beta_start", "priority_beta_end", "priority_beta_steps"),
        lambda c: c.priority != "none",
        "priority",
    ),
    Rule(("munchausen_temperature", "munchausen_floor"), lambda c: c.munchausen > 0, "munchausen"),
    Rule(("rms_decay", "rms_epsilon"), lambda c: c.optimiser == "rmsprop", "optimiser"),
    Rule(("adam_mean_decay", "adam_square_decay", "adam_epsilon"), lambda c: c.optimiser == "adam", "optimiser"),
    Rule(("overlap",), lambda c: c.num_envs > 1, "num_envs"),
)


def why_idle(name: str, config: Config) -> str | None:
    """Why a field has no effect, or None where it has one.

    >>> from tightrope.config import preset
    >>> why_idle("lam", preset("dqn")), why_idle("lam", preset("paper")), why_idle("lam_end", preset("paper"))
    ('bounds = False', None, "lam_schedule = 'constant'")
    """
    for fields, needs, switch in RULES:
        if name in fields and not needs(config):
            return f"{switch} = {getattr(config, switch)!r}"
    return None


def remarks(names: Iterable[str], config: Config) -> list[str]:
    """A sentence for each reason why some of these fields have no effect.

    >>> from tightrope.config import preset
    >>> remarks(["gamma", "lam", "k"], preset("dqn"))
    ['lam, k: no effect with bounds = False']
    """
    found: dict[str, list[str]] = {}
    for name in names:
        if why := why_idle(name, config):
            found.setdefault(why, []).append(name)
    return [f"{', '.join(fields)}: no effect with {why}" for why, fields in found.items()]
