"""Both versions of Spark's Kafka source keep every guard; which one reads is bound to the frame, not to the session."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.launch.session import explained_spark_error
from airflow_kafka_offsets.spark import source
from airflow_kafka_offsets.spark.counting import CountedRead
from airflow_kafka_offsets.spark.errors import IncompleteReadError, ReaderOptionError
from tests.lab.topics import (
    abort_transaction,
    add_partitions,
    commit_transaction,
    create_topic,
    delete_records,
    delete_topic,
    end_offset,
    open_transaction,
    produce,
)
from tests.spark.conftest import frame_of
from tests.spark.test_window_read import LOST, offsets, run

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.lab.kafka import KafkaBroker
    from tests.spark.conftest import MakeWindow

V1_SOURCES = "spark.sql.sources.useV1SourceList"

versions = pytest.mark.parametrize("version", [1, 2])


def scan_of(frame: object) -> str:
    return str(frame._jdf.queryExecution().analyzed().toString())  # type: ignore[attr-defined]


@versions
def test_offsets_that_retention_took_fail_the_read_at_the_start_in_the_middle_and_as_a_whole(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, version: int
) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 100)
    loaded = make_window({topic: {0: (40, 90)}}).read(sourceVersion=version)
    delete_records(kafka, topic, before=60)
    for frame in (loaded, make_window({topic: {0: (10, 50)}}).read(sourceVersion=version)):
        with pytest.raises(Exception, match=LOST):
            run(frame)


@versions
def test_an_end_beyond_the_log_fails_and_so_does_one_behind_an_open_transaction(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, version: int
) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    quick = {"kafkaConsumer.pollTimeoutMs": "3000", "sourceVersion": version}
    with pytest.raises(Exception, match=LOST):
        run(make_window({topic: {0: (0, 12)}}).read(**quick))
    transaction = open_transaction(kafka, topic, 5)
    assert end_offset(kafka, topic) == 15
    with pytest.raises(Exception, match=LOST):
        run(make_window({topic: {0: (0, 15)}}).read(**quick))
    transaction.abort()


@versions
def test_a_topic_that_was_made_anew_fails_the_read_of_what_it_does_not_have(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, version: int
) -> None:
    create_topic(kafka, topic)
    produce(kafka, topic, 100)
    delete_topic(kafka, topic)
    with pytest.raises(Exception, match="UnknownTopicOrPartition"):
        run(make_window({topic: {0: (90, 95)}}).read(sourceVersion=version))
    create_topic(kafka, topic)
    produce(kafka, topic, 10)
    quick = {"kafkaConsumer.pollTimeoutMs": "3000", "sourceVersion": version}
    for ends in ((90, 95), (5, 95)):
        with pytest.raises(Exception, match=LOST):
            run(make_window({topic: {0: ends}}).read(**quick))


@versions
def test_a_partition_that_is_not_there_fails_and_one_that_was_added_is_left_alone(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, version: int
) -> None:
    create_topic(kafka, topic, 1)
    produce(kafka, topic, 5)
    with pytest.raises(Exception, match=rf"(?s){topic}-7"):
        run(make_window({topic: {0: (0, 5), 7: (0, 5)}}).read(sourceVersion=version))
    frame = make_window({topic: {0: (0, 5)}}).read(sourceVersion=version)
    add_partitions(kafka, topic, 2)
    assert offsets(frame) == [(0, n) for n in range(5)]


@versions
def test_transactions_are_read_as_the_isolation_level_says(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, version: int
) -> None:
    create_topic(kafka, topic)
    commit_transaction(kafka, topic, 10)
    abort_transaction(kafka, topic, 5)
    for level, records in (("read_committed", 10), ("read_uncommitted", 15)):
        window = make_window({topic: {0: (0, 17)}}, expect_gaps=True, isolation_level=level)
        run(window.read(sourceVersion=version))
        window.check()
        assert (window.records, window.gaps) == (records, 17 - records)


@versions
def test_split_or_put_together_every_record_is_read_once(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_topic(kafka, topic, 12)
    produce(kafka, topic, 900)
    for partition in range(1, 12):
        produce(kafka, topic, 5, partition=partition)
    small = {topic: dict.fromkeys(range(12), (0, 5))}
    together = make_window(small)
    frame = together.read(sourceVersion=version)
    assert frame.rdd.getNumPartitions() == 8, "two cores want four tasks each"
    assert len(offsets(frame)) == 60
    together.check()

    monkeypatch.setattr("airflow_kafka_offsets.spark.options.MIN_SLICE", 100)
    monkeypatch.setattr("airflow_kafka_offsets.spark.options.RANGE_COST", 1)
    skewed = make_window({topic: {0: (0, 900), **dict.fromkeys(range(1, 12), (0, 5))}})
    frame = skewed.read(sourceVersion=version)
    assert frame.rdd.getNumPartitions() == 8 + 11
    assert offsets(frame) == sorted([(0, n) for n in range(900)] + [(p, n) for p in range(1, 12) for n in range(5)])
    skewed.check()


def test_the_version_is_bound_to_the_frame_and_the_session_is_as_before(
    spark: SparkSession, kafka: KafkaBroker, topic: str, make_window: MakeWindow
) -> None:
    create_topic(kafka, topic)
    before = spark.conf.get(V1_SOURCES)
    assert before is not None
    assert "kafka" in before
    for options, version in (({}, 2), ({"sourceVersion": "1"}, 1)):
        window = make_window({topic: {0: (0, 5)}}, options={"kafka.bootstrap.servers": "127.0.0.1:1", **options})
        assert ("RelationV2" in scan_of(window.read())) is (version == 2)
        assert spark.conf.get(V1_SOURCES) == before
    mine = frame_of(spark, [("x",)], "value string").write.format("kafka").option("topic", topic)
    mine.option("kafka.bootstrap.servers", kafka.bootstrap_servers).save()
    assert end_offset(kafka, topic) == 1


def test_a_session_that_reads_by_version_2_already_is_left_so_and_can_be_told_otherwise(
    spark: SparkSession, make_window: MakeWindow
) -> None:
    before = spark.conf.get(V1_SOURCES)
    spark.conf.set(V1_SOURCES, "")
    try:
        ranges, options = {"orders": {0: (0, 5)}}, {"kafka.bootstrap.servers": "127.0.0.1:1"}
        assert "RelationV2" in scan_of(make_window(ranges, options=options).read())
        assert "RelationV2" not in scan_of(make_window(ranges, options=options).read(sourceVersion=1))
        assert spark.conf.get(V1_SOURCES) == ""
    finally:
        spark.conf.set(V1_SOURCES, str(before))


def test_an_engine_without_the_choice_reads_as_it_does(
    spark: SparkSession, make_window: MakeWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_V1_SOURCES", "spark.no one.knows.this")
    window = make_window({"orders": {0: (0, 5)}}, options={"kafka.bootstrap.servers": "127.0.0.1:1"})
    assert "RelationV2" not in scan_of(window.read())


@pytest.mark.usefixtures("adaptive")
def test_a_window_is_read_once_for_several_outputs(
    spark: SparkSession, kafka: KafkaBroker, topic: str, make_window: MakeWindow, tmp_path: Path
) -> None:
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 50)
    report = tmp_path / "report.json"
    window = make_window({topic: {0: (0, 50)}}, report=str(report))
    with window.persisted(includeHeaders=True) as frame:
        assert json.loads(report.read_text())["records"] == window.records == 50
        delete_records(kafka, topic, before=50)  # no one can read it again
        assert frame.limit(3).count() == 3
        assert frame.join(frame.select("offset"), "offset").count() == 50
        frame.foreachPartition(lambda rows: None)
        frame.createOrReplaceTempView("mine")
        assert spark.sql("SELECT count(*) FROM mine").first()[0] == 50  # type: ignore[index]
        path = window.write_parquet(frame.select("offset"), str(tmp_path / "lake"))
    assert not frame.is_cached
    assert spark.read.parquet(path).count() == 50
    window.finish()


def test_records_from_outside_of_the_ranges_are_counted(spark: SparkSession) -> None:
    rows = [("a", 0, 4), ("a", 0, 5), ("a", 0, 9), ("a", 0, 10), ("a", 2, 1), ("a", 7, 1), ("b", 0, 3), ("c", 0, 0)]
    counted = CountedRead({("a", 0): (5, 10), ("a", 2): (0, 2), ("b", 0): (0, 3)}, looks_outside=True)
    run(counted.attach(frame_of(spark, rows, "topic string, partition int, offset long")))
    assert counted.counts(timeout=60).strays == 5


def test_nothing_is_run_when_the_window_can_not_be_read_as_a_whole(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow
) -> None:
    create_topic(kafka, topic)
    commit_transaction(kafka, topic, 5)
    window = make_window({topic: {0: (0, 6)}})
    with pytest.raises(IncompleteReadError, match="5 of 6"), window.persisted():
        pytest.fail("the block was run")
    with pytest.raises(IncompleteReadError, match="nothing was read"):
        window.finish()  # a job that swallows the error gets it again


def test_what_goes_past_the_count_can_be_counted_again(
    kafka: KafkaBroker, topic: str, make_window: MakeWindow, tmp_path: Path
) -> None:
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 30)
    report = tmp_path / "report.json"
    window = make_window({topic: {0: (0, 30)}}, report=str(report))
    with pytest.raises(IncompleteReadError, match="nothing was read"):
        window.check(recount=True)
    window.read().limit(2).collect()
    with pytest.raises(IncompleteReadError, match="2 of 30"):
        window.check()
    window.check(recount=True)
    assert json.loads(report.read_text())["counts"] == {topic: {"0": 30}}

    commit_transaction(kafka, topic, 3)
    hollow = make_window({topic: {0: (20, 34)}})
    hollow.read().limit(2).collect()
    with pytest.raises(IncompleteReadError, match="13 of 14"):
        hollow.check(recount=True)


PROVIDERS = "org.apache.kafka.automatic.config.providers"
URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
TOKEN_URL = "kafka.sasl.oauthbearer.token.endpoint.url"
FILE = "org.apache.kafka.common.config.provider.FileConfigProvider"
REFERRING = {
    "kafka.bootstrap.servers": "localhost:1",
    "subscribe": "orders",
    "kafka.config.providers": "file",
    "kafka.config.providers.file.class": FILE,
}


@pytest.fixture
def java_properties(spark: SparkSession) -> Iterator[Any]:
    """Return the properties of the driver's JVM; what a test sets is taken back."""
    properties = source.java_class(spark, "java.lang.System")
    yield properties
    for name in (PROVIDERS, URLS):
        properties.clearProperty(name)


