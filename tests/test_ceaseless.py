"""The learner's thread by itself: when it goes on, and that nothing keeps it going."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tightrope import ceaseless
from tightrope.ceaseless import Ceaseless

CPU = torch.device("cpu")


@pytest.fixture
def counted() -> Iterator[tuple[Ceaseless, list[int]]]:
    updates: list[int] = []
    learner = Ceaseless(lambda: updates.append(1), CPU)
    yield learner, updates
    learner.close()


def alive() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("learner")]


def test_it_goes_on_for_as_long_as_the_games_play(counted: tuple[Ceaseless, list[int]]) -> None:
    learner, updates = counted
    with learner.going():
        while len(updates) < 20:
            pass
    made = len(updates)
    threading.Event().wait(0.02)
    assert len(updates) == made


def test_games_that_have_answered_are_not_held_up(
    counted: tuple[Ceaseless, list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long a moment is, nobody sits it out."""
    learner, updates = counted
    monkeypatch.setattr(ceaseless, "MOMENT", 3600.0)
    for _ in range(100):
        with learner.going():
            pass
    assert not updates


def test_what_goes_wrong_in_a_game_is_not_lost_behind_what_goes_wrong_in_the_learner() -> None:
    tried = threading.Event()

    def wrong() -> None:
        tried.set()
        raise ValueError("the learner's")

    def play() -> None:
        with learner.going():
            tried.wait()
            raise KeyError("the game's")

    learner = Ceaseless(wrong, CPU)
    with pytest.raises(KeyError, match="the game's") as caught:
        play()
    assert caught.value.__notes__ == ['and the learner: ValueError("the learner\'s")']
    learner.close()


@pytest.mark.parametrize("where", ["after it was begun", "before it was told to rest"])
def test_a_signal_at_any_moment_does_not_keep_it_going(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal's exception comes between any two instructions of ours."""
    begun = threading.Event()
    learner = Ceaseless(begun.set, CPU)

    def then_interrupted(what: Callable[..., Any]) -> Callable[..., Any]:
        def done(*given: Any) -> None:
            what(*given)
            raise KeyboardInterrupt

        return done

    if where == "after it was begun":
        monkeypatch.setattr(learner._thread, "submit", then_interrupted(learner._thread.submit))
    else:
        monkeypatch.setattr(learner._rest, "set", then_interrupted(begun.wait))
    with pytest.raises(KeyboardInterrupt), learner.going():
        begun.wait()
    learner.close()
    assert not alive()
