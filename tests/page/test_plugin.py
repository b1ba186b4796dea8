"""Airflow imports the plugin in every process: it must cost nothing where no one looks at the page."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from airflow_kafka_offsets.page.plugin import KafkaOffsetsPlugin

PACKAGE = "airflow_kafka_offsets"
HEAVY = [
    *("fastapi", "starlette", "jinja2", "sqlalchemy", "confluent_kafka", "airflow.api_fastapi.core_api.security"),
    *(f"{PACKAGE}.page.app", f"{PACKAGE}.page.render", f"{PACKAGE}.service", f"{PACKAGE}.wiring", f"{PACKAGE}.core"),
]


def added_by(code: str, before: str) -> str:
    """Return the heavy modules that some code imports in addition."""
    program = f"import sys\n{before}\nhad = set(sys.modules)\n{code}\nprint([m for m in {HEAVY} if m in sys.modules and m not in had])"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=Path(__file__).parents[2], check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


def test_it_is_found_by_its_entry_point() -> None:
    [entry] = [point for point in entry_points(group="airflow.plugins") if point.value.startswith(PACKAGE)]
    assert entry.load() is KafkaOffsetsPlugin


@pytest.mark.slow
def test_the_plugin_imports_neither_the_page_nor_a_web_framework() -> None:
    assert (
        added_by(f"import {PACKAGE}.page.plugin", "from airflow.providers.common.compat.sdk import AirflowPlugin")
        == "[]"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "process",
    [
        "airflow.sdk.execution_time.task_runner",
        "airflow.__main__",
        "airflow.jobs.scheduler_job_runner, airflow.jobs.triggerer_job_runner, airflow.dag_processing.processor",
    ],
)
def test_no_process_but_the_api_server_gets_the_page(process: str) -> None:
    # What such a process has by itself is not ours; what loading the plugins adds is.
    load = "from airflow import plugins_manager; plugins_manager.ensure_plugins_loaded()"
    others = f"import {process}, importlib.metadata as m\n[p.load() for p in m.entry_points(group='airflow.plugins') if 'kafka_offsets.page' not in p.value]"
    assert added_by(load, others) == "[]"


def test_each_view_has_a_route_of_its_own_and_a_relative_address() -> None:
    views = KafkaOffsetsPlugin.external_views
    assert [view["destination"] for view in views] == ["nav", "dag", "dag_run", "task_instance"]
    assert len({view["url_route"] for view in views}) == len(views)
    assert all(view["href"].startswith("kafka-offsets/") for view in views)
