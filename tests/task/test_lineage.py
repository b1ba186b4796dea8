"""What OpenLineage gets of a task: through its real provider and client, from operators on a ledger with a Kafka in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import jsonschema
import pytest
from airflow.sdk import Asset
from airflow.utils.state import TaskInstanceState
from openlineage.client.serde import Serde

import airflow_kafka_offsets
from airflow_kafka_offsets import (
    CommitWindowOperator,
    KafkaSparkOperator,
    KafkaSparkSqlOperator,
    KafkaSparkSubmitOperator,
    wiring,
)
from airflow_kafka_offsets.core.evidence import Report
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lineage import MAX_RANGES
from airflow_kafka_offsets.core.plan.request import Windows
from airflow_kafka_offsets.core.run import Run, Try
from airflow_kafka_offsets.core.window import Scope
from airflow_kafka_offsets.decorators.kafka_spark import _KafkaSparkDecoratedOperator
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.task.airflow import Task
from airflow_kafka_offsets.task.definition import Stop
from airflow_kafka_offsets.task.openlineage import FACET, SCHEMA, TOTALS, TOTALS_SCHEMA
from airflow_kafka_offsets.task.work import Work
from tests.core.examples import NOON, claim, tp
from tests.lab.memory import IN_MEMORY
from tests.lab.processes import LOOPBACK, free_port
from tests.service.world import World
from tests.task.airflow import all_of, context_of
from tests.task.test_work import NEW, REPLAY

ROOT = Path(airflow_kafka_offsets.__file__).parent
SCHEMAS = ROOT / "schemas" / "openlineage"
PLACE = "file:///lake/orders"


@pytest.fixture
def world() -> Iterator[World]:
    """Return a world in which two windows are committed and ten records are unread."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        world = World(Path(folder))
        for n in range(2):
            world.kafka.produce(tp(0), 10)
            world.run(claim(f"run-{n}"))
        world.kafka.produce(tp(0), 10)
        yield world


def operator_of(world: World, **more: Any) -> KafkaSparkSubmitOperator:
    return KafkaSparkSubmitOperator(task_id="load", group=world.group, application="job.py", **more)


def work(world: World, operator: Any, planned: list[Planned], claim_: Any = NEW, *, fails_at: int = 0) -> None:
    """Let a task work on windows as the operators do; its job fails at the window of this number."""

    def run(one: Planned) -> Report:
        if one.window.seq == fails_at:
            raise RuntimeError("the job failed")
        counts: dict[str, dict[str, int]] = {}
        for read, offsets in one.window.ranges.without_empty().items():
            counts.setdefault(read.topic, {})[str(read.partition)] = offsets.span
        return Report(one.window.span, counts)

    task = Work(Run(claim_), world.service, world.group, planned, Stop())
    operator.trace("kafka-1:9093,kafka-2:9093", world.group.topics, task.read)
    with task:
        all_of(task, planned, run)


def event_of(operator: Any, state: TaskInstanceState = TaskInstanceState.SUCCESS) -> dict[str, Any]:
    """Return inputs, outputs and run facets as the provider's manager gets them, in the JSON of the client."""
    from airflow.providers.openlineage.extractors.manager import ExtractorManager

    dag_run = SimpleNamespace(run_id="run")
    extracted = ExtractorManager().extract_metadata(dag_run, operator, state, SimpleNamespace())
    event: dict[str, Any] = json.loads(Serde.to_json(extracted))
    return event


def ranges_in(event: dict[str, Any]) -> list[tuple[int, int, int, str]]:
    """Return partition, start, end and window of each range of the only topic."""
    (topic,) = event["inputs"]
    dimensions = [part["dimensions"] for part in topic["inputFacets"]["subset"]["inputCondition"]["partitions"]]
    return [(d["partition"], d["startOffset"], d["endOffset"], d["window"]) for d in dimensions]


def check_facet(event: dict[str, Any]) -> dict[str, Any]:
    """Check the run facet against the schema that it names, and return it."""
    return _checked(event["run_facets"][FACET])


