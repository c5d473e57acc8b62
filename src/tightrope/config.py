"""Every number of a run: its meaning, its unit, what is allowed, and the presets that set it.

The dataclass says what a number *means*; `presets/*.toml` say what it *is* and where it comes from. No number has a
default in code.
"""

from __future__ import annotations

import dataclasses
import re
import tomllib
from dataclasses import dataclass
from decimal import Decimal
from importlib import resources
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tightrope.errors import TightropeError, near
from tightrope.files import parse_toml, read_text


def setting(meaning: str, unit: str = "", low: float | None = None, high: float | None = None) -> Any:
    """A field of Config, with what `tightrope presets` and `--help` say about it."""
    return dataclasses.field(metadata={"meaning": meaning, "unit": unit, "low": low, "high": high})


@dataclass(frozen=True, kw_only=True)
class Config:
    """All settings of one run. Budgets are in frames; what counts steps or rows says so in its name."""

    # The budget
    frames: int = setting("training budget", "frames", 1)
    epoch_frames: int = setting("an epoch: the stretch between evaluations", "frames", 1)
    eval_every_epochs: int = setting("evaluate after every so many epochs; 0: never", "epochs", 0)

    # The game
    num_envs: int = setting("environments played at once", "environments", 1, 4096)
    max_game_frames: int = setting("cut a training game off here; 0: no limit", "frames", 0)
    step_timeout_seconds: float = setting(
        "a game that takes longer for a step hangs and ends the run; 0: any time (not Atari)", "seconds", 0
    )
    noop_max: int = setting("most random no-ops at the start of a game (Atari)", "frames", 0, 1000)
    sticky: float = setting("probability that the game repeats the last action (Atari, MinAtar)", "", 0, 1)
    clip_rewards: bool = setting("learn from rewards clipped to [-1, 1] (Atari only)")
    life_ends: bool = setting("a lost life ends the episode for learning; the game goes on (Atari)")
    life_noops: int = setting("no-op steps after a lost life, not stored (Atari)", "steps", 0, 100)
    cut_at_epoch: bool = setting("end every epoch by cutting the running games off")

    # Exploration
    epsilon_start: float = setting("probability of a random action at first", "", 0, 1)
    epsilon_end: float = setting("probability of a random action at last", "", 0, 1)
    epsilon_decay_steps: int = setting("from the first to the last, counted from the start of learning", "steps", 1)
    random_start_steps: int = setting("random actions at the start of each life", "steps", 0)

    # Replay
    replay_rows: int = setting("size of the replay", "rows", 2)
    learn_start_steps: int = setting("steps played before learning starts", "steps", 0)
    sample_unfinished: bool = setting(
        "sample episodes that have not ended; if not, learning starts at that many finished rows"
    )
    skip_start_rows: int = setting("first rows of a life that are neither samples nor predecessors", "rows", 0)
    priority: Literal["none", "error", "violation"] = setting(
        "rows are sampled alike, by their error |Q - y|, or by that and by how far they violate their bounds"
    )
    priority_exponent: float = setting("a row is sampled in proportion to its priority to this power", "", 0, 1)
    priority_floor: float = setting("added to every priority, so that no row is forgotten", "value", 1e-9)
    priority_beta_start: float = setting("how far importance weights undo the priorities at first", "", 0, 1)
    priority_beta_end: float = setting("how far importance weights undo the priorities at last", "", 0, 1)
    priority_beta_steps: int = setting("from the first to the last, counted from the start of learning", "steps", 1)

    # Bounds
    bounds: bool = setting("tighten; false is plain DQN")
    k: int = setting("K: horizons of the bounds, k = 1..K; 0: none, which leaves R_j", "steps", 0, 64)
    upper_from: int = setting("first horizon of upper bounds from behind: 1 starts at s(j-2), 0 at s(j-1)", "", 0, 1)
    lower_draws: int = setting("lower bounds drawn for each sample; 0: all horizons", "", 0)
    upper_draws: int = setting("upper bounds from behind drawn for each sample; 0: all horizons", "", 0)
    draw: Literal["random", "slide"] = setting(
        "which are drawn: any, with replacement, or neighbouring ones, the farthest at first and the nearest at last"
    )
    slide_steps: int = setting("from the farthest to the nearest, counted from the start of learning", "steps", 1)
    horizon: Literal["window", "episode", "crossings"] = setting(
        "lower bounds look K steps ahead; or on to the episode's end through what the rows ahead had as bounds; or on "
        "through what came of any action in the same states, whichever episode tried it, reckoned anew for K + 1 steps"
    )
    crossing_step: float = setting(
        "share of what is newly found of a state's action that joins what was known; 1: takes its place, as where the "
        "game is deterministic",
        "",
        1e-3,
        1,
    )
    use_return: bool = setting("the finished episode's return R_j joins the lower bounds")
    use_upper: bool = setting("use upper bounds")
    upper_by: Literal["behind", "ahead"] = setting(
        "upper bounds: what the states behind can afford; or what the 2 to K + 1 steps ahead brought and, after the "
        "first, lost against the best actions"
    )
    upper_settled: float = setting(
        "upper bounds only while mean Q changes by less than this share of itself from one target network to the "
        "next; 0: always",
        "",
        0,
    )
    bound_on: Literal["action", "state"] = setting(
        "what lower bounds hold for: the value of the action that was taken, or of the state, all of whose actions "
        "they move alike"
    )
    lam: float = setting("lambda: weight of the penalty on a violated bound", "", 0)
    lam_schedule: Literal["constant", "annealed", "excess", "multipliers"] = setting(
        "lambda stays; goes to lam_end; is multiplied by the share of violations that luck does not explain; or stays "
        "and every bound has a multiplier that grows while it is violated"
    )
    lam_end: float = setting("lambda at last, where annealed", "", 0)
    lam_steps: int = setting("from lam to lam_end, counted from the start of learning", "steps", 1)
    multiplier_step: float = setting("share of a violation that joins the bound's multiplier each time", "", 0)
    multiplier_max: float = setting("largest multiplier, in units of lambda", "value", 0)
    penalty: Literal["quadratic", "absolute", "huber"] = setting("penalty as a function of the violation")
    penalty_width: float = setting("slope of the absolute penalty; where Huber's goes over into it", "value", 1e-9)
    margin: float = setting(
        "standard deviations of a return's noise by which bounds are eased, for games that are random; 0: none", "", 0
    )
    margin_updates: int = setting("updates over which that noise, or the excess, is averaged", "updates", 1)
    quantile_margin: float = setting(
        "by how many times the distance from Q to its return's outermost quantile bounds are eased; 0: not", "", 0
    )
    expectile: float = setting(
        "a bound that is not violated pulls back by (1 - this) / this of the penalty; 1: not at all, 0.5: by all of "
        "it, as a target does",
        "",
        0.5,
        1,
    )
    slack: float = setting("a bound is violated only beyond this", "value", 0)
    both_violated: Literal["both", "mean"] = setting("two violated bounds: a penalty each, or one on their mean")
    rescale: bool = setting("divide the gradient by 1 + lambda x violated bounds")
    bounds_at_end: bool = setting("bounds also for an episode's last step; if not, its target is R_j alone")
    cut_return: Literal["absent", "sum", "mean_q"] = setting(
        "R_j of an episode that was cut off: none, the plain sum, or closed with the mean online Q of the last "
        "state and stored as terminal"
    )

    # Learning
    network: Literal["auto", "paper", "small", "mlp", "impala"] = setting("Q-network; auto: by the kind of observation")
    width: int = setting("factor on the channels of network impala", "", 1, 16)
    spectral_norm: bool = setting("spectral normalisation of the residual blocks of network impala")
    dueling: bool = setting("the head adds a state's value and its actions' advantages")
    quantiles: int = setting("quantiles of the return in the head, for each action; 0: its mean alone", "", 0, 256)
    implicit: bool = setting("quantiles at levels drawn anew for each update (implicit quantiles), not at fixed ones")
    double: bool = setting("the online network picks the next action, the target network values it")
    n_step: int = setting("rewards in the target y before it bootstraps; fewer at an episode's end", "steps", 1, 64)
    munchausen: float = setting("share of the taken action's log-probability that joins its reward; 0: none", "", 0, 1)
    munchausen_temperature: float = setting("of the policy that the Munchausen term sees", "value", 1e-6)
    munchausen_floor: float = setting("smallest scaled log-probability that joins a reward", "value", -1000, 0)
    gamma: float = setting("discount", "", 1e-3, 1)
    batch_size: int = setting("samples of one update", "rows", 1)
    update_every_steps: int = setting("one update for every so many steps, whatever num_envs is", "steps", 1)
    updates_when_due: int = setting("updates made each time they are due", "updates", 1, 64)
    update_group: int = setting("most updates that share one sampling and one target pass", "updates", 1, 64)
    target_every_steps: int = setting("refresh of the target network", "steps", 1)
    optimiser: Literal["rmsprop", "adam"] = setting("from gradients, summed over the batch, to weights")
    learning_rate: float = setting("step size of the optimiser", "", 0)
    rms_decay: float = setting("decay of RMSProp's averages", "", 0, 1)
    rms_epsilon: float = setting("epsilon inside RMSProp's root", "", 1e-12)
    adam_mean_decay: float = setting("decay of Adam's average of gradients (beta 1)", "", 0, 0.999999)
    adam_square_decay: float = setting("decay of Adam's average of their squares (beta 2)", "", 0, 0.999999)
    adam_epsilon: float = setting("epsilon beside Adam's root", "", 1e-15)
    gradient_norm: float = setting("largest norm of the gradient of all weights; 0: no limit", "", 0)
    error_clip: float = setting("clip the error to [-this, this]; 0: no clipping", "value", 0)

    # Speed
    fast: bool = setting("the update compiled, and on a GPU captured as a graph")
    precision: Literal["auto", "float32", "bfloat16"] = setting(
        "what is multiplied; weights and sums stay float32. auto: bfloat16 where fast and on a GPU"
    )
    overlap: bool = setting("learn while the games play (needs num_envs above 1)")
    asynchronous: bool = setting(
        "the learner never waits for the games: the updates that are due are the fewest it makes (needs overlap; no "
        "run is like another)"
    )

    # Evaluation
    eval_episodes: int = setting("games of one evaluation", "games", 1)
    eval_steps: int = setting("play so many steps instead of a number of games; 0: games", "steps", 0)
    eval_epsilon: float = setting("probability of a random action in evaluation", "", 0, 1)
    eval_max_game_frames: int = setting("cut an evaluation game off here; 0: no limit", "frames", 0)

    # Records
    log_frames: int = setting("a line of metrics every so many", "frames", 1)
    checkpoint_frames: int = setting("a checkpoint every so many", "frames", 1)
    save_replay: bool = setting("checkpoints hold the replay, so that resume is exact")
    keep_checkpoints: int = setting("newest checkpoints that are kept", "checkpoints", 1)
    keep_every_frames: int = setting("and the first after every so many, for good; 0: none", "frames", 0)

    def __post_init__(self) -> None:
        for name in field_names():
            value = coerce(name, getattr(self, name))
            object.__setattr__(self, name, value)
        if self.epsilon_end > self.epsilon_start:
            raise TightropeError(
                f"epsilon_end = {self.epsilon_end}: must not exceed epsilon_start = {self.epsilon_start}"
            )
        # A window must fit into each environment's share of the ring, with room to move.
        least = 4 * (self.reach + 4) * self.num_envs
        if self.replay_rows < least:
            raise TightropeError(
                f"replay_rows = {self.replay_rows}: must be at least {least} for num_envs = {self.num_envs} and "
                f"k = {self.k}"
            )
        if self.batch_size > self.replay_rows:
            raise TightropeError(f"batch_size = {self.batch_size}: must not exceed replay_rows = {self.replay_rows}")
        if self.learn_start_steps > self.replay_rows:
            raise TightropeError(
                f"learn_start_steps = {self.learn_start_steps}: must not exceed replay_rows = {self.replay_rows}"
            )
        if self.target_every_steps < self.update_every_steps:
            raise TightropeError(
                f"target_every_steps = {self.target_every_steps}: must be at least update_every_steps = "
                f"{self.update_every_steps}"
            )
        drawn = {} if self.horizon == "crossings" else {"lower_draws": self.k}
        if self.upper_by == "behind":
            drawn["upper_draws"] = self.k + 1 - self.upper_from
        for name, horizons in drawn.items():
            draws = getattr(self, name)
            if draws and self.k == 0:
                raise TightropeError(f"{name} = {draws}: must be 0 where k = 0, which leaves none to draw")
            if draws > horizons and self.draw == "slide":
                raise TightropeError(f"{name} = {draws}: must not exceed the {horizons} horizons that it slides over")
        if self.asynchronous and not (self.overlap and self.num_envs > 1):
            raise TightropeError(
                "asynchronous = True: needs overlap = True and num_envs above 1; here overlap = "
                f"{self.overlap}, num_envs = {self.num_envs}"
            )
        if self.network != "impala" and (self.spectral_norm or self.width != 1):
            name = "spectral_norm" if self.spectral_norm else "width"
            raise TightropeError(f"{name} = {getattr(self, name)}: is for network = 'impala' alone")
        if self.implicit and not self.quantiles:
            raise TightropeError("implicit = True: needs quantiles, the number of levels")
        if self.quantile_margin and not self.quantiles:
            raise TightropeError("quantile_margin: needs quantiles, whose distance from Q it is")
        if self.lam_schedule == "multipliers" and self.lam == 0:
            raise TightropeError("lam = 0.0: must be above 0 for multipliers, which are counted in units of it")

    @property
    def reach(self) -> int:
        """How many rows ahead of and behind a sample its bounds and its target look."""
        return max(self.bound_reach, self.n_step)

    @property
    def bound_reach(self) -> int:
        return self.k + 1 if self.bounds else 1

    @property
    def target_every_updates(self) -> int:
        return self.updates_due(self.target_every_steps)

    def updates_due(self, steps: int) -> int:
        """Updates that so many steps of learning call for, however many environments took them."""
        return steps // self.update_every_steps * self.updates_when_due

    def steps_taken(self, updates: int) -> int:
        """Steps of learning that called for so many updates."""
        return updates // self.updates_when_due * self.update_every_steps

    def replace(self, **changes: Any) -> Config:
        """A copy with some fields changed.

        >>> preset("paper").replace(lam=1).lam
        1.0
        """
        for name in changes:
            if name not in field_names():
                raise unknown_field(name, changes[name])
        return dataclasses.replace(self, **changes)

    def to_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def stored(cls, values: dict[str, Any]) -> Config:
        """From a file, which may be of a version that did not have all fields yet."""
        return cls(**ADDED_LATER | values)


