"""Connections that Airflow does not have."""

from __future__ import annotations

import json
import shlex
import traceback
from collections.abc import Callable

import pytest
from airflow.sdk import Connection

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import NotYetError
from airflow_kafka_offsets.wiring import connections


@pytest.mark.parametrize("value", ["postgresql://me:canary@db/offsets", "postgresql:/me:canary@db/offsets"])
@pytest.mark.parametrize("is_configured", [False, True])
def test_a_url_in_the_place_of_a_connection_id_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, value: str, is_configured: bool
) -> None:
    if is_configured:
        monkeypatch.setenv("AIRFLOW__KAFKA_OFFSETS__LEDGER_CONN_ID", value)
    with pytest.raises(NotYetError, match="looks like a URL") as raised:
        wiring.open_ledger(None if is_configured else value)
    assert "canary" not in "".join(traceback.format_exception(raised.value))


def test_a_connection_that_is_not_there_is_named() -> None:
    with pytest.raises(NotYetError, match="Airflow has no connection 'nowhere'"):
        connections.find_connection("nowhere", "spark")


@pytest.mark.parametrize(
    ("ask", "example"),
    [
        (
            lambda: connections.kafka_extra("no where"),
            '{"conn_type": "kafka", "extra": {"bootstrap.servers": "host:9092"}}',
        ),
        (lambda: connections.find_connection("no where", "spark"), '{"conn_type": "spark", "host": "local[*]"}'),
        (lambda: connections.connection_of_type("no where", "redis"), '{"conn_type": "redis", "host": "host"}'),
        (
            lambda: connections.find_connection("no where", "postgres"),
            '{"conn_type": "postgres", "host": "host", "login": "user", "schema": "offsets"}',
        ),
    ],
)
def test_the_command_that_makes_a_missing_connection_can_be_typed_as_it_stands(
    ask: Callable[[], object], example: str
) -> None:
    with pytest.raises(NotYetError) as raised:
        ask()
    _, _, command = str(raised.value).partition("for example:\n")
    assert shlex.split(command) == ["airflow", "connections", "add", "no where", "--conn-json", example]
    assert Connection.from_json(example).conn_type == json.loads(example)["conn_type"]
    assert "password" not in command, "a command line shows it to others"


def test_a_task_lists_no_connections() -> None:
    with pytest.raises(NotYetError) as raised:
        connections.find_connection("kafka_defalt", "kafka")
    assert "did you mean" not in str(raised.value)
