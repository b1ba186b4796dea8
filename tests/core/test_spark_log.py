"""Which line of Spark's output says what ended a job."""

from __future__ import annotations

from functools import reduce

import pytest

from airflow_kafka_offsets.core.spark_log import SparkOutput, after_line, is_own

LOST_TASK = """\
26/11/23 07:18:40 WARN TaskSetManager: Lost task 0.0 in stage 0.0 (TID 0) (host executor 1): java.io.IOException: reset by peer
\tat java.base/java.net.Socket.read(Socket.java:1)
Caused by: java.net.SocketException: broken pipe
\t... 20 more
26/11/23 07:18:40 ERROR Executor: Exception in task 0.0 in stage 0.0 (TID 0)
java.io.IOException: reset by peer
\tat java.base/java.net.Socket.read(Socket.java:1)
Caused by: java.net.SocketException: broken pipe"""

LOST_PYTHON_TASK = """\
26/11/23 07:18:40 ERROR Executor: Exception in task 0.0 in stage 0.0 (TID 0)
org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/dags/jobs/orders.py", line 7, in parse
KeyError: 'day'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/dags/jobs/orders.py", line 9, in parse
ValueError: no such day

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)
26/11/23 07:18:41 WARN TaskSetManager: Lost task 0.0 in stage 0.0 (TID 0): org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/dags/jobs/orders.py", line 9, in parse
ValueError: no such day
"""

PYTHON = """\
26/11/23 07:18:35 INFO SparkContext: Running Spark version 4.0.0
26/11/23 07:18:36 WARN Utils: Set SPARK_LOCAL_IP if you need to bind to another address
Traceback (most recent call last):
  File "/dags/jobs/orders.py", line 7, in <module>
    raise ValueError("no such day")
ValueError: no such day
26/11/23 07:18:44 INFO ShutdownHookManager: Shutdown hook called"""

CHAINED = """\
Traceback (most recent call last):
  File "/dags/jobs/orders.py", line 7, in <module>
KeyError: 'day'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/dags/jobs/orders.py", line 9, in <module>
requests.exceptions.Timeout
26/11/23 07:18:44 ERROR Inbox: Ignoring error
java.lang.NullPointerException: Cannot invoke "org.apache.spark.storage.BlockManagerId.executorId()"
\tat org.apache.spark.storage.BlockManagerMasterEndpoint.register(BlockManagerMasterEndpoint.scala:1)"""

PY4J = f"""\
{LOST_TASK}
Traceback (most recent call last):
  File "/dags/jobs/orders.py", line 7, in <module>
    window.write_parquet(frame, lake)
py4j.protocol.Py4JJavaError: An error occurred while calling o55.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
\tat org.apache.spark.scheduler.DAGScheduler.failJobAndIndependentStages(DAGScheduler.scala:2935)
Caused by: java.nio.file.AccessDeniedException: s3a://lake/orders
\t... 20 more
26/11/23 07:18:44 ERROR Inbox: Ignoring error"""

PYTHON_IN_JAVA = """\
Traceback (most recent call last):
  File "/dags/jobs/orders.py", line 7, in <module>
py4j.protocol.Py4JJavaError: An error occurred while calling o55.parquet.
: org.apache.spark.SparkException: Job aborted due to stage failure
Caused by: org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/dags/jobs/orders.py", line 3, in parse
ValueError: no such day

\tat org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:1)"""

NO_MASTER = """\
26/11/23 07:18:36 ERROR SparkContext: Error initializing SparkContext.
org.apache.spark.SparkException: A master URL must be set in your configuration
\tat org.apache.spark.SparkContext.<init>(SparkContext.scala:1)
26/11/23 07:18:37 INFO SparkContext: Successfully stopped SparkContext"""

MAIN = 'Exception in thread "main" org.apache.spark.SparkException: Application application_1_2 failed'


def error_of(said: str) -> str | None:
    """Return the line that names what ended a job."""
    return reduce(after_line, said.splitlines(), SparkOutput()).error


