"""Output and offsets in one transaction, from Kafka to the table: a real ledger, a real Kafka, a real Spark."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.core.errors import OutputError
from airflow_kafka_offsets.core.evidence import Report
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan.request import Windows
from airflow_kafka_offsets.core.run import Run, Try
from airflow_kafka_offsets.core.window import Claim, State
from airflow_kafka_offsets.launch.job_files import handoff_of
from airflow_kafka_offsets.ledger import schema
from airflow_kafka_offsets.ledger.engine import open_engine
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.plan import LIVE, Planned
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.spark import KafkaWindow
from airflow_kafka_offsets.spark.errors import IncompleteReadError, TargetError
from airflow_kafka_offsets.spark.shared import stage_prefix
from tests.lab.topics import create_topic, produce
from tests.spark.jdbc import Database
from tests.task.airflow import work_on

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_kafka_offsets.core.plan.request import Request
    from tests.lab.databases import Postgres
    from tests.lab.kafka import KafkaBroker

    Job = Any


class Pipeline:
    """A group whose output is a table beside its ledger, and tasks that work on its windows as the operators do."""

    def __init__(self, database: Database, kafka: KafkaBroker, spark: SparkSession, topic: str) -> None:
        self.database, self.kafka, self.spark, self.topic = database, kafka, spark, topic
        self.table = f"public.orders_{uuid.uuid4().hex[:8]}"
        database.create(self.table)
        self.group = KafkaGroup(f"lake.{topic}", topics=[topic], output_tables=self.table)
        self.ledger = Ledger(database.url)
        log = KafkaLog({"bootstrap.servers": kafka.bootstrap_servers}, 30)
        self.service = WindowService(self.ledger, log, output=self.group.output_tables)

    def run(self, run: str, job: Job, request: Request = LIVE, clears: int = 0) -> list[dict[str, Any]]:
        """Let a task plan and work, as an operator does; a second call with the same name is a retry."""
        claim = Claim(f"dag-{self.topic}", run, "load")  # a run has windows in one group
        this_try = Try(clears + 1, clears)
        planned = self.service.plan(self.group, claim, lambda _: True, request, this_try=this_try)
        run_ = Run(claim, this_try)
        return work_on(self.service, self.group, run_, planned, lambda p: self._launch(p, job))

    def _launch(self, planned: Planned, job: Job) -> Report:
        options = {"kafka.bootstrap.servers": self.kafka.bootstrap_servers}
        window = KafkaWindow(self.spark, handoff_of(planned, options, self.group, None))
        job(window)
        window.finish()
        return Report(window.records)

    def stage(self, window: KafkaWindow, condition: str = "true", table: str = "") -> int:
        """Run the steps of a user's job."""
        df = window.read().selectExpr("cast(cast(value as string) as int) as n").filter(condition)
        return window.stage_jdbc(df, self.database.jdbc, table or self.table, self.database.properties)

    def found(self) -> list[tuple[int, int]]:
        """Return the rows of the table: the window's number, and `n`."""
        return [(int(window.rpartition("-")[2]), n) for window, n in self.database.found(self.table)]

    def stages(self) -> list[str]:
        """Return the staging tables of the group's windows."""
        prefixes = tuple(stage_prefix(row.window.id, self.table) for row in self.ledger.windows(self.group.name))
        return [name for name in self.database.stages() if name.startswith(prefixes)]

    def states(self) -> list[State]:
        """Return how the windows stand, oldest first."""
        return [row.window.state for row in reversed(self.ledger.windows(self.group.name))]


@pytest.fixture(scope="module")
def database(postgres: Postgres) -> Database:
    """Return a database with a ledger."""
    url = postgres.create_database(f"output_{uuid.uuid4().hex[:8]}")
    schema.upgrade(open_engine(url))
    return Database(url)


@pytest.fixture
def pipeline(database: Database, kafka: KafkaBroker, spark: SparkSession, topic: str) -> Pipeline:
    """Return a pipeline whose topic has ten records."""
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    return Pipeline(database, kafka, spark, topic)


