"""Parts of pages that are made from the program itself, so that they cannot say anything else than it does."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import json
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, get_type_hints

import tyro

from tightrope import config as settings

ROOT = Path(__file__).parents[2]


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    # A bar would end the cell, even in code.
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text.strip()}\n```"


# -------------------------------------------------------------------------------------------------- from the repository


def readme(heading: str) -> str:
    """A section of the README, without its heading."""
    text = (ROOT / "README.md").read_text("utf-8")
    found = re.search(rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.M | re.S)
    if found is None:
        raise LookupError(f"the README has no section {heading!r}")
    return found[1].strip().replace("](docs/", "](")


def file(path: str) -> str:
    """A file of the repository, as it is."""
    language = {".py": "python", ".toml": "toml"}[Path(path).suffix]
    return _fenced((ROOT / path).read_text("utf-8"), language)


def notebook(path: str) -> str:
    """A notebook with what its cells have printed and drawn."""
    shown = []
    for cell in json.loads((ROOT / path).read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            shown.append(source.replace("](../docs/", "]("))
            continue
        shown.append(_fenced(source, "python"))
        printed = ""
        for output in cell["outputs"]:
            data = output.get("data", {})
            if "image/svg+xml" in data:
                drawn = "".join(data["image/svg+xml"])
                drawn = re.sub(r"\s*\n\s*", " ", drawn[drawn.index("<svg") :])  # an empty line would end the HTML
                shown.append(f'<div class="output">{drawn}</div>')
            else:
                printed += "".join(output.get("text", data.get("text/plain", "")))
        if printed:
            shown.append(f'<div class="output">\n\n{_fenced(printed, "text")}\n\n</div>')
    return "\n\n".join(shown)


# ----------------------------------------------------------------------------------------------------- the command line


def _words_of(command: Any) -> dict[str, str]:
    """The text under each field of a command."""
    (body,) = ast.parse(inspect.getsource(command)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
            found[ast.unparse(field.target)] = str(text.value.value)
    return found


def _said(kind: Any, name: str) -> str:
    """What --help calls an option's value, or its default where that is in words."""
    return next((value for extra in getattr(kind, "__metadata__", ()) if (value := getattr(extra, name, None))), "")


def _option(field: dataclasses.Field[Any], kind: Any, words: str) -> list[str]:
    extras = getattr(kind, "__metadata__", ())
    plain = kind.__origin__ if extras else kind
    metavar = _said(kind, "metavar")
    if any("Positional" in repr(extra) for extra in extras):
        option = metavar or field.name.upper()
    elif plain is bool:
        option = f"--{field.name}"
    else:
        named = {int: "N", float: "X", Path: "PATH", Path | None: "PATH"}
        option = f"--{field.name} {metavar or named.get(plain, 'WORD')}"
    if field.default in (dataclasses.MISSING, tyro.MISSING):
        default = "needed"
    elif hint := _said(kind, "help_behavior_hint"):
        default = hint.removeprefix("(default: ").removesuffix(")")
    else:
        default = "" if plain is bool or field.default is None else str(field.default)
    return [f"`{option}`", default, words]


def commands() -> str:
    """Every command with its examples and options."""
    from tightrope.commands import COMMANDS

    shown = []
    for name, command in COMMANDS.items():
        summary, _, examples = inspect.cleandoc(command.__doc__).partition("\n\n")
        shown += [f"## tightrope {name}", re.sub("tightrope .+$", r"`\g<0>`", summary)]
        if examples:
            shown.append(_fenced(examples, "sh"))
        words, kinds = _words_of(command), get_type_hints(command, include_extras=True)
        rows = [
            _option(field, kinds[field.name], words.get(field.name, ""))
            for field in dataclasses.fields(command)
            if field.name != "fields"
        ]
        if rows:
            shown.append(_table(["option", "default", "meaning"], rows))
        if "fields" in kinds:
            shown.append("And any field of the preset, such as `--lam 1 --k 8`: [all of them](presets.md#all-fields).")
    return "\n\n".join(shown)


# -------------------------------------------------------------------------------------------------------------- presets


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _groups() -> dict[str, list[str]]:
    """The fields under the headings of the class that defines them."""
    found: dict[str, list[str]] = {}
    for line in inspect.getsource(settings.Config).splitlines():
        if heading := re.fullmatch(r"    # (.+)", line):
            found[heading[1]] = []
        elif (field := re.match(r"    (\w+): ", line)) and field[1] in settings.field_names():
            found[list(found)[-1]].append(field[1])
    return found


def fields() -> str:
    """Every field: what it means, what the preset paper says, and why."""
    values, origins = settings.preset("paper").to_dict(), settings.origins("paper")
    shown = []
    for heading, names in _groups().items():
        rows = []
        for name in names:
            about = settings.describe(name)
            unit = f" [{about['unit']}]" if about["unit"] else ""
            rows.append([f"`{name}`", about["meaning"] + unit, _value(values[name]), origins[name]])
        shown += [f"### {heading}", _table(["field", "meaning", "in `paper`", "where it comes from"], rows)]
    return "\n\n".join(shown)


def presets() -> str:
    """Every preset: what it changes of the one it is based on."""
    shown = []
    for name in sorted(settings.preset_names(), key=lambda name: (name != "paper", name)):
        text = (resources.files("tightrope") / "presets" / f"{name}.toml").read_text("utf-8")
        own, origins = tomllib.loads(text), settings.origins(name)
        shown += [f"## {name}", f"{own.pop('about')}."]
        base = own.pop("base", None)
        if base is None:
            shown.append("The base of all the others; its numbers are [in the list of all fields](#all-fields).")
            continue
        shown.append(f"Based on [{base}](#{base}); it changes:")
        rows = [[f"`{field}`", _value(value), origins[field]] for field, value in own.items()]
        shown.append(_table(["field", "value", "where it comes from"], rows))
    return "\n\n".join(shown)


# -------------------------------------------------------------------------------------------------------------- studies


def studies() -> str:
    """The shipped studies, file by file."""
    from tightrope.study import read, shipped
    from tightrope.study.plan import suites

    shown = []
    for name in shipped():
        study = read(name)
        shown += [f"### {name}", f"{len(study.cells)} runs: {study.about}.", _fenced(study.text, "toml")]
    games = [[f"`{name}`", str(len(found)), ", ".join(found)] for name, found in suites().items()]
    return "\n\n".join([*shown, "## Suites of games", _table(["suite", "games", "which"], games)])
