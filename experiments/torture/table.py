"""Writes the table of docs/reliability.md from results/torture/*.json, the last output of the torture programs."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE, RESULTS = ROOT / "docs" / "reliability.md", ROOT / "results" / "torture"
BEGIN, END = "<!-- written by experiments/torture/table.py -->\n", "<!-- end -->\n"
TESTS = ("kills", "damage", "hostile", "fuzz", "disk", "ray", "soak", "soak_gpu")
#: Figures that a program gives beside its counts, as the table says them.
FIGURES = {"host_grew": "host memory {}", "gpu_grew": "GPU memory {}"}


def row(test: str) -> str:
    path = RESULTS / f"{test}.json"
    if not path.exists():
        return f"| `{test}` | not run yet | | | | |"
    found = json.loads(path.read_text("utf-8"))
    counts = [f"{said}: {count:,}" for said, count in found["outcomes"].items() if said != "BROKEN"]
    counts += [words.format(found[name]) for name, words in FIGURES.items() if found.get(name)]
    commit = found["commit"][:10] + ("+" if found["commit"].endswith("+") else "")
    broken = f"**{len(found['broken'])}**" if found["broken"] else "0"
    return f"| `{test}` | {found['how_many']} | {'; '.join(counts)} | {broken} | {found['seconds']:,} s | {commit} |"


def main() -> None:
    text = PAGE.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    head = [
        "| program | how many | what became of them | broken | took | commit |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    PAGE.write_text(before + BEGIN + "\n".join([*head, *map(row, TESTS)]) + "\n" + END + after, "utf-8")


if __name__ == "__main__":
    main()
