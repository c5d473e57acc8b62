"""The model card: what an agent is and how well it plays, in one Markdown file beside its weights.

The front matter is the one that the Hugging Face Hub reads (https://huggingface.co/docs/hub/model-cards).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tightrope import __version__
from tightrope.config import Config, preset, preset_names
from tightrope.errors import TightropeError, counted
from tightrope.evaluation import Protocol, protocol, training_protocol
from tightrope.files import read_text
from tightrope.usage import amount

if TYPE_CHECKING:
    from tightrope.agent import AgentFacts


def how(played: Protocol) -> str:
    """A protocol in words."""
    options = played.options
    parts = [f"epsilon {played.epsilon:g}"]
    if options.noop_max:
        parts.append(f"up to {options.noop_max} no-ops at the start")
    if options.sticky:
        parts.append(f"actions repeated with probability {options.sticky:g}")
    parts.append(f"at most {options.max_game_frames:,} frames a game" if options.max_game_frames else "whole games")
    return ", ".join(parts)


def _changed(facts: AgentFacts) -> str:
    """The preset, and what was changed of it."""
    if facts.preset not in preset_names():  # of another version
        return f"`{facts.preset}`"
    base = preset(facts.preset).to_dict()
    # In the preset's order; that other games than Atari's have no sticky actions is no change.
    own = {name: facts.config[name] for name in base if name in facts.config}
    other = {name: value for name, value in own.items() if value != base[name] and (name, value) != ("sticky", 0.0)}
    changes = ", ".join(f"{name} = {amount(value)}" for name, value in other.items())
    return f"`{facts.preset}`" + (f" with {changes}" if changes else "")


def _score(facts: AgentFacts) -> list[tuple[str, str]]:
    found = facts.evaluation
    if found is None:
        known = "not evaluated" if facts.score is None else f"{facts.score:.4g}; protocol and interval were not kept"
        return [("score", known)]
    config = Config.stored(facts.config)
    name = found["protocol"]
    played = training_protocol(config, facts.game) if name == "run" else protocol(name, config, facts.game)
    games = counted(found["games"], "game")
    told = [
        ("score", f"{found['mean']:.4g}, 95 % interval {found['low']:.4g} to {found['high']:.4g}"),
        ("protocol", f"{name}: {games}, {how(played)}; after {found['frames']:,} frames of training"),
    ]
    if found["normalised_pct"] is not None:
        told.append(("human-normalised score", f"{found['normalised_pct']:.1f} %"))
    return told


def _front(facts: AgentFacts) -> str:
    """JSON is YAML."""
    front: dict[str, Any] = {
        "license": "mit",
        "library_name": "tightrope",
        "pipeline_tag": "reinforcement-learning",
        "tags": ["reinforcement-learning", "deep-q-learning", "optimality-tightening", facts.game],
    }
    if facts.evaluation is not None:
        value = f"{facts.evaluation['mean']:.2f} +/- {facts.evaluation['std']:.2f}"
        result = {
            "task": {"type": "reinforcement-learning", "name": "reinforcement-learning"},
            "dataset": {"name": facts.game, "type": facts.game},
            "metrics": [{"type": "mean_reward", "name": "mean_reward", "value": value, "verified": False}],
        }
        front["model-index"] = [{"name": f"tightrope {facts.preset}", "results": [result]}]
    return "\n".join(f"{name}: {json.dumps(value)}" for name, value in front.items())


def use_file(facts: AgentFacts, file: str) -> str:
    """How an agent's own file is used."""
    own = "custom" in (facts.game, facts.network)
    shell = "" if own else f"\n    tightrope watch {file}\n    tightrope evaluate {file}\n"
    return f"""```python
import tightrope

agent = tightrope.load("{file}"{", env=..., network=..." if own else ""})
agent.act(observation)
```
{shell}"""


def use_onnx(file: str) -> str:
    return f"""```python
import onnxruntime

session = onnxruntime.InferenceSession("{file}")
(q_values,) = session.run(None, {{"states": states}})  # a batch of states as the game gives them, unscaled
```
"""


INTERVAL = """
The interval is a bootstrap over the games of that one evaluation: it says how sure the score of *this* agent is, and
nothing of what another seed would have learned. A run's *best* agent was chosen by such a score, which flatters it:
`tightrope evaluate` plays new games.
"""


def is_card(path: Path) -> bool:
    """Whether a file is a model card of ours, or somebody's own text."""
    try:
        return 'library_name: "tightrope"' in read_text(path)
    except (OSError, ValueError, TightropeError):
        return False


def card(facts: AgentFacts, use: str) -> str:
    """The card of an agent that is used so."""
    try:
        return _card(facts, use)
    except (KeyError, TypeError, ValueError) as problem:  # a file that somebody else has written
        raise TightropeError(f"the agent's facts are damaged: {type(problem).__name__} {problem}") from None


def _card(facts: AgentFacts, use: str) -> str:
    rows = [
        ("game", f"`{facts.game}`"),
        ("preset", _changed(facts)),
        ("training", f"{facts.frames:,} frames, seed {facts.seed}"),
        *_score(facts),
        ("made with", f"tightrope {__version__}"),
        ("licence", "MIT, as Tightrope's own; whoever trained the agent may choose another"),
    ]
    table = "\n".join(f"| {name} | {text} |" for name, text in rows)
    paper = "[optimality tightening](https://arxiv.org/abs/1611.01606)"
    method = paper if facts.config["bounds"] else f"plain DQN, without the bounds of {paper}"
    return f"""---
{_front(facts)}
---

# An agent for {facts.game}

A deep Q-network, trained with Tightrope by {method}.

| | |
| --- | --- |
{table}
{INTERVAL if facts.evaluation is not None else ""}
## Use

{use}
It knows this one game, as it was trained: how frames are shown, how long a game may last, which actions there are.
"""
