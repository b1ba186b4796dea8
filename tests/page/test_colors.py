"""Text can be read in both themes: WCAG AA asks for a contrast of 4.5 to 1."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from airflow_kafka_offsets import page

STYLE = (Path(page.__file__).parent / "static" / "page.css").read_text()
BADGES = ("good", "warn", "bad", "plain", "violet")
PAIRS = [
    *((text, ground) for text in ("fg", "muted", "link") for ground in ("bg", "card")),
    ("bg", "fg"),  # a hint
    ("bg", "link"),  # the button of a replay
    *((badge, f"{badge}-bg") for badge in BADGES),
]


def colors(theme: str) -> dict[str, str]:
    """Return the colors of a theme by name; the dark one changes those of the light one."""
    blocks = re.findall(r"^(:root(?:\.dark)?) \{(.*?)^\}", STYLE, re.DOTALL | re.MULTILINE)
    values: dict[str, str] = {}
    for selector, block in blocks:
        if selector == ":root" or theme == "dark":
            values |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    return values


def brightness(color: str) -> float:
    """Return the relative luminance of a color, as WCAG 2 defines it."""
    shares = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colors, 1 to 21."""
    low, high = sorted((brightness(one), brightness(other)))
    return (high + 0.05) / (low + 0.05)


def test_black_on_white_is_the_most_there_is() -> None:
    assert round(contrast("#000000", "#ffffff"), 1) == 21.0


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_can_be_read(theme: str) -> None:
    values = colors(theme)
    assert {pair: c for pair in PAIRS if (c := contrast(values[pair[0]], values[pair[1]])) < 4.5} == {}


def test_both_themes_have_all_colors() -> None:
    light, dark = colors("light"), colors("dark")
    assert [name for name in light if light[name] == dark[name]] == []
