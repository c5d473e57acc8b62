"""The ring of experience: one frame a row, time-major, and the windows of neighbours sampled from it.

Row t of an environment holds the frame that completes s_t, the action a_t, the learning reward r_t, flags, and R_t once
the episode has ended. The newest row is *pending*: its frame is here, its action is not taken yet. So the successor of
every stored transition is always in the ring, and the neighbours of a sample are plain offsets.

Sampling is a pure function of tensors with fixed shapes and no look at the host, so that it can be captured.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from tightrope.bounds import discounted_returns
from tightrope.device import free_memory
from tightrope.errors import TightropeError, sized
from tightrope.priorities import Priorities

# What a row is. TERMINAL and CUT: the episode ended, or was cut off, after this row's action. BEGIN: it began at this
# row's state. TRANSITION: an action was taken here; the row after a game's end holds its final frame and none.
# FINISHED: the episode this row belongs to is over.
BEGIN, TERMINAL, CUT, TRANSITION, FINISHED = 1, 2, 4, 8, 16


class Window(NamedTuple):
    """A batch of samples and the neighbours their bounds need. Letters as in bounds.py."""

    rows_BS: Tensor  # where the frames of the samples' states lie (`by_row`), oldest first; -1: blank
    actions_B: Tensor
    ended_B: Tensor  # the sample is its episode's last step
    returns_B: Tensor  # R_j, not-a-number where unknown
    rewards_BH: Tensor
    terminal_BH: Tensor
    ahead_rows_BAS: Tensor
    ahead_offsets_BA: Tensor
    ahead_exists_BA: Tensor
    ahead_acted_BA: Tensor  # an action of the same episode was taken there
    ahead_actions_BA: Tensor
    ahead_drawn_BA: Tensor  # where bounds are drawn, it is among them; else always
    target_B: Tensor  # which of those ahead is the target's: the one n steps ahead, or as far as the episode goes
    rewards_BM: Tensor
    behind_rows_BCS: Tensor
    behind_actions_BC: Tensor
    behind_offsets_BC: Tensor
    behind_exists_BC: Tensor
    times_B: Tensor  # which rows these are, for tests and priorities
    envs_B: Tensor


@dataclass(frozen=True)
class Reach:
    """Which neighbours a sample asks for."""

    rows: int = 1  # how far ahead and behind bounds look: K + 1
    behind_from: int = 1  # nearest predecessor
    upper: bool = False
    lower_draws: int = 0  # 0: every offset
    every: bool = False  # though bounds are drawn, all states ahead are asked for
    upper_draws: int = 0
    acted_only: bool = False  # lower bounds only from states that were acted from, not from an episode's end
    skip_start_rows: int = 0
    unfinished: bool = True
    n_step: int = 1  # how far ahead the target looks
    bounds: bool = True  # if not, nothing but the target's state is asked for
    slide: bool = False  # neighbouring offsets, placed by the last of the chances, instead of any that are drawn


class Chances(NamedTuple):
    """Uniform random numbers in [0, 1): for the centres, and for the offsets of bounds that are drawn."""

    centres: Tensor
    lower: Tensor
    upper: Tensor
    slide: Tensor | None = None  # no chance: 1 for the farthest offsets, 0 for the nearest
    levels: Tensor | None = None  # for implicit quantiles


class FrameKeys:
    """A number for each frame of the ring: the sum of its bytes, each times a random odd number, modulo 2^64."""

    def __init__(self, frames: Tensor, stack: int) -> None:
        self.frames = frames  # [time, environment, ...]
        self.keys = torch.zeros(frames.shape[:2], dtype=torch.int64, device=frames.device)
        # Always the same numbers, of every version: what is saved by key must be found again.
        random = np.random.PCG64(0).random_raw(self._bytes(frames[:1]).shape[-1] + stack)
        odd = torch.from_numpy((random | 1).view(np.int64)).to(frames.device)
        self.by_byte, self.by_age = odd[:-stack], odd[-stack:]

    def put(self, first: int, end: int) -> None:
        """The keys of the frames in these rows of the ring."""
        self.keys[first:end] = (self._bytes(self.frames[first:end]) * self.by_byte).sum(-1)

    def of_states(self, rows_XS: Tensor) -> Tensor:
        """Of states, by the rows of their frames: -1 is blank."""
        keys = self.keys.view(-1)[rows_XS.clamp(min=0)]
        return (torch.where(rows_XS >= 0, keys, 0) * self.by_age).sum(-1)

    @staticmethod
    def _bytes(frames_TEX: Tensor) -> Tensor:
        # One more than each byte: a frame of nothing but 0 is not a blank one.
        return frames_TEX.reshape(*frames_TEX.shape[:2], -1).view(torch.uint8).long() + 1


def needed_bytes(rows: int, frame_shape: tuple[int, ...], frame_dtype: np.dtype, notes: int = 0) -> int:
    """Memory of a replay with so many notes, all told."""
    small = 1 + 4 + 4 + 1 + 4 * notes  # action, reward, return, flags
    return rows * (int(np.prod(frame_shape)) * np.dtype(frame_dtype).itemsize + small)


def check_memory(needed: int, device: torch.device) -> str:
    """Says what a replay needs, or refuses with that number where the device has less."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else free_memory()
    if needed > 0.95 * free:
        raise TightropeError(f"replay needs {sized(needed)} on {device} and {sized(free)} are free; lower replay_rows")
    return f"replay {sized(needed)} on {device} ({sized(free)} free)"


