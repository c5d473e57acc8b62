"""Whatever holds runs, read."""

from __future__ import annotations

from pathlib import Path

from tightrope.errors import TightropeError
from tightrope.report.data import Collection
from tightrope.report.read_rows import from_rows
from tightrope.report.read_study import from_study


def collect(path: Path) -> Collection:
    """The runs of a study's folder, of a folder of CSV files, or of one CSV file."""
    if path.is_file():
        return from_rows([path], path.stem)
    if (path / "cells").is_dir() or (path / "study.toml").is_file():
        return from_study(path)
    files = sorted(path.glob("*.csv")) if path.is_dir() else []
    if not files:
        raise TightropeError(f"{path} is no study: it has neither cells/ nor CSV files of result rows")
    return from_rows(files, path.resolve().name)
