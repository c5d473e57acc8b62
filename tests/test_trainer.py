"""The loop on real games: what is stored, what is seen, what is scored."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

from tightrope.config import preset
from tightrope.errors import TightropeError
from tightrope.evaluation import Evaluator
from tightrope.learner import Learner
from tightrope.network import stacked
from tightrope.replay import BEGIN, TERMINAL, TRANSITION, Reach
from tightrope.run import Description, RunFolder
from tightrope.trainer import Side, Trainer

ATARI = {"num_envs": 4, "replay_rows": 4000, "learn_start_steps": 3900, "eval_every_epochs": 0, "max_game_frames": 0}


def made(tmp_path: Path, game: str, name: str = "paper", **fields: Any) -> Trainer:
    description = Description(game, name, 1, "cpu", preset(name).replace(**ATARI | fields))
    trainer = Trainer(description, RunFolder(tmp_path / "run"))
    trainer.folder.create(description)
    trainer.start()
    return trainer


def test_learning_rewards_are_clipped_and_scores_are_not(tmp_path: Path) -> None:
    """Ms. Pac-Man pays 10 and more for every dot."""
    trainer = made(tmp_path, "ms_pacman", max_game_frames=1200)
    for _ in range(330):
        trainer.step()
    assert set(trainer.replay.rewards.unique().tolist()) == {0.0, 1.0}
    assert min(trainer.recent_scores) >= 30
    unclipped = made(tmp_path / "b", "ms_pacman", clip_rewards=False)
    for _ in range(100):
        unclipped.step()
    assert unclipped.replay.rewards.max() >= 10


def states(trainer: Trainer) -> torch.Tensor:
    """What the actors of all environments see."""
    return torch.cat([side.actor.states for side in trainer.sides])


@pytest.mark.parametrize("sides", [2, 3])
def test_actor_and_sampler_see_the_same_states_across_lives_and_games(
    sides: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Breakout under random play loses its five lives every 200 steps or so."""
    monkeypatch.setattr("tightrope.trainer.SIDES", sides)
    trainer = made(tmp_path, "breakout")
    seen = {0: states(trainer)}
    for time in range(1, 320):
        trainer.step()
        seen[time] = states(trainer)
    replay = trainer.replay
    times, envs = map(torch.tensor, zip(*[(t, e) for t in range(319) for e in range(4)], strict=True))
    flags = replay.flags[times, envs]
    assert ((flags & TERMINAL) > 0).sum() > 20
    assert ((flags & BEGIN) > 0).sum() > 20
    valid = replay.valid_centres(times, envs, Reach())
    assert torch.equal(valid, (flags & TRANSITION) > 0), "every transition and no reset row may be a sample"
    assert 3 < (~valid).sum() < 40
    window = replay.window(times[valid], envs[valid], Reach())
    expected = torch.stack([seen[t][e] for t, e in zip(times[valid].tolist(), envs[valid].tolist(), strict=True)])
    assert torch.equal(stacked(replay.by_row, window.rows_BS), expected)
    drawn = replay.sample(512, Reach(), replay.draw(512, Reach(), torch.Generator().manual_seed(0)))
    assert ((replay.flags[drawn.times_B, drawn.envs_B] & TRANSITION) > 0).all()


def test_each_environment_tosses_its_own_coin(tmp_path: Path) -> None:
    trainer = made(tmp_path, "breakout", num_envs=64)
    tosses = np.array([np.concatenate([s.actor.act(0.5) for s in trainer.sides]) for _ in range(100)])  # [time, env]
    best = trainer.network(states(trainer)).argmax(1).numpy()
    # With 4 actions half the tosses explore, and three quarters of those away from the best.
    away = (tosses != best).mean(0)
    assert away.mean() == pytest.approx(0.375, abs=0.02)
    agreement = np.corrcoef((tosses != best).T)
    assert abs(agreement[~np.eye(64, dtype=bool)].mean()) < 0.02


def test_the_first_actions_of_a_life_are_random_where_asked(tmp_path: Path) -> None:
    trainer = made(tmp_path, "breakout", "released", num_envs=16, epsilon_start=0.0, epsilon_end=0.0)
    with torch.no_grad():  # a network that always prefers the last action
        list(trainer.network.parameters())[-1][:] = torch.tensor([0.0, 0.0, 0.0, 1e6])
    first, later = [], []
    for _ in range(150):
        for side in trainer.sides:
            fresh = side.life_steps < 4
            trainer.send(side)
            assert side.sent is not None
            first += side.sent[fresh].tolist()
            later += side.sent[~fresh].tolist()
            trainer.receive(side)
    assert set(later) == {3}
    counts = np.bincount(first, minlength=4)
    assert (counts > 0.15 * len(first)).all()


