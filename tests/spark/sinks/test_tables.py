"""A frame that Spark keeps until the job releases it, and a Spark that does not answer then."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from pyspark import StorageLevel

from airflow_kafka_offsets.spark.sinks.tables import Kept
from airflow_kafka_offsets.spark.sinks.tables import kept as kept_for_a_write


class Frame:
    """A frame of a server that is asked in vain; a real one would be asked for ten minutes."""

    storageLevel = StorageLevel.NONE
    sparkSession = None  # of Spark Connect: it has no context

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.is_asked = threading.Event()

    def persist(self) -> None: ...

    def unpersist(self) -> None:
        self.is_asked.set()
        self.answer.wait()
        raise ConnectionError("the session is closed")


def test_a_server_that_does_not_answer_holds_no_one_up() -> None:
    frame: Any = Frame()
    kept = Kept(frame, is_remote=True)
    assert not frame.is_asked.is_set()
    kept.release(timeout=0.01)
    assert frame.is_asked.wait(60)
    assert not frame.answer.is_set(), "the release did not wait for the answer"
    frame.answer.set()
    kept.release(timeout=60)


@pytest.mark.parametrize("is_remote", [True, False])
def test_a_spark_that_is_gone_is_no_error(is_remote: bool) -> None:
    frame: Any = Frame()
    frame.answer.set()
    Kept(frame, is_remote=is_remote).release(timeout=60)
    assert frame.is_asked.is_set()


def test_a_server_that_is_gone_after_a_write_does_not_fail_it() -> None:
    frame: Any = Frame()
    frame.answer.set()
    with kept_for_a_write(frame) as rows:
        assert rows is frame
    assert frame.is_asked.is_set()
