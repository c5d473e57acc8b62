"""Takes the report's pictures that README and pages show, from the rows in results/. `make pictures` runs it.

It needs Chromium, which it speaks to as the tests do.
"""

from __future__ import annotations

import base64
import sys
import tempfile
from pathlib import Path

from tightrope.report import write_report

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
AIR = 12  # around a part

sys.path.insert(0, str(ROOT / "tests"))
from chromium import Browser, find_chromium  # noqa: E402


def take(browser: Browser, rows: str, name: str, width: int, height: int, scale: float, part: str = "") -> None:
    """The top of the report of these rows, or a part of it, which a CSS selector names, without captions."""
    with tempfile.TemporaryDirectory() as folder:
        browser.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=scale, mobile=False
        )
        browser.open(write_report(ROOT / "results" / rows, out=folder))
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


def main() -> None:
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(find_chromium(), Path(profile))
        try:
            take(browser, "atari.csv", "atari.png", 1000, 30_000, 1.4, "#figure-3")
            take(browser, "minatar-ablation.csv", "ablation.png", 1000, 30_000, 1.4, "#figure-aggregates .panel-box")
            take(browser, "laptop.csv", "report.png", 1200, 1900, 1)
        finally:
            browser.close()


if __name__ == "__main__":
    main()
