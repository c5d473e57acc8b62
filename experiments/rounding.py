"""How learning magnifies rounding: `python experiments/rounding.py` (a minute on a CPU).

Two plain learners with the same samples, made-up experience, and weights that differ by a small share of themselves:
how far apart they are after so many updates, as a share of the way that one of them has come. What tests of the
fast path against the plain one can ask for (tests/test_fast.py) follows from it.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from test_fast import made, moved

SHARES = (1e-7, 1e-6, 1e-5, 1e-3)
UPDATES = (4, 12, 20, 40, 60)


def main() -> None:
    print("| difference of the weights |", " | ".join(f"{n} updates" for n in UPDATES), "|")
    print("| --- |" + " --- |" * len(UPDATES))
    for share in SHARES:
        (one, replay), (other, _) = made("cpu", update_group=4), made("cpu", update_group=4)
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for weight in other.online.parameters():
                weight.mul_(1 + share * torch.randn(weight.shape, generator=draw))
        other.target.follow(other.online)
        apart = []
        for done in range(4, UPDATES[-1] + 1, 4):
            chances = one.draw(replay)
            for learner in (one, other):
                learner.learn_all(replay, learner.prepare(replay, chances))
            if done in UPDATES:
                way = moved(one)
                apart.append(f"{float((moved(other) - way).norm() / way.norm()):.2g}")
        print(f"| {share:g} |", " | ".join(apart), "|", flush=True)


if __name__ == "__main__":
    main()
