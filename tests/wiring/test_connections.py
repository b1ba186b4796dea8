"""Connections that Airflow does not have."""

from __future__ import annotations

import traceback

import pytest

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import NotYetError


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
        wiring.find_connection("nowhere")
