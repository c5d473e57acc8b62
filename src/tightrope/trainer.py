"""The loop: act, step, store, learn; now and then evaluate, log and save. The only file that knows all the others."""

from __future__ import annotations

import copy
import math
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from tightrope import snapshot
from tightrope.actor import Actor
from tightrope.agent import Agent, AgentFacts
from tightrope.ceaseless import Ceaseless
from tightrope.checkpoint import check_room
from tightrope.config import Config
from tightrope.constraints import needed_notes
from tightrope.device import pick_device, threads
from tightrope.errors import GameError, TightropeError
from tightrope.evaluation import ENDLESS, Evaluator, training_protocol
from tightrope.games import EnvMaker, Game, GameOptions, Step, make_game
from tightrope.guard import OutOfMemoryError, Resources, keep_bad_batch, not_a_number
from tightrope.learner import Learner
from tightrope.memory import Memory
from tightrope.network import Form, NetworkMaker, build_network, check_outputs, named_network
from tightrope.replay import Replay, check_memory, needed_bytes
from tightrope.run import Description, RunFolder
from tightrope.scores import normalised
from tightrope.seeds import ACTOR, EVALUATION, GAME, LEARNER, NETWORK, seed_for

#: Sets of environments that play in turn: while the actions of one are chosen the other plays.
SIDES = 2


def epsilon_at(steps_since_start: int, config: Config) -> float:
    """Linear from epsilon_start to epsilon_end, counted from the start of learning."""
    done = min(1.0, steps_since_start / config.epsilon_decay_steps)
    return config.epsilon_start + done * (config.epsilon_end - config.epsilon_start)


@dataclass
class Side:
    """Environments that step together, and who acts in them."""

    game: Game
    actor: Actor
    life_steps: np.ndarray  # since each environment's episode began
    updates: int = 0  # that the weights it acts by have seen
    epoch: int = 0  # in which it last stepped
    sent: np.ndarray | None = None  # actions that are being played
    played: tuple[np.ndarray, Step, np.ndarray] | None = None  # actions, what came of them, and the returns' tails


