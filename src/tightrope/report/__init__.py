"""The report of a study: one self-contained web page, and its tables as CSV and LaTeX."""

from __future__ import annotations

from pathlib import Path


def write_report(folder: str | Path, *, videos: bool = False) -> Path:
    """Reads a study's folder, or CSV files of result rows, and writes report/ into it; returns the page's path.

    Args:
        folder: a study's folder, a folder with CSV files of result rows (results/ has such), or one such file.
        videos: let the best agent of each game play and show it; takes some seconds a game.
    """
    from tightrope.report.page import write
    from tightrope.report.read import collect

    folder = Path(folder)
    out = (folder.parent if folder.is_file() else folder) / "report"
    return write(collect(folder), out, videos)
