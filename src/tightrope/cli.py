"""The command line: parses, calls, prints."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import tyro
from tyro import MISSING
from tyro.conf import FlagConversionOff, FlagCreatePairsOff, OmitArgPrefixes, Positional

from tightrope import config as settings
from tightrope.config import Config
from tightrope.errors import TightropeError, near


def _help(field: dataclasses.Field[Any]) -> str:
    unit: str = field.metadata["unit"]
    return str(field.metadata["meaning"]) + (f" [{unit}]" if unit else "")


# Config again, with its own words where tyro looks for them.
Fields = dataclasses.make_dataclass(
    "Fields",
    [
        (f.name, Annotated[settings.TYPES[f.name], tyro.conf.arg(help=_help(f))], dataclasses.field(default=MISSING))
        for f in dataclasses.fields(Config)
    ],
    kw_only=True,
)


@dataclass
class Train:
    """Train an agent: tightrope train pong --frames 10M"""

    game: Positional[str]
    """pong, ALE/MsPacman-v5, minatar/breakout, maze, CartPole-v1 ... (tightrope games)"""
    fields: OmitArgPrefixes[FlagConversionOff[Fields]]  # type: ignore[valid-type]
    """any field of the preset; the defaults shown are the preset's, paper where no game is named"""
    preset: str = ""
    """where the numbers come from (tightrope presets); by default the one that suits the game"""
    seed: int = 0
    """of everything that is random"""
    device: str = "auto"
    """auto, cpu or cuda"""
    out: Path | None = None
    """folder of the run; by default runs/GAME-sSEED"""
    quiet: bool = False
    """say nothing while training"""
    json: bool = False
    """say it as JSON objects on standard output, one a line"""


@dataclass
class Resume:
    """Continue a run as if it had never stopped."""

    run: Positional[Path]
    """folder of the run"""
    device: str = ""
    """cpu or cuda; by default the one it ran on. On another it goes on, but not bit for bit"""
    quiet: bool = False
    """say nothing while training"""
    json: bool = False
    """say it as JSON objects on standard output, one a line"""
    trust: bool = False
    """let a game called module:Id import its module, which executes it"""


@dataclass
class Evaluate:
    """Play games with a run's agent and score them."""

    run: Positional[Path]
    """folder of a run, an agent's file, or a game whose trained agent comes with the package: pong"""
    episodes: int = 30
    """games to play"""
    protocol: str = "paper"
    """paper: no-op starts, epsilon 0.05, 18,000 frames. sticky: sticky actions, epsilon 0.001, 108,000 frames"""
    which: str = "best"
    """the run's best agent by evaluation, or its last"""
    seed: int = 0
    """of the games and the agent's random actions"""
    device: str = "auto"
    """auto, cpu or cuda"""
    json: bool = False
    """print one JSON object"""
    trust: bool = False
    """let a game called module:Id import its module, which executes it"""


@dataclass
class Watch:
    """Watch a run's agent play one game, in the terminal or as a video."""

    run: Positional[Path]
    """folder of a run, an agent's file, or a game whose trained agent comes with the package: pong"""
    video: Path | None = None
    """write the game to this .mp4 or .gif"""
    seed: int = 0
    """of the game"""
    which: str = "best"
    """the run's best agent by evaluation, or its last"""
    trust: bool = False
    """let a game called module:Id import its module, which executes it"""


@dataclass
class Presets:
    """List the presets, or every number of one with its meaning, unit and origin."""

    name: Positional[str] = ""
    """paper, released, dqn ..."""


@dataclass
class Games:
    """List the games."""


@dataclass
class Bench:
    """Measure emulator, actor, learner and the whole loop on this machine."""

    game: str = "pong"
    """an Atari game"""
    device: str = "auto"
    """auto, cpu or cuda"""
    num_envs: int = 128
    """environments at once"""
    replay_rows: int = 0
    """size of the replay; 0: a million on a GPU, 40,000 on a CPU"""
    seconds: float = 3.0
    """of each measurement"""
    rounds: int = 3
    """how often every part is measured, in turn; medians are reported"""
    saving: bool = False
    """also save a full replay while training: 7 GB for a million rows, to the folder for temporary files"""
    peers: bool = False
    """measure Stable-Baselines3 and a loop in CleanRL's manner too (pip install 'tightrope[peers]')"""
    json: bool = False
    """print one JSON object"""


