"""One game, seen: the rope against the paper's definitions, and what every screen shows."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import oracle
import tightrope
from tightrope.agent import Agent
from tightrope.config import Config, preset
from tightrope.errors import TightropeError
from tightrope.watch import screens, watch
from tightrope.watch.play import Played, moments
from tightrope.watch.rope import Rope, rope
from tightrope.watch.scene import BAND, CROSSED, HEIGHT, PANEL, Scene, _range


@st.composite
def games(draw: st.DrawFn) -> list[oracle.Episode]:
    """Lives of one game; the last one ends with the game's end or is cut off."""
    numbers = st.floats(-3, 3, allow_nan=False, width=32)
    lives = []
    count = draw(st.integers(1, 4))
    for number in range(count):
        length = draw(st.integers(1, 9))
        end = draw(st.sampled_from(["terminal", "cut"])) if number == count - 1 else "terminal"
        lives.append(
            oracle.Episode(
                rewards=draw(st.lists(numbers, min_size=length, max_size=length)),
                end=end,
                values=draw(st.lists(numbers, min_size=length + 1, max_size=length + 1)),
                taken=draw(st.lists(numbers, min_size=length + 1, max_size=length + 1)),
            )
        )
    return lives


def as_game(lives: list[oracle.Episode], config: Config) -> Rope:
    """The rope of a game with two actions: the one taken is worth `taken`, and the better one `values`."""
    values, actions, rewards, terminal = [], [], [], []
    for life in lives:
        for step, reward in enumerate(life.rewards):
            best, taken = life.values[step], life.taken[step]
            life.values[step] = best = max(best, taken)
            action = step % 2
            values.append([taken, best] if action == 0 else [best, taken])
            actions.append(action)
            rewards.append(reward)
            terminal.append(step == life.last and life.end == "terminal")
    values.append([lives[-1].values[-1], lives[-1].values[-1]])
    return rope(
        torch.tensor(values, dtype=torch.float64),
        torch.tensor(actions),
        torch.tensor(rewards, dtype=torch.float64),
        torch.tensor(terminal),
        config,
    )


@settings(max_examples=150, deadline=None)
@given(games(), st.integers(0, 5), st.integers(0, 1), st.sampled_from([0.5, 0.9, 0.99]))
def test_the_rope_is_the_papers(lives: list[oracle.Episode], k: int, upper_from: int, gamma: float) -> None:
    config = preset("paper").replace(k=k, upper_from=upper_from, gamma=gamma)
    found = as_game(lives, config)
    at = 0
    for life in lives:
        for j in range(len(life.rewards)):
            lower = [oracle.lower(life, j, h, gamma) for h in range(1, k + 1)] + [oracle.episode_return(life, j, gamma)]
            upper = [oracle.upper(life, j, h, gamma, oldest=0, stack=1) for h in range(upper_from, k + 1)]
            assert found.q[at] == life.taken[j]
            assert found.lower[at] == pytest.approx(
                max([x for x in lower if x is not None], default=-math.inf), abs=1e-9
            )
            assert found.upper[at] == pytest.approx(
                min([x for x in upper if x is not None], default=math.inf), abs=1e-9
            )
            at += 1
    assert at == len(found.q)


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Agent:
    """Of MinAtar's Breakout, hardly trained: short games."""
    return tightrope.train(
        "minatar/breakout", frames=600, learn_start_steps=100, eval_every_epochs=0, num_envs=1, device="cpu",
        quiet=True, out=tmp_path_factory.mktemp("watch") / "run",
    )  # fmt: skip


@pytest.fixture(scope="module")
def scene(agent: Agent) -> Scene:
    played = Played(agent, seed=3)
    return Scene(agent, 3, played, played.rope(Config.stored(agent.facts.config)))


def test_a_game_is_that_of_its_seed(agent: Agent) -> None:
    def seen(seed: int) -> list[tuple[int, float, bytes]]:
        return [(m.action, m.score, m.picture.tobytes()) for m in moments(agent, seed)]

    first = seen(3)
    assert first == seen(3)
    assert first != seen(4)
    *steps, end = first
    assert all(action >= 0 for action, _, _ in steps)
    assert end[0] == -1


def test_what_is_remembered_of_a_game_is_what_was_played(agent: Agent, scene: Scene) -> None:
    live = list(moments(agent, 3))
    assert len(live) == len(scene.played)
    for time, moment in enumerate(live):
        assert np.array_equal(scene.played.picture(time), moment.picture)
    assert scene.played.moments[-1].score == sum(moment.reward for moment in live), "MinAtar's rewards are not clipped"
    assert [moment.terminal for moment in live[-3:]] == [False, True, False], "the game's end, and the moment after"


