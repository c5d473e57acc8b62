"""What a study is: a TOML file of games, arms and seeds, and the cells (game x arm x seed) that it plans.

games = ["tuning-4", "breakout"]                 # names of games and of suites
seeds = [0, 1]
frames = 10_000_000                              # this and any other field of a preset holds for every arm ...

[arms]
paper = {}                                       # ... an arm is the preset of its name, or the one it names,
lam-1 = { preset = "paper", lam = 1 }            # with fields of its own
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from tightrope import config as settings
from tightrope.config import Config
from tightrope.errors import TightropeError, near
from tightrope.files import parse_toml, read_text
from tightrope.games import canonical, config_for
from tightrope.run import slug

#: What a study says beside the fields of a preset.
OWN_KEYS = ("about", "games", "seeds", "device", "arms")
MOST_CELLS = 10_000


def suites() -> dict[str, list[str]]:
    """Games that go by one name."""
    from tightrope.games.minatar import GAMES
    from tightrope.scores import references

    return {
        "paper-49": [f"atari/{rom}" for rom in references()],
        # Aitchison, Sweetser, Hutter: Atari-5 (ICML 2023), the five that predict the median of all best.
        "atari-5": [f"atari/{rom}" for rom in ("battle_zone", "double_dunk", "name_this_game", "phoenix", "qbert")],
        "tuning-4": [f"atari/{rom}" for rom in ("alien", "amidar", "assault", "asterix")],
        "minatar-5": [f"minatar/{game}" for game in GAMES],
    }


@dataclass(frozen=True)
class Arm:
    """One way to train: a preset and what is changed of it, the study's own fields included."""

    name: str
    preset: str
    fields: dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One run of a study."""

    game: str  # canonical
    arm: Arm
    seed: int
    device: str

    @property
    def name(self) -> str:
        return f"{self.game} {self.arm.name} seed {self.seed}"

    @property
    def folder(self) -> Path:
        """Where it is kept, seen from the study's folder."""
        return Path("cells") / slug(self.game) / self.arm.name / f"seed-{self.seed}"

    @cached_property
    def config(self) -> Config:
        return config_for(self.game, self.arm.preset, self.arm.fields)


@dataclass(frozen=True)
class Study:
    """A study as its file says it; `text` is that file."""

    name: str
    text: str
    about: str
    games: tuple[str, ...]
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...]
    device: str

    @cached_property
    def cells(self) -> list[Cell]:
        """Seed by seed, so that a study that is stopped half-way has all games and arms."""
        return [Cell(g, a, s, self.device) for s in self.seeds for g in self.games for a in self.arms]

    def part(self, games: str = "", arms: str = "", seeds: str = "") -> Study:
        """These alone, in the study's own order; names with commas between, and all where none is named. Of a suite
        those that the study has.

        >>> len(read("headline").part(arms="dqn,paper", games="paper-49", seeds="0").cells)
        12
        """
        known = suites()
        own = [*self.games, *(suite for suite in known if not set(known[suite]).isdisjoint(self.games))]
        wanted = [name if name in known else _games([name])[0] for name in _names("games", games)]
        chosen = {game for name in _known("game", wanted, own) for game in known.get(name, [name])}
        named = _known("arm", _names("arms", arms), [arm.name for arm in self.arms])
        numbers = _known("seed", _names("seeds", seeds), list(map(str, self.seeds)))
        return replace(
            self,
            games=tuple(game for game in self.games if not chosen or game in chosen),
            arms=tuple(arm for arm in self.arms if not named or arm.name in named),
            seeds=tuple(seed for seed in self.seeds if not numbers or str(seed) in numbers),
        )


def folder() -> Path:
    """Where the studies are that come with the package."""
    return Path(str(resources.files("tightrope") / "studies"))


def shipped() -> list[str]:
    """Their names."""
    return sorted(path.stem for path in folder().glob("*.toml"))


def is_study(path: Path) -> bool:
    """Whether a folder is a study's."""
    return (path / "study.toml").exists()


def read(source: str | Path) -> Study:
    """The study in a file, in a study's folder, or of a shipped name.

    >>> study = read("laptop")
    >>> len(study.games), [arm.name for arm in study.arms], len(study.cells)
    (5, ['tightened', 'dqn'], 50)
    """
    path = Path(source)
    if is_study(path):
        return parse(_text(path / "study.toml"), path.resolve().name)
    # studies/table1.toml is where the shipped one lies in the repository.
    named = path.stem if path.parent.name == "studies" and path.suffix == ".toml" and not path.exists() else str(source)
    if named in shipped():
        return parse((folder() / f"{named}.toml").read_text("utf-8"), named)
    try:
        if not path.is_dir():
            return parse(read_text(path), path.stem)
        raise IsADirectoryError
    except (OSError, ValueError) as problem:
        if path.is_dir():
            raise TightropeError(f"{path} is not a study: it has no study.toml") from None
        if path.exists():
            raise TightropeError(f"cannot read {path}: {problem}") from None
        known = f"; shipped are {', '.join(shipped())}"
        raise TightropeError(f"no study {str(source)!r}{near(str(source), shipped()) or known}") from None


