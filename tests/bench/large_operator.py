"""One window of many partitions all the way: planned by the operator, read by Spark, committed, on a real Kafka.

``python -m tests.bench.large_operator 20000``: a multiple of 500, one record in each; prints what the task returned and its
seconds. Not part of `make bench`: 20,000 partitions take eight minutes on two cores.
"""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.bench.plan_and_commit import PER_BROKER, PER_TOPIC, make_topics
from tests.lab.jars import jars_for_launches
from tests.lab.kafka import KafkaBroker
from tests.lab.topics import produce_one_each
from tests.operators.test_large_windows import run_operator


def main(size: int) -> None:
    """Run the operator once, and print what came of it."""
    jars_for_launches()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        kafka = stack.enter_context(KafkaBroker(folder / "kafka-1"))
        for number in range(2, 1 + -(-size // PER_BROKER)):
            stack.enter_context(KafkaBroker(folder / f"kafka-{number}", joins=kafka, node_id=number))
        topics = make_topics(kafka, size)
        produce_one_each(kafka, topics, PER_TOPIC)
        patch = stack.enter_context(pytest.MonkeyPatch.context())
        started = time.perf_counter()
        results = run_operator(kafka, topics, folder, patch)
        seconds = time.perf_counter() - started
        files = len(list((folder / "lake").glob("window_id=*/*.parquet")))
    told = {name: results[name] for name in ("window_id", "partitions", "span", "records")}
    print(f"{told}, {files} files, {seconds:.0f} s")


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 1000)
