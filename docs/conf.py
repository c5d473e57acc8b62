"""The documentation site: `make docs` builds it into site/, which needs no network and opens from the file system.

Pages are plain Markdown that reads well on its own. A line such as

    <!-- make: presets -->

in one is replaced by what `parts.presets` makes of the program itself; text before it on the line, which is for who
reads the page as it is, goes with it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_make"), str(HERE.parent / "src")]

import links  # noqa: E402
import parts  # noqa: E402
from tightrope import __version__ as release  # noqa: E402, F401

log = getLogger(__name__)

project = "Tightrope"
author = "The Tightrope authors"
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
exclude_patterns = ["_make"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

html_theme = "furo"
html_title = "Tightrope"
html_logo = html_favicon = "assets/rope.svg"
html_static_path = ["assets"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"
html_show_search_summary = False  # it would be fetched, which a browser refuses for files
html_show_copyright = html_show_sphinx = html_show_sourcelink = html_copy_source = False
pygments_style, pygments_dark_style = "friendly", "github-dark"
copybutton_exclude = ".linenos, .gp, .go"

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
default_role = "code"  # docstrings are Markdown
smartquotes = False  # -- is an option
autodoc_type_aliases = {"EnvMaker": "EnvMaker", "NetworkMaker": "NetworkMaker"}
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80


def make_parts(app: Sphinx, page: str, source: list[str]) -> None:
    def made(match: re.Match[str]) -> str:
        try:
            return str(getattr(parts, match[1])(*filter(None, [match[2]])))
        except (AttributeError, LookupError, OSError) as problem:
            log.warning(f"{match[0]}: {problem}", location=page)
            return ""

    source[0] = re.sub(r"^.*<!-- make: (\w+)(?: (.+))? -->$", made, source[0], flags=re.M)


def place_figures(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Figures become part of the page, so that they follow its theme."""

    def figure(match: re.Match[str]) -> str:
        svg = (HERE / "figures" / match[2]).read_text("utf-8")
        return f'<figure class="drawing" role="img" aria-label="{match[1]}">{svg}</figure>'

    if "body" in context:
        drawn = r'<p><img alt="([^"]*)" src="[^"]*_images/([\w-]+\.svg)" ?/?>\s*</p>'
        context["body"] = re.sub(drawn, figure, context["body"])


def name_aliases(app: Sphinx, kind: str, name: str, thing: Any, options: Any, signature: str, result: str) -> Any:
    """The name alone, where Sphinx shows how it keeps it."""
    return signature and re.sub(r"TypeAliasForwardRef\('(\w+)'\)", r"\1", signature), result


def check_links(app: Sphinx, exception: Exception | None) -> None:
    for problem in links.problems(Path(app.outdir)) if exception is None else ():
        log.warning(problem)


def setup(app: Sphinx) -> None:
    def formula(display: str) -> Any:
        """As MathML, which needs no script."""

        def visit(writer: Any, node: nodes.Element) -> None:
            writer.body.append(convert(node.astext(), display=display))
            raise nodes.SkipNode

        return visit, None

    app.add_html_math_renderer("mathml", formula("inline"), formula("block"))
    app.connect("source-read", make_parts)
    app.connect("html-page-context", place_figures)
    app.connect("autodoc-process-signature", name_aliases)
    app.connect("build-finished", check_links)