@dataclass
class StudyRun:
    """Run a grid of games, arms and seeds, or what is left of it; without STUDY: list the shipped studies."""

    study: Positional[str] = ""
    """a TOML file, the name of a shipped study, or the folder of a study to go on with"""
    out: Path | None = None
    """folder of the study; by default runs/NAME"""
    workers: int = 0
    """processes at once; 0: one for each GPU, or for each core where there is none"""
    ray: str = ""
    """run on the Ray cluster at this address instead; local: start one on this machine"""


@dataclass
class StudyStatus:
    """Say how far a study is."""

    study: Positional[Path]
    """folder of the study"""
    json: bool = False
    """print one JSON object"""


@dataclass
class StudyReport:
    """Make one web page, tables and figures of a study."""

    study: Positional[Path]
    """folder of the study"""
    open: bool = False
    """open the page in the browser"""
    videos: bool = False
    """film the best agent of each game, some seconds each"""


@dataclass
class StudyRows:
    """Add the evaluations of a study, or of one run, to a CSV file of results."""

    study: Positional[Path]
    """folder of the study or of the run"""
    out: Path = MISSING
    """the CSV file; rows that it has already are not added again"""
    device: str = ""
    """the machine in words; by default cpu or cuda"""
    commit: str = ""
    """of the code, where the runs could not tell"""


@dataclass
class Demo:
    """Tightened against plain DQN on the maze and on MinAtar Breakout, minutes on a CPU."""

    out: Path = Path("demo")
    """folder of the runs and the picture"""


COMMANDS: dict[str, Any] = {
    "train": Train,
    "resume": Resume,
    "evaluate": Evaluate,
    "watch": Watch,
    "presets": Presets,
    "games": Games,
    "bench": Bench,
    "demo": Demo,
    "study run": StudyRun,
    "study status": StudyStatus,
    "study report": StudyReport,
    "study rows": StudyRows,
}


def main(words: list[str] | None = None) -> None:
    """The entry point: one sentence and status 2 for what a user can mend."""
    words = sys.argv[1:] if words is None else words
    try:
        status = run(words)
    except TightropeError as problem:
        print(f"tightrope: {problem}", file=sys.stderr)
        status = 2
    except BrokenPipeError:  # the reader of a pipe has left
        status = 0
    except KeyboardInterrupt:
        status = 130
    raise SystemExit(status)


def overview() -> str:
    lines = ["tightrope: deep Q-learning by optimality tightening", "", "commands (each has --help):"]
    lines += [f"  {name:<13} {command.__doc__.splitlines()[0]}" for name, command in COMMANDS.items()]
    lines += [
        "",
        "examples:",
        "  tightrope train pong                               # the paper's method, 10M frames; wants a GPU",
        "  tightrope train breakout --preset dqn --frames 2M --seed 1",
        "  tightrope train minatar/breakout                   # minutes on a CPU",
        "  tightrope train CartPole-v1 --lam 1 --k 8",
        "  tightrope evaluate runs/atari-pong-s0 --protocol sticky --json",
        "  tightrope watch runs/atari-pong-s0 --video pong.mp4",
        "  tightrope study run laptop                         # many runs: tightened and plain DQN on MinAtar's games",
    ]
    return "\n".join(lines)


def run(words: list[str]) -> int:
    if words == ["--version"]:
        from tightrope import __version__

        print(__version__)
        return 0
    if not words or words[0] in ("-h", "--help"):
        print(overview())
        return 0
    name, rest = words[0], words[1:]
    if name == "study":
        name, rest = " ".join(words[:2]), words[2:]
        if name in ("study", "study -h", "study --help"):
            print("\n".join(line for line in overview().splitlines() if line.startswith("  study")))
            return 0
    if name not in COMMANDS:
        raise TightropeError(f"unknown command {name!r}{near(name, COMMANDS) or '; tightrope --help lists them'}")
    command, handler = COMMANDS[name], HANDLERS[name]
    asked_for_help = bool({"-h", "--help"} & set(rest))
    typed: dict[str, Any] = {}
    default: Any = None
    if not asked_for_help:
        rest, typed = checked(name, rest)
    if command is Train:  # tyro shows the fields in --help; those that were typed are read already
        default = Train(game=MISSING, fields=Fields(**settings.preset(preset_for_help(rest)).to_dict()))
    parsed = tyro.cli(command, args=rest, prog=f"tightrope {name}", default=default, config=(FlagCreatePairsOff,))
    return handler(parsed, **typed)


