"""Errors of Spark that are about its surroundings, in words for a person."""

from __future__ import annotations

import pytest

from airflow_kafka_offsets.launch.session import explained_spark_error
from airflow_kafka_offsets.spark.errors import BadRecordError

SENTENCE = "Kafka record shop.orders-3 offset 17: its value can't be decoded: it has 0 bytes, fewer than a header"


@pytest.mark.parametrize(
    "said",
    [
        f"[USER_RAISED_EXCEPTION] {SENTENCE} SQLSTATE: P0001\n\tat org.apache.spark",
        f"An error occurred while calling o1.save.\n: java.lang.RuntimeException: {SENTENCE}\n\tat org.apache.spark",
        SENTENCE,
    ],
)
def test_a_record_that_can_not_be_decoded_is_named(said: str) -> None:
    explained = explained_spark_error(RuntimeError(said))
    assert isinstance(explained, BadRecordError)
    assert str(explained).startswith(f"{SENTENCE}; nothing is committed.")
    assert str(explained).endswith("To go on without such records: on_bad='null', or on_bad='side' with side=...")


def test_what_is_clear_by_itself_stays() -> None:
    assert explained_spark_error(RuntimeError("Kafka record orders-3")) is None
    assert explained_spark_error(BadRecordError(SENTENCE)) is None
