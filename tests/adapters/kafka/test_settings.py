"""What the installed librdkafka knows: its settings, for "did you mean", and what it refuses to ask."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from airflow_kafka_offsets.adapters.kafka.client import _NOT_OURS
from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.adapters.kafka.settings import SETTINGS
from airflow_kafka_offsets.core.errors import KafkaRefusedError
from tests.lab.librdkafka import settings
from tests.lab.waiting import LONGEST

# Pointers of C, which no connection can have.
_OF_C = ("_cb", "_ca", "_key", "_data", "_cmp", "_conf", "_certificate", "interceptors", "opaque", "enabled_events")


def test_the_list_has_each_setting_of_a_connection_that_librdkafka_has(tmp_path: Path) -> None:
    has = settings(tmp_path / "settings.md")
    assert {"bootstrap.servers", "sasl.username", "acks"} <= has
    assert {name for name in has if not _NOT_OURS.fullmatch(name) and not name.endswith(_OF_C)} <= set(SETTINGS)


@pytest.mark.parametrize(
    "setting", ["sasl.usrname", "sasl_mechanism", "bootstrap.server", "ssl.ca.locaton", "Security.Protocol"]
)
def test_a_setting_that_librdkafka_does_not_know_is_refused_with_the_one_that_is_near(setting: str) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": "127.0.0.1:1", setting: "x"})
    with pytest.raises(KafkaRefusedError) as caught:
        KafkaLog({"bootstrap.servers": "127.0.0.1:1", setting: "hunter2"}, 1).topic_ids(["orders"])
    [near] = [name for name in SETTINGS if f"(did you mean {name}?)" in str(caught.value)]
    assert setting in str(caught.value)
    assert near != setting
    assert "hunter2" not in str(caught.value)


def test_librdkafka_refuses_to_ask_where_the_local_log_starts() -> None:
    local_start = OffsetSpec.for_timestamp(-4)  # ListOffsetsRequest.EARLIEST_LOCAL_TIMESTAMP
    [answer] = (
        AdminClient({"bootstrap.servers": "127.0.0.1:1"}).list_offsets({TopicPartition("t", 0): local_start}).values()
    )
    with pytest.raises(KafkaException, match="invalid offset -4"):
        answer.result(LONGEST)
