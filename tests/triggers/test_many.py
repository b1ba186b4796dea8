"""A thousand sensors on fifty topics of a real broker, in one event loop as in the triggerer."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest

from airflow_kafka_offsets.adapters.kafka import client as kafka_client
from airflow_kafka_offsets.triggers import polling
from tests.bench.triggerer import SENSORS, TOPICS, clients, measure, shared, threads, waiting_groups
from tests.lab.kafka import KafkaBroker
from tests.lab.processes import wait_until


def test_a_thousand_sensors_share_one_client_one_thread_and_one_snapshot_per_poll(
    kafka: KafkaBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(polling, "MIN_POLL", 1.0)
    monkeypatch.setattr(kafka_client, "_shared", {})  # other tests' clients may be of the same broker
    with waiting_groups(kafka, tmp_path) as conditions:
        seen = asyncio.run(measure(conditions, partial(shared, every=1), seconds=0, polls=3))
    assert len(conditions) == SENSORS
    assert len(clients()) == 1
    assert seen.threads == 1
    assert seen.calls["snapshot"] in (seen.polls, seen.polls - 1), "the last poll may not have come that far"
    assert seen.calls["load"] <= TOPICS * seen.polls
    wait_until(lambda: not threads(), what="the poller stops when no one waits")
