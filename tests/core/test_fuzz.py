"""Whatever a program gives to our readers: a value, or a short sentence of what is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_kafka_offsets import KafkaGroup, StoreAddress
from airflow_kafka_offsets.core.conditions import LagAtMost, TimePassed, UnreadAtLeast, WindowCommitted, parse_until
from airflow_kafka_offsets.core.errors import MAX_MESSAGE, BadInputError
from airflow_kafka_offsets.core.plan.request import parse_replay
from airflow_kafka_offsets.core.source.checkpoint import read_offsets
from airflow_kafka_offsets.core.source.offsets import parse_source_address
from airflow_kafka_offsets.core.source.offsets_csv import load_csv
from airflow_kafka_offsets.core.spark_json import load_offsets
from airflow_kafka_offsets.core.starting import parse_reset_target
from airflow_kafka_offsets.core.store_address import parse_store_address
from tests.core.examples import NOON, group

HUGE = "x" * 10_000_000
DEEP = "[" * 100_000
FIELDS = list(group().to_json())
NASTY = [
    None, True, False, 0, 1, -1, 2**63, 10**30, 10**5000, 0.5, 30.0, float("nan"), float("inf"), "", " ", "false", "none", "orders", "a.b.c",
    "kafka_offsets_windows", "public.Kafka_Offsets_acts", "o\0", "\udcff", "\u00eb", HUGE, b"orders", [], ["orders"], ["orders", 5],
    ["orders\n"], ("orders",), {"orders"}, {}, {"a": 1}, {"a": None}, {5: "x"}, {"a\0": "x"}, {"orders": {"0": 5}}, {"orders": {"0": float("inf")}},
    {"orders": [0]}, timedelta(0), timedelta(seconds=-1), timedelta(days=1), timedelta.max, datetime(2026, 1, 31), NOON, datetime.max,
    "2026-01-31T00:00:00\0+00:00", "2026-01-31T00:00:00+00:00", "earliest", "{", DEEP, '{"orders":' + DEEP, object(), len, "skip", "now",
    "redis://x", "redis://x?key=", "://", "redis://[", "files:///x?keep=1e9", StoreAddress("redis", "x"), "read_committed",
]  # fmt: skip
nasty = st.sampled_from(NASTY) | st.text(max_size=5) | st.integers() | st.floats()


def is_said(read: Callable[[], Any]) -> Any:
    """Return the value that is read, or None if a sentence refuses it."""
    try:
        return read()
    except BadInputError as exc:
        said = str(exc)
    assert 10 <= len(said) <= MAX_MESSAGE
    return None


@given(st.dictionaries(st.sampled_from(FIELDS), nasty, min_size=1, max_size=2))
@example({"expect_gaps": "false"})
@example({"expect_fewer": 1})
@example({"kafka_conn_id": None})
@example({"ledger_conn_id": 5})
@example({"max_offsets": 10**30})
@example({"output_tables": 5})
@example({"output_tables": "kafka_offsets_windows"})
@example({"output_tables": ["public.Kafka_Offsets_acts"]})
@example({"output_tables": {"orders"}})
@example({"starting_offsets": "2026-01-31T00:00:00\0+00:00"})
@example({"starting_offsets": "2026-01-31\x0000:00:00+00:00"})
@example({"spark_options": {"a": None}})
@example({"spark_options": {"a": "\0"}})
@example({"topics": HUGE})
def test_a_definition_is_refused_or_is_what_it_says(values: dict[str, Any]) -> None:
    made = is_said(lambda: KafkaGroup(**{"name": "lake", "topics": ["orders"], **values}))
    if made is None:
        return
    document = made.to_json()
    assert type(document["expect_gaps"]) is type(document["expect_fewer"]) is bool
    text = json.dumps(document)
    assert "\\u0000" not in text
    assert json.dumps(KafkaGroup.from_json(json.loads(text)).to_json()) == text


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("expect_gaps", "false", "True or False; got 'false'"),
        ("expect_fewer", 1, "True or False; got 1"),
        ("kafka_conn_id", None, "a connection id of at most 250 characters; got None"),
        ("ledger_conn_id", "", "a connection id of at most 250 characters, or None; got ''"),
        ("max_offsets", 10**30, f"a whole number, at least 1 and below 2^63, or None; got {10**30}"),
        ("kafka_timeout", "30", "a number of seconds, 1 to 3600; got '30'"),
        ("isolation_level", 5, "one of read_committed, read_uncommitted; got 5"),
        (
            "spark_options",
            {"a": None},
            "a mapping of names to texts, numbers, True or False; got {'a': <class 'NoneType'>}",
        ),
        ("output_tables", 5, "names such as orders or sales.orders; got 5"),
    ],
)
def test_a_refusal_names_field_value_and_what_is_expected(name: str, value: Any, expected: str) -> None:
    with pytest.raises(BadInputError) as refused:
        group(**{name: value})
    assert str(refused.value) == f"{name} must be {expected}"


def test_a_refusal_does_not_show_what_may_be_a_secret() -> None:
    with pytest.raises(BadInputError) as refused:
        group(spark_options={"kafka.sasl.jaas.config": "hunter2", "a": ["hunter2"]})
    assert "hunter2" not in str(refused.value)


def test_the_ledgers_own_tables_are_no_output() -> None:
    with pytest.raises(BadInputError, match=r"must not name kafka_offsets_windows: .* are the ledger's own"):
        group(output_tables="kafka_offsets_windows")


@pytest.mark.parametrize(
    ("name", "stored", "meant"),
    [
        ("max_offsets", 10**30, 10**30),
        ("output_tables", ["kafka_offsets_windows"], ("kafka_offsets_windows",)),
        ("kafka_conn_id", "", ""),
    ],
)
def test_a_definition_that_is_refused_today_is_loaded_as_it_was_meant(name: str, stored: Any, meant: Any) -> None:
    again = KafkaGroup.from_json({**group().to_json(), name: stored})
    assert getattr(again, name) == meant
    json.dumps(again.to_json())


@pytest.mark.parametrize(
    "text", ["2026-01-31\x0000:00:00+00:00", "2026-01-31\udcff00:00:00+00:00", "2026-01-31\n00:00:00+00:00"]
)
def test_a_time_with_a_character_that_nobody_can_print_is_refused_everywhere(text: str) -> None:
    datetime.fromisoformat(text)  # Python takes any character there
    reads: list[Callable[[], Any]] = [
        lambda: group(starting_offsets=text),
        lambda: parse_reset_target(text),
        lambda: parse_until(text),
        lambda: parse_replay("lake", {"from": text, "to": NOON}),
    ]
    for read in reads:
        with pytest.raises(BadInputError):
            read()


@given(nasty, nasty, nasty)
def test_a_condition_is_refused_or_made(first: Any, second: Any, third: Any) -> None:
    is_said(lambda: UnreadAtLeast(first, second, third))
    is_said(lambda: UnreadAtLeast(group(), second, third))
    is_said(lambda: TimePassed(group(), parse_until(second), third))
    is_said(lambda: LagAtMost(group(), second))
    is_said(lambda: WindowCommitted(second, third))


@given(
    st.dictionaries(st.sampled_from(["windows", "from", "to", "starting_offsets", "ending_offsets"]), nasty, max_size=2)
)
@example({"windows": HUGE})
@example({"windows": [1]})
@example({"from": "2026-01-31T00:00:00Z\0", "to": NOON})
def test_what_a_run_is_given_is_refused_or_read(params: dict[str, Any]) -> None:
    is_said(lambda: parse_replay("lake", params))


@given(
    st.one_of(nasty, st.text()), st.one_of(nasty, st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2))
)
@example(HUGE, {})
@example("redis", {"timeout": None})
@example("files", {"keep": 5})
@example("redis", {5: "x"})
def test_an_address_is_refused_or_read(text: Any, options: Any) -> None:
    is_said(lambda: parse_store_address(text))
    is_said(lambda: StoreAddress("redis", text, "", options))
    is_said(lambda: StoreAddress(text, "x", text, options))
    if isinstance(text, str):
        is_said(lambda: parse_source_address(text))


@given(
    st.one_of(
        st.text(),
        st.binary().map(lambda b: b.decode(errors="replace")),
        st.sampled_from([n for n in NASTY if isinstance(n, str)]),
    )
)
@example("a,0," + "9" * 5000)
@example(f"{HUGE},0,1")
@example("v1\n{}\n" + DEEP)
@example('v1\n{}\n{"orders":{"0":1,"0":2}}')
def test_a_text_is_refused_or_read(text: str) -> None:
    is_said(lambda: load_csv("file", text, "lake"))
    is_said(lambda: read_offsets("file", text, None))
    is_said(lambda: load_offsets(text))
