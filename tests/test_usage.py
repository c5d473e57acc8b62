"""What is read before anything runs: --help, the Tab key, and how little is imported for them."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

import tightrope
from tightrope import config as settings
from tightrope.cli import main
from tightrope.commands import COMMANDS
from tightrope.usage import completion

#: Packages that take seconds, or tenths of one.
HEAVY = ("torch", "matplotlib", "scipy", "ray", "tensorboard", "wandb", "onnxruntime", "pygame", "PIL", "rich.console")


def imported(code: str) -> list[str]:
    """The heavy packages that a fresh Python has loaded after running this."""
    after = f"\nimport sys; print(' '.join(name for name in {HEAVY!r} if name in sys.modules), file=sys.stderr)"
    run = [sys.executable, "-c", code + after]
    return subprocess.run(run, capture_output=True, text=True, check=True, timeout=60).stderr.split()


def helped(*words: str) -> str:
    return (
        f"import contextlib\nfrom tightrope.cli import main\nwith contextlib.suppress(SystemExit): main({[*words]!r})"
    )


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert imported("import tightrope\ntightrope.__version__\ndir(tightrope)") == []
    assert (
        "gymnasium"
        not in subprocess.run(
            [sys.executable, "-X", "importtime", "-c", "import tightrope"], capture_output=True, text=True, check=True
        ).stderr
    )
    assert imported("import tightrope\ntightrope.train") == ["torch", "rich.console"], "the check sees what is loaded"


@pytest.mark.parametrize(
    "words",
    [["--help"], ["train", "--help"], ["train", "pong", "--help"], ["watch", "--help"], ["completion", "bash"],
     ["games"], ["doctor", "--help"], ["study", "--help"]],
    ids=" ".join,
)  # fmt: skip
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    assert imported(helped(*words)) == []


def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, *words: str) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("columns", [80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_help_fits_the_terminal_and_has_examples(
    command: str, columns: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(capsys, monkeypatch, columns, *command.split(), "--help")
    _, *lines = text.splitlines()  # the usage is tyro's own, a little longer now and then
    assert max(map(len, lines)) <= columns
    assert "STR" not in text
    assert "{None}" not in text
    assert command == "games" or f"tightrope {command}" in text.split("examples:")[1]


def test_the_overview_names_every_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for columns in (80, 120):
        lines = shown(capsys, monkeypatch, columns, "--help").splitlines()
        assert max(map(len, lines)) <= 80 + 20 * (columns > 80)
        assert {name for name in COMMANDS if any(line.startswith(f"  {name} ") for line in lines)} == set(COMMANDS)


LISTINGS = [["games"], ["presets"], *(["presets", name] for name in settings.preset_names()), ["study", "run"]]


@pytest.mark.parametrize("words", LISTINGS, ids=" ".join)
def test_lists_fit_the_terminal_and_break_no_name(
    words: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same words in a narrow and in a wide terminal, none of them cut; a path may be longer than a line."""
    narrow, wide = (shown(capsys, monkeypatch, columns, *words) for columns in (80, 120))
    assert sorted(narrow.split()) == sorted(wide.split())
    for columns, text in ((80, narrow), (100, wide)):
        assert all(len(line) <= columns for line in text.splitlines() if " " in line.strip())


def test_a_list_in_a_pipe_is_80_columns_wide() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"}
    run = [sys.executable, "-m", "tightrope", "presets", "paper"]
    told = subprocess.run(run, capture_output=True, text=True, check=True, timeout=60, env=environment).stdout
    assert 70 < max(map(len, told.splitlines())) <= 80


