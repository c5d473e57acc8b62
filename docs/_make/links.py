"""Checks a built site: every link within it leads somewhere, and no page needs anything from elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """What a page defines and what it refers to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []  # what a browser fetches without being asked
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.ids |= {value for key in ("id", "name") if (value := found.get(key))}
        if tag in ("a", "area") and (href := found.get("href")):
            self.links.append(href)
        passive = found.get("rel") in ("canonical", "next", "prev")
        loaded = found.get("src") or (found.get("href") if tag == "link" and not passive else None)
        if loaded:
            self.loads.append(loaded)


def problems(site: Path) -> Iterator[str]:
    """A sentence for each broken link, in the order of the pages."""
    pages = {path: Page(path.read_text("utf-8")) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        name = path.relative_to(site)
        for link in page.loads:
            if urlsplit(link).netloc:
                yield f"{name} loads {link}, and the site is to need no network"
        for link in page.links + page.loads:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            # A server's root, as in 404.html, is the site's.
            start = site if parts.path.startswith("/") else path.parent
            target = (start / unquote(parts.path).lstrip("/")).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            if not target.is_file():
                yield f"{name} links to {link}, which does not exist"
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].ids:
                yield f"{name} links to {link}, and there is no such place on that page"