def totals_in(event: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Return the totals of each topic, which fit the schema that they name."""
    facets = {topic["name"]: _checked(topic["inputFacets"][TOTALS]) for topic in event["inputs"]}
    return {name: {key: n for key, n in facet.items() if key[0] != "_"} for name, facet in facets.items()}


def _checked(facet: dict[str, Any]) -> dict[str, Any]:
    name, _, place = facet["_schemaURL"].partition("#")
    version, entity = name.split(":")[-2:]
    schema = json.loads((SCHEMAS / version / f"{entity}.json").read_text())
    assert schema["$id"] == name
    assert place == f"/$defs/{entity}"
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(
        {**schema, "$ref": f"#{place}"}, format_checker=jsonschema.FormatChecker()
    ).validate(facet)
    return facet


def test_a_task_tells_topics_with_their_ranges_and_its_window(world: World) -> None:
    operator = operator_of(world)
    work(world, operator, world.ask(NEW))
    event = event_of(operator)
    (topic,) = event["inputs"]
    assert (topic["namespace"], topic["name"]) == ("kafka://kafka-1:9093", "orders")
    assert ranges_in(event) == [(0, 20, 30, "lake-000003")]
    assert topic["inputFacets"]["subset"]["inputCondition"]["type"] == "partition"
    assert topic["inputFacets"]["inputStatistics"]["rowCount"] == 10
    assert totals_in(event) == {"orders": {"partitions": 1, "ranges": 1, "span": 10, "records": 10}}
    facet = check_facet(event)
    assert (facet["group"], facet["windowCount"]) == ("lake", 1)
    (one,) = facet["windows"]
    assert (one["windowId"], one["isRerun"], one["isCommitted"], one["records"]) == ("lake-000003", False, True, 10)


def test_beyond_the_limit_each_topic_has_its_totals_in_place_of_its_ranges(world: World) -> None:
    world.kafka.create("bills", MAX_RANGES)
    for number in range(MAX_RANGES):
        world.kafka.produce(tp(number, "bills"), 3)
    world.configure(topics=["orders", "bills"])
    operator = operator_of(world)
    work(world, operator, world.ask(NEW))
    event = event_of(operator)
    assert totals_in(event) == {
        "bills": {"partitions": MAX_RANGES, "ranges": MAX_RANGES, "span": 3 * MAX_RANGES, "records": 3 * MAX_RANGES},
        "orders": {"partitions": 1, "ranges": 1, "span": 10, "records": 10},
    }
    assert not any("subset" in topic["inputFacets"] for topic in event["inputs"])
    assert check_facet(event)["windows"][0]["span"] == 3 * MAX_RANGES + 10


def test_a_replay_of_several_windows_tells_all_of_them_as_reruns(world: World) -> None:
    operator = operator_of(world)
    work(world, operator, world.ask(REPLAY, Windows((1, 2))), REPLAY)
    event = event_of(operator)
    assert ranges_in(event) == [(0, 0, 10, "lake-000001"), (0, 10, 20, "lake-000002")]
    assert [(w["seq"], w["isRerun"]) for w in check_facet(event)["windows"]] == [(1, True), (2, True)]


def test_a_failed_task_tells_what_it_had_begun_to_read_and_that_it_is_not_committed(world: World) -> None:
    operator = operator_of(world, outlets=[Asset(PLACE)])
    with pytest.raises(RuntimeError):
        work(world, operator, world.ask(REPLAY, Windows((1, 2))), REPLAY, fails_at=1)
    event = event_of(operator, TaskInstanceState.FAILED)
    assert ranges_in(event) == [(0, 0, 10, "lake-000001")]
    assert [(w["seq"], w["isCommitted"], "records" in w) for w in check_facet(event)["windows"]] == [(1, False, False)]
    assert "inputStatistics" not in event["inputs"][0]["inputFacets"]
    assert totals_in(event) == {"orders": {"partitions": 1, "ranges": 1, "span": 10}}
    assert [o["name"] for o in event["outputs"]] == ["/lake/orders"]


def test_a_task_that_fails_before_it_has_a_window_tells_its_inlets_and_outlets(world: World) -> None:
    operator = operator_of(world, inlets=[Asset("kafka://kafka-1:9093/orders")], outlets=[Asset(PLACE)])
    event = event_of(operator, TaskInstanceState.FAILED)
    assert ([i["name"] for i in event["inputs"]], [o["name"] for o in event["outputs"]]) == (
        ["orders"],
        ["/lake/orders"],
    )
    assert FACET not in event["run_facets"]


def test_inlets_and_outlets_stay_and_a_topic_is_there_once(world: World) -> None:
    inlets = [Asset("kafka://kafka-1:9093/orders"), Asset("file:///lake/prices")]
    operator = operator_of(world, inlets=inlets, outlets=[Asset(PLACE)])
    work(world, operator, world.ask(NEW))
    event = event_of(operator)
    assert [i["name"] for i in event["inputs"]] == ["orders", "/lake/prices"]
    assert "subset" in event["inputs"][0]["inputFacets"]
    assert [o["name"] for o in event["outputs"]] == ["/lake/orders"]


def test_lineage_that_can_not_be_told_changes_nothing(world: World) -> None:
    operator = operator_of(world, outlets=[Asset(PLACE)])
    work(world, operator, world.ask(NEW))
    assert operator._traced is not None
    operator.trace("", ["orders"], operator._traced[-1])  # servers without a name: an error in the middle of it
    event = event_of(operator)
    assert (event["inputs"], [o["name"] for o in event["outputs"]]) == ([], ["/lake/orders"])


def test_a_topic_that_left_the_group_is_no_input_any_more(world: World) -> None:
    world.kafka.create("bills", 1)
    world.configure(topics=["orders", "bills"])
    world.run(claim("both"))
    world.configure(topics=["orders"])
    world.kafka.produce(tp(0), 10)
    operator = operator_of(world)
    work(world, operator, world.ask(NEW))
    event = event_of(operator)
    assert totals_in(event) == {"orders": {"partitions": 1, "ranges": 1, "span": 10, "records": 10}}
    assert check_facet(event)["windows"][0]["topicIds"].keys() == {"orders"}


def test_around_another_launcher_spark_s_own_option_names_the_kafka(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "open_service_for", lambda *_: world.service)
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "kafka-1:9093"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    world.configure(spark_options={"kafka.Bootstrap.servers": "inside:9094,kafka-2:9094"})
    planned = world.plan(claim("around", scope=Scope.RUN))
    operator = CommitWindowOperator(task_id="commit", window=planned.window.id)
    operator.execute(context_of(claim("around", "commit")))
    event = event_of(operator)
    assert [(topic["namespace"], topic["name"]) for topic in event["inputs"]] == [("kafka://inside:9094", "orders")]


def test_a_commit_task_that_is_cleared_alone_is_a_rerun_and_its_retry_after_a_death_is_not(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wiring, "open_service_for", lambda *_: world.service)
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "kafka-1:9093"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    planned = world.plan(claim("around", scope=Scope.RUN))
    window = {"window_id": planned.window.id, "is_rerun": False}

    def commit(this_try: Try) -> Any:
        operator = CommitWindowOperator(task_id="commit", window=window, green_is_enough=True, retries=2)
        return operator.execute(context_of(claim("around", "commit"), this_try))["is_rerun"]

    assert not commit(Try(1, 2, 2))
    assert not commit(Try(2, 2, 2)), "the first try died after its commit"
    assert commit(Try(3, 4, 2)), "cleared"


def test_a_catalog_that_is_away_loses_the_event_and_fails_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from airflow.providers.openlineage import conf
    from airflow.providers.openlineage.extractors.manager import ExtractorManager
    from airflow.providers.openlineage.plugins.adapter import OpenLineageAdapter

    away = {"type": "http", "url": f"http://{LOOPBACK}:{free_port()}", "retry": {"total": 0}}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__TRANSPORT", json.dumps(away))
    operator = operator_of(world)
    work(world, operator, world.ask(NEW))
    run: Any = SimpleNamespace(run_id="run")
    extracted = ExtractorManager().extract_metadata(run, operator, TaskInstanceState.SUCCESS, SimpleNamespace())
    nothing = dict.fromkeys(("nominal_start_time", "nominal_end_time", "owners", "tags", "job_description"))
    adapter = OpenLineageAdapter()
    event = adapter.complete_task(str(uuid4()), "dag.load", NOON.isoformat(), extracted, **nothing)
    assert FACET in event.run.facets
    with pytest.raises(OSError, match="refused"):  # or the line before shows nothing
        adapter.get_or_create_openlineage_client().emit(event)
    assert conf.execution_timeout() == 10, "docs/guarantees.md names how long Airflow waits for each event"


@pytest.mark.parametrize(
    "operator",
    [
        KafkaSparkSubmitOperator,
        KafkaSparkOperator,
        KafkaSparkSqlOperator,
        CommitWindowOperator,
        _KafkaSparkDecoratedOperator,
    ],
)
def test_every_operator_that_reads_windows_is_asked(operator: type) -> None:
    methods = {name for name in dir(operator) if name.startswith("get_openlineage_facets")}
    assert methods == {"get_openlineage_facets_on_complete", "get_openlineage_facets_on_failure"}


def own_session(monkeypatch: pytest.MonkeyPatch, folder: Path, **more: Any) -> dict[str, Any]:
    """Return the Spark properties that a task's own session is opened with."""
    monkeypatch.setenv("AIRFLOW_HOME", str(folder))
    kafka = {"conn_type": "kafka", "extra": {"bootstrap.servers": "127.0.0.1:9"}}
    monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(kafka))
    group = KafkaGroup("lake", topics=["orders"])
    operator = KafkaSparkOperator(
        task_id="load", group=group, python_callable=lambda window: None, connector=None, **more
    )
    run = SimpleNamespace(run_type="scheduled", conf=None, start_date=None, logical_date=NOON, clear_number=0)
    context = {**context_of(), "dag_run": run}
    context["ti"].dag_run, context["ti"].get_template_context = run, lambda: context
    return dict(operator._check_and_prepare(Task(operator, context)).settings)