#: Fields that were not in version 0.1, and what it did. Where a switch is off its numbers say nothing.
ADDED_LATER: dict[str, Any] = {
    "precision": "auto",
    "priority": "none",
    "priority_exponent": 0.5,
    "priority_floor": 1e-6,
    "priority_beta_start": 0.4,
    "priority_beta_end": 1.0,
    "priority_beta_steps": 2_500_000,
    "draw": "random",
    "slide_steps": 2_500_000,
    "horizon": "window",
    "crossing_step": 1.0,
    "upper_by": "behind",
    "upper_settled": 0.0,
    "bound_on": "action",
    "lam_schedule": "constant",
    "lam_end": 0.0,
    "lam_steps": 2_500_000,
    "multiplier_step": 1.0,
    "multiplier_max": 1.0,
    "penalty": "quadratic",
    "penalty_width": 1.0,
    "margin": 0.0,
    "margin_updates": 1_000,
    "quantile_margin": 0.0,
    "expectile": 1.0,
    "width": 1,
    "spectral_norm": False,
    "dueling": False,
    "quantiles": 0,
    "implicit": False,
    "double": False,
    "n_step": 1,
    "munchausen": 0.0,
    "munchausen_temperature": 0.03,
    "munchausen_floor": -1.0,
    "updates_when_due": 1,
    "optimiser": "rmsprop",
    "adam_mean_decay": 0.9,
    "adam_square_decay": 0.999,
    "adam_epsilon": 0.01,
    "gradient_norm": 0.0,
    "step_timeout_seconds": 0.0,
    "keep_checkpoints": 2,
    "keep_every_frames": 0,
    "asynchronous": False,
}
#: Fields that change nothing of what was learned so far: a run may go on with others.
HOUSEKEEPING = ("frames", "step_timeout_seconds", "keep_checkpoints", "keep_every_frames")