def preset_for_help(words: list[str]) -> str:
    """Whose numbers `train --help` shows: the preset named, or the one that suits the game named, or paper."""
    from tightrope.games import canonical, default_preset

    if "--preset" in words[:-1]:
        return words[words.index("--preset") + 1]
    if {"-h", "--help"} & set(words) and not words[0].startswith("-"):
        return default_preset(canonical(words[0]))
    return "paper"


def checked(command: str, words: list[str]) -> tuple[list[str], dict[str, Any]]:
    """The words that tyro is to read, and the preset's fields that were typed; a mistake gets one sentence."""
    kinds = get_type_hints(COMMANDS[command])
    own = {f.name for f in dataclasses.fields(COMMANDS[command])} - {"fields"}
    fields = set(settings.field_names()) if command == "train" else set()
    result: list[str] = []
    typed: dict[str, Any] = {}
    positional: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if not word.startswith("--"):
            positional.append(word)
            result.append(word)
            continue
        option, equals, value = word.removeprefix("--").partition("=")
        name = option.replace("-", "_")
        if name not in own | fields:
            if command == "train":
                raise settings.unknown_field(name, value or (left[0] if left else None))
            raise TightropeError(f"unknown option --{option} of tightrope {command}{near(name, own)}")
        if name in own and kinds[name] is bool:
            if equals and value.lower() not in ("true", "false"):
                raise TightropeError(f"{name} = {value!r}: must be true or false")
            if value.lower() != "false":
                result.append("--" + name)
            continue
        if not equals:
            if not left:
                must = settings.allowed(name) if name in fields else "a value"
                raise TightropeError(f"--{option} needs {must}")
            value = left.pop(0)
        if name in fields:
            typed[name] = settings.coerce(name, value)
            continue
        if "int" in str(kinds[name]) and not value.removeprefix("-").isdigit():
            raise TightropeError(f"{name} = {value!r}: must be a whole number")
        result += ["--" + name, value]
    # The first field of a command is its one positional word, if it has any.
    first = next(iter(dataclasses.fields(COMMANDS[command])), None)
    takes = first is not None and "Positional" in str(first.type)
    if first is not None and first.default is dataclasses.MISSING and not positional:
        raise TightropeError(f"tightrope {command} needs {first.name.upper()}; see tightrope {command} --help")
    for field in dataclasses.fields(COMMANDS[command]):
        if field.default is MISSING and f"--{field.name}" not in result:
            raise TightropeError(f"tightrope {command} needs --{field.name}; see tightrope {command} --help")
    if len(positional) > takes:
        raise TightropeError(f"tightrope {command} takes no {positional[takes]!r}; see tightrope {command} --help")
    return result, typed


# ---------------------------------------------------------------------------------------------------------- commands


def train(args: Train, **fields: Any) -> int:
    from tightrope import api

    api.train(
        args.game,
        preset=args.preset or None,
        seed=args.seed,
        device=args.device,
        out=args.out,
        quiet=args.quiet,
        json=args.json,
        **fields,
    )
    return 0


def resume(args: Resume) -> int:
    from tightrope import api

    api.resume(args.run, device=args.device or None, quiet=args.quiet, json=args.json, trust=args.trust)
    return 0


def evaluate(args: Evaluate) -> int:
    from tightrope import api
    from tightrope.run import commit

    began = time.monotonic()
    agent = api.load(args.run, which=args.which, device=args.device, trust=args.trust)
    result = agent.evaluate(args.episodes, args.protocol, args.seed)
    facts = {
        "game": agent.facts.game,
        "agent": agent.which or str(args.run),
        "protocol": result.protocol,
        "episodes": len(result.scores),
        "score": result.mean,
        "std": result.std,
        "normalised_pct": result.normalised_pct,
        "trained_frames": agent.facts.frames,
        "preset": agent.facts.preset,
        "training_seed": agent.facts.seed,
        "evaluation_seed": args.seed,
        "commit": commit(),
        "device": str(agent.device),
        "seconds": round(time.monotonic() - began, 3),
        "scores": list(result.scores),
    }
    if args.json:
        print(json.dumps(facts))
        return 0
    human = "n/a" if result.normalised_pct is None else f"{result.normalised_pct:.1f} %"
    print(f"{facts['game']}: {result.mean:.2f} ± {result.std:.2f}, mean and deviation of {len(result.scores)} games")
    trained = f"{agent.which or 'an'} agent, trained for {agent.facts.frames:,} frames"
    print(f"human-normalised: {human}; protocol {result.protocol}; {trained}")
    return 0


