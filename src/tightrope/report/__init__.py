"""The report of a study: one self-contained web page, and its tables as CSV and LaTeX."""

from __future__ import annotations

from pathlib import Path


def write_report(folder: str | Path, *, out: str | Path | None = None, videos: bool = False) -> Path:
    """Reads a study's folder, or CSV files of result rows, and writes a report; returns the page's path.

    Args:
        folder: a study's folder, a folder with CSV files of result rows (results/ has such), or one such file.
        out: the report's folder; else report/ in that folder, beside a file NAME.csv report-NAME/.
        videos: let the best agent of each game play and show it; takes some seconds a game.
    """
    from tightrope.report.page import write
    from tightrope.report.read import collect

    folder = Path(folder)
    own = folder.parent / f"report-{folder.stem}" if folder.is_file() else folder / "report"
    return write(collect(folder), Path(out) if out is not None else own, videos)