def test_rows_are_there_exactly_when_their_window_is_committed(pipeline: Pipeline) -> None:
    seen: list[Any] = []

    def job(window: KafkaWindow) -> None:
        assert pipeline.stage(window, "n < 12") == min(window.span, 12 - window.ranges[pipeline.topic][0][0])
        seen.append((pipeline.found(), pipeline.states()))

    pipeline.run("first", job)
    produce(pipeline.kafka, pipeline.topic, 5, first=10)
    pipeline.run("second", job)
    first = [(1, n) for n in range(10)]
    assert seen == [([], [State.PLANNED]), (first, [State.COMMITTED, State.PLANNED])]
    assert pipeline.found() == [*first, (2, 10), (2, 11)]
    assert pipeline.states() == [State.COMMITTED, State.COMMITTED]
    assert pipeline.stages() == []


def test_a_replay_replaces_and_a_failed_one_leaves_what_is_there(pipeline: Pipeline) -> None:
    pipeline.run("first", pipeline.stage)

    def fail(window: KafkaWindow) -> None:
        pipeline.stage(window, "n < 3")
        raise RuntimeError("after it staged")

    with pytest.raises(RuntimeError):
        pipeline.run("replay", fail, Windows((1,)))
    assert pipeline.found() == [(1, n) for n in range(10)]
    for condition, left in (("n < 3", 3), ("true", 10), ("n < 0", 0)):
        [result] = pipeline.run(f"replay {condition}", lambda w, c=condition: pipeline.stage(w, c), Windows((1,)))
        assert result["is_rerun"]
        assert pipeline.found() == [(1, n) for n in range(left)]
    assert pipeline.stages() == []


def test_a_task_that_died_between_its_job_and_the_commit_publishes_what_the_job_staged(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def job(window: KafkaWindow) -> None:
        ran.append(window.id)
        pipeline.stage(window)

    with monkeypatch.context() as patch:
        patch.setattr(pipeline.service, "commit", _die)
        with pytest.raises(KeyboardInterrupt):
            pipeline.run("first", job)
    assert (pipeline.found(), pipeline.states()) == ([], [State.PLANNED])
    pipeline.run("first", job)
    pipeline.run("first", job)
    assert len(ran) == 1
    assert (len(pipeline.found()), pipeline.states()) == (10, [State.COMMITTED])


def _die(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_job_that_stages_nothing_or_elsewhere_is_not_committed(pipeline: Pipeline) -> None:
    other = f"{pipeline.table}_other"
    pipeline.database.create(other)

    def forget(window: KafkaWindow) -> None:
        window.read().write.format("noop").mode("overwrite").save()

    with pytest.raises(OutputError, match=f"staged nothing for {pipeline.table}. Call"):
        pipeline.run("first", forget)
    with pytest.raises(TargetError, match=f"staged for {other}: output_tables of group .* are {pipeline.table}"):
        pipeline.run("first", lambda window: pipeline.stage(window, table=other), clears=1)
    assert (pipeline.found(), pipeline.states()) == ([], [State.PLANNED])
    pipeline.run("first", pipeline.stage, clears=2)
    assert (len(pipeline.found()), pipeline.states()) == (10, [State.COMMITTED])


def test_what_is_not_read_completely_is_not_staged(pipeline: Pipeline) -> None:
    with pytest.raises(IncompleteReadError):
        pipeline.run(
            "first",
            lambda window: window.stage_jdbc(
                window.read().selectExpr("1 as n").limit(3),
                pipeline.database.jdbc,
                pipeline.table,
                pipeline.database.properties,
            ),
        )
    assert pipeline.database.ask(
        "SELECT count(*) FROM kafka_offsets_staged WHERE published_at IS NULL AND target = :t", t=pipeline.table
    ) == [(0,)]
    assert (pipeline.found(), pipeline.states()) == ([], [State.PLANNED])


def test_a_database_that_is_not_the_ledgers_is_refused_before_anything_is_read(
    pipeline: Pipeline, postgres: Postgres
) -> None:
    elsewhere = Database(postgres.create_database(f"elsewhere_{uuid.uuid4().hex[:8]}"))
    elsewhere.create(pipeline.table)

    def job(window: KafkaWindow) -> None:
        window.stage_jdbc(window.read().selectExpr("1 as n"), elsewhere.jdbc, pipeline.table, elsewhere.properties)

    with pytest.raises(TargetError, match=r"beside kafka_offsets_staged .* write_jdbc\(\)"):
        pipeline.run("first", job)
    assert elsewhere.ask("SELECT count(*) FROM information_schema.tables WHERE table_schema = 'public'") == [(1,)]
