"""The command line: parses, calls, prints."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro
from tyro import MISSING
from tyro.conf import FlagConversionOff, FlagCreatePairsOff, OmitArgPrefixes, Positional

from tightrope import config as settings
from tightrope import usage
from tightrope.errors import TightropeError, counted, near
from tightrope.usage import Device, Fields, Flag, Run, Seed, Which, said


@dataclass
class Train:
    """Train an agent.

    tightrope train pong                  # the paper's method; wants a GPU
    tightrope train breakout --preset dqn --frames 2M --seed 1
    tightrope train minatar/breakout      # minutes on a CPU
    tightrope train CartPole-v1 --lam 1 --k 8    # any field of the preset
    tightrope train pong --preset mine.toml    # or a file of them
    tightrope train maze --callbacks tensorboard,wandb
    tightrope train pong --help           # its preset's numbers
    """

    game: Annotated[Positional[str], said("GAME")]
    """pong, ALE/MsPacman-v5, minatar/breakout, maze, CartPole-v1 ... (tightrope games)"""
    fields: Annotated[OmitArgPrefixes[FlagConversionOff[Fields]], tyro.conf.arg(name="")]  # type: ignore[valid-type]
    preset: Annotated[str, said("NAME", "the one that suits the game")] = ""
    """where the numbers below come from (tightrope presets), or a TOML file of your own with some of them"""
    seed: Seed = 0
    """of everything that is random"""
    device: Device = "auto"
    """where PyTorch computes"""
    out: Annotated[Path | None, said("DIR", "runs/GAME-sSEED")] = None
    """folder of the run"""
    callbacks: Annotated[str, said("NAMES", "none")] = ""
    """who follows the run: tensorboard, wandb, my_module:MyCallback; with commas between them"""
    quiet: Flag = False
    """say nothing while training"""
    json: Flag = False
    """say it as JSON objects on standard output, one a line"""


@dataclass
class Resume:
    """Continue a run as if it had never stopped.

    tightrope resume runs/atari-pong-s0
    tightrope resume runs/atari-pong-s0 --frames 20M    # and longer
    """

    run: Run
    """folder of the run"""
    frames: Annotated[str, said("N", "the run's own")] = ""
    """a larger training budget"""
    device: Annotated[str, said("cpu|cuda", "the one it ran on")] = ""
    """where PyTorch computes; on another device it goes on, but not bit for bit"""
    callbacks: Annotated[str, said("NAMES", "none")] = ""
    """who follows the run: tensorboard, wandb, my_module:MyCallback; with commas between them"""
    quiet: Flag = False
    """say nothing while training"""
    json: Flag = False
    """say it as JSON objects on standard output, one a line"""
    trust: Flag = False
    """let a game called module:Id import its module, which executes it"""


@dataclass
class Evaluate:
    """Play games with a run's agent and score them.

    tightrope evaluate runs/atari-pong-s0    # 30 games by the paper's protocol
    tightrope evaluate runs/atari-pong-s0 --protocol sticky --json
    tightrope evaluate pong               # the agent that comes with the package
    """

    run: Run
    """folder of a run, an agent's file, or a game whose trained agent comes with the package: pong"""
    episodes: Annotated[int, said("N", "30 games")] = 30
    """games to play"""
    protocol: Annotated[str, said("paper|sticky")] = "paper"
    """paper: no-op starts, epsilon 0.05, 18,000 frames. sticky: sticky actions, epsilon 0.001, 108,000 frames"""
    which: Which = "best"
    """the run's best agent by evaluation, or its last"""
    seed: Seed = 0
    """of the games and the agent's random actions"""
    device: Device = "auto"
    """where PyTorch computes"""
    json: Flag = False
    """print one JSON object"""
    trust: Flag = False
    """let a game called module:Id import its module, which executes it"""


@dataclass
class Compare:
    """Put runs beside each other: their scores, and which of their numbers differ.

    tightrope compare runs/cartpole-v1-s0 runs/cartpole-v1-s0-2
    tightrope compare runs/*
    """

    runs: Annotated[Positional[tuple[Path, ...]], tyro.conf.arg(metavar="RUN ...", help_behavior_hint="(two or more)")]
    """folders of runs"""
    json: Flag = False
    """print one JSON object"""