def test_lives_end_episodes_for_the_bounds_and_the_agent_plays_on() -> None:
    """Breakout in Atari: five lives, one game; a return does not reach over a lost life."""
    pong = tightrope.load("pong", device="cpu")
    config = preset("paper").to_dict()
    from tightrope.agent import AgentFacts
    from tightrope.games import GameOptions, make_game
    from tightrope.network import build_network

    game = make_game("breakout", 1, 0, GameOptions())
    network = build_network("paper", game.info.state_shape, game.info.num_actions, game.info.scale, 0)
    facts = AgentFacts("atari/breakout", "paper", 0, 0, None, "auto", config)
    played = Played(Agent(network, game.info, facts, pong.device), seed=1)
    ends = [time for time, moment in enumerate(played.moments) if moment.terminal]
    assert len(ends) == 5
    assert all(0 <= moment.reward <= 1 for moment in played.moments)
    assert game.info.action_names == ("noop", "fire", "right", "left")
    found = played.rope(preset("paper"))
    rewards = [moment.reward for moment in played.moments]
    for before, end in pairwise([-1, *ends]):
        # The last step of a life: its reward is all that there is.
        assert found.lower[end] == pytest.approx(rewards[end])
        assert found.upper[before + 1] == math.inf


def test_scenes(scene: Scene) -> None:
    last = len(scene.played) - 1
    pictures = [scene.draw(time) for time in (0, 1, last - 1, last)]
    height, width = pictures[0].shape[:2]
    assert height == HEIGHT
    assert width % 2 == 0
    assert all(picture.shape == (height, width, 3) and picture.dtype == np.uint8 for picture in pictures)
    game = pictures[1][:, : width - PANEL]
    colours = {tuple(colour) for colour in scene.played.picture(1).reshape(-1, 3)}
    assert {tuple(colour) for colour in game.reshape(-1, 3)} == colours | {(0, 0, 0)}, "the game's own colours"
    panels = [picture[:, width - PANEL :] for picture in pictures]
    assert not any(np.array_equal(a, b) for a, b in pairwise(panels))


def test_words(scene: Scene) -> None:
    lines = "\n".join(scene.words(1, 40))
    moment = scene.played.moments[1]
    assert scene.rope is not None
    for name, value in zip(("none", "left", "right"), moment.values, strict=True):
        assert f"{name:<14}{value:8.3f}" in lines
    assert f"Q {scene.rope.q[1]:.3f}" in lines
    chosen = next(line for line in lines.splitlines() if line.startswith("\x1b[38;2;240;150;50m"))
    assert ("none", "left", "right")[moment.action] in chosen


def test_the_rope_in_words() -> None:
    """0 to 10 over 11 characters: a character for each."""
    scene = Scene.__new__(Scene)
    scene._span = (0.0, 10.0)
    assert scene._rope_line(3, 1, 8, 11) == " ├─●────┤  "
    assert scene._rope_line(9, 1, math.inf, 11) == " ├───────●┤"
    assert scene._rope_line(0, -math.inf, 4, 11) == "●───┤      "


def test_one_odd_value_does_not_flatten_the_rope() -> None:
    """Of 401 even steps from 0 to 1 and one of 24: 1 % of them are cut at either end, a tenth of the rest is air."""
    low, high = _range(np.linspace(0, 1, 401), np.array([24.0, np.inf]))
    assert (low, high) == pytest.approx((0.01 - 0.098, 0.99 + 0.098), abs=0.005)
    assert _range(np.ones(3)) == (0.5, 1.5)


def test_red_is_outside() -> None:
    scene = Scene.__new__(Scene)
    scene._span = (0.0, 2.0)  # a twentieth of which is 0.1
    lower, upper = np.array([0.5, 1.11, -np.inf, 1.09]), np.array([2.0, np.inf, 0.89, 0.91])
    scene.rope = Rope(np.ones(4), lower, upper)
    assert [scene.violated(time) for time in range(4)] == [False, True, True, False]


def test_the_words_agree_with_the_numbers() -> None:
    """Of a range of 2, a twentieth is 0.1. Numbers are shown with three digits behind the point."""
    scene = Scene.__new__(Scene)
    scene._span = (0.0, 2.0)
    inf = np.inf
    cases = [
        (1.0, 0.9, 1.1, "within its bounds"),
        (1.0, -inf, 1.1, "within its bounds"),
        (1.0, -inf, inf, "no bounds here"),
        (1.0, 1.05, 1.2, "a little below its lower bound"),
        (1.0, 1.15, 1.2, "below its lower bound"),
        (1.0, 0.5, 0.95, "a little above its upper bound"),
        (1.0, 0.5, 0.85, "above its upper bound"),
        (0.698, 0.752, 0.721, "the bounds contradict by 0.031"),
        (1.0, 1.0004, 0.9996, "within its bounds"),  # all three are shown as 1.000
    ]
    scene.rope = Rope(*(np.array(column) for column in list(zip(*cases, strict=True))[:3]))
    assert [scene.told(time) for time in range(len(cases))] == [said for *_, said in cases]


