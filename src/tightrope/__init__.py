"""Deep Q-learning by optimality tightening.

>>> import tightrope
>>> agent = tightrope.train("maze", frames=400, learn_start_steps=100, out=tmp / "package", quiet=True)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tightrope.agent import Agent
    from tightrope.api import load, resume, train
    from tightrope.errors import TightropeError

__version__ = "0.1.0"
__all__ = ["Agent", "TightropeError", "__version__", "load", "resume", "train"]

_HOMES = {"Agent": "agent", "TightropeError": "errors", "load": "api", "resume": "api", "train": "api"}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    """Loads PyTorch and the rest only when they are asked for."""
    if name in _HOMES:
        from importlib import import_module

        return getattr(import_module(f"tightrope.{_HOMES[name]}"), name)
    raise AttributeError(f"module 'tightrope' has no attribute {name!r}")
