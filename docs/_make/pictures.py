"""Takes the report's pictures that README and pages show, from the rows in results/. `make pictures` runs it.

It needs Chromium, which it speaks to as the tests do.
"""

from __future__ import annotations

import base64
import csv
import sys
import tempfile
from pathlib import Path

from tightrope.report import write_report
from tightrope.study import read

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
AIR = 12  # around a part

sys.path.insert(0, str(ROOT / "tests"))
from chromium import Browser, find_chromium  # noqa: E402


def take(browser: Browser, rows: Path, name: str, width: int, height: int, scale: float, part: str = "") -> None:
    """The top of the report of these rows, or a part of it, which a CSS selector names, without captions."""
    with tempfile.TemporaryDirectory() as folder:
        browser.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        browser.open(write_report(rows, out=folder))
        clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
        if part:
            browser.run("document.querySelectorAll('figcaption').forEach(caption => caption.remove())")
            box = "(({x, y, width, height}) => ({x, y, width, height}))"
            found = browser.run(f"{box}(document.querySelector('{part}').getBoundingClientRect())")
            clip |= {"x": found["x"] - AIR, "y": found["y"] - AIR}
            clip |= {"width": found["width"] + 2 * AIR, "height": found["height"] + 2 * AIR}
        shot = browser.call("Page.captureScreenshot", format="png", clip=clip)
        (DOCS / name).write_bytes(base64.b64decode(shot["data"]))
        print(DOCS / name)


def headline(rows: Path, out: Path) -> Path:
    """The rows of study `headline`, as far as it has been run: the games that have preset tightrope with bounds and
    without, and of the study's arms those that have all of these games."""
    with open(rows, encoding="utf-8", newline="") as file:
        reader = csv.DictReader(file)
        found = [row for row in reader if row["state"] == "finished"]
    games_of = {arm.name: {row["game"] for row in found if row["arm"] == arm.name} for arm in read("headline").arms}
    games = games_of["tightrope"] & games_of["tightrope-return"]
    whole = {arm for arm, own in games_of.items() if games <= own}
    with open(out, "w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, reader.fieldnames or [])
        writer.writeheader()
        writer.writerows(row for row in found if row["game"] in games and row["arm"] in whole)
    return out


def main() -> None:
    results = ROOT / "results"
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(find_chromium(), Path(profile))
        try:
            take(browser, results / "atari.csv", "atari.png", 1000, 30_000, 1.4, "#figure-3")
            best = headline(results / "atari.csv", Path(profile) / "headline.csv")
            take(browser, best, "headline-frames.png", 1000, 30_000, 1.4, "#figure-s1")
            take(browser, best, "headline-clock.png", 1000, 30_000, 1.4, "#figure-clock")
            ablation = results / "minatar-ablation.csv"
            take(browser, ablation, "ablation.png", 1000, 30_000, 1.4, "#figure-aggregates .panel-box")
            take(browser, results / "laptop.csv", "report.png", 1200, 1900, 1)
        finally:
            browser.close()


if __name__ == "__main__":
    main()
