"""The report of a job: the records that it read, for the commit of its window.

A launcher on the driver's machine names a file. Around any other launcher, the plan task names a folder in storage that Airflow and
Spark both reach. There, each report has a folder of its own, so no report hides or replaces another. Spark itself reads and writes
there, which works for each scheme that Spark has, and over Spark Connect.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.spark.errors import HandoffError, ReportError
from airflow_kafka_offsets.spark.handoff import WINDOW_FILE, Handoff
from airflow_kafka_offsets.spark.shared import error_in_short, report_name, report_order
from airflow_kafka_offsets.spark.source import STOPPED, application_id, is_stopped

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_GRANT = "Let Spark's user read and write there"


class Reports:
    """Where a session reports about a window. The latest report counts.

    Args:
        spark: the session.
        handoff: the window.
    """

    def __init__(self, spark: SparkSession, handoff: Handoff) -> None:
        self._spark = spark
        self._window_id = handoff.window_id
        self._where = handoff.report
        self._is_folder = handoff.report is not None and is_uri(handoff.report)
        self._place: tuple[int, str] | None = None
        self._serial = 0
        self._taken_at = _now().isoformat()

    @property
    def is_wanted(self) -> bool:
        """Whether anyone reads a report."""
        return self._where is not None

    @property
    def must_count(self) -> bool:
        """Whether the report is the only evidence that the window was read, also where an earlier run has written the output."""
        return self._is_folder

    @property
    def is_from_another_session(self) -> bool:
        """Whether the file has another session's report, which must stay until this one has read something."""
        return not self._is_folder and self._where is not None and Path(self._where).exists()

    def write(
        self,
        records: int | None,
        counts: Mapping[str, Mapping[str, int]],
        written: bool | None,
        bad: int | None,
    ) -> None:
        """Report.

        Args:
            records: the records that were read, or None if they are not counted.
            counts: topic -> partition -> records, for the partitions that were counted.
            written: whether they were written, or None if unknown.
            bad: the records that could not be decoded, or None if unknown.

        Raises:
            ReportError: Spark can't write it.
        """
        if self._where is None:
            return
        report: dict[str, Any] = {
            "window_id": self._window_id,
            "records": records,
            "counts": counts,
            "written": written,
            "bad": bad,
        }
        if self._is_folder:
            self._write_folder(self._where, report)
        else:
            draft = f"{self._where}.{uuid.uuid4().hex}"
            Path(draft).write_text(json.dumps(report), encoding="utf-8")
            os.replace(draft, self._where)

    def _write_folder(self, where: str, report: Mapping[str, Any]) -> None:
        if is_stopped(self._spark):
            raise ReportError(f"Window {self._window_id}: can't report to {where}. {STOPPED}")
        document = {**report, "taken_at": self._taken_at, "application": application_id(self._spark)}
        if self._place is None:
            # With the time, for people.
            self._place = (self._last_number(where) + 1, f"{_now():%Y%m%dT%H%M%S.%fZ}-{uuid.uuid4().hex}")
        self._serial += 1
        self._write_text(f"{where}/{report_name(*self._place, self._serial)}", json.dumps(document))

    def _last_number(self, where: str) -> int:
        """Return the largest number of the reports; 0 without any."""
        # A lifecycle rule, or a person, may remove one meanwhile.
        reader = self._spark.read.option("ignoreMissingFiles", "true")
        # With the window's file: without any file, Spark 4 logs an error with a long stack trace.
        folder, reports = where.rsplit("/", 1)
        try:
            rows = reader.text(f"{folder}/{{{WINDOW_FILE},{reports}/*}}").select("_metadata.file_path").collect()
        except Exception as exc:
            if "PATH_NOT_FOUND" in str(exc):
                return 0
            raise self._no_report(where, exc) from exc
        # Each report is a folder with a file of one line.
        names = (str(row[0]).split("/")[-2] for row in rows)
        return max((order[0] for name in names if (order := report_order(name)) is not None), default=0)

    def _write_text(self, folder: str, text: str) -> None:
        from pyspark.sql import functions as F

        # Not from a list: for that, Spark would start Python in a task.
        line = self._spark.range(0, 1, 1, 1).select(F.lit(text).alias("value"))
        try:
            line.write.text(folder)
        except Exception as exc:
            raise self._no_report(folder, exc) from exc

    def _no_report(self, where: str, exc: Exception) -> ReportError:
        return ReportError(f"Window {self._window_id}: can't report to {where} ({error_in_short(exc)}). {_GRANT}")


def is_uri(where: str) -> bool:
    """Whether an address is storage that Spark reaches, and not a path of this machine.

    >>> is_uri("s3://lake/offsets"), is_uri("/tmp/report.json")
    (True, False)
    """
    return "://" in where


def read_document(spark: SparkSession, uri: str) -> str:
    """Return the document that a plan task has put into a folder.

    Args:
        spark: the session that reads it.
        uri: the folder, as the plan task returned it.

    Raises:
        HandoffError: it can't be read.
    """
    path = f"{uri.rstrip('/')}/{WINDOW_FILE}"
    try:
        row = spark.read.text(path, wholetext=True).select("value").first()
    except Exception as exc:
        raise HandoffError(
            f"Can't read {path} ({error_in_short(exc)}). {_GRANT}, and pass the plan task's 'exchange'"
        ) from exc
    if row is None:
        raise HandoffError(f"{path} is empty. Clear the plan task and the tasks after it")
    return str(row[0])


def _now() -> datetime:
    # Not datetime.UTC: drivers may have Python 3.8.
    return datetime.now(timezone.utc)  # noqa: UP017
