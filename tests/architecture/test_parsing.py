"""docs/design.md, Layers: DAG files are parsed every few seconds, so what only a task needs is imported in the task."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import airflow_kafka_offsets
from tests.bench.parsing import FILES
from tests.versions import needs_light_providers

PACKAGE = "airflow_kafka_offsets"

GROUP = {
    "core",
    "core.errors",
    "core.fields",
    "core.group",
    "core.log",
    "core.offsets",
    "core.output_tables",
    "core.ranges",
    "core.schemas",
    "core.secrets",
    "core.spark_json",
    "core.starting",
    "core.store_address",
    "core.window_id",
    "spark",
    "spark.shared",
}
OPERATOR = {*GROUP, "core.launch.start_choice", "task.definition", "task.links"}
SUBMIT = {
    *OPERATOR,
    "airflow_versions",
    "core.launch.jobs",
    "launch.twins",
    "operators.spark_submit",
    "launch.standalone",
    "launch.submit_hook",
    "spark.parent",
}
SPARK = {*OPERATOR, "operators.kafka_spark"}
WINDOW = {*OPERATOR, "operators.window"}
CONDITION = {*GROUP, "core.conditions", "core.lag.words"}
SENSOR = {*CONDITION, "sensors", "sensors.condition"}

# Of our modules, and nothing else that what is extended has not imported: no client, no part of Airflow or of a provider.
ALLOWED = {
    "KafkaGroup": GROUP,
    "StoreAddress": GROUP,
    "Registry": GROUP,
    "KafkaSparkSubmitOperator": SUBMIT,
    "KafkaSparkOperator": SPARK,
    "KafkaSparkSqlOperator": {*SPARK, "operators.kafka_spark_sql", "launch.statements"},
    "@task.kafka_spark": {*SPARK, "decorators", "decorators.kafka_spark"},
    "PlanWindowOperator": WINDOW,
    "PlanBacklogOperator": WINDOW,
    "CommitWindowOperator": WINDOW,
    "KafkaUnreadSensor": {*SENSOR, "sensors.kafka"},
    "KafkaTimeSensor": {*SENSOR, "sensors.kafka"},
    "KafkaLagSensor": {*SENSOR, "sensors.kafka"},
    "KafkaVerdictSensor": {*SENSOR, "sensors.kafka"},
    "WindowCommittedSensor": {*SENSOR, "sensors.window"},
    "KafkaVerdictTrigger": {*CONDITION, "triggers", "triggers.event"},
    "KafkaOffsetsTrigger": {*CONDITION, "triggers", "triggers.event"},
    "replay_params": {"params"},
}


@pytest.fixture(scope="module")
def imports() -> dict[str, dict[str, str]]:
    """What the parse of each public name imports, and who imports it."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.architecture.parses"],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, str]] = json.loads(done.stdout.splitlines()[-1])
    return found


def packages_of(module: str) -> Iterator[str]:
    """Return the packages that a module lies in."""
    while "." in module:
        module = module.rpartition(".")[0]
        yield module


def test_every_public_name_is_parsed() -> None:
    assert {*airflow_kafka_offsets.__all__, "@task.kafka_spark"} == set(FILES)


@needs_light_providers
@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_parse_imports_only_what_the_list_allows(name: str, imports: dict[str, dict[str, str]]) -> None:
    listed = {f"{PACKAGE}.{module}" for module in ALLOWED[name]}
    allowed = listed | {package for module in listed for package in packages_of(module)}
    assert [
        f"The parse of a DAG with {name} imports {module}, and {importer} is who imports it: let it do so where a task first "
        "needs it, or add the module to ALLOWED if a parse needs it"
        for module, importer in imports[name].items()
        if module not in allowed
    ] == []