class Trainer:
    """One run, from its first step or from a checkpoint to its last."""

    def __init__(
        self,
        description: Description,
        folder: RunFolder,
        env: EnvMaker | None = None,
        network: NetworkMaker | None = None,
        report: Callable[[str], None] = lambda line: None,
        glance: Callable[[dict[str, Any]], None] = lambda values: None,
    ) -> None:
        config = description.config
        self.description, self.config, self.folder = description, config, folder
        self.device = pick_device(description.device)
        self.env = env
        self.report, self.glance = report, glance
        seed = description.seed
        # Alone, an environment plays the textbook loop.
        self.overlap = config.overlap and config.num_envs > 1
        sides = min(SIDES, config.num_envs) if self.overlap else 1
        sizes = [len(part) for part in np.array_split(range(config.num_envs), sides)]
        options = GameOptions(
            max_game_frames=config.max_game_frames,
            noop_max=config.noop_max,
            sticky=config.sticky,
            life_ends=config.life_ends,
            life_noops=config.life_noops,
            sides=len(sizes),
            patience=config.step_timeout_seconds,
        )
        games = [
            make_game(description.game, size, seed_for(seed, GAME, i), options, env) for i, size in enumerate(sizes)
        ]
        self.info = info = games[0].info
        if config.skip_start_rows and config.skip_start_rows >= info.stack:
            raise TightropeError(
                f"skip_start_rows = {config.skip_start_rows}: at most {info.stack - 1} for {info.name}, whose states "
                f"are {info.stack} frames"
            )
        kind = network or named_network(config.network, info)
        built = build_network(
            kind, info.state_shape, info.num_actions, info.scale, seed_for(seed, NETWORK), Form.of(config)
        )
        if network is not None:
            check_outputs(built, info)
        built.use_bfloat16 = config.precision == "bfloat16"
        notes = needed_notes(config, info.num_actions)
        needed = needed_bytes(config.replay_rows, info.frame_shape, info.frame_dtype, notes)
        outputs = (info.num_actions, config.quantiles) if config.quantiles else (info.num_actions,)
        if self.device.type == "cpu":
            needed += Memory.needed_bytes(config.replay_rows, *outputs)
        self.report(check_memory(needed, self.device))
        if self.device.type == "cpu" and config.network == "impala":
            self.report("network = 'impala' is made for a GPU: on a CPU its updates are slow")
        # Where only finished episodes count, nobody knows yet when there will be enough of them.
        first = config.learn_start_steps * info.frames_per_step
        if config.sample_unfinished and first >= config.frames:
            self.report(
                f"learning would start at {first:,} frames and this run ends at {config.frames:,}: nothing will be "
                "learned (lower learn_start_steps or raise frames)"
            )
        if info.rom is not None and config.num_envs > 16:
            self.report(f"starting {config.num_envs} emulators, which takes a while")
        if config.save_replay:
            # Frames are saved once, however many checkpoints name them; one kept for good may have a ring of its own.
            rings = 1 + (config.frames // config.keep_every_frames if config.keep_every_frames else 0)
            rows = config.frames / info.frames_per_step + config.num_envs
            held = config.keep_checkpoints * 4 * notes * config.replay_rows  # in each checkpoint anew
            check_room(folder.path, int(needed * max(1.0, min(rings, rows / config.replay_rows))) + held)
        folder.checkpoints.keep, folder.checkpoints.every = config.keep_checkpoints, config.keep_every_frames
        self.resources = Resources(folder.checkpoints, report, self.device)
        self.replay = Replay(
            config.replay_rows,
            config.num_envs,
            info.frame_shape,
            info.frame_dtype,
            info.stack,
            info.num_actions,
            config.gamma,
            self.device,
        )
        self.learner = Learner(built, config, self.device, seed_for(seed, LEARNER))
        self.learner.keep_notes(self.replay)
        if self.device.type == "cpu":
            self.learner.memory = Memory(self.replay.length * config.num_envs, *outputs)
        self.network = self.learner.online  # the plain network; a faster form of it shares its weights
        # Each side acts by weights of its own, which follow the learner's: so acting need not wait for the learner. On
        # a GPU it goes before the learner, whose work queues there.
        cuda = self.device.type == "cuda"
        self.acting = torch.cuda.Stream(priority=-2) if self.overlap and cuda else None  # type: ignore[no-untyped-call]
        self.sides = [
            Side(
                game,
                Actor(
                    copy.deepcopy(self.network) if self.overlap else self.network,
                    game.num_envs,
                    info,
                    self.device,
                    seed_for(seed, ACTOR, i),
                    self.acting,
                ),
                np.zeros(game.num_envs, dtype=np.int64),
            )
            for i, game in enumerate(games)
        ]
        self.sped_up, self.speed_up_seconds = False, 0.0
        self.ceaseless: Ceaseless | None = None  # from the start of learning
        self.evaluator: Evaluator | None = None

        self.steps = 0
        self.started_at: int | None = None  # steps at which learning started
        self.games = 0
        self.epochs = 0
        self.recent_scores: deque[float] = deque(maxlen=100)
        self.behind = np.zeros(2)  # updates that acting lacked, summed over actions; and how many actions
        self.best_score: float | None = None
        self.last_score: float | None = None  # of the last evaluation
        self.last_evaluation: dict[str, Any] | None = None  # what an agent keeps of it
        self.seconds_before = 0.0  # of earlier sittings
        self.sat_down = time.monotonic()
        self.last_log = (0, 0.0)  # frames, seconds
        self.steps_before = 0
        self.evaluated_at = -1  # steps
        self._saved_at = (-1, -1)  # steps, and steps of the last evaluation
        self._glanced = 0.0
        self._evaluating = False  # a signal stopped an evaluation
        self._remarked: set[str] = set()  # what was said of the games
        self._stop = False

    # ------------------------------------------------------------------------------------------------------ the loop

    @property
    def frames(self) -> int:
        return self.steps * self.info.frames_per_step

    @property
    def epsilon(self) -> float:
        since = 0 if self.started_at is None else self.steps - self.started_at
        return epsilon_at(since, self.config)

    @property
    def seconds(self) -> float:
        return self.seconds_before + time.monotonic() - self.sat_down

    def start(self) -> None:
        """The first observations."""
        first = [side.game.reset() for side in self.sides]
        self.replay.start(np.concatenate(first))
        for side, frames in zip(self.sides, first, strict=True):
            side.actor.observe(frames, np.ones(len(frames), dtype=bool))

    def train(self) -> Iterator[dict[str, Any]]:
        """Plays and learns until the budget is spent or a signal comes; yields each line of metrics.

        What a game or the memory stops is saved up to there: the other environments have done nothing wrong.
        """
        try:
            yield from self._train()
        except (GameError, OutOfMemoryError) as problem:
            self.save()
            trust = " --trust" if ":" in self.info.name else ""
            on = f"; all before it is saved: tightrope resume {self.folder.path}{trust} goes on from there"
            raise type(problem)(f"{problem}{on if self.config.save_replay else ''}") from None
        except torch.OutOfMemoryError:
            raise TightropeError(
                "the memory of the GPU is used up; lower replay_rows, batch_size or num_envs, or make room on it: "
                f"tightrope resume {self.folder.path} goes on from the last checkpoint"
            ) from None

    def _train(self) -> Iterator[dict[str, Any]]:
        config = self.config
        with self.threads():
            self.end_epoch()  # one that a signal stopped
            while self.frames < config.frames and not self._stop:
                self.step()
                if self.crossed(config.log_frames):
                    yield self.log()
                else:
                    self.let_glance()
                self.end_epoch()
                if self.crossed(config.checkpoint_frames):
                    self.save(wait=False)
            if not self._stop:
                if self.last_log[0] < self.frames:
                    yield self.log()
                self.end_epoch(last=True)
            self.save()

    def let_glance(self, **more: Any) -> None:
        """Once a second, how far it is."""
        if time.monotonic() > self._glanced + 1:
            self._glanced = time.monotonic()
            self.glance(self.progress() | more)

    def threads(self) -> AbstractContextManager[None]:
        """As many for PyTorch as the network can use."""
        return threads(None if self.info.network == "paper" else 1)

    def step(self) -> None:
        """One action in every environment, what came of it into the replay, and the updates that are due.

        With `overlap` the updates run while the games play, and each half's next actions are sent as soon as its frames
        are here. They are chosen by the weights of one step before: after the updates that the half's last step made
        due, and not waiting for those that the other half's did. With `asynchronous` the learner does not wait either:
        it goes on until a half has played.
        """
        # Resumed where the game of one side broke this step off, another may have played it already.
        played = [side.played[1] for side in self.sides if side.played is not None]
        self.steps_before = self.steps - sum(int(step.transition.sum()) for step in played)
        for side in self.sides:
            if side.sent is None:
                self.send(side)
        for side in [side for side in self.sides if side.played is None]:
            self.receive(side)
            if self.overlap:
                self.send(side)
                self.learn()
                self.follow(side)
        self.store()
        if not self.overlap:
            self.learn()

    def send(self, side: Side) -> None:
        """The next actions, to be played while we do something else."""
        random_steps = self.config.random_start_steps
        if self.overlap:
            self.behind += (self.learner.updates - side.updates, 1)
        side.sent = side.actor.act(self.epsilon, side.life_steps < random_steps if random_steps else None)
        side.game.send(side.sent)

    def follow(self, side: Side) -> None:
        """The side acts by the learner's weights as they are after the updates started so far."""
        if side.updates < self.learner.updates:
            side.actor.follow(self.learner.online)
            side.updates = self.learner.updates

    def receive(self, side: Side) -> None:
        """What came of the actions sent."""
        config = self.config
        assert side.sent is not None
        with self.meanwhile():
            step = side.game.receive()
        actions, side.sent = side.sent, None
        self.steps += int(step.transition.sum())
        epoch = self.frames // config.epoch_frames
        if config.cut_at_epoch and epoch > side.epoch:
            step.cut |= step.transition & ~step.terminal
            side.game.cut_off()
        side.epoch = epoch
        # What an episode's return is closed with: nothing after a terminal step; after a cut what cut_return says.
        tails = np.zeros(len(actions))
        if step.cut.any():
            if config.cut_return == "absent":
                tails[step.cut] = np.nan
            elif config.cut_return == "mean_q":
                tails[step.cut] = side.actor.mean_values()[step.cut]
                step.terminal, step.cut = step.terminal | step.cut, np.zeros_like(step.cut)
        side.played = (actions, step, tails)
        side.actor.observe(step.frames, step.begins)
        side.life_steps = np.where(step.begins, 0, side.life_steps + step.transition)
        self.recent_scores.extend(step.scores[step.game_over].tolist())
        self.games += int(step.game_over.sum())

    def store(self) -> None:
        """What all environments have played becomes one row of the replay."""
        played = [side.played for side in self.sides if side.played is not None]
        actions, tails = (np.concatenate([p[i] for p in played]) for i in (0, 2))

        def all_of(name: str) -> np.ndarray:
            return np.concatenate([getattr(step, name) for _, step, _ in played])

        rewards = all_of("rewards")
        if self.config.clip_rewards and self.info.rom is not None:
            rewards = np.clip(rewards, -1, 1)
        for side in self.sides:
            side.played = None
        with torch.cuda.stream(self.acting):
            frames = torch.cat([side.actor.newest for side in self.sides])
        if self.acting is not None:
            torch.cuda.current_stream().wait_stream(self.acting)
            frames.record_stream(torch.cuda.current_stream())
        if self.folder.checkpoints.make_way(self.replay):
            self.report("checkpoint given up: the disk is slower than the games; the one before it stands")
        self.replay.append(
            actions, rewards, all_of("transition"), all_of("terminal"), all_of("cut"), frames, all_of("begins"), tails
        )

    def learn(self) -> None:
        """The updates that the steps so far call for."""
        config = self.config
        if self.started_at is None:
            played = self.steps if config.sample_unfinished else self.replay.finished_rows
            # The newest step is stored only after all sides have played it.
            if played < max(1, config.learn_start_steps) or self.replay.head == 0:
                return
            self.started_at = self.steps
        if config.fast and not self.sped_up:
            self.speed_up()
        due = config.updates_due(self.steps - self.started_at)
        while self.learner.updates + self.learner.at_once <= due:
            self.update()
        if config.asynchronous and self.ceaseless is None:
            self.ceaseless = Ceaseless(self.update, self.device)

    def update(self) -> None:
        # Of a learner that does not wait the updates do not say how far the run is.
        steps = self.steps - (self.started_at or 0) if self.config.asynchronous else None
        self.learner.update(self.replay, steps)

    def meanwhile(self) -> AbstractContextManager[None]:
        """What the learner does while games play: nothing, unless it never waits."""
        return nullcontext() if self.ceaseless is None else self.ceaseless.going()

    def speed_up(self) -> None:
        """From here on the same updates, faster (fast.py).

        A user's own network is left as it is, for it may do what cannot be compiled; and so are small networks on a
        CPU, which are done before they were compiled.
        """
        from tightrope import fast

        self.sped_up = True
        self.folder.checkpoints.finish()  # nobody else may use the device while it is being captured
        began = time.monotonic()
        self.speed_up_learner(self.learner)
        if self.captures:
            for side in self.sides:
                network = self.learner.online
                if self.overlap:
                    network = fast.quick(side.actor.network, self.config.batch_size, self.replay, self.fast_dtype)
                fast.speed_up_actor(side.actor, network)
            self.speed_up_seconds = time.monotonic() - began
            self.report(f"update compiled and captured in {self.speed_up_seconds:.0f} s")

    def speed_up_learner(self, learner: Learner) -> None:
        from tightrope import fast

        if self.captures:
            fast.speed_up(learner, self.replay, self.fast_dtype)
        elif self.network.kind == "paper" and not fast.compile_optimiser(learner):
            self.report("no working C++ compiler (g++): the optimiser stays as it is, and training is some 10 % slower")

    @property
    def fast_dtype(self) -> torch.dtype:
        return torch.float32 if self.config.precision == "float32" else torch.bfloat16

    def quicken(self, actor: Actor) -> None:
        """The evaluation's actor, whose network is the learner's in its faster form by then."""
        if self.captures:
            from tightrope import fast

            self.folder.checkpoints.finish()  # nobody else may use the device while it is being captured
            fast.speed_up_actor(actor, actor.network)

    @property
    def captures(self) -> bool:
        """Whether updates and acting are captured by now."""
        return self.sped_up and self.device.type == "cuda" and self.network.kind != "custom"

    def crossed(self, frames: int) -> bool:
        """Whether the newest step passed a multiple of so many frames."""
        per_step = self.info.frames_per_step
        return self.steps * per_step // frames > self.steps_before * per_step // frames

    # ------------------------------------------------------------------------------------------------------- records

    def progress(self) -> dict[str, Any]:
        """How far the run is and how it plays, at any moment."""
        frames_then, seconds_then = self.last_log
        seconds = self.seconds
        score = float(np.mean(self.recent_scores)) if self.recent_scores else None
        return {
            "frames": self.frames,
            "score": score,
            "normalised_pct": normalised(self.info.rom, score) if score is not None else None,
            "games": self.games,
            "epsilon": self.epsilon,
            "updates": self.learner.updates,
            "seconds": round(seconds, 3),
            "frames_per_second": round((self.frames - frames_then) / max(1e-9, seconds - seconds_then), 1),
        }

    def log(self) -> dict[str, Any]:
        """One line of metrics: the progress, and the learner's means since the last one."""
        learned = self.learner.read_telemetry()
        if not all(math.isfinite(value) for value in learned.values()):
            raise self.broken("loss")
        values = self.progress() | {"start_value": self.start_value()} | learned
        behind, actions = self.behind
        values["updates_behind"] = behind / actions if actions else 0.0
        self.behind[:] = 0
        self.last_log = (self.frames, self.seconds)
        self.folder.log(values)
        self.remark()
        self.resources.check()
        return values

    def broken(self, where: str) -> TightropeError:
        """What is said of numbers that are none any more, once the batch that began it is saved."""
        facts: dict[str, Any] = {"game": self.info.name, "seed": self.description.seed, "frames": self.frames}
        self.folder.checkpoints.finish()  # begun when all was well
        batch = keep_bad_batch(self.folder.path, self.learner, self.replay, facts)
        return not_a_number(where, batch, next(iter(self.folder.checkpoints.saved()[::-1]), None), facts)

    def remark(self) -> None:
        """Says once what is odd about a game, though it may be meant so."""
        side = max(self.sides, key=lambda side: int(side.life_steps.max()))
        env = int(side.life_steps.argmax())
        odd = {
            "every game ends at its first step": self.games >= 100 and self.games == self.steps,
            f"no end of a game in {ENDLESS:,} steps, and max_game_frames sets none": side.life_steps[env] >= ENDLESS,
            "no game has ended in the first fifth of the run, and max_game_frames sets no end": (
                not self.games and not self.config.max_game_frames and 5 * self.frames >= self.config.frames
            ),
        }
        for text in {text for text, holds in odd.items() if holds} - self._remarked:
            self._remarked.add(text)
            self.report(f"{self.info.name}: {text} ({side.game.place(env)})")

    def start_value(self) -> float | None:
        """Mean value of the episodes' first states since the last line of metrics; None if none began."""
        total, count = np.sum([side.actor.take_start_values() for side in self.sides], axis=0)
        return float(total / count) if count else None

    def end_epoch(self, last: bool = False) -> None:
        """Evaluates if an epoch has ended since the last time, and at the run's end. A signal stops it; a resumed run
        does it again."""
        epochs = self.frames // self.config.epoch_frames
        every = self.config.eval_every_epochs
        due = every and (epochs // every > self.epochs // every or (last and self.evaluated_at < self.steps))
        if not due:
            self.epochs = epochs
            return
        if not self.learner.sound():
            raise self.broken("weights")
        began = time.monotonic()
        if self.evaluator is None:
            how = training_protocol(self.config, self.info.name)
            self.evaluator = Evaluator(self.info.name, how, self.device, self.env, self.quicken)
        seed = seed_for(self.description.seed, EVALUATION, epochs)
        result = self.evaluator.play(
            self.learner.online, seed, lambda: self._stop, lambda games: self.let_glance(evaluating=games)
        )
        self._evaluating = result is None
        if result is None:
            return
        self.epochs, self.evaluated_at = epochs, self.steps
        self.last_score, self.last_evaluation = result.mean, result.facts(self.frames)
        self.folder.log_evaluation(
            {
                "frames": self.frames,
                "epoch": self.epochs,
                "score": result.mean,
                "std": result.std,
                "best_game": max(result.scores),
                "games": len(result.scores),
                "normalised_pct": "" if result.normalised_pct is None else result.normalised_pct,
                "protocol": result.protocol,
                "mean_game_frames": float(np.mean(result.game_frames)),
                "seconds": round(time.monotonic() - began, 3),
            }
        )
        if self.best_score is None or result.mean > self.best_score:
            self.best_score = result.mean
            self.agent().save(self.folder.best)

    def agent(self) -> Agent:
        """The agent as it stands."""
        facts = AgentFacts(
            game=self.info.name,
            preset=self.description.preset,
            seed=self.description.seed,
            frames=self.frames,
            score=self.last_score,
            network=self.description.network,
            config=self.config.to_dict(),
            evaluation=self.last_evaluation,
        )
        return Agent(self.network, self.info, facts, self.device, self.env)

    # -------------------------------------------------------------------------------------------- saving and resuming

    def save(self, wait: bool = True) -> None:
        """A checkpoint from which `resume` continues as if nothing had happened, and the agent by itself.

        Without `wait` it is written while the training goes on.
        """
        if self._saved_at == (self.steps, self.evaluated_at):
            self.folder.checkpoints.finish()
            return
        self.settle()
        if not self.learner.sound():
            raise self.broken("weights")
        self.agent().save(self.folder.last)
        tensors, facts = snapshot.taken(self)
        replay = self.replay if self.config.save_replay else None
        if self.folder.checkpoints.save(self.frames, tensors, facts, replay, wait):
            self._saved_at = (self.steps, self.evaluated_at)
        else:
            self.report("checkpoint left out: the one before it is still being written")

    def resume(self) -> None:
        """Continues from the newest checkpoint, or from the beginning where there is none."""
        saved = self.folder.checkpoints.saved()
        if saved:
            snapshot.take_up(self, saved)
        else:
            self.folder.clear_records()
            self.start()

    def settle(self) -> None:
        """Until the device has done all that it was told, by acting and by learning."""
        if self.acting is not None:
            torch.cuda.synchronize()

    def close(self) -> None:
        try:
            self.folder.checkpoints.finish()
        finally:
            self._close()

    def _close(self) -> None:
        if self.ceaseless is not None:
            self.ceaseless.close()
        for side in self.sides:
            side.game.close()
        if self.evaluator is not None:
            self.evaluator.close()

    @contextmanager
    def stopping_on_signals(self) -> Iterator[None]:
        """Ctrl-C, SIGTERM and a terminal that is closed end the loop after the step in hand. A second signal ends it at
        once, but for a checkpoint that is being written."""

        def stop(number: int, frame: Any) -> None:
            if self._stop:
                raise KeyboardInterrupt
            self._stop = True

        try:
            heeded = [signal.SIGINT, signal.SIGTERM]
            if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as nohup sets it
                heeded.append(signal.SIGHUP)
            before = {number: signal.signal(number, stop) for number in heeded}
        except ValueError:  # not in the main thread: whoever runs that handles signals
            yield
            return
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    @property
    def over(self) -> bool:
        """Whether there is nothing left to play or to evaluate."""
        evaluated = not self.config.eval_every_epochs or self.evaluated_at == self.steps
        return self.frames >= self.config.frames and evaluated

    @property
    def stopped_early(self) -> bool:
        return self._stop and (self.frames < self.config.frames or self._evaluating)
