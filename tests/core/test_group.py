"""The definition of a group: what is refused, and its JSON."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError, CollidingOptionError
from airflow_kafka_offsets.core.group import (
    MAX_GRACE,
    MAX_OPEN,
    MAX_RETENTION,
    KafkaGroup,
    OnAtRisk,
    OnDataLoss,
    Until,
    check_reads,
)
from airflow_kafka_offsets.core.log import IsolationLevel
from airflow_kafka_offsets.core.window_id import MAX_NAME, check_group_name
from airflow_kafka_offsets.spark.shared import is_secret
from tests.core.examples import NOON, group


@pytest.mark.parametrize("name", ["a", "lake.orders", "Lake_Orders-2", "0", "a" * MAX_NAME, "a..b"])
def test_a_name_that_everything_can_carry_is_taken(name: str) -> None:
    check_group_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "-a", "_a", ".a", "a/b", "a b", "a\n", "zoë", "a:b", "a" * (MAX_NAME + 1), None, 5]
)
def test_a_name_that_a_path_or_kafka_can_not_carry_is_refused(name: Any) -> None:
    with pytest.raises(BadInputError, match="letters, digits"):
        group(name)


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"topics": []}, "at least one topic"),
        ({"topics": "orders"}, "list of at least one topic"),
        ({"topics": None}, "list of at least one topic"),
        ({"topics": {"orders": 1}}, "list of at least one topic"),
        ({"topics": ["orders", "orders"]}, "twice"),
        ({"topics": ["or ders"]}, "not a Kafka topic name"),
        ({"topics": [".."]}, "not a Kafka topic name"),
        ({"topics": ["t" * 250]}, "not a Kafka topic name"),
        ({"topics": [5]}, "not a Kafka topic name"),
        ({"max_offsets": 0}, "max_offsets"),
        ({"max_offsets": -5}, "max_offsets"),
        ({"max_offsets": True}, "max_offsets"),
        ({"max_offsets": 1.5}, "max_offsets"),
        ({"max_offsets": "5"}, "max_offsets"),
        ({"max_open_windows": 0}, "max_open_windows must be a whole number, 1 to 1000"),
        ({"max_open_windows": 1001}, "max_open_windows"),
        ({"max_open_windows": True}, "max_open_windows"),
        ({"max_open_windows": 2.0}, "max_open_windows"),
        ({"max_open_windows": None}, "max_open_windows"),
        ({"until": "interval"}, "until must be one of now, data_interval_end"),
        ({"until": None}, "until must be one of"),
        ({"until": "data_interval_end", "grace": timedelta(seconds=-1)}, "grace must be a timedelta"),
        ({"until": "data_interval_end", "grace": timedelta(days=31)}, "to 30 days"),
        ({"until": "data_interval_end", "grace": 60}, "grace must be a timedelta"),
        ({"until": "data_interval_end", "grace": None}, "grace must be a timedelta"),
        ({"grace": timedelta(minutes=5)}, "grace has no effect without until='data_interval_end'"),
        ({"kafka_timeout": 0.5}, "kafka_timeout"),
        ({"kafka_timeout": 3601}, "kafka_timeout"),
        ({"kafka_timeout": float("nan")}, "kafka_timeout"),
        ({"kafka_timeout": "30"}, "kafka_timeout"),
        ({"kafka_timeout": True}, "kafka_timeout"),
        ({"isolation_level": "READ_COMMITTED"}, "must be one of read_committed, read_uncommitted"),
        ({"on_data_loss": "ignore"}, "must be one of fail, skip"),
        ({"on_at_risk": "skip"}, "on_at_risk must be one of warn, fail"),
        ({"retention": timedelta(0)}, "retention must be a timedelta above zero, at most 36500 days, or None"),
        ({"retention": 604800}, "retention must be a timedelta"),
        ({"starting_offsets": "first"}, "starting_offsets"),
        ({"spark_options": ["a"]}, "spark_options"),
        ({"spark_options": None}, "spark_options"),
    ],
)
def test_a_value_that_can_not_be_used_is_refused(options: dict[str, Any], what: str) -> None:
    with pytest.raises(BadInputError, match=what):
        group(**options)


@pytest.mark.parametrize(
    "name",
    [
        "startingOffsets",
        "STARTINGOFFSETS",
        "endingoffsets",
        "Subscribe",
        "subscribePattern",
        "assign",
        "failOnDataLoss",
        "Kafka.Isolation.Level",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
        "kafka.enable.auto.commit",
    ],
)
def test_options_that_collide_are_refused_in_any_case_and_named_as_written(name: str) -> None:
    with pytest.raises(CollidingOptionError, match=name):
        group(spark_options={"kafka.max.poll.records": "5", name: "x"})


def test_words_become_values() -> None:
    made = group(isolation_level="read_uncommitted", on_data_loss="skip", spark_options={"includeHeaders": True})
    assert made.isolation_level is IsolationLevel.READ_UNCOMMITTED
    assert made.on_data_loss is OnDataLoss.SKIP
    assert made.topics == ("orders",)
    assert made.spark_options == {"includeHeaders": "True"}


texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"))
starts = st.one_of(
    st.sampled_from(["earliest", "latest", "committed", "2026-01-31T12:00:00+00:00", '{"orders":{"0":5}}']),
    st.timedeltas(timedelta(0), timedelta(days=36500)),
    st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.timezones()),
    st.dictionaries(st.just("orders"), st.dictionaries(st.integers(0, 9), st.integers(-2, 99), min_size=1), min_size=1),
)


@given(
    starts,
    st.none() | st.integers(1, 2**60),
    st.sampled_from(IsolationLevel),
    st.sampled_from(OnDataLoss),
    st.booleans(),
    # Names of secrets are refused: that has a test of its own.
    st.dictionaries(texts.map("kafka.x".__add__).filter(lambda name: not is_secret(name)), texts),
    st.integers(1, MAX_OPEN),
    st.just({})
    | st.timedeltas(timedelta(0), MAX_GRACE).map(lambda grace: {"until": Until.INTERVAL_END, "grace": grace}),
)
def test_a_definition_survives_json(
    start: Any,
    max_offsets: int | None,
    isolation_level: Any,
    on_data_loss: Any,
    gaps: bool,
    options: dict[str, str],
    max_open: int,
    until: dict[str, Any],
) -> None:
    made = group(
        starting_offsets=start,
        max_offsets=max_offsets,
        isolation_level=isolation_level,
        on_data_loss=on_data_loss,
        expect_gaps=gaps,
        spark_options=options,
        ledger_conn_id="ledger",
        max_open_windows=max_open,
        **until,
    )
    text = json.dumps(made.to_json())
    again = KafkaGroup.from_json(json.loads(text))
    assert again.start == made.start
    assert (again.max_open_windows, again.until, again.grace) == (made.max_open_windows, made.until, made.grace)
    assert json.dumps(again.to_json()) == text
    assert {**made.to_json(), "starting_offsets": 0} == {**again.to_json(), "starting_offsets": 0}


@given(st.none() | st.timedeltas(timedelta(microseconds=1), MAX_RETENTION), st.sampled_from(OnAtRisk))
def test_what_it_knows_of_retention_survives_json(retention: timedelta | None, policy: OnAtRisk) -> None:
    made = group(retention=retention, on_at_risk=policy)
    again = KafkaGroup.from_json(json.loads(json.dumps(made.to_json())))
    assert again.on_at_risk is policy
    assert (again.retention is None) is (retention is None)
    # A float has no microseconds left after a century.
    assert abs((again.retention or timedelta(0)) - (retention or timedelta(0))) < timedelta(seconds=1)


def test_a_definition_of_an_older_version_warns() -> None:
    old = {k: v for k, v in group().to_json().items() if k not in ("on_at_risk", "retention")}
    again = KafkaGroup.from_json(old)
    assert (again.on_at_risk, again.retention) == (OnAtRisk.WARN, None)


def test_any_mapping_of_offsets_survives_json() -> None:
    made = group(starting_offsets=MappingProxyType({"orders": MappingProxyType({0: 5})}))
    assert KafkaGroup.from_json(json.loads(json.dumps(made.to_json()))).start == made.start


def test_a_definition_of_a_newer_version_can_be_read() -> None:
    assert (
        KafkaGroup.from_json({**group(starting_offsets=NOON).to_json(), "invented_later": 1}).start
        == group(starting_offsets=NOON).start
    )


def test_a_definition_that_was_stored_before_its_options_were_refused_can_be_read() -> None:
    options = {
        "kafka.ssl.keystore.password": "hunter2${",
        "kafka.sasl.oauthbearer.assertion.private.key.passphrase": "x",
        "kafka.basic.auth.user.info": "lake:hunter2",
        "kafka.sasl.jaas.config": 'Module required username="${env:U}" pw="hunter2";',
    }
    with pytest.raises(BadInputError, match="in clear"):
        group(spark_options=options)
    stored = json.dumps({**group().to_json(), "spark_options": options})
    again = KafkaGroup.from_json(json.loads(stored))
    assert json.dumps(again.to_json()) == stored


def test_a_definition_of_an_older_version_has_one_open_window_and_ends_now() -> None:
    old = {k: v for k, v in group().to_json().items() if k not in ("max_open_windows", "until", "grace")}
    again = KafkaGroup.from_json(old)
    assert (again.max_open_windows, again.until, again.grace) == (1, Until.NOW, timedelta(0))


def test_topics_that_the_group_does_not_read_are_refused() -> None:
    reads = group()
    check_reads(reads, ["orders"])
    with pytest.raises(BadInputError, match="Group lake doesn't read a, b; it reads orders"):
        check_reads(reads, ["b", "a", "orders"])