class Replay:
    def __init__(
        self,
        rows: int,
        num_envs: int,
        frame_shape: tuple[int, ...],
        frame_dtype: np.dtype,
        stack: int,
        num_actions: int,
        gamma: float,
        device: torch.device,
    ) -> None:
        if num_actions > 256:
            raise TightropeError(f"{num_actions} actions: at most 256 are supported")
        self.length = rows // num_envs
        self.num_envs = num_envs
        self.stack = stack
        self.num_actions = num_actions
        self.gamma = gamma
        self.device = device
        size = (self.length, num_envs)
        dtype = torch.from_numpy(np.zeros(0, frame_dtype)).dtype
        self.frames = torch.zeros(*size, *frame_shape, dtype=dtype, device=device)
        self.actions = torch.zeros(size, dtype=torch.uint8, device=device)
        self.rewards = torch.zeros(size, dtype=torch.float32, device=device)
        # The same where the host can read them: an episode's returns are worked out there when it ends.
        self._host_rewards = self.rewards if device.type == "cpu" else torch.zeros(size)
        self.returns = torch.full(size, torch.nan, dtype=torch.float32, device=device)
        self.flags = torch.zeros(size, dtype=torch.uint8, device=device)
        self.notes: dict[str, Tensor] = {}
        self._fresh: dict[str, Tensor] = {}
        self._keys: FrameKeys | None = None
        self.head = -1  # time of the pending row
        self.clock = torch.full((), -1, dtype=torch.int64, device=device)  # the same, where kernels can read it
        self.finished_rows = 0
        self.began = np.zeros(num_envs, dtype=np.int64)  # time of the row at which each running episode began

    # ---------------------------------------------------------------------------------------------------- writing

    @property
    def by_row(self) -> Tensor:
        """All frames in one column."""
        return self.frames.flatten(0, 1)

    def note(self, name: str, fresh: Tensor) -> Tensor:
        """A number for each row (`by_row`) that somebody else keeps. A new transition's is what `fresh` is then, and
        any other row's is 0."""
        self.notes[name] = torch.zeros(self.length, self.num_envs, device=self.device)
        self._fresh[name] = fresh
        acted = (self.flags & TRANSITION) > 0
        self.notes[name].copy_(torch.where(acted, fresh, 0.0))
        return self.notes[name].view(-1)

    def keep_keys(self) -> None:
        """From now on frames have keys, by which `state_keys` tells states."""
        self._keys = FrameKeys(self.frames, self.stack)
        self._key_all()

    def _key_all(self) -> None:
        if self._keys is not None:
            written = min(self.head + 1, self.length)
            at_once = max(1, 1024 // self.num_envs)
            for slot in range(0, written, at_once):
                self._keys.put(slot, min(slot + at_once, written))

    def state_keys(self, rows_XS: Tensor) -> Tensor:
        """A number for each state: the same for the same frames, and another for others, as good as certainly."""
        assert self._keys is not None, "keep_keys comes first"
        return self._keys.of_states(rows_XS)

    def _put(self, array: np.ndarray) -> Tensor:
        # Not blocking: otherwise the host would wait until the device has done all that it was told before.
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def start(self, frames: np.ndarray) -> None:
        """The first frames of all environments: the first pending row."""
        self.head = 0
        self.clock.fill_(0)
        self.frames[0] = self._put(np.ascontiguousarray(frames))
        self._key_all()
        self.flags[0] = BEGIN
        self.began[:] = 0

    def append(
        self,
        actions: np.ndarray,
        rewards: np.ndarray,
        transition: np.ndarray,
        terminal: np.ndarray,
        cut: np.ndarray,
        next_frames: np.ndarray | Tensor,
        next_begins: np.ndarray,
        tails: np.ndarray,
    ) -> None:
        """Completes the pending row and opens the next one with the frames that followed.

        Where an episode ends here its returns are filled in; `tails` value what follows the row: 0 after a terminal
        step, not-a-number where the return is to stay unknown.
        """
        slot, next_slot = self.head % self.length, (self.head + 1) % self.length
        bits = TRANSITION * transition + TERMINAL * (transition & terminal) + CUT * (transition & cut)
        self.actions[slot] = self._put(actions.astype(np.uint8))
        self._host_rewards[slot] = torch.from_numpy(rewards)
        self.rewards[slot] = self._put(rewards.astype(np.float32))
        self.returns[slot] = torch.nan
        self.flags[slot] += self._put(bits.astype(np.uint8))
        for name, column in self.notes.items():
            column[slot] = torch.where((self.flags[slot] & TRANSITION) > 0, self._fresh[name], 0.0)
            column[next_slot] = 0.0
        self.frames[next_slot] = torch.as_tensor(next_frames)
        if self._keys is not None:
            self._keys.put(next_slot, next_slot + 1)
        self.flags[next_slot] = self._put(next_begins.astype(np.uint8) * np.uint8(BEGIN))
        self.head += 1
        self.clock += 1
        (ended,) = np.nonzero(transition & (terminal | cut))
        if len(ended):
            self._finish(ended, tails[ended])
        self.began[next_begins] = self.head

    def _finish(self, envs: np.ndarray, tails: np.ndarray) -> None:
        """Fills in R for the episodes that ended with the newest complete row."""
        lengths = np.minimum(self.head - self.began[envs], self.length - 1)
        self.finished_rows += int(lengths.sum())
        longest = int(lengths.max())
        slots = torch.from_numpy(np.arange(self.head - longest, self.head) % self.length)[:, None]
        columns = torch.from_numpy(envs)[None, :]
        returns = discounted_returns(self._host_rewards[slots, columns], torch.from_numpy(tails), self.gamma)
        # Rows before an episode's own first belong to the one before it.
        own = torch.from_numpy(np.arange(longest)[:, None] >= longest - lengths[None, :])
        rows = self._put((slots * self.num_envs + columns)[own].numpy())
        self.returns.view(-1)[rows] = self._put(returns[own].to(torch.float32).numpy())
        flags = self.flags.view(-1)
        flags[rows] = flags[rows] | FINISHED

    def reread(self) -> None:
        """After the rows have been written from outside."""
        self.clock.fill_(self.head)
        self._host_rewards.copy_(self.rewards)
        self._key_all()

    # --------------------------------------------------------------------------------------------------- sampling

    @property
    def oldest(self) -> Tensor:
        """Time of the oldest row that the ring still holds."""
        return (self.clock - self.length + 1).clamp(min=0)

    def time_of(self, rows: Tensor) -> Tensor:
        """When the frames in these rows (`by_row`) came."""
        return self.clock - (self.clock - rows // self.num_envs) % self.length

    def _visible(self, begin_BW: Tensor, columns: int) -> Tensor:
        """Which of a state's `stack` frames belong to its own life, [B, columns, stack], newest first.

        The last `columns` columns of `begin` are the states; the stack - 1 columns before them complete their stacks.
        """
        visible = [torch.ones_like(begin_BW[:, -columns:])]
        for back in range(1, self.stack):
            stop = begin_BW.shape[1] - back + 1
            visible.append(visible[-1] & ~begin_BW[:, stop - columns : stop])
        return torch.stack(visible, dim=-1)

    def _complete(self, visible_BWS: Tensor, times_BW: Tensor) -> Tensor:
        """States none of whose own frames has been overwritten."""
        ages_S = torch.arange(self.stack, device=self.device)
        return (~visible_BWS | (times_BW[..., None] - ages_S >= self.oldest)).all(-1)

    def valid_centres(self, times_B: Tensor, envs_B: Tensor, reach: Reach) -> Tensor:
        """Which rows may be a sample's centre."""
        back_S = torch.arange(-self.stack + 1, 1, device=self.device)
        rows_BS = times_B[:, None] + back_S
        flags_BS = self.flags[rows_BS % self.length, envs_B[:, None]]
        visible_B1S = self._visible((flags_BS & BEGIN) > 0, 1)
        own_B = flags_BS[:, -1]
        valid_B = (own_B & TRANSITION) > 0
        valid_B &= self._complete(visible_B1S, times_B[:, None])[:, 0]
        if reach.skip_start_rows:
            valid_B &= visible_B1S[:, 0, reach.skip_start_rows]
        if not reach.unfinished:
            valid_B &= (own_B & FINISHED) > 0
        return valid_B

    def draw(self, batch_size: int, reach: Reach, generator: torch.Generator) -> Chances:
        """The random numbers of a batch; everything after them is a pure function."""

        def rand(*size: int) -> Tensor:
            return torch.rand(*size, dtype=torch.float64, generator=generator, device=self.device)

        candidates = batch_size * (4 if reach.unfinished else 16)
        return Chances(rand(2, candidates), rand(batch_size, reach.lower_draws), rand(batch_size, reach.upper_draws))

    def centres(
        self, chance_2C: Tensor, batch_size: int, reach: Reach, priorities: Priorities | None = None
    ) -> tuple[Tensor, Tensor]:
        """Uniform over the valid rows, or by priority: more are drawn than needed and the first valid ones kept.

        Should too few of the candidates be valid, the valid ones are used again.
        """
        if priorities is None:
            complete_rows = self.clock - self.oldest
            times_C = self.oldest + (chance_2C[0] * complete_rows).long()
            envs_C = (chance_2C[1] * self.num_envs).long()
        else:
            finished = None if reach.unfinished else (self.flags.view(-1) & FINISHED) > 0
            rows_C = priorities.draw(chance_2C[0], finished)
            times_C, envs_C = self.time_of(rows_C), rows_C % self.num_envs
        valid_C = self.valid_centres(times_C, envs_C, reach)
        # Each valid candidate goes to the place of its rank, all others to one place after the last.
        ranks_C = torch.where(valid_C, torch.cumsum(valid_C, 0) - 1, len(valid_C))
        candidates_C = torch.arange(len(valid_C), device=self.device)
        ranked = torch.zeros(len(valid_C) + 1, dtype=torch.int64, device=self.device)
        ranked = ranked.scatter(0, ranks_C, candidates_C)
        chosen_B = ranked[torch.arange(batch_size, device=self.device) % valid_C.sum().clamp(min=1)]
        return times_C[chosen_B], envs_C[chosen_B]

    def window(self, times_B: Tensor, envs_B: Tensor, reach: Reach, chances: Chances | None = None) -> Window:
        """The samples at these rows with the neighbours that exist: same episode, written, not overwritten.

        `chances` are needed only where bounds are drawn.
        """
        if chances is None and (reach.lower_draws or reach.upper_draws):
            raise ValueError("drawn bounds need chances")
        stack = self.stack
        ahead, behind = max(reach.rows, reach.n_step), reach.rows if reach.upper else 0
        # Columns: offsets -(behind + stack - 1) .. ahead. The first stack - 1 only complete stacks.
        first = -(behind + stack - 1)
        offsets_W = torch.arange(first, ahead + 1, device=self.device)
        times_BW = times_B[:, None] + offsets_W
        slots_BW = times_BW % self.length
        flags_BW = self.flags[slots_BW, envs_B[:, None]]
        rewards_BW = self.rewards[slots_BW, envs_B[:, None]]
        actions_BW = self.actions[slots_BW, envs_B[:, None]]
        begin_BW = (flags_BW & BEGIN) > 0
        centre = behind + stack - 1

        # Ahead: column i says whether row j+i is a transition of j's own episode, i = 0..ahead.
        ends_BH = (flags_BW[:, centre:] & (TERMINAL | CUT)) > 0
        terminal_BH = (flags_BW[:, centre:] & TERMINAL) > 0
        written_BH = times_BW[:, centre:] < self.clock
        follows_BH = written_BH.clone()
        follows_BH[:, 1:] &= ~ends_BH[:, :-1]
        follows_BH = torch.cumprod(follows_BH.to(torch.uint8), dim=1) > 0

        # Behind: column i says whether row j-1-i is of j's own episode; `complete` below, whether it is still there.
        before_BM = ~begin_BW[:, centre - behind + 1 : centre + 1].flip(1)
        before_BM = torch.cumprod(before_BM.to(torch.uint8), dim=1) > 0

        visible_BWS = self._visible(begin_BW, behind + 1 + ahead)
        complete_BW = self._complete(visible_BWS, times_BW[:, stack - 1 :])
        usable_BM = before_BM & complete_BW[:, :behind].flip(1)
        if reach.skip_start_rows:
            usable_BM &= visible_BWS[:, :behind, reach.skip_start_rows].flip(1)

        # L at offset n needs the transitions j .. j+n-1.
        reaches_BH = follows_BH[:, 1:] if reach.acted_only else follows_BH[:, :-1]
        # The target looks n steps ahead, or as far as the episode goes; one step it always can.
        farthest_B1 = reaches_BH[:, : reach.n_step].sum(1, keepdim=True).clamp(min=1)
        drawn_BD = None
        if reach.lower_draws and chances is not None:
            available_B = reaches_BH[:, 1 : reach.rows].sum(1)
            drawn_BD = _drawn(2, available_B, chances.lower, chances.slide if reach.slide else None)
        if drawn_BD is not None and not reach.every:
            ahead_offsets = torch.cat([farthest_B1, drawn_BD], dim=1)
            target_B = torch.zeros_like(times_B)
        elif reach.bounds:
            ahead_offsets = torch.arange(1, ahead + 1, device=self.device).expand(len(times_B), -1)
            target_B = farthest_B1[:, 0] - 1
        else:
            ahead_offsets = farthest_B1
            target_B = torch.zeros_like(times_B)
        # Offset 1 is the ordinary target, which every sample has.
        ahead_exists = reaches_BH.gather(1, ahead_offsets - 1) | (ahead_offsets == 1)
        ahead_drawn = torch.ones_like(ahead_exists)
        if drawn_BD is not None:
            ahead_drawn = (ahead_offsets[..., None] == drawn_BD[:, None]).any(-1)
        if reach.upper_draws and behind and chances is not None:
            available_B = usable_BM[:, reach.behind_from - 1 :].sum(1)
            behind_offsets = _drawn(
                reach.behind_from, available_B, chances.upper, chances.slide if reach.slide else None
            )
        else:
            last = max(behind + 1, reach.behind_from)  # no offsets where nothing lies behind
            behind_offsets = torch.arange(reach.behind_from, last, device=self.device).expand(len(times_B), -1)
        behind_exists = usable_BM.gather(1, behind_offsets - 1)

        def rows_at(offsets: Tensor) -> Tensor:
            columns = offsets + behind  # into visible, whose column `behind` is the sample itself
            visible = visible_BWS.gather(1, columns[..., None].expand(-1, -1, stack)).flip(-1)
            ages = torch.arange(stack - 1, -1, -1, device=self.device)
            slots = (times_B[:, None, None] + offsets[..., None] - ages) % self.length
            return torch.where(visible, slots * self.num_envs + envs_B[:, None, None], -1)

        here = torch.zeros_like(times_B)[:, None]
        return Window(
            rows_BS=rows_at(here)[:, 0],
            actions_B=actions_BW[:, centre].long(),
            ended_B=ends_BH[:, 0],
            returns_B=self.returns[times_B % self.length, envs_B],
            rewards_BH=rewards_BW[:, centre:-1],
            terminal_BH=terminal_BH[:, :-1],
            ahead_rows_BAS=rows_at(ahead_offsets),
            ahead_offsets_BA=ahead_offsets,
            ahead_exists_BA=ahead_exists,
            ahead_acted_BA=follows_BH.gather(1, ahead_offsets),
            ahead_actions_BA=actions_BW.gather(1, centre + ahead_offsets).long(),
            ahead_drawn_BA=ahead_drawn,
            target_B=target_B,
            rewards_BM=rewards_BW[:, centre - behind : centre].flip(1),
            behind_rows_BCS=rows_at(-behind_offsets),
            behind_actions_BC=actions_BW.gather(1, centre - behind_offsets).long(),
            behind_offsets_BC=behind_offsets,
            behind_exists_BC=behind_exists,
            times_B=times_B,
            envs_B=envs_B,
        )

    def sample(self, batch_size: int, reach: Reach, chances: Chances, priorities: Priorities | None = None) -> Window:
        """A batch drawn from the valid rows, uniformly or by priority."""
        times_B, envs_B = self.centres(chances.centres, batch_size, reach, priorities)
        return self.window(times_B, envs_B, reach, chances)


def _drawn(first: int, available_B: Tensor, chance_BD: Tensor, slide: Tensor | None = None) -> Tensor:
    """Offsets from first, first + 1, ... of which so many exist: drawn with replacement, or, where they slide, as many
    neighbouring ones, the last of which exist where slide is 1 and the first where it is 0."""
    if slide is None:
        return first + (chance_BD * available_B[:, None]).long()
    draws = chance_BD.shape[1]
    shift_B = (slide * (available_B - draws).clamp(min=0)).round().long()
    return first + shift_B[:, None] + torch.arange(draws, device=available_B.device)
