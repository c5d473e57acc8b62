"""What `--help` and the shell's Tab key say: Config's fields in groups, amounts as a person writes them."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import io
import textwrap
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import tyro
from tyro import MISSING
from tyro.conf import FlagCreatePairsOff, Positional

from tightrope import config as settings
from tightrope.config import Config


def amount(value: Any) -> str:
    """A value as it may be typed.

    >>> amount(10_000_000), amount(250_000), amount(18_000), amount(1234), amount(0.00025), amount(True)
    ('10M', '250k', '18k', '1234', '0.00025', 'true')
    >>> amount(2_500_000), amount(1_050_000), amount(1_234_000)
    ('2.5M', '1.05M', '1234k')
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int):
        if value >= 1_000_000 and value % 10_000 == 0:
            return f"{value / 1_000_000:.2f}".rstrip("0").rstrip(".") + "M"
        if value and value % 1_000 == 0:
            return f"{value // 1_000}k"
    return f"{value:g}" if isinstance(value, float) else str(value)


def value_of(name: str, value: Any) -> str:
    """A field's value with its unit.

    >>> value_of("frames", 10_000_000), value_of("eval_every_epochs", 1), value_of("gamma", 0.99)
    ('10M frames', '1 epoch', '0.99')
    """
    unit = settings.describe(name)["unit"]
    if not unit or unit == "value":
        return amount(value)
    return f"{amount(value)} {unit.removesuffix('s') if value == 1 else unit}"


def first_line(command: Any) -> str:
    return str(command.__doc__).splitlines()[0]


def description(command: Any) -> str:
    """A command's own sentence, and its examples: the rest of its docstring."""
    sentence, _, examples = inspect.cleandoc(command.__doc__).partition("\n\n")
    return sentence + ("\n\nexamples:\n" + textwrap.indent(examples, "  ") if examples else "")


def said(metavar: str, default: str = "") -> Any:
    """What an option's value is called in --help, and its default in words or with its unit where it has one."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint=f"(default: {default})" if default else None)


Device = Annotated[Literal["auto", "cpu", "cuda"], said("auto|cpu|cuda", "auto: cuda where PyTorch sees a GPU")]
Which = Annotated[Literal["best", "last"], said("best|last")]
Seed = Annotated[int, said("N")]
Flag = Annotated[bool, tyro.conf.arg(help_behavior_hint="")]
Run = Annotated[Positional[Path], said("RUN")]


def _stands_for(kind: Any) -> str:
    """What to type behind an option."""
    if kind is bool:
        return "true|false"
    if get_origin(kind) is Literal:
        return "|".join(get_args(kind))
    return "N" if kind is int else "X"


def _option(name: str) -> tuple[str, Any, Any]:
    about = settings.describe(name)

    def hint(text: str) -> str:
        return f"(default: {value_of(name, settings.coerce(name, text))})"

    shown = tyro.conf.arg(help=about["meaning"], metavar=_stands_for(settings.TYPES[name]), help_behavior_hint=hint)
    return name, Annotated[settings.TYPES[name], shown], dataclasses.field(default=MISSING)


#: Config again, in groups and with its own words where tyro looks for them.
_PARTS = {
    title: dataclasses.make_dataclass(title, map(_option, names), kw_only=True)
    for title, names in settings.groups().items()
}
Fields = dataclasses.make_dataclass(
    "Fields", [(title, part, dataclasses.field(default=MISSING)) for title, part in _PARTS.items()]
)


def fields_of(config: Config) -> Any:
    """The numbers of a run, as Fields."""
    values = config.to_dict()
    return Fields(
        **{
            title: part(**{field.name: values[field.name] for field in dataclasses.fields(part)})
            for title, part in _PARTS.items()
        }
    )


#: Where tyro's script has nothing to say (a run's folder, a file), the shell's own completion of files speaks.
_OR_FILES = {
    "bash": """_tightrope() {
  _tyro_tightrope "$@"
  [[ ${#COMPREPLY[@]} == 1 && -z ${COMPREPLY[0]} ]] && COMPREPLY=()
  return 0
}
complete -o default -o bashdefault -F _tightrope tightrope
""",
    # Read by eval it registers itself; as a file `_tightrope` on fpath it is called.
    "zsh": """_tightrope() {
  _tyro_tightrope "$@"
  (( compstate[nmatches] )) || _files
}
if [[ $zsh_eval_context[-1] == loadautofunc ]]; then
  _tightrope "$@"
else
  compdef _tightrope tightrope
fi
""",
}


def completion(shell: str, commands: dict[str, Any]) -> str:
    """The script that completes commands, options and their choices in a shell, and files elsewhere."""

    def union(commands: dict[str, Any]) -> Any:
        """Commands as tyro takes subcommands; those of two words, by their first."""
        parts = [
            Annotated[command, tyro.conf.subcommand(name, prefix_name=False)]
            for name, command in commands.items()
            if " " not in name
        ]
        for first in dict.fromkeys(name.split()[0] for name in commands if " " in name):
            inner = {n.split()[1]: command for n, command in commands.items() if n.startswith(first + " ")}
            parts.append(Annotated[union(inner), tyro.conf.subcommand(first, prefix_name=False)])
        return Union[tuple(parts)]  # noqa: UP007

    text = io.StringIO()
    words = ["--tyro-write-completion", shell, "-"]
    with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
        tyro.cli(union(commands), prog="tightrope", args=words, config=(FlagCreatePairsOff,))
    script = text.getvalue().strip().removesuffix('typeset -A opt_args\n_tyro_tightrope "$@"')
    # zsh counts words from 1 and tyro (1.0) from 0: left as it is, an option's choices would not be found.
    script = script.replace('"$CURRENT"', '"$((CURRENT - 1))"')
    return script + "\n" + _OR_FILES[shell]
