"""A frame that Spark keeps until the job lets go of it, and a Spark that does not answer then."""

from __future__ import annotations

import threading
from typing import Any

from airflow_kafka_offsets.spark.keeping import Kept


class Frame:
    """A frame of a server that is asked in vain; a real one would be asked for ten minutes."""

    def __init__(self) -> None:
        self.answer = threading.Event()
        self.is_kept = True

    def unpersist(self) -> None:
        self.answer.wait()
        self.is_kept = False
        raise ConnectionError("the session is closed")


def test_a_spark_that_does_not_answer_or_refuses_holds_no_one_up() -> None:
    frame: Any = Frame()
    kept = Kept(frame)
    kept.release(timeout=0.01)
    assert (kept.is_alive(), frame.is_kept) == (True, True)
    frame.answer.set()
    kept.release(timeout=60)
    assert (kept.is_alive(), frame.is_kept) == (False, False)
