"""What this machine has, what it can train and in how long, and what to change if something is amiss."""

from __future__ import annotations

import importlib.util
import platform
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from tightrope.config import preset
from tightrope.device import cores, free_memory, pick_device, total_memory
from tightrope.errors import TightropeError, sized
from tightrope.games import canonical, config_for, default_preset
from tightrope.progress import time_left

#: What is measured: a game of each kind, and its share of the time.
GAMES = {"pong": 0.6, "minatar/breakout": 0.2, "CartPole-v1": 0.2}
#: Packages that are there for those who want them, by the extra that brings them.
EXTRAS = {"window": "pygame", "report": "scipy", "ray": "ray", "tensorboard": "tensorboard", "wandb": "wandb",
          "onnx": "onnxruntime", "peers": "stable_baselines3"}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One line: what was looked at, what was found, and what to do about it ("" if all is well)."""

    name: str
    found: str
    remedy: str = ""
    amiss: bool = False  # something does not work; otherwise a remedy is advice


def examine(device: str = "auto", seconds: float = 10.0) -> dict[str, Any]:
    """All that is known of this machine, as plain data."""
    if not 0 <= seconds <= 600:
        raise TightropeError(f"seconds = {seconds:g}: must be a number from 0 to 600")
    where = pick_device(device)
    findings = [python(), pytorch(), gpu(), memory(where.type), processor(), disk(), atari(), compiler(), extras()]
    measured = []
    for game, share in GAMES.items() if seconds else ():
        try:
            measured.append(measure(game, str(where), seconds * share))
        except Exception as problem:  # whatever is wrong here is what the doctor is asked for
            remedy = f"tightrope train {game} must work: mend what it says"
            what = str(problem) if isinstance(problem, TightropeError) else f"{type(problem).__name__}: {problem}"
            findings.append(Finding("training", f"{game}: {what}", remedy, amiss=True))
    return {
        "findings": [asdict(finding) for finding in findings],
        "device": str(where),
        "measured": measured,
        "seconds": seconds,
        "amiss": any(finding.amiss for finding in findings),
    }


# ----------------------------------------------------------------------------------------------------------- findings


def python() -> Finding:
    return Finding("Python", f"{platform.python_version()}, {platform.system()} {platform.machine()}")


def pytorch() -> Finding:
    import torch

    built = f"built for CUDA {torch.version.cuda}" if torch.version.cuda else "built for CPUs only"
    return Finding("PyTorch", f"{torch.__version__}, {built}")


def gpu() -> Finding:
    import torch

    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        found = f"{torch.cuda.get_device_name()}, {sized(free)} of {sized(total)} free"
        return Finding("GPU", found, short_of(free, "GPU memory"))
    if shutil.which("nvidia-smi"):
        remedy = "install PyTorch for CUDA (https://pytorch.org/get-started)"
        if torch.version.cuda:
            remedy = "run nvidia-smi: the driver may be too old for this PyTorch, or the GPU hidden from this process"
        return Finding("GPU", "there is one, but PyTorch does not see it", remedy, amiss=True)
    return Finding("GPU", "none", "fine for MinAtar, classic games and the maze; Atari wants a GPU")


def memory(device: str) -> Finding:
    free = free_memory()
    remedy = short_of(free, "memory") if device == "cpu" else ""
    return Finding("memory", f"{sized(free)} of {sized(total_memory())} free", remedy)


def short_of(free: float, what: str) -> str:
    """What to do where an Atari replay of the paper's size does not fit; it lies where PyTorch computes."""
    import numpy as np

    from tightrope.replay import needed_bytes

    rows = preset("paper").replay_rows
    needed = needed_bytes(rows, (1, 84, 84), np.dtype(np.uint8))
    if needed < 0.9 * free:
        return ""
    fits = max(10_000, int(rows * 0.8 * free / needed) // 10_000 * 10_000)
    return f"the paper's replay takes {sized(needed)} of {what}: --replay_rows {fits} for Atari"


def processor() -> Finding:
    import psutil

    from tightrope.bench import processor as name

    busy = psutil.cpu_percent(interval=0.5)
    remedy = (
        f"{busy:.0f} % busy before anything was measured: on an idle machine training is faster" if busy > 30 else ""
    )
    return Finding("cores", f"{cores()} for this process; {name()}", remedy)


def disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    needed = 7.2e9
    remedy = ""
    if free < needed:
        remedy = (
            f"a checkpoint of the paper's replay takes {sized(needed)}: free some, or --save_replay false for Atari"
        )
    return Finding("disk", f"{sized(free)} free in {Path.cwd()}", remedy)


def atari() -> Finding:
    """That ale-py is there, has its games, and can play one."""
    try:
        from tightrope.games import GameOptions, make_game
        from tightrope.games.atari import rom_names

        game = make_game("pong", 1, 0, GameOptions())
        game.reset()
        game.close()
        return Finding("ale-py", f"{metadata.version('ale-py')}, {len(rom_names())} games")
    except Exception as problem:
        remedy = "pip install --upgrade --force-reinstall ale-py"
        return Finding("ale-py", f"{type(problem).__name__}: {problem}", remedy, amiss=True)


def compiler() -> Finding:
    found = shutil.which("g++")
    if found:
        return Finding("C++", found)
    return Finding("C++", "no g++", "install it: without a compiler Atari on a CPU trains some 10 % slower")


def extras() -> Finding:
    there = [extra for extra, module in EXTRAS.items() if importlib.util.find_spec(module)]
    absent = [extra for extra in EXTRAS if extra not in there]
    remedy = f"when wanted: pip install 'tightrope[{','.join(absent)}]'" if absent else ""
    return Finding("extras", ", ".join(there) or "none", remedy)


# -------------------------------------------------------------------------------------------------------- measurement


def measure(game: str, device: str, seconds: float) -> dict[str, Any]:
    """Trains for so many seconds, once everything has started, and says how long the preset's budget would take.

    The replay is small, so that learning starts soon, and the target network's period is the paper's share of it: on a
    CPU that decides what an update costs (bench.py).
    """
    from tightrope.run import Description, RunFolder
    from tightrope.trainer import Trainer

    name = canonical(game)
    chosen = default_preset(name)
    whole = config_for(name, chosen, {})
    fields: dict[str, Any] = {"eval_every_epochs": 0, "save_replay": False}
    if name.startswith("atari/"):
        rows = 100_000 if device != "cpu" else 3_200
        fields |= {"replay_rows": rows, "learn_start_steps": rows // 2, "target_every_steps": rows // 100}
        if device == "cpu":
            # Neither changes much where updates take nearly all the time, and both take long to start.
            fields |= {"fast": False, "num_envs": 8}
    else:
        fields |= {"learn_start_steps": min(1_000, whole.learn_start_steps)}
    config = whole.replace(**fields)
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        trainer = Trainer(Description(name, chosen, 0, device, config), RunFolder(Path(folder) / "run"))
        try:
            with trainer.threads():
                trainer.start()
                while trainer.learner.updates == 0:
                    trainer.step()
                started = time.perf_counter()
                frames = trainer.frames
                while time.perf_counter() < started + seconds:
                    trainer.step()
                rate = (trainer.frames - frames) / (time.perf_counter() - started)
        finally:
            trainer.close()
    return {
        "game": name,
        "preset": chosen,
        "frames": whole.frames,
        "frames_per_second": rate,
        "start_seconds": started - began,
        "training_seconds": whole.frames / rate,
    }


# --------------------------------------------------------------------------------------------------------------- words


def told(found: dict[str, Any]) -> str:
    """The same as lines to read."""
    import textwrap

    width = min(110, shutil.get_terminal_size().columns)

    def paragraph(name: str, text: str) -> str:
        return textwrap.fill(text, width, initial_indent=f"  {name:<10}", subsequent_indent=" " * 12)

    lines = [paragraph(f["name"], f["found"]) for f in found["findings"]]
    if found["measured"]:
        lines += [
            "",
            f"what it can train ({found['device']}; {found['seconds']:g} s of measurement, without evaluations)",
        ]
        for m in found["measured"]:
            lines.append(
                f"  {m['game']:<18}{m['frames_per_second']:>9,.0f} frames/s   "
                f"{m['frames']:>12,} frames in {time_left(m['training_seconds'])}"
            )
    for title, amiss in (("amiss", True), ("worth knowing", False)):
        noted = [f for f in found["findings"] if f["remedy"] and f["amiss"] == amiss]
        if noted:
            lines += ["", title, *(paragraph(f["name"], f["remedy"]) for f in noted)]
    if not found["amiss"]:
        lines += ["", "Nothing is amiss."]
    return "\n".join(lines)