def learning(values: dict[str, Any]) -> dict[str, Any]:
    """Of stored fields those that say what is learned: what two files of one run have in common."""
    return {name: value for name, value in (ADDED_LATER | values).items() if name not in HOUSEKEEPING}


TYPES = get_type_hints(Config)

#: The first field of each group, for those who list them.
GROUPS = {
    "frames": "budget",
    "num_envs": "game",
    "epsilon_start": "exploration",
    "replay_rows": "replay",
    "bounds": "bounds",
    "network": "learning",
    "fast": "speed",
    "eval_episodes": "evaluation",
    "log_frames": "records",
}


def field_names() -> list[str]:
    return [f.name for f in dataclasses.fields(Config)]


def groups() -> dict[str, list[str]]:
    """The fields of each group.

    >>> groups()["budget"]
    ['frames', 'epoch_frames', 'eval_every_epochs']
    """
    found: dict[str, list[str]] = {}
    for name in field_names():
        if name in GROUPS:
            found[GROUPS[name]] = []
        found[next(reversed(found))].append(name)
    return found


def describe(name: str) -> dict[str, Any]:
    """Meaning, unit and limits of a field."""
    return dict(Config.__dataclass_fields__[name].metadata)


def allowed(name: str) -> str:
    """What a field takes, in words.

    >>> allowed("lam")
    'a number of at least 0'
    """
    kind, limits = TYPES[name], describe(name)
    if kind is bool:
        return "true or false"
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(get_args(kind))
    low, high = limits["low"], limits["high"]
    words = "a whole number" if kind is int else "a number"
    if high is not None:
        return f"{words} from {low:g} to {high:g}"
    return f"{words} of at least {low:g}"