@dataclass
class Watch:
    """Watch a run's agent play, with its values and its value's rope.

    tightrope watch pong                  # in a window, or here in the terminal
    tightrope watch runs/atari-breakout-s0 --video breakout.mp4 --seed 3
    tightrope watch pong --video slow.gif --speed 0.25 --seconds 20
    """

    run: Run
    """folder of a run, an agent's file, or a game whose trained agent comes with the package: pong"""
    video: Annotated[Path | None, said("FILE", "a window, else the terminal, else watch.gif")] = None
    """write the game to this .mp4 or .gif"""
    seed: Seed = 0
    """of the game"""
    speed: Annotated[float, said("X", "1: as fast as it is played")] = 1.0
    """0.25 is slow motion, 2 is twice as fast"""
    seconds: Annotated[float, said("X", "0: the whole game")] = 0.0
    """show so many seconds of play"""
    plain: Flag = False
    """the game's picture alone"""
    which: Which = "best"
    """the run's best agent by evaluation, or its last"""
    trust: Flag = False
    """let a game called module:Id import its module, which executes it"""


@dataclass
class Export:
    """Write a run's agent as an ONNX file, checked against PyTorch.

    tightrope export runs/atari-pong-s0 --onnx pong.onnx
    tightrope export pong --onnx pong.onnx  # pip install 'tightrope[onnx]'
    """

    run: Run
    """folder of a run, an agent's file, or a game whose trained agent comes with the package: pong"""
    onnx: Annotated[Path, said("FILE")] = MISSING
    """the file to write; its model card goes beside it"""
    states: Annotated[int, said("N", "256 states")] = 256
    """how many states of played games both must agree on"""
    which: Which = "best"
    """the run's best agent by evaluation, or its last"""
    trust: Flag = False
    """let a game called module:Id import its module, which executes it"""


@dataclass
class Presets:
    """List the presets, or every number of one with its meaning, unit and origin.

    tightrope presets
    tightrope presets paper
    """

    name: Annotated[Positional[str], said("NAME", "list them")] = ""
    """paper, released, dqn ..."""


@dataclass
class Games:
    """List the games."""


@dataclass
class Doctor:
    """Say what this machine has, what it can train, and what to change.

    tightrope doctor
    tightrope doctor --json
    """

    seconds: Annotated[float, said("X", "10 s; 0: measure nothing")] = 10.0
    """of measurement in all"""
    device: Device = "auto"
    """where PyTorch computes"""
    json: Flag = False
    """print one JSON object"""


@dataclass
class Bench:
    """Measure emulator, actor, learner and the whole loop on this machine.

    tightrope bench --json > bench.json
    tightrope bench --peers               # Stable-Baselines3 beside it
    """

    game: Annotated[str, said("GAME")] = "pong"
    """an Atari game"""
    preset: Annotated[str, said("NAME")] = "paper"
    """whose numbers; or a TOML file of your own"""
    device: Device = "auto"
    """where PyTorch computes"""
    num_envs: Annotated[int, said("N", "128 environments")] = 128
    """environments at once"""
    replay_rows: Annotated[int, said("N", "a million rows on a GPU, 40,000 on a CPU")] = 0
    """size of the replay"""
    seconds: Annotated[float, said("X", "3 s")] = 3.0
    """of each measurement"""
    rounds: Annotated[int, said("N")] = 3
    """how often every part is measured, in turn; medians are reported"""
    saving: Flag = False
    """also save a full replay while training: 7 GB for a million rows, to the folder for temporary files"""
    peers: Flag = False
    """measure Stable-Baselines3 and a loop in CleanRL's manner too (pip install 'tightrope[peers]')"""
    json: Flag = False
    """print one JSON object"""


@dataclass
class StudyRun:
    """Run a grid of games, arms and seeds, or what is left of it.

    tightrope study run                   # lists the shipped ones
    tightrope study run laptop --workers 2
    tightrope study run my.toml --out runs/mine
    tightrope study run table1 --ray auto
    """

    study: Annotated[Positional[str], said("STUDY", "list the shipped ones")] = ""
    """a TOML file, the name of a shipped study, or the folder of a study to go on with"""
    out: Annotated[Path | None, said("DIR", "runs/NAME")] = None
    """folder of the study"""
    workers: Annotated[int, said("N", "one for each GPU, or for each core where there is none")] = 0
    """processes at once"""
    ray: Annotated[str, said("ADDRESS", "this machine, without Ray")] = ""
    """run on the Ray cluster at this address instead; local: start one on this machine"""


@dataclass
class StudyStatus:
    """Say how far a study is.

    tightrope study status runs/laptop
    """

    study: Annotated[Positional[Path], said("STUDY")]
    """folder of the study"""
    json: Flag = False
    """print one JSON object"""


@dataclass
class StudyReport:
    """Make one web page, tables and figures of a study.

    tightrope study report runs/laptop --videos --open
    """

    study: Annotated[Positional[Path], said("STUDY")]
    """folder of the study"""
    open: Flag = False
    """open the page in the browser"""
    videos: Flag = False
    """film the best agent of each game, some seconds each"""


