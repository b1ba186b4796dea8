"""Alert rules, dashboard and StatsD mapping name only metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import airflow_kafka_offsets
from airflow_kafka_offsets.core.lag.lag import GroupVerdict
from airflow_kafka_offsets.core.state_metrics import families
from airflow_kafka_offsets.task import metrics as names
from tests.core.examples import NOON

FOLDER = Path(airflow_kafka_offsets.__file__).parent / "monitoring"
DOCS = Path(airflow_kafka_offsets.__file__).parents[1] / "docs"
SENT = {name.removeprefix("kafka_offsets."): name for name in (*names.COUNTERS, *names.TIMERS)}
STATE = {family.name: set(family.labels) for family in families([], NOON)}


def exported() -> dict[str, set[str]]:
    """Return the metrics that Prometheus has, with their labels: of the state, and of tasks through the mapping."""
    timers = {name.removeprefix("kafka_offsets.") for name in names.TIMERS}
    of_tasks = {
        f"kafka_offsets_task_{name}{end}": {"group"}
        for name in SENT
        for end in (("_sum", "_count") if name in timers else ("",))
    }
    return {**STATE, **of_tasks}


def alert_rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    rules: list[dict[str, Any]] = group["rules"]
    return rules


def dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return found


def expressions() -> Iterator[Any]:
    """Give each expression of both files."""
    for rule in alert_rules():
        yield pytest.param(rule["expr"], id=rule["alert"])
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            yield pytest.param(target["expr"], id=f"{panel['title']} {target['refId']}")


@pytest.mark.parametrize("expression", list(expressions()))
def test_an_expression_names_metrics_and_labels_that_exist(expression: str) -> None:
    known = exported()
    found = re.findall(r"\b(kafka_offsets_\w+)(?:\{([^}]*)\})?", expression)
    assert found
    labels = set()
    for metric, selector in found:
        assert metric in known
        assert set(re.findall(r"(\w+)\s*(?:=~?|!)", selector)) <= known[metric]
        labels |= known[metric]
    for by in re.findall(r"\bby \(([^)]*)\)", expression):
        assert set(re.split(r",\s*", by)) <= labels
    for verdict in re.findall(r'verdict="([^"]*)"', expression):
        assert verdict in set(GroupVerdict)


def test_what_a_legend_shows_is_a_label_of_its_series() -> None:
    known = exported()
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            by = re.findall(r"\bby \(([^)]*)\)", target["expr"])
            metrics = re.findall(r"\b(kafka_offsets_\w+)", target["expr"])
            kept = [set(re.split(r",\s*", labels)) for labels in by] or [known[metric] for metric in metrics]
            assert shown <= set.intersection(*kept), panel["title"]


def test_the_choices_of_the_dashboard_are_labels_of_a_metric_and_all_that_is_asked_for_can_be_chosen() -> None:
    known, found = exported(), dashboard()
    variables = {one["name"]: one for one in found["templating"]["list"]}
    asked = [one for one in variables.values() if one["type"] == "query"]
    assert asked
    for one in asked:
        (chosen,) = re.findall(r"^label_values\((\w+), (\w+)\)$", one["definition"])
        assert one["query"]["query"] == one["definition"]
        assert chosen[1] in known[chosen[0]]
    assert set(re.findall(r"\$\{?(\w+)", json.dumps(found["panels"]))) <= set(variables)


def test_the_reference_lists_every_metric_and_no_other() -> None:
    reference = (DOCS / "reference" / "metrics.md").read_text()
    assert not [name for name in (*STATE, *SENT.values()) if f"`{name}`" not in reference]
    rows = set(re.findall(r"^\| `(kafka_offsets[._]\w+)` \|", reference, flags=re.MULTILINE))
    assert rows == {*STATE, *SENT.values()}


def test_the_reference_has_the_labels_of_each_metric() -> None:
    reference = (DOCS / "reference" / "metrics.md").read_text()
    for name, labels in STATE.items():
        (row,) = re.findall(rf"^\| `{name}` \|([^|]*)\|", reference, flags=re.MULTILINE)
        assert set(re.findall(r"`(\w+)`", row)) == labels, name


def test_the_page_lists_every_alert() -> None:
    page = (DOCS / "howto" / "metrics-and-alerts.md").read_text()
    assert re.findall(r"^\| `(\w+)` \|", page, flags=re.MULTILINE) == [rule["alert"] for rule in alert_rules()]


def test_the_labels_that_alerts_show_are_there() -> None:
    known = exported()
    for rule in alert_rules():
        shown = set(re.findall(r"\$labels\.(\w+)", str(rule["annotations"])))
        of_metrics = set().union(*(known[metric] for metric in re.findall(r"kafka_offsets_\w+", rule["expr"])))
        assert shown <= of_metrics, rule["alert"]
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_panels_have_different_places_and_say_what_they_show() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for panel in panels
        for place in [panel["gridPos"]]
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert all(x < 24 for x, _ in cells)
    assert all(panel["description"] for panel in panels if panel["type"] != "row")


def mapped(sent: str) -> tuple[str, dict[str, str]] | None:
    """Return the name and labels that the mapping gives to what Airflow sends; None: it is dropped."""
    for rule in yaml.safe_load((FOLDER / "statsd_mapping.yml").read_text())["mappings"]:
        # As statsd_exporter reads a glob: a star is one part of the name.
        found = re.fullmatch(re.escape(rule["match"]).replace(r"\*", "([^.]*)"), sent)
        if found is None:
            continue
        if rule.get("action") == "drop":
            return None
        labels = {label: _filled(text, found) for label, text in rule["labels"].items()}
        return _filled(rule["name"], found), labels
    raise AssertionError(f"{sent} matches nothing")


def _filled(text: str, found: re.Match[str]) -> str:
    return re.sub(r"\$(\d)", lambda number: found[int(number[1])], text)


@pytest.mark.parametrize("name", SENT)
def test_the_mapping_takes_what_tasks_send_and_counts_nothing_twice(name: str) -> None:
    sent = SENT[name]
    long_name = names.name_with_group(sent, "lake.orders")
    assert mapped(f"airflow.{long_name}") == (f"kafka_offsets_task_{name}", {"group": "lake__orders"})
    assert mapped(f"airflow.{sent}") is None