def test_help_is_a_word_too(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    overview = shown(capsys, monkeypatch, 80, "help")
    assert overview == shown(capsys, monkeypatch, 80, "--help")
    assert "--version" in overview
    assert shown(capsys, monkeypatch, 80, "help", "watch") == shown(capsys, monkeypatch, 80, "watch", "--help")


def test_fields_come_in_groups_with_defaults_and_units(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = shown(capsys, monkeypatch, 120, "train", "--help")
    assert re.findall(r"^\W*(\w+) options\W*$", text, re.M) == list(dict.fromkeys(settings.GROUPS.values()))
    assert re.search(r"--frames N .*\(default: 10M frames\)", text)
    assert re.search(r"--learning-rate X .*\(default: 0.00025\)", text)
    assert re.search(r"--eval-every-epochs N\s[^-]*\(default: 1 epoch\)", text)
    grouped = [name for names in settings.groups().values() for name in names]
    assert grouped == settings.field_names(), "every field once, in its order"
    assert all(f"--{name.replace('_', '-')} " in text for name in grouped)
    # The numbers of the preset that suits the game.
    other = shown(capsys, monkeypatch, 120, "train", "CartPole-v1", "--help")
    assert re.search(rf"--frames N .*\(default: {settings.preset('classic').frames // 1000}k frames\)", other)
    assert "defaults are those of paper;" in text
    assert "defaults are those of classic;" in other


# ---------------------------------------------------------------------------------------------------------- the Tab key

COMPLETIONS = [
    ("tightrope tra", "train"),
    ("tightrope study st", "status"),
    ("tightrope train pong --devi", "--device"),
    ("tightrope train pong --device cu", "cuda"),
    ("tightrope train pong --both-violated m", "mean"),
    ("tightrope watch --wh", "--which"),
    ("tightrope watch some-r", "some-run/"),  # a folder
]


@pytest.fixture
def command_folder(tmp_path: Path) -> Path:
    """Where a command `tightrope` lies, and a run."""
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "tightrope"
    source = Path(tightrope.__file__).parent.parent
    command.write_text(f'#!/bin/sh\nPYTHONPATH="{source}" exec "{sys.executable}" -m tightrope "$@"\n')
    command.chmod(0o755)
    (tmp_path / "some-run").mkdir()
    return tmp_path


def typed(shell: list[str], ready: str, folder: Path, lines: list[str]) -> list[str]:
    """What a shell makes of each line and Tab: typed into a terminal, and read back."""
    process, screen = pty.fork()
    if process == 0:
        os.chdir(folder)
        path = f"{folder}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}"
        os.execvpe(shell[0], shell, {"PATH": path, "HOME": str(folder), "TERM": "dumb", "PS1": "> ", "LC_ALL": "C"})

    def until(pattern: str) -> str:
        seen, end = "", time.monotonic() + 60
        while not re.search(pattern, seen):
            assert time.monotonic() < end, seen
            if select.select([screen], [], [], 0.2)[0]:
                seen += os.read(screen, 65536).decode(errors="replace")
        return seen

    try:
        os.write(screen, f"{ready}; echo rea''dy\n".encode())
        until("ready\r\n")
        found = []
        for line in lines:
            os.write(screen, line.encode() + b"\t")
            expected = dict(COMPLETIONS)[line]
            found.append(until(re.escape(line.rpartition(" ")[0] + " " + expected)))
            os.write(screen, b"\x15")  # forget the line
        return found
    finally:
        os.kill(process, 9)
        os.waitpid(process, 0)
        os.close(screen)


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_the_tab_key(shell: str, command_folder: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here")
    start = {"bash": ["bash", "--norc", "-i"], "zsh": ["zsh", "-f", "-i"]}[shell]
    ready = {"bash": "", "zsh": "autoload -Uz compinit && compinit -u -D; "}[
        shell
    ] + f'eval "$(tightrope completion {shell})"'
    assert len(typed(start, ready, command_folder, [line for line, _ in COMPLETIONS])) == len(COMPLETIONS)


def test_a_script_for_zsh_counts_words_as_zsh_does() -> None:
    """Without a zsh to ask: its first word is number 1, and tyro's number 0."""
    assert '"${words[@]}" "$((CURRENT - 1))"' in completion("zsh", COMMANDS)
    assert completion("zsh", COMMANDS).startswith("#compdef tightrope"), "it can lie on fpath too"
