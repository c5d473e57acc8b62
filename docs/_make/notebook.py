"""Runs the tutorial's notebook and keeps what it printed and drew: make tutorial."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

PATH = Path(__file__).parents[2] / "examples" / "tutorial.ipynb"


def executed(folder: Path) -> nbformat.NotebookNode:
    """The notebook, run in that folder; whatever a cell raises is raised."""
    notebook = nbformat.read(PATH, as_version=4)
    with tempfile.TemporaryDirectory() as sockets:  # a kernel behind files: no port is opened
        kernel = Config(KernelManager={"transport": "ipc", "ip": f"{sockets}/kernel"})
        where = {"metadata": {"path": str(folder)}}
        NotebookClient(notebook, timeout=200, startup_timeout=200, resources=where, config=kernel).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran: would differ each time
    return notebook


if __name__ == "__main__":
    nbformat.write(executed(Path.cwd()), PATH)
    sys.stdout.write(f"{PATH}\n")
