"""A run is a folder: config.toml, metrics.jsonl, evaluations.csv, checkpoints/."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import platform
import subprocess
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

from tightrope.callbacks import Callbacks
from tightrope.checkpoint import Checkpoints, disk_error, read, write_bytes
from tightrope.config import Config, describe
from tightrope.errors import TightropeError
from tightrope.files import parse_toml, read_text

EVALUATION_COLUMNS = (
    "frames", "epoch", "score", "std", "best_game", "games", "normalised_pct", "protocol",
    "mean_game_frames", "seconds",
)  # fmt: skip


def commit() -> str:
    """The commit of the code that runs, '+' for uncommitted changes, or 'unknown' outside a checkout."""
    here = Path(__file__).parent
    if (here / "COMMIT").exists():  # a bundle for machines without git (make bundle)
        return (here / "COMMIT").read_text().strip()

    def git(*words: str) -> str:
        return subprocess.run(
            ["git", "-C", str(here), *words], capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        if Path(git("rev-parse", "--show-toplevel")) / "src" / "tightrope" != here:
            return "unknown"  # installed inside some other project's checkout
        return git("rev-parse", "HEAD") + ("+" if git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError):
        return "unknown"


def versions() -> dict[str, str]:
    """Of everything that could change a result."""
    found = {"python": platform.python_version()}
    for name in ("tightrope", "torch", "numpy", "gymnasium", "ale-py", "MinAtar"):
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "absent"
    return found


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    # JSON's strings are TOML's basic strings; its numbers are TOML's, floats with a point or exponent.
    return json.dumps(value)


@dataclass
class Description:
    """What a run is: all that is needed to repeat it."""

    game: str
    preset: str
    seed: int
    device: str
    config: Config
    network: str = "auto"  # "custom" for a network of the user's own
    made_with: dict[str, str] = field(default_factory=dict)

    def to_toml(self) -> str:
        lines = [
            "# Repeat with: " + self.command(),
            f"game = {_toml(self.game)}",
            f"preset = {_toml(self.preset)}",
            f"seed = {self.seed}",
            f"device = {_toml(self.device)}",
            f"network = {_toml(self.network)}",
            "",
            "[made_with]",
            *(f"{name} = {_toml(text)}" for name, text in self.made_with.items()),
            "",
            "[config]",
        ]
        for name, value in self.config.to_dict().items():
            facts = describe(name)
            unit = f" [{facts['unit']}]" if facts["unit"] else ""
            lines.append(f"{name} = {_toml(value)}  # {facts['meaning']}{unit}")
        return "\n".join(lines) + "\n"

    def changed(self) -> list[str]:
        """What was changed of the preset, as the command line says it."""
        from tightrope.config import preset

        base = preset(self.preset).to_dict()
        return [f"--{n} {v}" for n, v in self.config.to_dict().items() if v != base[n]]

    def command(self) -> str:
        if self.game == "custom" or self.network == "custom":
            return "tightrope.train in Python, with the environment or network of your own"
        words = [
            f"tightrope train {self.game} --preset {self.preset} --seed {self.seed} --device {self.device}",
            *self.changed(),
        ]
        return " ".join(words)

    @classmethod
    def from_toml(cls, path: Path) -> Description:
        try:
            values = parse_toml(read_text(path))
            if int(values["seed"]) < 0:
                raise ValueError(f"seed = {values['seed']}")
            if values["network"] not in ("auto", "custom"):
                raise ValueError(f"network = {values['network']!r}")
            return cls(
                game=str(values["game"]),
                preset=str(values["preset"]),
                seed=int(values["seed"]),
                device=str(values["device"]),
                network=str(values["network"]),
                made_with={str(k): str(v) for k, v in values["made_with"].items()},
                config=Config.stored(values["config"]),
            )
        except FileNotFoundError:
            if not path.parent.exists():
                raise TightropeError(f"{path.parent} does not exist") from None
            raise TightropeError(f"{path.parent} is not a run: it has no config.toml") from None
        except OSError as problem:
            raise TightropeError(f"cannot read {path}: {problem.strerror}") from None
        except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as problem:
            raise TightropeError(f"{path} is damaged: {type(problem).__name__} {problem}") from None


def slug(game: str) -> str:
    """A game's name as the name of a folder.

    >>> slug("atari/ms_pacman")
    'atari-ms_pacman'
    """
    return game.replace("/", "-").replace(":", "-").lower()


def new_run_path(game: str, seed: int, root: Path = Path("runs")) -> Path:
    """runs/<game>-s<seed>, with a number behind it where that is taken."""
    path, number = root / f"{slug(game)}-s{seed}", 2
    while path.exists():
        path, number = root / f"{slug(game)}-s{seed}-{number}", number + 1
    return path


#: Of metrics and evaluations: ten times what the longest run of ours would write.
RECORDS_AT_MOST = 200_000_000


class RunFolder:
    """Where a run keeps its records. Lines are appended; a resume cuts them back to its checkpoint."""

    def __init__(self, path: Path, callbacks: Callbacks | None = None) -> None:
        self.path = path
        self.checkpoints = Checkpoints(path / "checkpoints")
        self.best = path / "checkpoints" / "best.safetensors"
        self.last = path / "checkpoints" / "last.safetensors"
        self._metrics = path / "metrics.jsonl"
        self._evaluations = path / "evaluations.csv"
        self.callbacks = callbacks or Callbacks()

    def refuse_if_taken(self) -> None:
        if (self.path / "config.toml").exists():
            raise TightropeError(
                f"{self.path} holds a run already: tightrope resume {self.path} continues it; or choose another --out"
            )

    def refuse_links(self) -> None:
        """A run that came from elsewhere could lead its writing to any file of this machine, or to where it blocks."""
        for path in sorted(self.path.rglob("*")):
            if not path.is_symlink() and not path.is_file() and not path.is_dir():
                raise TightropeError(f"{path} is not a file: remove it")
            if path.is_symlink():
                raise TightropeError(
                    f"{path} is a link: a run keeps its files in its own folder; copy the file here, or make the whole "
                    "folder a link"
                )

    def create(self, description: Description) -> None:
        self.refuse_if_taken()
        self.describe(description)
        self.clear_records()

    def describe(self, description: Description) -> None:
        write_bytes(self.path / "config.toml", description.to_toml().encode())

    def clear_records(self) -> None:
        """Empty records, as a run starts with them."""
        write_bytes(self._metrics, b"")
        write_bytes(self._evaluations, (",".join(EVALUATION_COLUMNS) + "\n").encode())

    def _append(self, path: Path, text: str) -> None:
        try:
            with open(path, "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as problem:
            raise disk_error(path, problem, len(text)) from None

    def log(self, values: dict[str, Any]) -> None:
        """One line of metrics, for the callbacks too."""
        self._append(self._metrics, json.dumps(values) + "\n")
        self.callbacks.tell("metrics", values)

    def log_evaluation(self, row: dict[str, Any]) -> None:
        text = io.StringIO()
        csv.DictWriter(text, EVALUATION_COLUMNS, lineterminator="\n").writerow(row)
        self._append(self._evaluations, text.getvalue())
        self.callbacks.tell("evaluation", row)

    def lengths(self) -> dict[str, tuple[int, str]]:
        """The records' lengths and checksums, for a checkpoint to remember; they are on the disk before it is."""
        found = {}
        for path in (self._metrics, self._evaluations):
            try:
                with open(path, "rb") as file:
                    os.fsync(file.fileno())
                    length = os.fstat(file.fileno()).st_size
                    found[path.name] = (length, hashlib.sha256(file.read(length)).hexdigest())
            except OSError as problem:
                raise disk_error(path, problem) from None
        return found

    def cut_back(self, lengths: dict[str, tuple[int, str]]) -> None:
        """Forgets the lines written after a checkpoint: the resumed run writes them again."""
        for path in (self._metrics, self._evaluations):
            length, digest = lengths[path.name]
            try:
                with open(path, "rb") as file:
                    # Read as far as the file goes, whatever length is told.
                    told = file.read(min(length, os.fstat(file.fileno()).st_size))
            except OSError as problem:
                raise TightropeError(f"cannot read {path}: {problem.strerror or problem}") from None
            if len(told) < length:
                raise TightropeError(
                    f"{path} is shorter than its checkpoint says: lines were lost; put a copy of it back"
                )
            if hashlib.sha256(told).hexdigest() != digest:
                raise TightropeError(
                    f"{path} is damaged: it is not what it was at its checkpoint; put a copy of it back"
                )
        for path in (self._metrics, self._evaluations):
            try:
                os.truncate(path, lengths[path.name][0])
            except OSError as problem:
                raise disk_error(path, problem) from None

    def ended(self) -> bool:
        """Whether the run has spent its budget, made its last evaluation and kept its last agent."""
        if not self.last.exists():
            return False
        config = Description.from_toml(self.path / "config.toml").config
        try:
            frames = int(read(self.last)[1]["agent"]["frames"])
            evaluated = [int(row["frames"]) for row in self.evaluations()]
        except (KeyError, TypeError, ValueError) as problem:
            raise TightropeError(f"{self.path} is damaged: {type(problem).__name__} {problem}") from None
        return frames >= config.frames and (not config.eval_every_epochs or frames in evaluated)

    def metrics(self) -> list[dict[str, Any]]:
        """Lines of metrics, each with its frames and seconds. The last may be half written: the run may be going on."""
        try:
            lines = read_text(self._metrics, RECORDS_AT_MOST).splitlines()
        except OSError as problem:
            raise TightropeError(f"cannot read {self._metrics}: {problem.strerror or problem}") from None
        except ValueError as problem:
            raise TightropeError(f"{self._metrics} is damaged: {problem}") from None
        found: list[dict[str, Any]] = []
        for number, line in enumerate(lines, 1):
            try:
                values = json.loads(line)
                float(values["frames"]), float(values["seconds"])
            except (ValueError, TypeError, KeyError, RecursionError):
                if number < len(lines):
                    raise TightropeError(f"{self._metrics} is damaged: line {number} is no line of metrics") from None
            else:
                found.append(values)
        return found

    def evaluations(self) -> list[dict[str, str]]:
        try:
            rows = list(csv.DictReader(io.StringIO(read_text(self._evaluations, RECORDS_AT_MOST), newline="")))
        except OSError as problem:
            raise TightropeError(f"cannot read {self._evaluations}: {problem.strerror or problem}") from None
        except (ValueError, csv.Error) as problem:
            raise TightropeError(f"{self._evaluations} is damaged: {problem}") from None
        for row in rows:
            try:
                int(row["frames"]), float(row["score"])
            except (KeyError, TypeError, ValueError):
                raise TightropeError(f"{self._evaluations} is damaged: {list(row.values())}") from None
        return rows