@pytest.mark.parametrize("allowed", ["none", "", "org.apache.kafka.common.config.provider.EnvVarConfigProvider"])
def test_a_forbidden_config_provider_is_named_with_the_property_that_allows_it(
    spark: SparkSession, java_properties: Any, allowed: str
) -> None:
    java_properties.setProperty(PROVIDERS, allowed)
    with pytest.raises(ReaderOptionError, match=f"{PROVIDERS} forbids Kafka's client {FILE}") as error:
        source.load(spark, REFERRING, 2)
    assert f"\n    -D{PROVIDERS}={FILE}" in str(error.value)
    # Kafka's own words, as those of a Connect server.
    with pytest.raises(Exception, match="is not allowed") as raw:
        spark.read.format("kafka").options(**REFERRING).load().count()
    assert str(explained_spark_error(raw.value)) == str(error.value)


def test_an_allowed_config_provider_is_no_problem(spark: SparkSession, java_properties: Any) -> None:
    java_properties.setProperty(PROVIDERS, f"x.Y, {FILE}")
    source.load(spark, REFERRING, 2)


def test_a_driver_whose_client_asks_any_address_for_a_token_is_left_alone(
    spark: SparkSession, java_properties: Any
) -> None:
    source.load(spark, {**REFERRING, TOKEN_URL: "https://idp/token"}, 2)
    assert java_properties.getProperty(URLS) is None
    version = source.java_class(spark, "org.apache.kafka.common.utils.AppInfoParser").getVersion()
    assert version.startswith("3."), "Spark's client is another: look at this test's name"


def test_a_driver_whose_client_needs_it_may_ask_each_address_unless_its_jvm_says_which(
    spark: SparkSession, java_properties: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_client", lambda spark: "4.2.0")
    for address in ("https://idp/token", "https://idp/token", "https://other/token"):
        source.load(spark, {**REFERRING, TOKEN_URL: address}, 2)
    assert java_properties.getProperty(URLS) == "https://idp/token,https://other/token"
    java_properties.setProperty(URLS, "https://mine")
    source.load(spark, {**REFERRING, TOKEN_URL: "https://idp/token"}, 2)
    assert java_properties.getProperty(URLS) == "https://mine"
