"""Where experience comes from: names to games."""

from __future__ import annotations

import re
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import gymnasium

from tightrope.config import Config, preset
from tightrope.errors import TightropeError, near
from tightrope.games.base import Game, GameInfo, GameOptions, Step
from tightrope.games.gym import EnvMaker
from tightrope.modules import here_first

__all__ = [
    "MAZE_ID",
    "EnvMaker",
    "Game",
    "GameInfo",
    "GameOptions",
    "Step",
    "canonical",
    "config_for",
    "default_preset",
    "make_game",
    "refuse_unknown_module",
]

MAZE_ID = "tightrope/Maze-v0"


# gymnasium.make("tightrope.games:tightrope/Maze-v0", shortest_path=40), or without the module once it is imported.
if MAZE_ID not in gymnasium.registry:
    gymnasium.register(MAZE_ID, entry_point="tightrope.games.maze:MazeEnv")


def canonical(name: str) -> str:
    """The one spelling of a game's name, or an error with near matches.

    >>> canonical("MsPacman"), canonical("maze"), canonical("minatar/breakout"), canonical("CartPole-v1")
    ('atari/ms_pacman', 'tightrope/Maze-v0', 'minatar/breakout', 'CartPole-v1')
    """
    from tightrope.games.atari import find_rom, rom_names
    from tightrope.games.minatar import GAMES, find_minatar

    if name.lower() in ("maze", MAZE_ID.lower()):
        return MAZE_ID
    if re.fullmatch(r"maze-[1-9]\d{0,3}", name.lower()):
        return name.lower()
    if (minatar := find_minatar(name)) is not None:
        return f"minatar/{minatar}"
    rom = find_rom(name)
    # Gymnasium has a Blackjack-v1 of its own, which is not Atari's.
    if rom is not None and not (name in gymnasium.registry and "ale_py" not in str(gymnasium.spec(name).entry_point)):
        return f"atari/{rom}"

    # "module:Id" imports a module that registers the environment, as Gymnasium itself allows.
    if name in gymnasium.registry or ":" in name:
        return name
    known = {known.lower(): known for known in gymnasium.registry if find_rom(known) is None}
    known |= {rom: rom for rom in rom_names()} | {f"minatar/{game}": f"minatar/{game}" for game in GAMES}
    if name.lower() in known:
        return known[name.lower()]
    # What Gymnasium has of games in JAX is for those who have JAX.
    made_with_jax = () if find_spec("jax") else ("phys2d/", "tabular/")
    hint = near(name, [known for known in known.values() if not known.startswith(made_with_jax)])
    raise TightropeError(f"unknown game {name!r}{hint or '; tightrope games lists them'}")


def refuse_unknown_module(name: str, file: Path, trust: bool) -> None:
    """A game that a file calls module:Id would be imported, that is, executed: only where the user says so."""
    module = name.partition(":")[0]
    if ":" in name and module not in sys.modules and not trust:
        raise TightropeError(
            f"{file} asks for the Python module {module!r}: if you trust it, say --trust; in Python trust=True, or "
            "import it first"
        )


def default_preset(name: str) -> str:
    """The preset that suits a game of this canonical name."""
    family = name.partition("/")[0]
    if name.startswith("maze") or name == MAZE_ID:
        return "maze"
    return {"atari": "paper", "minatar": "minatar"}.get(family, "classic")


def config_for(name: str, preset_name: str, fields: dict[str, Any]) -> Config:
    """The numbers of a run of the game of this canonical name: the preset's, with some fields changed."""
    if name.partition("/")[0] not in ("atari", "minatar") and "sticky" not in fields:
        fields = fields | {"sticky": 0.0}  # other games have no sticky actions
    return preset(preset_name).replace(**fields)


def make_game(name: str, num_envs: int, seed: int, options: GameOptions, env: EnvMaker | None = None) -> Game:
    """The game of that name, or one made of the user's own environments."""
    from tightrope.games.gym import GymGame

    if env is not None:
        if options.sticky:
            raise TightropeError(f"sticky = {options.sticky}: only Atari and MinAtar games have sticky actions")
        return GymGame(name, env, num_envs, seed, options)
    name = canonical(name)
    family, _, title = name.partition("/")
    if family == "atari":
        from tightrope.games.atari import AtariGame

        return AtariGame(title, num_envs, seed, options)
    if family == "minatar":
        from tightrope.games.minatar import MinAtarEnv

        mode = "rgb_array" if options.render else None
        return GymGame(name, lambda: MinAtarEnv(title, options.sticky, mode), num_envs, seed, options)
    if options.sticky:
        raise TightropeError(f"sticky = {options.sticky}: only Atari and MinAtar games have sticky actions")

    # maze-40 is the maze with a shortest path of 40.
    kwargs: dict[str, Any]
    gym_id, kwargs = (MAZE_ID, {"shortest_path": int(name[5:])}) if name.startswith("maze-") else (name, {})
    if options.render:  # only then: an environment need not know of it
        kwargs["render_mode"] = "rgb_array"

    def make() -> gymnasium.Env:  # type: ignore[type-arg]
        try:
            with here_first(), warnings.catch_warnings():
                if options.render:  # Gymnasium's warning about pictures comes before our sentence, and says the same
                    warnings.simplefilter("ignore")
                return gymnasium.make(gym_id, **kwargs)
        except (gymnasium.error.Error, ImportError, AttributeError) as problem:
            raise TightropeError(f"game {name} cannot be made: {problem}") from None
        except Exception as problem:  # whatever a module of the user's own does when it is imported
            raise TightropeError(f"game {name} cannot be made: {type(problem).__name__}: {problem}") from None

    return GymGame(name, make, num_envs, seed, options)