def test_a_contradiction_is_told_and_drawn(agent: Agent, scene: Scene) -> None:
    assert scene.rope is not None
    q = scene.rope.q

    def seen(lower: np.ndarray, upper: np.ndarray) -> tuple[list[str], int, int]:
        """The last two words of step 1, and how much of each band's colour is in its picture."""
        other = Scene(agent, 3, scene.played, Rope(q, lower, upper))
        picture = other.draw(1)
        sizes = [int((picture == colour).all(-1).sum()) for colour in (BAND, CROSSED)]
        return other.words(1, 40)[-2:], *sizes

    (said, more), band, crossed = seen(q - 1, q + 1)
    assert (said, more) == ("within its bounds", "")
    (said, more), other_band, other_crossed = seen(q + 1, q - 1)
    assert "the bounds contradict by 2.000" in said
    assert "not exact" in more
    # Each colour has its small square in the legend in any case.
    assert band > 2 * other_band > 0
    assert other_crossed > 2 * crossed > 0


def film(path: Path) -> tuple[int, int]:
    """Pictures of a GIF, and the milliseconds of one."""
    from PIL import Image

    with Image.open(path) as image:
        return image.n_frames, image.info["duration"]  # type: ignore[attr-defined]


def test_slow_motion_and_seconds(agent: Agent, tmp_path: Path) -> None:
    """15 steps a second: 0.4 s of play at a quarter of the speed are 6 pictures of 0.27 s each."""
    watch(agent, 3, tmp_path / "slow.gif", speed=0.25, seconds=0.4)
    assert film(tmp_path / "slow.gif") == (6, 270)
    # Ten times as fast would be 150 a second, which no player shows: every third, 50 a second.
    watch(agent, 3, tmp_path / "fast.gif", speed=10, seconds=0.4)
    assert film(tmp_path / "fast.gif") == (2, 20)
    assert watch(agent, 3, tmp_path / "game.mp4", seconds=0.2, plain=True).startswith(f"{tmp_path / 'game.mp4'}: 3 ")
    import imageio_ffmpeg

    frames, seconds = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "game.mp4"))
    assert (frames, round(seconds, 2)) == (3, 0.2)


def test_where_it_goes(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr("sys.stdout.isatty", lambda: False, raising=False)
    screen = screens.choose(None)
    assert isinstance(screen, screens.Video)
    assert screen.path == Path("watch.gif")
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert isinstance(screens.choose(None), screens.Terminal)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert isinstance(screens.choose(None), screens.Window)
    monkeypatch.setitem(__import__("sys").modules, "pygame", None)
    assert isinstance(screens.choose(None), screens.Terminal)
    assert "pip install 'tightrope[window]'" in capsys.readouterr().err


def test_a_window(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shown to nobody, but shown: what is on the screen is the scene, and Escape ends it."""
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    import pygame

    window = screens.Window()
    seen: list[np.ndarray] = []
    flip = pygame.display.flip

    def look() -> None:
        flip()
        seen.append(pygame.surfarray.array3d(pygame.display.get_surface()).swapaxes(0, 1))
        if len(seen) == 3:
            pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_SPACE))  # pause ...
            pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_RIGHT))  # ... and one step on
        if len(seen) == 4:
            pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=pygame.K_ESCAPE))

    monkeypatch.setattr(pygame.display, "flip", look)
    assert window.show(scene, range(len(scene.played)), rate=1000) == ""
    assert len(seen) == 4
    for time, picture in enumerate(seen):
        assert np.array_equal(picture, scene.draw(time))


def test_a_terminal(scene: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, beside in ((120, True), (60, False)):
        monkeypatch.setenv("COLUMNS", str(columns))
        monkeypatch.setenv("LINES", "40")
        page = screens.terminal_page(scene, 1).splitlines()
        assert len(page) <= 40
        assert ("▀" in page[0] and "score" in page[0]) == beside
    screens.Terminal().show(scene, range(2), rate=1000)
    assert capsys.readouterr().out.count("\x1b[2J") == 2


def test_bad_wishes(agent: Agent, tmp_path: Path) -> None:
    for wish, said in (({"speed": math.nan}, "speed"), ({"seconds": math.inf}, "seconds"), ({"speed": 101}, "speed")):
        with pytest.raises(TightropeError, match=said):
            watch(agent, 0, tmp_path / "x.gif", **wish)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