def _text(path: Path) -> str:
    try:
        return read_text(path)
    except (OSError, ValueError) as problem:
        raise TightropeError(f"cannot read {path}: {problem}") from None


def parse(text: str, name: str) -> Study:
    """A study from its text. Whatever is wrong in it is refused here, in a sentence that begins with the study's name,
    before anything runs."""
    try:
        values = parse_toml(text)
    except ValueError as problem:
        raise TightropeError(f"study {name} is no TOML: {problem}") from None
    try:
        return _study(values, text, name)
    except TightropeError as problem:
        raise TightropeError(f"study {name}: {problem}") from None


def _study(values: dict[str, Any], text: str, name: str) -> Study:
    common = {key: value for key, value in values.items() if key not in OWN_KEYS}
    for key, value in common.items():
        _check_field(key, value, OWN_KEYS)
    seeds = _list(values, "seeds", "[0, 1, 2]")
    for seed in seeds:
        if type(seed) is not int or seed < 0:
            raise TightropeError(f"seed {seed!r}: must be a whole number of at least 0")
    device = values.get("device", "auto")
    if device not in ("auto", "cpu", "cuda"):
        raise TightropeError(f"device = {device!r}: must be auto, cpu or cuda")
    arms = values.get("arms")
    if not isinstance(arms, dict) or not arms:
        raise TightropeError("it has no arms; write, for example, arms.paper = {} and arms.dqn = {}")
    study = Study(
        name=name,
        text=text,
        about=str(values.get("about", "")),
        games=tuple(_games(_list(values, "games", '["breakout"]'))),
        arms=tuple(_arm(arm, fields, common) for arm, fields in arms.items()),
        seeds=tuple(dict.fromkeys(seeds)),
        device=device,
    )
    count = len(study.games) * len(study.arms) * len(study.seeds)
    if count > MOST_CELLS:
        raise TightropeError(f"{count:,} cells: at most {MOST_CELLS:,}; make several studies of it")
    folders: dict[Path, str] = {}
    for cell in study.cells:
        cell.config  # noqa: B018  # numbers that do not go together are refused now
        if folders.setdefault(cell.folder, cell.game) != cell.game:
            raise TightropeError(f"games {folders[cell.folder]} and {cell.game} would share the folder {cell.folder}")
    return study


def _names(option: str, text: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if text and not names:
        raise TightropeError(f"--{option} {text!r}: names none")
    return names


def _known(kind: str, wanted: list[str], has: list[str]) -> list[str]:
    for name in wanted:
        if name not in has:
            raise TightropeError(f"the study has no {kind} {name!r}; it has {', '.join(has)}")
    return wanted


def _list(values: dict[str, Any], key: str, example: str) -> list[Any]:
    found = values.get(key)
    if not isinstance(found, list) or not found:
        said = f"{key} = {found!r}: must be a list" if key in values else f"it has no {key}"
        raise TightropeError(f"{said}; write, for example, {key} = {example}")
    return found


def _games(names: list[Any]) -> list[str]:
    """Canonical names, suites unfolded, each once."""
    known = suites()
    found: list[str] = []
    for name in names:
        if name in known:
            found += known[name]
            continue
        try:
            found.append(canonical(str(name)))
        except TightropeError as problem:
            if hint := near(str(name), known):
                raise TightropeError(f"unknown suite {name!r}{hint}") from None
            raise problem
    return list(dict.fromkeys(found))


def _arm(name: str, fields: Any, common: dict[str, Any]) -> Arm:
    if not re.fullmatch(r"\w[\w.+=-]*", name):  # it names a folder
        raise TightropeError(f"arm {name!r}: a name is made of letters, digits, '_', '-', '.', '+' and '='")
    if not isinstance(fields, dict):
        raise TightropeError(f'arm {name}: must be a table, such as {name} = {{ preset = "paper", lam = 1 }}')
    own = dict(fields)
    preset = own.pop("preset", name)
    if preset not in settings.preset_names():
        if "preset" not in fields:
            hint = near(name, settings.preset_names())
            raise TightropeError(
                f"arm {name} names no preset, and none is called {name}{hint + ' Write' if hint else '; write'} "
                f'{name} = {{ preset = "..." }} (tightrope presets lists them)'
            )
        raise TightropeError(
            f"arm {name}: unknown preset {preset!r}"
            f"{near(str(preset), settings.preset_names()) or '; tightrope presets lists them'}"
        )
    for key, value in own.items():
        _check_field(key, value, ("preset",), f"arm {name}: ")
    return Arm(name, preset, common | own)


def _check_field(key: str, value: Any, others: tuple[str, ...], where: str = "") -> None:
    """A field of a preset, and a value that it takes."""
    if key not in settings.field_names():
        hint = near(key, [*settings.field_names(), *others]) or "; tightrope presets paper lists the fields"
        raise TightropeError(f"{where}unknown field {key}{hint}")
    try:
        settings.coerce(key, value)
    except TightropeError as problem:
        raise TightropeError(f"{where}{problem}") from None
