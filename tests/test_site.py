"""The documentation: it builds strictly, its links lead somewhere, its example, its code and its notebook run."""

from __future__ import annotations

import dataclasses
import re
import runpy
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from chromium import Browser, find_chromium

ROOT = Path(__file__).parents[1]
MAKE = ROOT / "docs" / "_make"
has_docs = all(find_spec(name) for name in ("furo", "ipykernel", "latex2mathml", "myst_parser", "nbclient", "sphinx"))
needs_docs = pytest.mark.skipif(not has_docs, reason="the extra docs is not installed: pip install 'tightrope[docs]'")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", f"{folder}/trees", "docs", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    return folder


def text_of(page: Path) -> str:
    """What a reader sees."""
    return " ".join(re.sub(r"<[^>]+>", " ", page.read_text("utf-8")).replace("&#39;", "'").split())


@needs_docs
def test_the_site_builds_strictly_and_says_what_the_program_says(site: Path) -> None:
    from tightrope import config
    from tightrope.commands import COMMANDS
    from tightrope.study import shipped

    commands = text_of(site / "reference" / "commands.html")
    for name, command in COMMANDS.items():
        assert f"tightrope {name}" in commands
        for field in dataclasses.fields(command):
            assert field.name == "fields" or field.name.lower() in commands.lower(), (name, field.name)
    presets = text_of(site / "reference" / "presets.html")
    for name in config.preset_names():
        assert config.about(name) in presets
    for field, origin in config.origins("paper").items():
        assert f"{field} {config.describe(field)['meaning']}" in presets, field
        assert origin in presets, field
    studies = text_of(site / "studies.html")
    for name in shipped():
        assert name in studies
    concepts = (site / "concepts.html").read_text("utf-8")
    assert concepts.count('<figure class="drawing"') == 4  # the figures are part of the page ...
    assert "<mfrac>" in concepts  # ... and so are the formulas: no script draws them


@needs_docs
def test_pages_fit_a_phone_and_figures_follow_the_theme(site: Path, tmp_path: Path) -> None:
    browser = Browser(find_chromium(), tmp_path)
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=True)
    for page in sorted(site.rglob("*.html")):
        browser.open(page)
        assert browser.run("document.documentElement.scrollWidth") <= 390, page.name
    browser.open(site / "concepts.html")
    inks = []
    for theme in ("light", "dark"):
        browser.run(f"document.body.dataset.theme = '{theme}'")
        inks.append(browser.run("getComputedStyle(document.querySelector('.figure .title')).fill"))
    browser.close()
    assert inks == ["rgb(29, 28, 26)", "rgb(233, 230, 223)"]  # --ink of site.css
    assert browser.complaints == []
    assert all(url.startswith(("file:", "data:", "about:")) for url in browser.requests)


@needs_docs
@pytest.mark.parametrize(
    ("page", "said"),
    [
        ('<a href="b.html">b</a>', []),
        ('<a href="b.html#here">b</a><img src="picture.png">', []),
        ('<a href="https://example.org">elsewhere</a><a href="mailto:a@b.c">us</a>', []),
        ('<a href="c.html">c</a>', ["a.html links to c.html, which does not exist"]),
        ('<a href="b.html#there">b</a>', ["a.html links to b.html#there, and there is no such place on that page"]),
        ('<a href="#top">up</a>', ["a.html links to #top, and there is no such place on that page"]),
        ('<img src="no.png">', ["a.html links to no.png, which does not exist"]),
        (
            '<script src="https://example.org/x.js"></script>',
            ["a.html loads https://example.org/x.js, and the site is to need no network"],
        ),
    ],
)
def test_a_link_that_leads_nowhere_is_named(tmp_path: Path, page: str, said: list[str]) -> None:
    problems = runpy.run_path(str(MAKE / "links.py"))["problems"]
    (tmp_path / "a.html").write_text(page)
    (tmp_path / "b.html").write_text('<h2 id="here">Here</h2>')
    (tmp_path / "picture.png").write_bytes(b"")
    assert list(problems(tmp_path)) == said


@needs_docs
def test_the_tutorial_runs_and_shows_what_it_says(tmp_path: Path) -> None:
    executed = runpy.run_path(str(MAKE / "notebook.py"))["executed"]
    printed = [
        "".join(output.get("text", "")) for cell in executed(tmp_path).cells for output in cell.get("outputs", [])
    ]
    found = re.findall(r"^(\w+) +([\d.]+) of 1", "".join(printed), re.M)
    scores = {name: float(score) for name, score in found}
    assert scores["tightened"] >= 0.9 > scores["plain"]
    # The first step of the game that it plays: the return is above both, and the tightened value nearer.
    start = re.search(r"^ +0 +([\d.]+) +(-?[\d.]+) +(-?[\d.]+)$", "".join(printed), re.M)
    assert start is not None
    achieved, tightened, plain = map(float, start.groups())
    assert achieved > tightened > plain


def test_the_example_of_an_environment_of_your_own_learns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = ROOT / "examples" / "own_environment.py"
    assert len(path.read_text("utf-8").splitlines()) <= 30
    monkeypatch.chdir(tmp_path)
    env = runpy.run_path(str(path), run_name="__main__")["Wire"]()
    score = float(re.search(r"mean score of 100 games: ([\d.]+) of 12", capsys.readouterr().out)[1])  # type: ignore[index]
    rng, by_chance = np.random.default_rng(0), []
    for _ in range(200):
        env.reset()
        over, total = False, 0.0
        while not over:
            _, reward, over, _, _ = env.step(int(rng.integers(3)))
            total += reward
        by_chance.append(total)
    assert np.mean(by_chance) < 4
    assert score > 7


def test_the_code_on_the_page_about_your_own_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "own.md").read_text("utf-8")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for code in re.findall(r"^```python\n(.*?)^```", page, re.M | re.S):
        exec(code, names)
    assert names["agent"].facts.frames >= 2_000
    assert {path.name for path in (tmp_path / "runs").iterdir()} == {"cartpole-mine", "cartpole-wide"}