def test_an_epochs_end_cuts_the_games_and_closes_returns_with_the_mean_value(tmp_path: Path) -> None:
    trainer = made(tmp_path, "pong", "released", num_envs=2, epoch_frames=80, life_noops=0, overlap=False)
    gamma = trainer.config.gamma
    for _ in range(10):
        last_states = states(trainer)
        trainer.step()
    # 10 steps of 2 environments are 80 frames: the tenth row of each was cut, and stored as terminal.
    replay = trainer.replay
    assert ((replay.flags[9] & TERMINAL) > 0).all()
    with torch.no_grad():
        mean = trainer.network(last_states).mean(1)
    torch.testing.assert_close(replay.returns[9], replay.rewards[9] + gamma * mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(replay.returns[8], replay.rewards[8] + gamma * replay.returns[9], rtol=1e-4, atol=1e-5)
    trainer.step()
    assert (replay.flags[10] == 0).all(), "the row after a cut is a reset"
    assert (replay.flags[11] == BEGIN).all()
    assert replay.finished_rows == 20


def test_released_learning_waits_for_finished_rows(tmp_path: Path) -> None:
    trainer = made(tmp_path, "breakout", "released", learn_start_steps=100, batch_size=4)
    finished = [0]
    while trainer.started_at is None:
        trainer.step()
        finished.append(trainer.replay.finished_rows)
    # Learning overlaps with playing, so it started with what was there before the last step.
    assert finished[-3] < 100 <= finished[-2]
    assert trainer.started_at > 100
    reach = trainer.learner.reach
    chances = trainer.replay.draw(64, reach, torch.Generator().manual_seed(0))
    times, envs = trainer.replay.centres(chances.centres, 64, reach)
    assert (~trainer.replay.returns[times, envs].isnan()).all()


def test_an_evaluation_that_a_signal_stops_is_made_up_for_where_it_was(tmp_path: Path) -> None:
    """In mid-run, and at the run's end, which then is no end yet."""
    for frames, at in ((400, 200), (200, 200)):
        runs = []
        for stopped in (False, True):
            folder = RunFolder(tmp_path / f"{frames}-{stopped}")
            config = preset("maze").replace(frames=frames, epoch_frames=at, eval_episodes=2, eval_max_game_frames=50,
                                            learn_start_steps=100, replay_rows=500)  # fmt: skip
            description = Description("maze", "maze", 0, "cpu", config)
            trainer = Trainer(description, folder)
            folder.create(description)
            trainer.start()
            if stopped:
                # The signal comes while the first evaluation plays.
                with pytest.MonkeyPatch.context() as patch:

                    def interrupted(
                        self: Evaluator, *what: Any, run: Trainer = trainer, play: Any = Evaluator.play
                    ) -> Any:
                        run._stop = True
                        return play(self, *what)

                    patch.setattr(Evaluator, "play", interrupted)
                    list(trainer.train())
                assert trainer.stopped_early
                assert not folder.evaluations()
                trainer.close()
                trainer = Trainer(description, RunFolder(folder.path))
                trainer.resume()
            list(trainer.train())
            assert not trainer.stopped_early
            trainer.close()
            runs.append([(row["frames"], row["score"]) for row in RunFolder(folder.path).evaluations()])
        assert runs[0] == runs[1]
        assert len(runs[0]) == frames // at


class Long(gymnasium.Env[np.ndarray, int]):
    """Numbers that are drawn, paid for one by one; longer than a test."""

    observation_space = gymnasium.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=seed)
        return self.drawn(), {}

    def drawn(self) -> np.ndarray:
        return self.np_random.uniform(-1, 1, 3).astype(np.float32)

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        seen = self.drawn()
        return seen, float(seen.sum()), False, False, {}


#: Two halves of 6 environments, an update for every 2 steps, a line of metrics after every 10 steps of all of them.
TWELVE = {"num_envs": 12, "update_every_steps": 2, "update_group": 1, "learn_start_steps": 120, "frames": 1_200,
          "log_frames": 120, "eval_every_epochs": 0, "replay_rows": 1_200, "overlap": True}  # fmt: skip


