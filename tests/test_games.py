"""Games: names, lives, scores, resets, time limits, exact restoring."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium
import numpy as np
import pytest
from ale_py import ALEInterface, roms
from hypothesis import given, settings
from hypothesis import strategies as st

from tightrope.errors import TightropeError
from tightrope.games import GameOptions, Step, canonical, make_game
from tightrope.games.atari import AtariGame, rom_names
from tightrope.games.maze import MazeEnv, distances
from tightrope.scores import references


def play(game: Any, steps: int, seed: int = 0) -> tuple[np.ndarray, list[tuple[np.ndarray, Step]]]:
    """Random play: the first frames, then each step with the actions sent."""
    rng = np.random.default_rng(seed)
    first = game.reset()
    told = []
    for _ in range(steps):
        actions = rng.integers(0, game.info.num_actions, game.num_envs)
        game.send(actions)
        told.append((actions, game.receive()))
    return first, told


@pytest.mark.parametrize(
    ("said", "meant"),
    [("pong", "atari/pong"), ("MsPacman", "atari/ms_pacman"), ("ALE/MsPacman-v5", "atari/ms_pacman"),
     ("ms_pacman", "atari/ms_pacman"), ("BreakoutNoFrameskip-v4", "atari/breakout"), ("Q*Bert", "atari/qbert"),
     ("MinAtar/SpaceInvaders-v1", "minatar/space_invaders"), ("minatar/breakout", "minatar/breakout"),
     ("Maze", "tightrope/Maze-v0"), ("maze-40", "maze-40"), ("CartPole-v1", "CartPole-v1"),
     ("cartpole-v1", "CartPole-v1")],
)  # fmt: skip
def test_names(said: str, meant: str) -> None:
    assert canonical(said) == meant


def test_all_of_the_papers_spellings_are_known() -> None:
    for row in references().values():
        assert canonical(row.game) == canonical(row.rom) == f"atari/{row.rom}"


def test_a_wrong_name_gets_near_matches() -> None:
    with pytest.raises(TightropeError, match=r"brekout.*breakout"):
        canonical("brekout")
    with pytest.raises(TightropeError, match=r"continuous|Box"):
        make_game("Pendulum-v1", 1, 0, GameOptions())


@pytest.mark.parametrize("rom", rom_names())
def test_every_atari_game_plays(rom: str) -> None:
    game = make_game(rom, 1, 0, GameOptions(noop_max=30, life_ends=True))
    _, told = play(game, 3)
    assert told[-1][1].frames.shape == (1, 1, 84, 84)


def test_life_lost_the_game_goes_on_and_the_score_is_the_whole_games() -> None:
    """Breakout has five lives: four end an episode and not the game, the fifth ends both."""
    game = make_game("breakout", 8, 1, GameOptions(noop_max=30, life_ends=True))
    assert isinstance(game, AtariGame)
    _, told = play(game, 600)
    totals = np.zeros(8)
    lives_lost = np.zeros(8, dtype=int)
    after_end = np.zeros(8, dtype=bool)
    finished = 0
    for _, step in told:
        assert np.array_equal(step.transition, ~after_end), "the step after a game's end is a reset, and no other is"
        assert np.array_equal(step.begins & ~step.game_over, after_end | (step.terminal & ~step.game_over))
        totals = np.where(after_end, 0, totals + step.rewards)
        lives_lost = np.where(after_end, 0, lives_lost + step.terminal)
        assert np.array_equal(step.scores, totals)
        assert (lives_lost[step.game_over] == 5).all()
        assert (lives_lost[~step.game_over] < 5).all()
        finished += int(step.game_over.sum())
        after_end = step.game_over
    assert finished > 10


def test_scores_equal_those_of_an_emulator_driven_by_hand() -> None:
    """The same actions through ale-py's plain interface, four frames a step: the same rewards, lives and game's end."""
    game = make_game("ms_pacman", 1, 5, GameOptions(noop_max=0, life_ends=True))
    _, told = play(game, 700)
    emulator = ALEInterface()
    emulator.setFloat("repeat_action_probability", 0.0)
    emulator.loadROM(roms.get_rom_path("ms_pacman"))
    actions = emulator.getMinimalActionSet()
    lives, score, resetting = emulator.lives(), 0.0, False
    for sent, step in told:
        if resetting:
            emulator.reset_game()
            lives, score, resetting = emulator.lives(), 0.0, False
            assert not step.transition[0]
            continue
        reward = 0.0
        for _ in range(4):
            reward += emulator.act(actions[sent[0]])
            if emulator.game_over():
                break
        score += reward
        assert step.rewards[0] == reward
        assert step.scores[0] == score
        assert step.game_over[0] == emulator.game_over()
        assert step.terminal[0] == (emulator.lives() < lives or emulator.game_over())
        lives, resetting = emulator.lives(), emulator.game_over()


def test_adventure_whose_lives_are_always_one_still_ends() -> None:
    game = make_game("adventure", 4, 0, GameOptions(life_ends=True, max_game_frames=80))
    _, told = play(game, 60)
    assert any(step.cut.any() for _, step in told)
    assert not any((step.terminal & ~step.game_over).any() for _, step in told)


@pytest.mark.parametrize("name", ["pong", "minatar/freeway", "MountainCar-v0"])
def test_time_limit_cuts_and_the_next_step_resets(name: str) -> None:
    per_step = 4 if name == "pong" else 1
    game = make_game(name, 2, 0, GameOptions(max_game_frames=20 * per_step, life_ends=True))
    _, told = play(game, 64)
    for i, (_, step) in enumerate(told):
        assert step.cut.tolist() == [i % 21 == 19] * 2, "20 steps, one reset, and again"
        assert step.game_over.tolist() == step.cut.tolist()
        assert step.transition.tolist() == [i % 21 != 20] * 2
        assert step.begins.tolist() == [i % 21 == 20] * 2
        assert not step.terminal.any()


def test_no_ops_are_zero_to_thirty() -> None:
    """With 31 at stake each of 0..30 must occur, and none beyond: the emulator counts its own frames."""
    game = make_game("pong", 32, 0, GameOptions(noop_max=30))
    assert isinstance(game, AtariGame)
    seen: set[int] = set()
    game.reset()
    for _ in range(24):
        seen |= set(game._env.reset()[1]["episode_frame_number"].tolist())
    assert seen == set(range(31))


def test_no_op_steps_follow_a_lost_life_where_asked() -> None:
    game = make_game("breakout", 8, 1, GameOptions(life_ends=True, life_noops=1))
    assert isinstance(game, AtariGame)
    _, told = play(game, 500)
    waited = 0
    for (_, before), (_, step) in itertools.pairwise(told):
        lost = before.terminal & ~before.game_over
        assert not step.transition[lost].any(), "not stored"
        assert not before.begins[lost].any()
        assert (step.begins | step.game_over)[lost].all()
        waited += int(lost.sum())
    assert waited > 20


@pytest.mark.parametrize("name", ["breakout", "minatar/breakout", "CartPole-v1", "maze"])
@pytest.mark.parametrize("sticky", [0.0, 0.25])
def test_a_game_restored_from_its_actions_goes_on_the_same(name: str, sticky: float) -> None:
    if sticky and name in ("CartPole-v1", "maze"):
        pytest.skip("has no sticky actions")
    options = GameOptions(max_game_frames=300, noop_max=30, sticky=sticky, life_ends=True)
    game = make_game(name, 3, 7, options)
    play(game, 230)
    game.cut_off()
    rng = np.random.default_rng(1)
    actions = rng.integers(0, game.info.num_actions, (150, 3))
    for a in actions[:50]:
        game.send(a)
        game.receive()
    copy = make_game(name, 3, 7, options)
    copy.restore(game.save())
    for a in actions[50:]:
        game.send(a)
        copy.send(a)
        expected, found = vars(game.receive()), vars(copy.receive())
        for field, value in expected.items():
            assert np.array_equal(value, found[field]), field


@settings(max_examples=40, deadline=None)
@given(path=st.integers(1, 60), seed=st.integers(0, 1000))
def test_the_mazes_shortest_path_is_as_given(path: int, seed: int) -> None:
    env = MazeEnv(shortest_path=path, layout_seed=seed)
    # Independently: flood the maze by walking it through the environment's own steps.
    env.reset()
    frontier, seen, steps = {(0, 0)}, {(0, 0)}, 0
    while env.goal not in frontier:
        following = set()
        for cell in frontier:
            for action in range(4):
                env.cell = cell
                env.step(action)
                if env.cell not in seen:
                    following.add(env.cell)
        seen |= following
        frontier, steps = following, steps + 1
    assert steps == path == distances(env.open)[env.goal]


def test_the_maze_rewards_the_goal_alone_and_can_be_seen() -> None:
    env = gymnasium.make("tightrope.games:tightrope/Maze-v0", shortest_path=6, render_mode="rgb_array")
    maze = env.unwrapped
    assert isinstance(maze, MazeEnv)
    env.reset()
    toward = distances(maze.open, maze.goal)
    for left in range(6, 0, -1):
        row, column = maze.cell
        moves = [(row - 1, column), (row, column + 1), (row + 1, column), (row, column - 1)]
        action = next(a for a in range(4) if maze.open[row, column, a] and toward[moves[a]] == left - 1)
        _, reward, terminated, truncated, _ = env.step(action)
        assert (reward, terminated, truncated) == (float(left == 1), left == 1, False)
    picture = env.render()
    assert isinstance(picture, np.ndarray)
    assert picture.dtype == np.uint8
    assert picture.shape[2] == 3


def test_images_of_other_sizes_become_grey_84() -> None:
    class Colours(gymnasium.Env[np.ndarray, int]):
        observation_space = gymnasium.spaces.Box(0, 255, (168, 252, 3), np.uint8)
        action_space = gymnasium.spaces.Discrete(3, start=5)
        told: list[int] = []  # noqa: RUF012

        def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
            image = np.zeros((168, 252, 3), np.uint8)
            image[:84] = (30, 60, 90)  # mean 60
            return image, {}

        def step(self, action: int) -> Any:
            self.told.append(action)
            return self.reset()[0], 0.0, False, False, {}

    game = make_game("custom", 1, 0, GameOptions(), env=Colours)
    first = game.reset()
    assert first.shape == (1, 1, 84, 84)
    assert (first[0, 0, :42] == 60).all()
    assert (first[0, 0, 42:] == 0).all()
    assert game.info.state_shape == (4, 84, 84)
    assert game.info.network == "paper"
    game.send(np.array([2]))
    game.receive()
    assert Colours.told == [7], "actions start where the space starts"


def test_gymnasiums_blackjack_is_not_ataris() -> None:
    assert canonical("Blackjack-v1") == "Blackjack-v1"
    assert canonical("blackjack") == canonical("ALE/Blackjack-v5") == "atari/blackjack"
