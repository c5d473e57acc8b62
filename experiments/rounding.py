"""How learning magnifies rounding: `python experiments/rounding.py` (three minutes on a CPU).

Two plain learners with the same samples, made-up experience, and weights that differ by a small share of themselves:
how far apart they are after so many updates, as a share of the way that one of them has come; and how far one with
other samples is. What tests of the fast path against the plain one can ask for (tests/test_fast.py) follows from it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from test_fast import CALM, made
from tightrope.learner import Learner

SHARES = (1e-7, 1e-5, 1e-3, None)  # None: the same weights, other samples
RATES = (0.00025, CALM)
UPDATES = (4, 12, 20, 40, 60)


def apart(share: float | None, learning_rate: float) -> list[str]:
    fields = {"update_group": 4, "learning_rate": learning_rate}
    (one, replay), (other, _) = made("cpu", **fields), made("cpu", seed=1 if share else 2, **fields)
    draw = torch.Generator().manual_seed(0)
    if share:
        with torch.no_grad():
            for weight in other.online.parameters():
                weight.mul_(1 + share * torch.randn(weight.shape, generator=draw))
        other.follow()
    began = {learner: flat(learner) for learner in (one, other)}
    found = []
    for done in range(4, UPDATES[-1] + 1, 4):
        for learner in (one, other):
            learner.update(replay)
        if done in UPDATES:
            way, its = (flat(learner) - began[learner] for learner in (one, other))
            found.append(f"{float((its - way).norm() / way.norm()):.2g}")
    return found


def flat(learner: Learner) -> torch.Tensor:
    return torch.cat([weight.detach().flatten() for weight in learner.parameters])


def main() -> None:
    print("| learning rate | difference of the weights |", " | ".join(f"{n} updates" for n in UPDATES), "|")
    print("| --- | --- |" + " --- |" * len(UPDATES))
    for learning_rate in RATES:
        for share in SHARES:
            said = f"{share:g}" if share else "none; other samples"
            print(f"| {learning_rate:g} | {said} |", " | ".join(apart(share, learning_rate)), "|", flush=True)


if __name__ == "__main__":
    main()
