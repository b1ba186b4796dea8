"""HTML of values. Jinja2 escapes all texts, and rectangles are made of numbers only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from datetime import datetime
from functools import cache
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from airflow_kafka_offsets.core.lag.words import GroupVerdict, place
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.page import words
from airflow_kafka_offsets.page.now import NOT_KNOWN, NowView
from airflow_kafka_offsets.page.strips import Strip


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("airflow_kafka_offsets.page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        number=words.number,
        short_number=words.short_number,
        sentence=words.sentence,
        stamp=stamp,
        rectangles=rectangles,
        url=lambda text: quote(str(text), safe=""),
        task_path=task_path,
        run_path=run_path,
    )
    return environment


def html(template: str, context: Mapping[str, Any]) -> str:
    """Return a page."""
    return _environment().get_template(template).render(context)


def stamp(value: datetime | None) -> Markup:
    """Return a moment. The page's script shows it in the zone of Airflow's UI."""
    if value is None:
        return Markup(words.NOTHING)
    # It has only numbers and the names of months: to escape them takes a quarter of the time of a list of 1,000 groups.
    return Markup(
        f'<time datetime="{value.isoformat()}" title="{value:%Y-%m-%d %H:%M:%S} UTC">{words.stamp(value)}</time>'
    )


def rectangles(strip: Strip, hidden: Collection[int] = ()) -> Markup:
    """Return the blocks of a strip as SVG; windows in `hidden` get no number."""
    parts: list[str] = []
    for block in strip.blocks:
        shade = " odd" if block.is_odd else ""
        named = f' data-w="{block.seq}"' if block.seq is not None and block.seq not in hidden else ""
        parts.append(
            f'<rect class="{block.kind.value}{shade}" x="{block.x:g}%" width="{block.width:g}%" '
            f'data-r="{block.start}-{block.end}"{named}/>'
        )
    return Markup("".join(parts))  # only numbers and the names of kinds


def run_path(claim: Claim) -> str:
    """Return the path of a run in Airflow's UI."""
    return f"dags/{quote(claim.dag_id, safe='')}/runs/{quote(claim.run_id, safe='')}"


def task_path(claim: Claim) -> str:
    """Return the path of a task instance in Airflow's UI."""
    mapped = f"/mapped/{claim.map_index}" if claim.map_index >= 0 else ""
    return f"{run_path(claim)}/tasks/{quote(claim.task_id, safe='')}{mapped}"


def now_of_all(views: Mapping[str, NowView]) -> dict[str, Any]:
    """Return the cells of groups in the list, as HTML."""
    cells = {
        name: {
            "verdict": _part("verdict", view),
            "lag": _part("lag", view),
            "headroom": _part("headroom", view),
            "look": view.needs_a_look,
        }
        for name, view in views.items()
    }
    counts = Counter(view.verdict for view in views.values() if view.needs_a_look)
    worst_first = sorted(counts, key=lambda word: place(None if word == NOT_KNOWN else GroupVerdict(word)))
    return {
        "parts": {"summary": "".join(f" · {counts[verdict]:,} {verdict.lower()}" for verdict in worst_first)},
        "groups": cells,
    }


def now_of_one(view: NowView) -> dict[str, Any]:
    """Return the parts of a group's page that Kafka answers for, as HTML."""
    return {
        "parts": {
            "verdict": _part("verdict", view),
            "reason": _part("reason", view),
            "card-lag": _part("lag", view),
            "card-headroom": _part("headroom", view),
        }
    }


def _part(name: str, view: NowView) -> str:
    macro = getattr(_environment().get_template("now.html").module, name)
    return str(macro(view)).strip()
