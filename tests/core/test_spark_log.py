"""Which line of Spark's output says what failed."""

from __future__ import annotations

from functools import reduce

import pytest

from airflow_kafka_offsets.core.spark_log import more_telling

PYTHON = """\
26/11/23 07:18:35 INFO SparkContext: Running Spark version 4.0.0
26/11/23 07:18:36 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
Traceback (most recent call last):
  File "/dags/jobs/orders.py", line 7, in <module>
    raise ValueError("no such day")
ValueError: no such day
26/11/23 07:18:44 INFO ShutdownHookManager: Shutdown hook called"""

JAVA = """\
26/11/23 07:18:40 ERROR Executor: Exception in task 0.0 in stage 0.0 (TID 0)
py4j.protocol.Py4JJavaError: An error occurred while calling o55.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2935)
Caused by: java.nio.file.AccessDeniedException: s3a://lake/orders
\t... 20 more
26/11/23 07:18:44 ERROR Inbox: Ignoring error"""


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (PYTHON, "ValueError: no such day"),
        (JAVA, "Caused by: java.nio.file.AccessDeniedException: s3a://lake/orders"),
        ("Error: Failed to load class com.example.Orders.", "Error: Failed to load class com.example.Orders."),
        (
            'Exception in thread "main" org.apache.spark.SparkException: Application application_1_2 failed',
            'Exception in thread "main" org.apache.spark.SparkException: Application application_1_2 failed',
        ),
        (
            "pyspark.errors.exceptions.captured.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] no t\n"
            'Exception in thread "main" org.apache.spark.SparkUserAppException: User application exited with 1',
            "pyspark.errors.exceptions.captured.AnalysisException: [TABLE_OR_VIEW_NOT_FOUND] no t",
        ),
        (
            "26/11/23 07:18:40 ERROR A: first\n26/11/23 07:18:41 ERROR B: last\n26/11/23 07:18:42 WARN C: after it",
            "26/11/23 07:18:41 ERROR B: last",
        ),
        ("KeyError\n", "KeyError"),
        ("26/11/23 07:18:42 INFO C: no Error: at all\n/opt/x: line 7: /bin/spark-class: No such file", None),
    ],
)
def test_the_last_exception_says_most_and_else_the_last_error_that_was_logged(said: str, line: str | None) -> None:
    told: str | None = None
    assert reduce(more_telling, said.splitlines(), told) == line
