"""The heading of an error: whether there was an answer, and whose."""

from __future__ import annotations

import json

import anyio
import pytest
from fastapi import Request
from markupsafe import escape

from airflow_kafka_offsets.core.errors import (
    KafkaOffsetsError,
    KafkaRefusedError,
    KafkaUnavailableError,
    LedgerSchemaError,
    LedgerUnavailableError,
)
from airflow_kafka_offsets.page import app as page


def request(query: bytes = b"") -> Request:
    """Return a request for the list of groups, as Airflow's API server hands it on."""
    return Request({"type": "http", "headers": [], "query_string": query, "root_path": "/kafka-offsets"})


@pytest.mark.parametrize(
    ("error", "status", "heading"),
    [
        (KafkaUnavailableError("no leader"), 503, "No answer"),
        (KafkaRefusedError("wrong password"), 500, "Kafka refused"),
        (LedgerUnavailableError("no route"), 503, "The ledger does not answer"),
        (LedgerSchemaError("of another version"), 500, "The ledger can't be read"),
    ],
)
def test_the_heading_says_whether_there_was_an_answer(error: KafkaOffsetsError, status: int, heading: str) -> None:
    answer = anyio.run(page._failed, request(), error)
    assert answer.status_code == status
    assert f"<h1>{escape(heading)}</h1>" in answer.body.decode()
    assert f'role="alert">{error}.</p>' in answer.body.decode()
    as_json = anyio.run(page._failed, request(b"format=json"), error)
    assert (as_json.status_code, json.loads(as_json.body)) == (status, {"error": str(error)})