@dataclass
class StudyRows:
    """Add the evaluations of a study, or of one run, to a CSV file of results.

    tightrope study rows runs/laptop --out results/laptop.csv
    """

    study: Annotated[Positional[Path], said("STUDY")]
    """folder of the study or of the run"""
    out: Annotated[Path, said("FILE")] = MISSING
    """the CSV file; rows that it has already are not added again"""
    device: Annotated[str, said("WORDS", "cpu or cuda")] = ""
    """the machine in words"""
    commit: Annotated[str, said("HASH", "the runs' own")] = ""
    """of the code, where the runs could not tell"""


@dataclass
class Demo:
    """Tightened against plain DQN on two small games, minutes on a CPU.

    tightrope demo
    """

    out: Annotated[Path, said("DIR")] = Path("demo")
    """folder of the runs and the picture"""


@dataclass
class Completion:
    """Print the script with which the Tab key completes commands, options and files.

    eval "$(tightrope completion bash)"   # in ~/.bashrc: every shell
    eval "$(tightrope completion zsh)"    # in ~/.zshrc, after compinit
    """

    shell: Annotated[Positional[Literal["bash", "zsh"]], said("bash|zsh")]
    """the shell"""


#: By what they are for.
FAMILIES: dict[str, dict[str, Any]] = {
    "one agent": {"train": Train, "resume": Resume, "evaluate": Evaluate, "watch": Watch, "export": Export},
    "many runs": {
        "compare": Compare,
        "study run": StudyRun,
        "study status": StudyStatus,
        "study report": StudyReport,
        "study rows": StudyRows,
    },
    "what there is": {"games": Games, "presets": Presets},
    "this machine": {"doctor": Doctor, "demo": Demo, "bench": Bench, "completion": Completion},
}
COMMANDS: dict[str, Any] = {name: command for family in FAMILIES.values() for name, command in family.items()}


#: What a shell expects of a program that was interrupted: `train && evaluate` must not go on.
STOPPED = 130


def main(words: list[str] | None = None) -> None:
    """The entry point: one sentence and status 2 for what a user can mend."""
    # PyTorch's threads sleep while they wait. On cores that others use too, spinning made an evaluation 5 times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    words = sys.argv[1:] if words is None else words
    try:
        status = run(words)
    except TightropeError as problem:
        print(f"tightrope: {problem}", file=sys.stderr)
        status = 2
    except BrokenPipeError:  # the reader of a pipe has left
        status = 0
    except KeyboardInterrupt:
        print("tightrope: stopped", file=sys.stderr)
        status = STOPPED
    raise SystemExit(status)


def overview(families: Iterable[str] = FAMILIES) -> str:
    """What `tightrope --help` says, as wide as the terminal."""
    lines: list[str] = []
    for family in families:
        lines += ["", family]
        lines += [entry(name, usage.first_line(command)) for name, command in FAMILIES[family].items()]
    return "\n".join(lines)


def columns() -> int:
    """Of the terminal, or as COLUMNS says; 80 in a pipe. Lines of more than 100 are hard to read."""
    return min(100, shutil.get_terminal_size().columns)


def filled(text: str, first: str = "", then: str = "") -> str:
    """As wide as the terminal; no word is broken, for it may be a name."""
    return textwrap.fill(
        text,
        columns(),
        initial_indent=first,
        subsequent_indent=then,
        break_long_words=False,
        break_on_hyphens=False,
    )


def entry(name: str, text: str, wide: int = 14) -> str:
    """A name, and beside it what is said of it."""
    return filled(text, f"  {name:<{wide}}", " " * (wide + 2))


EXAMPLES = """
examples
  tightrope demo                      # the method at work, minutes on a CPU
  tightrope doctor                    # what this machine can train
  tightrope train minatar/breakout    # minutes on a CPU
  tightrope train pong                # 10M frames; wants a GPU
  tightrope watch pong                # a trained agent comes with it
  tightrope study run laptop          # many runs, then one web page

Every command has --help with examples of its own; tightrope --version says
which one this is."""