def test_the_provider_s_spark_helpers_are_imported_only_if_airflow_is_told_to_use_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # An import of this name fails now.
    monkeypatch.setitem(sys.modules, "airflow.providers.common.compat.openlineage.utils", None)
    task = Task(CommitWindowOperator(task_id="commit", window="lake-000001"), context_of())
    assert task.with_parent_run({"spark.app.name": "mine"}) == {"spark.app.name": "mine"}
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO", "True")
    with pytest.raises(ModuleNotFoundError):
        task.with_parent_run({})


@pytest.mark.slow
def test_a_session_of_the_task_s_own_knows_the_run_if_airflow_is_told_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from airflow.providers.openlineage.plugins.macros import lineage_run_id

    assert not any("openlineage" in name for name in own_session(monkeypatch, tmp_path))
    monkeypatch.setenv("AIRFLOW__OPENLINEAGE__SPARK_INJECT_PARENT_JOB_INFO", "True")
    run = SimpleNamespace(logical_date=NOON)
    ti: Any = SimpleNamespace(dag_id="dag", task_id="load", map_index=-1, try_number=1, dag_run=run)
    ti.get_template_context = dict
    extracted = own_session(monkeypatch, tmp_path)
    assert extracted["spark.openlineage.parentJobName"] == "dag.load"
    assert extracted["spark.openlineage.parentRunId"] == lineage_run_id(ti)
    own = own_session(monkeypatch, tmp_path, config_kwargs={"spark.openlineage.parentJobName": "mine"})
    assert {name: value for name, value in own.items() if "openlineage" in name} == {
        "spark.openlineage.parentJobName": "mine"
    }


