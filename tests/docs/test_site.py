"""What `make docs` builds has every page and every public name. It checks links and anchors; these tests need no MkDocs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

import airflow_kafka_offsets
import airflow_kafka_offsets.spark
from airflow_kafka_offsets.get_provider_info import get_provider_info
from tests.docs.test_docs import PAGES, ROOT

DOCS = ROOT / "docs"
FIGURES = sorted(DOCS.glob("images/*.svg"))


class _Loader(yaml.SafeLoader):
    """Reads mkdocs.yml without what its tags would call."""


_Loader.add_multi_constructor("", lambda loader, suffix, node: None)


def settings() -> Any:
    return yaml.load((ROOT / "mkdocs.yml").read_text(), Loader=_Loader)


def pages_of(navigation: Any) -> Iterator[str]:
    """Return the pages of a navigation, in its order."""
    if isinstance(navigation, str):
        yield navigation
    else:
        for part in navigation.values() if isinstance(navigation, dict) else navigation:
            yield from pages_of(part)


def test_the_navigation_has_each_page_once() -> None:
    found = list(pages_of(settings()["nav"]))
    assert len(found) == len(set(found))
    beside = {"changelog.md", "contributing.md", "security.md"}
    assert set(found) - beside == {str(page.relative_to(DOCS)) for page in PAGES if DOCS in page.parents}
    hooks = (DOCS / "site" / "hooks.py").read_text()
    assert beside == set(re.findall(r'"(\w+\.md)": "[A-Z]+\.md"', hooks))


def test_the_reference_has_every_public_name_once() -> None:
    text = "\n".join(page.read_text() for page in sorted((DOCS / "reference").glob("*.md")))
    shown = re.findall(r"^::: airflow_kafka_offsets\.\S+\.(\w+)$", text, flags=re.MULTILINE)
    assert len(shown) == len(set(shown))
    exported = {*airflow_kafka_offsets.__all__, *airflow_kafka_offsets.spark.__all__}
    # A decorator that Airflow finds, what all sensors take, and what all windows know.
    beside = {"kafka_spark_task", "ConditionSensor", "WindowReading"}
    assert exported - {"KafkaWindowError"} == set(shown) - beside


def test_what_the_reference_shows_is_where_it_says() -> None:
    for page in (DOCS / "reference").glob("*.md"):
        for path in re.findall(r"^::: (\S+)$", page.read_text(), flags=re.MULTILINE):
            module = ROOT.joinpath(*path.split("."))
            module, name = (module, "") if module.with_suffix(".py").exists() else (module.parent, module.name)
            code = module.with_suffix(".py").read_text()
            assert not name or re.search(rf"^(?:class|def) {name}\b", code, flags=re.MULTILINE), path


def test_the_page_of_the_configuration_has_every_option() -> None:
    page = (DOCS / "reference" / "configuration.md").read_text()
    options = get_provider_info()["config"]["kafka_offsets"]["options"]
    rows = re.findall(
        r"^\| `\[kafka_offsets\] (\w+)` \| `AIRFLOW__KAFKA_OFFSETS__(\w+)` \| (.*) \|$", page, re.MULTILINE
    )
    assert [name for name, _, _ in rows] == list(options)
    for name, variable, default in rows:
        assert variable == name.upper()
        assert (options[name]["default"] or "") in default


@pytest.mark.parametrize("figure", FIGURES, ids=lambda figure: figure.name)
def test_a_figure_can_be_read_in_light_and_dark_and_aloud(figure: Any) -> None:
    text = figure.read_text()
    namespace = "{http://www.w3.org/2000/svg}"
    root = ElementTree.fromstring(text)
    assert all((root.findtext(f"{namespace}{part}") or "").strip() for part in ("title", "desc"))
    assert "prefers-color-scheme: dark" in text
    light, dark = (
        set(re.findall(r"^ *(?:@media.*)?([.\w]+) \{[^}]*(?:fill|stroke): #", part, re.MULTILINE))
        for part in text.split("@media")
    )
    assert light == dark, "a class has its colors in one of the two only"
    used = {name for element in root.iter() for name in element.get("class", "").split()}
    assert used <= set(re.findall(r"\.(\w+) \{", text))


def test_there_are_figures_and_a_page_shows_each() -> None:
    shown = "\n".join(page.read_text() for page in PAGES)
    assert len(FIGURES) >= 3
    assert not [figure.name for figure in FIGURES if f"images/{figure.name})" not in shown]