class Watched(Trainer):
    """Sees how old the weights are by which it acts: finds them among those that the learner had."""

    def __init__(self, path: Path, env: Any = Long, device: str = "cpu", **fields: Any) -> None:
        self.had: dict[int, torch.Tensor] = {}  # by how many updates they had seen
        self.found: list[int] = []  # how many they lacked
        description = Description("custom", "classic", 0, device, preset("classic").replace(**TWELVE | fields))
        super().__init__(description, RunFolder(path / "run"), env=env)
        if not self.folder.checkpoints.saved():
            self.folder.create(description)
            self.start()

    def send(self, side: Side) -> None:
        self.see()
        acting = next(side.actor.network.parameters())
        (seen,) = (updates for updates, weights in self.had.items() if torch.equal(weights, acting))
        self.found.append(self.learner.updates - seen)
        super().send(side)

    def follow(self, side: Side) -> None:
        self.see()
        super().follow(side)

    def see(self) -> None:
        self.had.setdefault(self.learner.updates, next(self.network.parameters()).detach().clone())


@pytest.mark.parametrize(("overlap", "behind"), [(True, 3), (False, 0)])
def test_how_old_the_weights_are_by_which_it_acts(tmp_path: Path, overlap: bool, behind: int) -> None:
    """Between a half's taking the weights over and its next actions the other half's 6 steps are learned from, so 3
    updates. One after the other nothing is missed."""
    trainer = Watched(tmp_path, overlap=overlap)
    lines = list(trainer.train())
    trainer.close()
    found = trainer.found
    assert set(found[: len(found) // 12]) == {0}, "nothing had been learned"
    assert set(found[len(found) // 6 :]) == {behind}
    assert [line["updates_behind"] for line in (lines[0], *lines[2:])] == [0, *[behind] * (len(lines) - 2)]
    assert trainer.learner.updates > 400


class Slow(Long):
    """So that the learner has something not to wait for."""

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        sleep(0.002)
        return super().step(action)


class Patient(Long):
    """Once the learner has begun, answers only when it has made another update since."""

    trainer: Trainer | None = None

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        if self.trainer is not None and self.trainer.started_at is not None:
            before, until = self.trainer.learner.updates, monotonic() + 60
            while self.trainer.learner.updates == before:
                assert monotonic() < until, "the learner waits for the game"
                sleep(0.001)
        return super().step(action)


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_the_learner_never_waits_where_acting_is_asynchronous(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, device: str
) -> None:
    """Games that do not answer before the learner has gone on; and nothing is stored or followed while it does."""
    updating = threading.Event()
    update = Learner.update

    def watched(self: Learner, *what: Any) -> None:
        updating.set()
        update(self, *what)
        updating.clear()

    monkeypatch.setattr(Learner, "update", watched)

    def alone(whole: Callable[..., Any]) -> Callable[..., Any]:
        def checked(*what: Any, **more: Any) -> Any:
            assert not updating.is_set()
            return whole(*what, **more)

        return checked

    for name in ("store", "log", "save", "send", "follow", "end_epoch"):
        monkeypatch.setattr(Watched, name, alone(getattr(Watched, name)))
    fields = {"asynchronous": True, "log_frames": 60, "lam_schedule": "annealed", "lam": 1.0, "lam_steps": 480}
    trainer = Watched(tmp_path, Patient, device, frames=360, **fields)
    monkeypatch.setattr(Patient, "trainer", trainer)
    told = [(line["updates_behind"], len(trainer.found)) for line in trainer.train()]
    # 240 steps were played since the learner began, each of them only after an update, where one for every 2 is due.
    assert trainer.started_at == 120
    assert trainer.learner.updates >= 240 - 12
    # λ goes by the 240 steps, of which the last halves' may not be counted yet; by the updates it would be 0.
    assert trainer.learner.lam.item() == pytest.approx(0.5, abs=13 / 480)
    for (_, before), (behind, seen) in pairwise(told):
        assert behind == pytest.approx(np.mean(trainer.found[before:seen]))
    assert min(trainer.found[36:]) >= 12, "those that were made while both halves played"
    updates = trainer.learner.updates
    trainer.close()
    monkeypatch.setattr(Patient, "trainer", None)
    again = Watched(tmp_path, Slow, device, frames=420, **fields)
    again.had = trainer.had
    again.resume()
    assert again.learner.updates == updates
    list(again.train())
    again.close()
    assert (again.steps, again.learner.updates > updates) == (420, True)


def test_what_goes_wrong_in_an_asynchronous_update_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(self: Trainer) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise TightropeError("no more")

    monkeypatch.setattr(Watched, "update", wrong)
    trainer = Watched(tmp_path, Slow, asynchronous=True)
    with pytest.raises(TightropeError, match="no more"):
        list(trainer.train())
    trainer.close()
