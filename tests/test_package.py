"""The wheel has all that the package reads, and works where it is installed alone."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], cwd=ROOT, check=True,
        capture_output=True, timeout=120,
    )  # fmt: skip
    (built,) = out.glob("*.whl")
    return built


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    files = [path for path in (ROOT / "src" / "tightrope").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    source = {str(path.relative_to(ROOT / "src")) for path in files}
    with zipfile.ZipFile(wheel) as file:
        held = set(file.namelist())
        entry = next(name for name in held if name.endswith("entry_points.txt"))
        assert "tightrope = tightrope.cli:main" in file.read(entry).decode()
        about = message_from_string(file.read(entry.replace("entry_points.txt", "METADATA")).decode())
    assert source <= held
    kinds = {Path(name).parent.name + "/*" + Path(name).suffix for name in source}
    assert kinds >= {"presets/*.toml", "studies/*.toml", "agents/*.safetensors", "agents/*.md", "data/*.csv",
                     "assets/*.css", "tightrope/*.typed"}  # fmt: skip
    needed = [text for text in about.get_all("Requires-Dist", []) if "extra ==" not in text]
    assert not [text for text in needed if text.startswith(("tensorboard", "wandb", "onnx", "pygame", "scipy", "ray"))]
    assert {"classic", "onnx", "ray", "report", "tensorboard", "wandb", "window"} <= set(
        about.get_all("Provides-Extra", [])
    )


def test_the_command_works_from_the_wheel_alone(wheel: Path, tmp_path: Path) -> None:
    """The package's own files from nowhere else; the packages it needs from here, for installing them takes minutes."""
    site = tmp_path / "site"
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", site, wheel]
    subprocess.run(install, check=True, capture_output=True, timeout=120)
    environment = os.environ | {"PYTHONPATH": str(site)}

    def run(*words: str) -> str:
        return subprocess.run(
            [site / "bin" / "tightrope", *words], cwd=tmp_path, env=environment, capture_output=True, text=True,
            check=True, timeout=120,
        ).stdout  # fmt: skip

    code = "import tightrope; print(tightrope.__file__, tightrope.load('pong', device='cpu').facts.game)"
    loaded = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    ).stdout
    assert loaded == f"{site / 'tightrope' / '__init__.py'} atari/pong\n"
    assert "pong" in run("games")
    assert "released-close" in run("presets")
    assert "laptop" in run("study", "run")