def run(words: list[str]) -> int:
    if words == ["--version"]:
        from tightrope import __version__

        print(__version__)
        return 0
    if words and words[0] == "help":
        words = [*words[1:], "--help"]
    if not words or words[0] in ("-h", "--help"):
        print("tightrope: deep Q-learning by optimality tightening\n" + overview() + "\n" + EXAMPLES)
        return 0
    name, rest = words[0], words[1:]
    if name == "study":
        name, rest = " ".join(words[:2]), words[2:]
        if name in ("study", "study -h", "study --help"):
            print(overview(["many runs"]).strip())
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
        default = Train(game=MISSING, fields=usage.fields_of(numbers_for_help(rest)))
    parsed = tyro.cli(
        command,
        args=["--help"] if asked_for_help else rest,
        prog=f"tightrope {name}",
        description=usage.description(command),
        default=default,
        config=(FlagCreatePairsOff,),
    )
    return handler(parsed, **typed)


def numbers_for_help(words: list[str]) -> settings.Config:
    """What `train --help` shows: the numbers of the preset named, of the one that suits the game named, or paper's."""
    if "--preset" in words[:-1]:
        return settings.numbers(words[words.index("--preset") + 1])
    if {"-h", "--help"} & set(words) and not words[0].startswith("-"):
        from tightrope.games import canonical, default_preset

        return settings.preset(default_preset(canonical(words[0])))
    return settings.preset("paper")


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
        check_value(name, value, kinds[name])
        result += ["--" + name, value]
    # The first field of a command is its one positional word, if it has any, or all of them where it takes several.
    first = next(iter(dataclasses.fields(COMMANDS[command])), None)
    extras = get_type_hints(COMMANDS[command], include_extras=True)
    takes = first is not None and "Positional" in str(extras[first.name])
    if first is not None and first.default is dataclasses.MISSING and not positional:
        raise TightropeError(f"tightrope {command} needs {first.name.upper()}; see tightrope {command} --help")
    for field in dataclasses.fields(COMMANDS[command]):
        if field.default is MISSING and f"--{field.name}" not in result:
            raise TightropeError(f"tightrope {command} needs --{field.name}; see tightrope {command} --help")
    if takes and first is not None and get_origin(kinds[first.name]) is tuple:
        return result, typed
    if first is not None and positional and takes:
        check_value(first.name, positional[0], kinds[first.name])
    if len(positional) > takes:
        raise TightropeError(f"tightrope {command} takes no {positional[takes]!r}; see tightrope {command} --help")
    return result, typed


def check_value(name: str, value: str, kind: Any) -> None:
    """Refuses what an option of a command does not take."""
    must = ""
    if kind is int and not re.fullmatch(r"-?[0-9]+", value):
        must = "a whole number"
    elif kind is float and not re.fullmatch(r"-?[0-9]*\.?[0-9]+(e-?[0-9]+)?", value):
        must = "a number"
    elif get_origin(kind) is Literal and value not in get_args(kind):
        *others, last = get_args(kind)
        must = f"{', '.join(others)} or {last}"
    if must:
        raise TightropeError(f"{name} = {value!r}: must be {must}")
    if name == "study" or kind in (Path, Path | None):
        try:
            Path(value).exists()
        except (OSError, ValueError) as problem:  # a name that is too long, a folder that is not ours to look into
            reason = problem.strerror if isinstance(problem, OSError) else problem
            raise TightropeError(f"{name} = {value if len(value) < 60 else value[:57] + '...'!r}: {reason}") from None


# ---------------------------------------------------------------------------------------------------------- commands


def train(args: Train, **fields: Any) -> int:
    from tightrope import api

    agent = api.train(
        args.game,
        preset=args.preset or None,
        seed=args.seed,
        device=args.device,
        out=args.out,
        quiet=args.quiet,
        callbacks=[args.callbacks],
        json=args.json,
        **fields,
    )
    return STOPPED if agent.stopped else 0


def resume(args: Resume) -> int:
    from tightrope import api

    agent = api.resume(
        args.run,
        device=args.device or None,
        quiet=args.quiet,
        callbacks=[args.callbacks],
        json=args.json,
        trust=args.trust,
        frames=settings.coerce("frames", args.frames) if args.frames else None,
    )
    return STOPPED if agent.stopped else 0


def evaluate(args: Evaluate) -> int:
    from tightrope import api
    from tightrope.run import commit

    began = time.monotonic()
    agent = api.load(args.run, which=args.which, device=args.device, trust=args.trust)
    with waiting("playing ...") as say:
        ended = lambda games: say(f"playing: {games} of {args.episodes} games have ended")  # noqa: E731
        result = agent.evaluate(args.episodes, args.protocol, args.seed, ended)
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
    played = counted(len(result.scores), "game")
    print(f"{facts['game']}: {result.mean:.2f} ± {result.std:.2f}, mean and deviation of {played}")
    trained = f"{agent.which or 'an'} agent, trained for {agent.facts.frames:,} frames"
    print(f"human-normalised: {human}; protocol {result.protocol}; {trained}")
    return 0