@pytest.mark.parametrize(
    ("said", "line"),
    [
        (PYTHON, "ValueError: no such day"),
        (CHAINED, "requests.exceptions.Timeout"),
        (PY4J, "Caused by: java.nio.file.AccessDeniedException: s3a://lake/orders"),
        (PYTHON_IN_JAVA, "ValueError: no such day"),
        (NO_MASTER, "org.apache.spark.SparkException: A master URL must be set in your configuration"),
        (
            '26/11/23 07:18:36 WARN Utils: x\n  File "/dags/jobs/orders.py", line 3\n    read(\n        ^\nSyntaxError: never closed',
            "SyntaxError: never closed",
        ),
        ("Error: Failed to load class com.example.Orders.", "Error: Failed to load class com.example.Orders."),
        (MAIN, MAIN),
        (f"{MAIN}\n\tat org.x\nCaused by: java.io.IOException: full", "Caused by: java.io.IOException: full"),
        (
            f"{PYTHON}\n26/11/23 07:18:45 ERROR ApplicationMaster: User application exited with status 1\n"
            'Exception in thread "main" org.apache.spark.SparkUserAppException: User application exited with 1\n'
            "\tat org.apache.spark.deploy.PythonRunner$.main(PythonRunner.scala:1)",
            "ValueError: no such day",
        ),
        (
            "26/11/23 07:18:40 ERROR ApplicationMaster: User class threw exception: \njava.lang.IllegalStateException: no day",
            "java.lang.IllegalStateException: no day",
        ),
        (
            "2026-11-23T07:18:40,123 ERROR [main] org.apache.spark.SparkContext: Error",
            "2026-11-23T07:18:40,123 ERROR [main] org.apache.spark.SparkContext: Error",
        ),
    ],
)
def test_the_exception_that_nobody_caught_says_what_ended_the_job(said: str, line: str) -> None:
    assert error_of(said) == line


@pytest.mark.parametrize(
    "said",
    [
        LOST_TASK,
        LOST_PYTHON_TASK,
        "26/11/23 07:18:40 ERROR A: first\n26/11/23 07:18:41 ERROR B: last\n26/11/23 07:18:42 WARN C: after it",
        "WARNING:etl:the catalog is away, trying again\n" + CHAINED,
        "2026-11-23 07:18:40,123 ERROR etl: trying again\n" + CHAINED,
        PYTHON + "\n26/11/23 07:18:45 INFO SparkContext: Starting job: parquet at NativeMethodAccessorImpl.java:0",
        'Exception in thread "Thread-4" java.lang.IllegalStateException: x\nCaused by: java.io.IOException: y',
        "26/11/23 07:18:42 INFO C: no Error: at all\n/opt/x: line 7: /bin/spark-class: No such file",
        "the sink says\njava.io.IOException: full\nCaused by: java.io.IOException: really",
    ],
)
def test_what_was_caught_and_logged_did_not_end_the_job(said: str) -> None:
    assert error_of(said) is None


def test_a_retry_inside_of_the_job_does_not_hide_what_ended_it_later() -> None:
    assert error_of(f"{LOST_TASK}\n{LOST_PYTHON_TASK}\n{PYTHON}") == "ValueError: no such day"
    assert error_of(f"{PYTHON}\n{LOST_TASK}") == "ValueError: no such day", "the tasks that it left behind"


OWN = """\
airflow_kafka_offsets.spark.errors.IncompleteReadError: Window lake-000012: 3 records read, 4 by an earlier run. To replace it:
    KafkaGroup(expect_fewer=True)
    KafkaGroup()"""
AT_EXIT = """\
airflow_kafka_offsets: exit code 1, nothing is committed: IncompleteReadError: Spark reported no action. Use:
    with window.persisted() as frame:"""


@pytest.mark.parametrize("own", [f"Traceback (most recent call last):\n{OWN}", AT_EXIT])
@pytest.mark.parametrize(
    "after", ["", "\n26/11/23 07:18:44 INFO ShutdownHookManager: Shutdown hook called\n    x", "\n"]
)
def test_an_error_of_this_package_is_kept_with_all_of_its_lines(own: str, after: str) -> None:
    error = error_of(own + after)
    assert error == (OWN if OWN in own else AT_EXIT)
    assert is_own(error)


def test_lines_below_another_error_are_not_a_part_of_it() -> None:
    error = error_of(f"{PYTHON.rpartition(chr(10))[0]}\n    x")
    assert error == "ValueError: no such day"
    assert not is_own(error)