def unknown_field(name: str, value: Any = None) -> TightropeError:
    said = f" = {value!r}" if value is not None else ""
    return TightropeError(
        f"unknown field {name}{said}{near(name, field_names()) or '; tightrope presets paper lists them all'}"
    )


#: Above this a number is a slip of the finger.
LARGEST = 1e15


def coerce(name: str, value: Any) -> Any:
    """`value` as the field's type, or a TightropeError that names field, value and what is allowed.

    Text is read as a person writes it: 10M, 50k, 1e6, 1_000_000, true, False.

    >>> coerce("frames", "10M")
    10000000
    """
    kind, limits = TYPES[name], describe(name)
    refusal = TightropeError(f"{name} = {value!r}: must be {allowed(name)}")
    if kind is bool:
        if isinstance(value, str) and value.lower() in ("true", "false"):
            return value.lower() == "true"
        if not isinstance(value, bool):
            raise refusal
        return value
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise refusal
        return value
    if isinstance(value, bool):
        raise refusal
    try:
        if isinstance(value, str):
            text = value.strip()
            factor = {"k": 1_000, "M": 1_000_000}.get(text[-1:], 1)
            # Decimal, so that 2.03M is a whole number.
            value = Decimal(text[:-1] if factor > 1 else text) * factor
        number = float(value)
    except (TypeError, ValueError, ArithmeticError):
        raise refusal from None
    # `not (a <= b)` instead of `a > b`, so that not-a-number is refused too.
    if limits["low"] is not None and not (number >= limits["low"]):
        raise refusal
    if limits["high"] is None and number > LARGEST:
        raise TightropeError(f"{name} = {number:g}: must be at most {LARGEST:g}")
    if not number <= (limits["high"] if limits["high"] is not None else LARGEST):
        raise refusal
    if kind is int:
        if number != int(number):
            raise refusal
        return int(number)
    return number