def watch(args: Watch) -> int:
    from tightrope import api
    from tightrope.watch import watch as show

    agent = api.load(args.run, which=args.which, device="cpu", trust=args.trust)
    print(show(agent, args.seed, args.video))
    return 0


def presets(args: Presets) -> int:
    from rich.console import Console
    from rich.table import Table

    if args.name:
        values = settings.preset(args.name).to_dict()
        origins = settings.origins(args.name)
        table = Table("field", "value", "unit", "meaning", "origin", title=f"{args.name}: {settings.about(args.name)}")
        for name, value in values.items():
            facts = settings.describe(name)
            table.add_row(
                name, f"{value:,}" if type(value) is int else str(value), facts["unit"], facts["meaning"], origins[name]
            )
    else:
        table = Table("preset", "what it is")
        for name in settings.preset_names():
            table.add_row(name, settings.about(name))
    console = Console()
    if not console.is_terminal:
        console = Console(width=220)
    console.print(table)
    return 0


def games(args: Games) -> int:
    from tightrope.games.atari import rom_names
    from tightrope.games.minatar import GAMES
    from tightrope.scores import references

    print("Atari (any usual spelling: pong, MsPacman, ALE/MsPacman-v5); * has a human reference in the paper:")
    names = [name + ("*" if name in references() else "") for name in rom_names()]
    for start in range(0, len(names), 5):
        print("  " + "".join(f"{name:<21}" for name in names[start : start + 5]).rstrip())
    print("MinAtar:\n  " + "  ".join(f"minatar/{game}" for game in GAMES))
    print("The paper's maze, the number being its shortest path:\n  maze  maze-40")
    print("Any Gymnasium environment with discrete actions:\n  CartPole-v1  FrozenLake-v1  my_module:MyEnv-v0 ...")
    return 0


def bench(args: Bench) -> int:
    from tightrope.bench import bench as measure
    from tightrope.bench import told

    found = measure(
        args.game, args.device, args.num_envs, args.replay_rows, args.seconds, args.rounds, args.saving, args.peers
    )
    print(json.dumps(found) if args.json else told(found))
    return 0


def demo(args: Demo) -> int:
    from tightrope.demo import demo as show

    show(args.out)
    return 0


def study_run(args: StudyRun) -> int:
    from tightrope.study.plan import folder, read, shipped
    from tightrope.study.run import run_study

    if not args.study:
        for name in shipped():
            study = read(name)
            print(f"{name:<11} {len(study.cells):>4} cells  {study.about}")
        print(f"tightrope study run NAME runs one; the files, with how long each takes: {folder()}")
        return 0
    survey = run_study(args.study, args.out, args.workers, args.ray)
    left = [seen for seen in survey.cells if seen.state != "done"]
    if left:
        told = f"{len(left)} of {len(survey.cells)} cells failed or were stopped (the first one's log: {left[0].log})"
        print(f"tightrope: {told}; the same command tries them again", file=sys.stderr)
    return 1 if left else 0


def study_status(args: StudyStatus) -> int:
    from rich.console import Console

    from tightrope.study import read, survey
    from tightrope.study.show import as_json, table

    found = survey(args.study)
    if args.json:
        print(json.dumps(as_json(found, read(args.study))))
    else:
        Console(highlight=False).print(table(found, str(args.study)))
    return 0


def study_report(args: StudyReport) -> int:
    import webbrowser

    from tightrope.report import write_report

    page = write_report(args.study, videos=args.videos)
    print(page)
    if args.open:
        webbrowser.open(Path(page).resolve().as_uri())
    return 0


def study_rows(args: StudyRows) -> int:
    from tightrope.study.rows import add_rows

    print(add_rows(args.study, args.out, args.commit, args.device))
    return 0


HANDLERS: dict[str, Callable[..., int]] = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "watch": watch,
    "presets": presets,
    "games": games,
    "bench": bench,
    "demo": demo,
    "study run": study_run,
    "study status": study_status,
    "study report": study_report,
    "study rows": study_rows,
}
