"""Shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

# Two test processes on two cores: one thread each.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("gpu"):
        import torch

        if not torch.cuda.is_available():
            pytest.skip("no CUDA GPU here; make test-gpu where there is one")


@pytest.fixture(autouse=True)
def same_weights_every_time() -> None:
    """A layer that a test makes for itself starts alike in every run: what fails, fails again."""
    import torch  # not above, where the number of threads is not set yet

    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def doctest_folder(doctest_namespace: dict[str, Any], tmp_path: Path) -> None:
    """`tmp` in every docstring's example."""
    doctest_namespace["tmp"] = tmp_path
    from tightrope.config import preset

    doctest_namespace["preset"] = preset
