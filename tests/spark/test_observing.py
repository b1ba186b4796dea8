"""What Spark observes, and how each version of it reports that; Spark 3 itself: tests/matrix."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F

from airflow_kafka_offsets.spark.observing import Observed, _keep_first, observe

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Waiting:
    """An observation of Spark 3, which can't report that there was no action."""

    _jo = object()

    def __init__(self) -> None:
        self.was_run = threading.Event()

    @property
    def get(self) -> dict[str, object]:
        self.was_run.wait()
        return {"records": 6}


def test_where_spark_only_blocks_no_one_is_blocked_longer_than_said() -> None:
    observation: Any = Waiting()
    observed = Observed(observation)
    assert observed.metrics(timeout=0.01) == {}
    observation.was_run.set()
    assert observed.metrics(timeout=60) == {"records": 6}
    assert observed.metrics(timeout=0) == {"records": 6}


def test_where_spark_only_blocks_an_action_that_failed_is_no_count() -> None:
    class Failed(Waiting):
        @property
        def get(self) -> dict[str, object]:
            raise RuntimeError("the action failed")

    observation: Any = Failed()
    assert Observed(observation).metrics(timeout=60) == {}


def test_what_a_frame_reads_is_observed_in_its_first_action(spark: SparkSession) -> None:
    frame, observed = observe(spark.range(7), F.count(F.lit(1)).alias("rows"))
    assert not observed.is_remote
    assert observed.metrics(timeout=0.01) == {}
    frame.collect()
    assert observed.metrics(timeout=60) == {"rows": 7}
    frame.limit(1).collect()
    assert observed.metrics(timeout=60) == {"rows": 7}


def test_over_spark_connect_what_a_second_action_counts_does_not_replace_what_the_first_counted() -> None:
    class Connect:
        _result: dict[str, object] = {}  # noqa: RUF012
        get = property(lambda self: self._result)

    observation: Any = Connect()
    _keep_first(observation)
    assert Observed(observation).is_remote
    observation._result.update(records=6, strays=0, histogram="[]")
    observation._result.update(records=2, strays=0, histogram="[]")
    assert observation.get["records"] == 6
