"""What can be typed: every command with its options, their meaning, and examples. cli.py reads it and does it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import tyro
from tyro import MISSING
from tyro.conf import FlagConversionOff, OmitArgPrefixes, Positional

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
    """folder of a run, an agent's file, or a game whose trained agent comes with the package, such as pong"""
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
    """folder of a run, an agent's file, or a game whose trained agent comes with the package, such as pong"""
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
    """folder of a run, an agent's file, or a game whose trained agent comes with the package, such as pong"""
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
    """whose numbers, but for those below and when learning starts; or a TOML file of your own"""
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
    tightrope study run table1 --games pong,alien    # a part of it
    tightrope study run table1 --ray auto
    """

    study: Annotated[Positional[str], said("STUDY", "list the shipped ones")] = ""
    """a TOML file, the name of a shipped study, or the folder of a study to go on with"""
    out: Annotated[Path | None, said("DIR", "runs/NAME")] = None
    """folder of the study"""
    workers: Annotated[int, said("N", "one for each GPU, or for each core where there is none")] = 0
    """processes at once"""
    games: Annotated[str, said("NAMES", "all")] = ""
    """only these of its games, or of suites, with commas between them"""
    arms: Annotated[str, said("NAMES", "all")] = ""
    """only these of its arms, with commas between them"""
    seeds: Annotated[str, said("NUMBERS", "all")] = ""
    """only these of its seeds, with commas between them"""
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
    """Make one web page, tables and figures of a study, or of result rows.

    tightrope study report runs/laptop --videos --open
    tightrope study report results/atari.csv --out report
    """

    study: Annotated[Positional[Path], said("STUDY")]
    """folder of the study, a CSV file of result rows, or a folder of such"""
    out: Annotated[Path | None, said("DIR", "report in that folder; beside a file report-NAME")] = None
    """folder of the report"""
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
