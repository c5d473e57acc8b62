"""Draws the figures of docs/concepts.md into docs/figures, from the program's own definitions and from real runs.

`make figures` runs it: about a minute on 2 cores. An SVG brings its colours along, for readers outside the site; in the
site it is part of the page and follows the page's theme (site.css).
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from markupsafe import Markup

from tightrope.bounds import discounted_returns, lower_bounds, tighten, upper_bounds
from tightrope.config import preset
from tightrope.games import MAZE_ID
from tightrope.games.maze import MOVES, MazeEnv, distances
from tightrope.report.svg import Level, Line, line_chart, picture, tag
from tightrope.run import Description, RunFolder
from tightrope.trainer import Trainer

OUT = Path(__file__).parent.parent / "figures"
WIDTH = 400  # small enough to be read on a phone
AIR = 20  # right of a chart, for names in a wide font
K = 4  # the paper's

Values = Callable[[int], np.ndarray]  # the values of the four moves in a cell

STYLE = """
.figure { --ink: #1d1c1a; --soft: #5d5a54; --rule: #e3dfd6; --page: #ffffff;
  --c0: #0072b2; --c1: #c25400; --c2: #00875f; --c3: #a8487f; }
@media (prefers-color-scheme: dark) { .figure { --ink: #e9e6df; --soft: #a5a39d; --rule: #3a3f47; --page: #14161a;
  --c0: #5fb4ea; --c1: #ff8f55; --c2: #3cc9a0; --c3: #e79dc6; } }
.figure text { font: 11.5px system-ui, "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif; fill: var(--soft); }
.figure .title { fill: var(--ink); font-weight: 600; font-size: 13px; }
.figure .c0 { --own: var(--c0); } .figure .c1 { --own: var(--c1); } .figure .c2 { --own: var(--c2); }
.figure .c3 { --own: var(--c3); } .figure .plain { --own: var(--soft); }
.figure .name { fill: var(--own); font-weight: 600; }
.figure .grid { stroke: var(--rule); } .figure .tick { stroke: var(--soft); }
.figure .level { stroke: var(--soft); stroke-dasharray: 2 3; }
.figure .level-name { paint-order: stroke; stroke: var(--page); stroke-width: 4px; stroke-linejoin: round; }
.figure .curve { fill: none; stroke: var(--own); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.figure .thin { stroke-width: 1.4; } .figure .dash { stroke-dasharray: 5 4; }
.figure .curve.age-1 { opacity: 0.75; } .figure .curve.age-2 { opacity: 0.5; } .figure .curve.age-3 { opacity: 0.3; }
.figure .band { fill: var(--own); opacity: 0.14; }
.figure .dot { fill: var(--own); }
.figure svg { overflow: visible; }
.figure .state { fill: var(--page); stroke: var(--soft); stroke-width: 1.5; }
.figure .sample { fill: var(--ink); }
"""


def save(name: str, parts: Sequence[tuple[str, Markup]], height: float) -> None:
    """One file of several panels, each under its title."""
    placed: list[Markup] = []
    each = height / len(parts)
    for i, (title, panel) in enumerate(parts):
        placed.append(tag("text", title, x=0, y=i * each + 14, class_="title"))
        box = Markup('<svg x="0" y="{:g}" width="{}" height="{:g}" ').format(i * each + 24, WIDTH, each - 30)
        placed.append(panel.replace(Markup("<svg "), box, 1))
    drawn = picture(WIDTH + AIR, height, [Markup("<style>{}</style>").format(Markup(STYLE)), *placed], "figure")
    drawn = drawn.replace(Markup("<svg "), Markup('<svg xmlns="http://www.w3.org/2000/svg" '), 1)
    OUT.mkdir(exist_ok=True)
    (OUT / f"{name}.svg").write_text(f"{drawn}\n", "utf-8")


# ----------------------------------------------------------------------------------------- where a bound comes from


def neighbours() -> None:
    """The states whose values bound that of sample j."""
    step, y = 33, 112
    x = lambda offset: WIDTH / 2 + step * offset  # noqa: E731
    parts = [tag("line", x1=x(-5), x2=x(5), y1=y, y2=y, class_="tick")]
    for offset in range(2, K + 2):
        for way, style, up in ((1, "c0", 1), (-1, "c1", -1)):
            ends, rise = (x(0), x(way * offset)), up * (6 + 9 * offset)
            path = f"M {ends[0]:.0f} {y - 9 * up} Q {sum(ends) / 2:.0f} {y - 9 * up - rise * 1.6:.0f} "
            parts.append(tag("path", d=f"{path}{ends[1]:.0f} {y - 9 * up}", class_=f"curve thin {style}"))
    for offset in range(-K - 1, K + 2):
        style = "state sample" if offset == 0 else "state"
        parts.append(tag("circle", cx=float(x(offset)), cy=y, r=6, class_=style))
    parts += [
        tag("text", "j", x=x(0), y=y + 22, text_anchor="middle", class_="title"),
        tag("text", "j+2 … j+5", x=x(3.5), y=y + 24, text_anchor="middle"),
        tag("text", "j−5 … j−2", x=x(-3.5), y=y - 16, text_anchor="middle"),
        tag("text", "lower bounds: rewards won", x=x(5) + 8, y=18, text_anchor="end", class_="name c0"),
        tag("text", "from here on, then Q⁻", x=x(5) + 8, y=34, text_anchor="end", class_="name c0"),
        tag("text", "upper bounds: what earlier states are", x=x(-5) - 8, y=y + 72, class_="name c1"),
        tag("text", "worth by Q⁻, less the rewards since", x=x(-5) - 8, y=y + 88, class_="name c1"),
        tag("text", "… R_j", x=x(5) + 14, y=y + 4),
    ]
    save("neighbours", [("Sample j and its neighbours, K = 4", picture(WIDTH, 210, parts, "panel"))], 240)


# ---------------------------------------------------------------------------------------------- the rope of an episode


def true_values(env: MazeEnv, gamma: float) -> Values:
    """Q* of the maze: gamma to the steps that are left after a move, which earns the 1 at the end."""
    left = distances(env.open, env.goal)

    def values(cell: int) -> np.ndarray:
        row, column = divmod(cell, env.side)
        after = [
            left[row + dr, column + dc] if env.open[row, column, move] else left[row, column]
            for move, (dr, dc) in enumerate(MOVES)
        ]
        return gamma ** np.array(after, dtype=np.float64)

    return values


def learned_values(trainer: Trainer, env: MazeEnv) -> Values:
    """What a network says of the cells."""
    with torch.no_grad():
        table = trainer.network(torch.eye(env.side**2)).numpy()
    return lambda cell: table[cell]


def episode(env: MazeEnv, guide: Values, seed: int, random_moves: float) -> tuple[list[int], list[int]]:
    """Cells and moves of one game, by the guide's best move or with that probability any."""
    rng = np.random.default_rng(seed)
    cell, _ = env.reset()
    cells, moves, over = [int(cell)], [], False
    while not over:
        best = int(guide(cells[-1]).argmax())
        moves.append(int(rng.integers(4)) if rng.random() < random_moves else best)
        cell, _, terminated, truncated, _ = env.step(moves[-1])
        over = terminated or truncated
        cells.append(int(cell))
    assert terminated
    return cells, moves


def rope(cells: list[int], moves: list[int], q: Values, gamma: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Q, L_max and U_min of every step of an episode that ended at the goal, by tightrope.bounds."""
    steps = len(moves)
    table = torch.tensor(np.array([q(cell) for cell in cells]))
    rewards = torch.zeros(steps, dtype=torch.float64)
    rewards[-1] = 1.0
    taken = table[range(steps), moves]
    j = torch.arange(steps)[:, None]
    offsets = torch.arange(2, K + 2)[None].expand(steps, K)
    ahead = j + torch.arange(K + 1)
    lower = lower_bounds(
        torch.where(ahead < steps, rewards[ahead.clamp(max=steps - 1)], 0.0),
        ahead == steps - 1,
        j + offsets <= steps,
        offsets,
        table.amax(1)[(j + offsets).clamp(max=steps)],
        gamma,
    ).amax(1)
    behind = j - 1 - torch.arange(K + 1)
    upper = upper_bounds(
        torch.where(behind >= 0, rewards[behind.clamp(min=0)], 0.0),
        j - offsets >= 0,
        offsets,
        taken[(j - offsets).clamp(min=0)],
        gamma,
    ).amin(1)
    returns = discounted_returns(rewards[:, None], torch.zeros(1, dtype=torch.float64), gamma)[:, 0]
    return taken.numpy(), torch.maximum(lower, returns).numpy(), upper.numpy()


def run_of(game: str, out: Path, **fields: object) -> Trainer:
    config = preset("maze").replace(eval_every_epochs=0, **fields)
    description = Description(game, "maze", 0, "cpu", config, "auto", {})
    folder = RunFolder(out)
    trainer = Trainer(description, folder)
    folder.create(description)
    trainer.start()
    return trainer


def the_rope(folder: Path) -> None:
    """One episode of the maze, valued by Q* and by a network that has only begun to learn."""
    gamma, frames = 0.95, 2_000
    env = MazeEnv(shortest_path=24)
    exact = true_values(env, gamma)
    cells, moves = episode(env, exact, seed=9, random_moves=0.7)
    trainer = run_of(MAZE_ID, folder / "rope", gamma=gamma, frames=frames)
    for _ in trainer.train():
        pass
    panels = []
    for title, source in (
        ("By the true Q: it never leaves the rope", exact),
        (f"By a network after {frames:,} frames: the return pulls it up", learned_values(trainer, env)),
    ):
        q, low, high = rope(cells, moves, source, gamma)
        at = range(len(q))
        known = [i for i in at if np.isfinite(high[i])]
        lines = [
            Line("upper", "c1 thin", [(i, high[i]) for i in known]),
            Line("lower", "c0 thin", [(i, low[i]) for i in at]),
            Line("Q", "plain", [(i, q[i]) for i in at]),
        ]
        if source is exact:
            assert (low <= q + 1e-9).all(), "in a deterministic game no bound is wrong"
            assert (q <= high + 1e-9).all()
            lines.insert(0, Line("", "plain", [], band=[(i, low[i], high[i]) for i in known]))
        chart = line_chart(
            lines,
            width=WIDTH,
            height=190,
            x_range=(0, len(q) - 1),
            y_range=(-0.02, 1.12),
            x_tick=lambda v: f"{v:g}",
            x_label="step of the episode",
            direct=True,
        )
        panels.append((title, chart))
    trainer.close()
    save("rope", panels, 440)


# ------------------------------------------------------------------------------------------------ the penalised target


def the_pull() -> None:
    """Where Q is pulled, as a function of where it stands; y, L and U are fixed."""
    y, low, high = 0.2, 0.6, 0.9
    q = torch.linspace(0, 1.3, 261, dtype=torch.float64)
    full = torch.ones_like(q)
    lines = [Line("Q itself", "plain thin dash", [(v, v) for v in q.tolist() if v <= 1.1])]
    for lam, style in ((0.0, "plain"), (0.25, "c2"), (4.0, "c0")):
        target, *_ = tighten(q, y * full, low * full, high * full, lam)
        name = "λ = 0 (DQN)" if lam == 0 else f"λ = {lam:g}"
        lines.append(Line(name, style, list(zip(q.tolist(), target.tolist(), strict=True))))
    chart = line_chart(
        lines,
        width=WIDTH,
        height=250,
        x_range=(0, 1.3),
        y_range=(0, 1.1),
        x_tick=lambda v: f"{v:g}",
        x_label="Q now",
        levels=[Level(low, "lower bound L = 0.6"), Level(high, "upper bound U = 0.9")],
        direct=True,
    )
    save("pull", [("Where Q is pulled to; the plain target y is 0.2", chart)], 286)


# ------------------------------------------------------------------------------------------------------- reward travels


def the_travel(folder: Path) -> None:
    """Values along the maze's shortest path, as learning goes on."""
    env = MazeEnv(shortest_path=24)
    gamma = preset("maze").gamma
    cells, moves = episode(env, true_values(env, gamma), 0, random_moves=0.0)
    panels = []
    for title, fields, colour in (
        ("With the paper's bounds", {}, "c0"),
        ("With lower bounds across trajectories", {"horizon": "crossings"}, "c1"),
        ("Plain DQN: the same program without bounds", {"bounds": False}, "c3"),
    ):
        trainer = run_of(MAZE_ID, folder / f"travel-{colour}", frames=12_000, **fields)
        lines = []
        for values in trainer.train():
            if values["frames"] % 3_000 == 0:
                seen = [float(learned_values(trainer, env)(cell).max()) for cell in cells[:-1]]
                age = (12_000 - values["frames"]) // 3_000  # paler lines are earlier ones
                style = f"{colour} age-{age}"
                lines.append(Line(f"{values['frames'] // 1000}k frames", style, list(enumerate(seen))))
        trainer.close()
        exact = [gamma ** (len(moves) - 1 - i) for i in range(len(moves))]
        lines.append(Line("true", "plain thin dash", list(enumerate(exact))))
        chart = line_chart(
            lines,
            width=WIDTH,
            height=190,
            x_range=(0, len(moves) - 1),
            y_range=(-0.05, 1.85),
            x_tick=lambda v: f"{v:g}",
            x_label="cells from the start; the reward is at the right",
            direct=True,
        )
        panels.append((title, chart))
    save("travel", panels, 652)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        neighbours()
        the_pull()
        the_rope(Path(name))
        the_travel(Path(name))
