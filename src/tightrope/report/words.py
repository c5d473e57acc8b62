"""Numbers as a person reads them."""

from __future__ import annotations

from collections.abc import Iterable


def number(value: float, digits: int = 4) -> str:
    """So many digits that count, thousands apart, a real minus sign.

    >>> number(-20.5666), number(12345.6), number(0.5), number(3974.11), number(1e-9)
    ('−20.57', '12,346', '0.5', '3,974', '0')
    """
    if abs(value) < 1e-6:
        return "0"
    size = len(str(int(abs(value))))
    text = f"{value:,.{max(0, digits - size)}f}"
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text.strip("-0,.") == "" else text.replace("-", "−")


def fixed(value: float, decimals: int) -> str:
    """
    >>> fixed(345.7, 2), fixed(-0.001, 1)
    ('345.70', '0.0')
    """
    text = f"{value:,.{decimals}f}"
    return (text.removeprefix("-") if text.strip("-0,.") == "" else text).replace("-", "−")


def score_text(value: float) -> str:
    """A score with as many decimals as its size makes worth reading, so that columns align.

    >>> score_text(-3.6667), score_text(28.4), score_text(565.67), score_text(3974.11)
    ('−3.67', '28.40', '565.7', '3,974')
    """
    return fixed(value, 2 if abs(value) < 100 else 1 if abs(value) < 1000 else 0)


def clipped(text: str, most: int) -> str:
    """
    >>> clipped("paper", 8), clipped("released-close", 8)
    ('paper', 'release…')
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def hours(seconds: float) -> str:
    """
    >>> hours(42), hours(373), hours(35 * 3600)
    ('42 s', '6.2 min', '35.0 h')
    """
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def spread(counts: Iterable[int], noun: str = "") -> str:
    """
    >>> spread([3, 3], "seed"), spread([1], "seed"), spread([1, 5, 2])
    ('3 seeds', '1 seed', '1–5')
    """
    low, high = min(counts := list(counts)), max(counts)
    text = str(low) if low == high else f"{low}–{high}"
    return text + (f" {noun}" + ("" if high == 1 else "s") if noun else "")