@contextlib.contextmanager
def waiting(text: str) -> Iterator[Callable[[str], None]]:
    """In a terminal a line that says what is being done, which can be changed and is gone at the end."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: None
        return
    with console.status(text) as status:
        yield status.update


def compare(args: Compare) -> int:
    from tightrope import compare as beside

    runs = [beside.read(path) for path in args.runs]
    if len(runs) < 2:
        raise TightropeError("compare wants the folders of two runs or more")
    if args.json:
        print(json.dumps({"runs": [vars(run) for run in runs], "differ": beside.differences(runs)}))
    else:
        beside.show(runs)
    return 0


def watch(args: Watch) -> int:
    from tightrope import api
    from tightrope.watch import watch as show

    agent = api.load(args.run, which=args.which, device="cpu", trust=args.trust)
    print(show(agent, args.seed, args.video, speed=args.speed, seconds=args.seconds, plain=args.plain))
    return 0


def export(args: Export) -> int:
    from tightrope import api
    from tightrope.export import export_onnx

    agent = api.load(args.run, which=args.which, device="cpu", trust=args.trust)
    print(export_onnx(agent, args.onnx, args.states))
    return 0


def presets(args: Presets) -> int:
    names = settings.preset_names()
    if not args.name:
        for name in names:
            print(entry(name, settings.about(name), max(map(len, names)) + 2))
        return 0
    values = settings.preset(args.name).to_dict()
    origins = settings.origins(args.name)
    wide = max(map(len, values)) + 2
    print(filled(f"{args.name}: {settings.about(args.name)}. Behind each number its meaning, and where it is from."))
    for group, fields in settings.groups().items():
        print(f"\n{group}")
        for name in fields:
            facts = settings.describe(name)
            print(entry(name, f"{usage.value_of(name, values[name])} · {facts['meaning']}", wide))
            print(entry("", f"[{origins[name]}]", wide))
    return 0


def games(args: Games) -> int:
    from tightrope.games.atari import rom_names
    from tightrope.games.minatar import GAMES
    from tightrope.scores import references

    def listed(text: str, names: list[str]) -> None:
        wide = max(map(len, names)) + 2
        across = max(1, columns() // wide)  # two spaces before each
        print(filled(text))
        for start in range(0, len(names), across):
            print("".join(f"  {name:<{wide - 2}}" for name in names[start : start + across]).rstrip())

    listed(
        "Atari (any usual spelling: pong, MsPacman, ALE/MsPacman-v5); * has a human reference in the paper:",
        [name + ("*" if name in references() else "") for name in rom_names()],
    )
    listed("MinAtar:", [f"minatar/{game}" for game in GAMES])
    listed("The paper's maze, the number being its shortest path:", ["maze", "maze-40"])
    listed("Any Gymnasium environment with discrete actions:", ["CartPole-v1", "FrozenLake-v1", "my_module:MyEnv-v0"])
    return 0


def doctor(args: Doctor) -> int:
    from tightrope.doctor import examine, told

    with waiting("looking, and measuring what this machine can train; up to a minute or so ..."):
        found = examine(args.device, args.seconds)
    print(json.dumps(found) if args.json else told(found))
    return 1 if found["amiss"] else 0


def bench(args: Bench) -> int:
    from tightrope.bench import bench as measure
    from tightrope.bench import told

    given = dataclasses.asdict(args)
    given.pop("json")
    found = measure(**given)
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
            print(entry(name, f"{study.about} ({counted(len(study.cells), 'cell')})", max(map(len, shipped())) + 2))
        print(filled(f"tightrope study run NAME runs one; the files, with how long each takes: {folder()}"))
        return 0
    survey = run_study(args.study, args.out, args.workers, args.ray)
    left = [seen for seen in survey.cells if seen.state != "done"]
    if left:
        told = f"failed or were stopped (the first one's log: {left[0].log}); the same command tries them again"
        print(f"tightrope: {len(left)} of {counted(len(survey.cells), 'cell')} {told}", file=sys.stderr)
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


def completion(args: Completion) -> int:
    print(usage.completion(args.shell, COMMANDS))
    return 0


HANDLERS: dict[str, Callable[..., int]] = {
    "train": train,
    "resume": resume,
    "evaluate": evaluate,
    "compare": compare,
    "watch": watch,
    "export": export,
    "presets": presets,
    "games": games,
    "doctor": doctor,
    "bench": bench,
    "demo": demo,
    "study run": study_run,
    "study status": study_status,
    "study report": study_report,
    "study rows": study_rows,
    "completion": completion,
}
