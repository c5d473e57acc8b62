"""From a run's one seed to a seed for everything in it that is random."""

from __future__ import annotations

import numpy as np

#: Streams of random numbers, each with seeds of its own.
GAME, NETWORK, ACTOR, LEARNER, EVALUATION = range(5)


def seed_for(seed: int, stream: int, count: int = 0) -> int:
    """The seed of the stream's member of that number.

    >>> len({seed_for(0, stream, count) for stream in (GAME, ACTOR) for count in (0, 1)})
    4
    """
    return int(np.random.SeedSequence((seed, stream, count)).generate_state(1)[0])
