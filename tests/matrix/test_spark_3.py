"""Spark 3.5, which most clusters run, does what Spark 4 does; all others: `make test-matrix`."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from airflow_kafka_offsets.wiring.machine.checks import check_submit
from airflow_kafka_offsets.wiring.machine.connector import local_spark
from tests.matrix.job import PASSED, SUBMIT, steps_of
from tests.matrix.runs import run_job

if TYPE_CHECKING:
    from pathlib import Path

    from tests.lab.databases import Postgres
    from tests.lab.kafka import KafkaBroker
    from tests.lab.sparks import OtherSpark


def test_a_job_of_spark_3_reads_checks_decodes_and_writes_as_one_of_spark_4(
    spark_3: OtherSpark, kafka: KafkaBroker, postgres: Postgres, tmp_path: Path
) -> None:
    found = run_job(spark_3, kafka, postgres, tmp_path)
    assert found["outcomes"] == dict.fromkeys(steps_of(SUBMIT, spark_3.tables), PASSED)


def test_what_launches_a_job_knows_spark_3_by_its_program_alone_and_by_spark_home(spark_3: OtherSpark) -> None:
    program = str(spark_3.home / "bin" / "spark-submit")
    for environment in (dict(os.environ), {**os.environ, "SPARK_HOME": str(spark_3.home)}):
        check_submit(program, environment)
        found = local_spark(program, environment)
        assert found is not None
        assert found.home == spark_3.home
        assert found.build.connector == "org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7"
