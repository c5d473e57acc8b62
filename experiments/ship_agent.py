"""A run's agent for the package: `python experiments/ship_agent.py AGENT.safetensors`, into src/tightrope/agents/.

Its weights are rounded to bfloat16, which halves the file; what it then scores by the paper's protocol goes with it and
onto its model card.
"""

from __future__ import annotations

import argparse
from dataclasses import asdict, replace
from pathlib import Path

import torch

from tightrope import checkpoint
from tightrope.agent import Agent
from tightrope.card import card, use_file

FOLDER = Path(__file__).parent.parent / "src" / "tightrope" / "agents"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("agent", type=Path)
    args = parser.parse_args()
    agent = Agent.load(args.agent, torch.device("cpu"))
    rounded = {name: tensor.to(torch.bfloat16) for name, tensor in agent.network.state_dict().items()}
    agent.network.load_state_dict(rounded)
    result = agent.evaluate()
    assert agent.info.rom is not None
    path = FOLDER / f"{agent.info.rom}.safetensors"
    facts = replace(agent.facts, score=result.mean, evaluation=result.facts(agent.facts.frames))
    checkpoint.write(path, rounded, {"agent": asdict(facts)})
    checkpoint.write_bytes(path.with_suffix(".md"), card(facts, use_file(facts, agent.info.rom)).encode())
    print(
        f"{path}: {result.mean:.2f} ± {result.std:.2f} over {len(result.scores)} games, before {agent.facts.score:.2f}"
    )


if __name__ == "__main__":
    main()
