"""What Airflow imports of the page, in all of its processes: an entry in the navigation, tabs, and an app that is made on its first request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from functools import cache
from typing import Any

from airflow_kafka_offsets.airflow_versions import AirflowPlugin
from airflow_kafka_offsets.page import NAV, PREFIX, TITLE

_Scope = MutableMapping[str, Any]
_App = Callable[[_Scope, Callable[[], Awaitable[Any]], Callable[[Any], Awaitable[None]]], Awaitable[None]]


@cache
def _app() -> _App:
    # Only the API server answers requests. So no other process imports FastAPI, or the page.
    from airflow_kafka_offsets.page.app import app

    return app


async def lazy_app(
    scope: _Scope, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
) -> None:
    """Answer a request with the app (ASGI)."""
    await _app()(scope, receive, send)


def _view(name: str, path: str, destination: str, route: str, **more: Any) -> dict[str, Any]:
    # Relative: Airflow's UI resolves it against the path of base_url.
    return {"name": name, "href": f"{PREFIX}/{path}", "destination": destination, "url_route": route, **more}


_ICONS = {"icon": f"{PREFIX}/static/icon.svg", "icon_dark_mode": f"{PREFIX}/static/icon-dark.svg"}


class KafkaOffsetsPlugin(AirflowPlugin):
    """Kafka windows in Airflow's UI."""

    name = "kafka_offsets"
    fastapi_apps = [{"app": lazy_app, "url_prefix": f"/{PREFIX}", "name": TITLE}]  # noqa: RUF012
    external_views = [  # noqa: RUF012
        _view(TITLE, "groups", "nav", NAV, category="browse", **_ICONS),
        _view(TITLE, "dag?dag_id={DAG_ID}", "dag", f"{NAV}-dag", **_ICONS),
        _view(TITLE, "run?dag_id={DAG_ID}&run_id={RUN_ID}", "dag_run", f"{NAV}-run", **_ICONS),
        _view(
            TITLE,
            "task?dag_id={DAG_ID}&run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}",
            "task_instance",
            f"{NAV}-task",
            **_ICONS,
        ),
    ]