# ---------------------------------------------------------------------------------------------------------- presets


def preset_names() -> list[str]:
    folder = resources.files("tightrope") / "presets"
    return sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))


def _read(name: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Values and origins of a preset, its base's first. The origin is the comment on the number's own line."""
    if name not in preset_names():
        raise TightropeError(
            f"unknown preset {name!r}{near(name, preset_names())} (there are {', '.join(preset_names())})"
        )
    text = (resources.files("tightrope") / "presets" / f"{name}.toml").read_text("utf-8")
    values = tomllib.loads(text)
    origins = dict(re.findall(r"^(\w+) *=[^#\n]*# *(.+)$", text, re.M))
    base = values.pop("base", None)
    values.pop("about")
    if base is None:
        return values, origins
    base_values, base_origins = _read(base)
    return base_values | values, base_origins | origins


def preset(name: str) -> Config:
    """The preset of that name.

    >>> preset("paper").lam
    4.0
    """
    values, _ = _read(name)
    return Config(**values)


def numbers(name: str) -> Config:
    """Those of a preset, or of a TOML file of one's own, which changes `paper` where it names no other."""
    if not name.endswith(".toml"):
        return preset(name)
    base, own = own_numbers(Path(name))
    return preset(base or "paper").replace(**own)


def origins(name: str) -> dict[str, str]:
    """Where each number of a preset comes from."""
    return _read(name)[1]


def about(name: str) -> str:
    """What a preset is, in a sentence."""
    text = (resources.files("tightrope") / "presets" / f"{name}.toml").read_text("utf-8")
    return str(tomllib.loads(text)["about"])


def own_numbers(path: Path) -> tuple[str | None, dict[str, Any]]:
    """A file of one's own: which preset it changes (`preset = "dqn"`, None where it does not say), and the fields.

    A run's config.toml is such a file too.
    """
    try:
        values = parse_toml(read_text(path))
    except FileNotFoundError:
        raise TightropeError(f"there is no file {path} to take numbers from") from None
    except (OSError, ValueError) as problem:
        raise TightropeError(f"{path} is no TOML file: {problem}") from None
    base = values.pop("preset", None)
    if base is not None and base not in preset_names():
        raise TightropeError(f"{path}: preset = {base!r}: must be one of {', '.join(preset_names())}")
    fields = values["config"] if isinstance(values.get("config"), dict) else values
    for name, value in fields.items():
        if name not in field_names():
            raise TightropeError(f"{path}: {unknown_field(name, value)}")
        coerce(name, value)
    return base, fields