# Whoever has events of a version reads them with its schema. For another schema, add a version.
PUBLISHED = {
    "1-0-0/KafkaOffsetsTotalsInputDatasetFacet.json": "d70c3db675b3558ed01cfb4d23fdd6ca1010cb6f7133e9322b26f9d0f6440746",
    "1-0-0/KafkaOffsetsWindowRunFacet.json": "fecebcfc597be76bf19f3ee07a3c89e28a98244463893202220b11a84327a46b",
}


def test_the_schemas_of_the_facets_are_the_only_files_of_their_version() -> None:
    files = {str(path.relative_to(SCHEMAS)) for path in SCHEMAS.rglob("*.json")}
    assert files == PUBLISHED.keys()
    version = "urn:airflow-kafka-offsets:openlineage:1-0-0:"
    assert {f"1-0-0/{name.removeprefix(version).partition('#')[0]}.json" for name in (SCHEMA, TOTALS_SCHEMA)} == files


@pytest.mark.parametrize("file", PUBLISHED)
def test_a_published_schema_never_changes(file: str) -> None:
    assert sha256((SCHEMAS / file).read_bytes()).hexdigest() == PUBLISHED[file]


WITHOUT_THE_CLIENT = """
import sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "openlineage":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Absent())
from airflow_kafka_offsets import CommitWindowOperator, KafkaSparkOperator, KafkaSparkSqlOperator, KafkaSparkSubmitOperator
from airflow_kafka_offsets.task import plan, work
print([name for name in sys.modules if name == "airflow_kafka_offsets.task.openlineage"])
"""


@pytest.mark.slow
def test_without_openlineage_nothing_asks_for_it_and_nothing_fails() -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_THE_CLIENT], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "[]"
