"""What a job of another launcher must have reported before its window is committed.

Another launcher knows whether its job succeeded, and not what the job read. So the job reports that itself, in a folder that its plan
task has made for it. Each report has a folder of its own there. Only the last one of the job that took the window last counts: an earlier job
may have read all of the window and failed after that, and then its launcher started this one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_kafka_offsets.core.errors import NoReportError, counted, name_some, short
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.window import Window
from airflow_kafka_offsets.spark.shared import report_order

WITHOUT = (
    "To run the job again, clear the plan task with all tasks after it. If a green task is evidence enough for you: "
    "CommitWindowOperator(green_is_enough=True)"
)


@dataclass(frozen=True, slots=True)
class JobReport:
    """What a job reported.

    Attributes:
        window_id: the window that it took.
        records: how many records it read; None: it has not counted, or not yet.
        counts: the same by topic and partition; empty if the partitions were not counted one by one.
        written: False: the output can be written only once, and an earlier run had written it. None: not known.
        bad: how many records it could not decode and left out; None: not known.
        taken_at: when it took the window, by its own clock.
        application: Spark's id of it; None: not known.
    """

    window_id: str
    records: int | None
    counts: Mapping[str, Mapping[str, int]]
    written: bool | None
    bad: int | None
    taken_at: str
    application: str | None

    def __str__(self) -> str:
        return f"the job that took the window last ({self.application or 'its id is not known'}, at {self.taken_at})"


def evidence_of(window: Window, found: Mapping[str, bytes], *, expect_gaps: bool, where: str) -> JobReport:
    """Return the report that proves what a job read.

    Args:
        window: the window that is to be committed.
        found: what the jobs reported: the name of each report's folder, and the bytes in it.
        expect_gaps: whether offsets without a record are normal.
        where: the folder of all these, for messages.

    Raises:
        NoReportError: no report proves it. The message says what is missing, and what helps.
    """
    if not found:
        raise NoReportError(
            f"Window {window.id}: no job has reported to {where} that it took the window, so nothing is committed. The job has to take it "
            f"with airflow_kafka_offsets.spark.current_window(spark, ...), and its launcher has to wait for its end. A launcher that remembers its job after a clear "
            f"(durable=True, from Airflow 3.3 on) starts none: set durable=False on it. {WITHOUT}"
        )
    newest = _newest(window, found, where)
    report = _read(window, found[newest], f"{where}/{newest}")
    if report.window_id != window.id:
        raise NoReportError(
            f"Window {window.id}: what a job reported to {where} is about window {short(report.window_id)}, so nothing is committed. {WITHOUT}"
        )
    if report.written is False:
        return report
    if report.records is None:
        raise NoReportError(
            f"Window {window.id}: {report} has not reported what it read, so nothing is committed. Either it is still running, and its "
            "launcher did not wait for its end; or it failed, and someone marked its task as success; or it wrote by its own means, and did not "
            "call window.check() after that; or it read by its own means, and has to call window.read() and window.check(recount=True) at its "
            f"end. {WITHOUT}"
        )
    _check_counts(window, report, expect_gaps=expect_gaps)
    return report


def _newest(window: Window, found: Mapping[str, bytes], where: str) -> str:
    names = {order: name for name in found if (order := report_order(name)) is not None}
    if strange := sorted(set(found) - set(names.values())):
        # It could be a report that came last, of a version of this package that names it differently.
        raise NoReportError(
            f"Window {window.id}: {name_some([f'{where}/{name}' for name in strange], ', ')} can't be read as a report, so nothing is "
            f"committed. The job must have this version of airflow_kafka_offsets; remove what no job has written there. {WITHOUT}"
        )
    return names[max(names)]


def _read(window: Window, content: bytes, file: str) -> JobReport:
    try:
        given: dict[str, Any] = json.loads(content.decode())
        counts = {
            str(topic): {str(int(number)): int(read) for number, read in of_topic.items()}
            for topic, of_topic in given["counts"].items()
        }
        return JobReport(
            window_id=str(given["window_id"]),
            records=None if given["records"] is None else int(given["records"]),
            counts=counts,
            written=given["written"],
            bad=given["bad"],
            taken_at=str(given["taken_at"]),
            application=given["application"],
        )
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise NoReportError(
            f"Window {window.id}: the newest report {file} can't be read ({short(exc)}), so nothing is committed. Its job may have been "
            f"stopped while it wrote it. {WITHOUT}"
        ) from exc


def _check_counts(window: Window, report: JobReport, *, expect_gaps: bool) -> None:
    ranges = window.ranges.without_empty()
    read = {TopicPartition(topic, int(p)): n for topic, found in report.counts.items() for p, n in found.items()}
    if strange := sorted(tp for tp in read if tp not in ranges):
        raise NoReportError(
            f"Window {window.id}: {report} reported records of {name_some(strange, ', ')}, which the window does not have, so nothing is "
            f"committed. {WITHOUT}"
        )
    if expect_gaps:
        return
    # A large window is counted by topic only, and then just the sum is reported.
    by_one = {tp: (read.get(tp, 0), r.span) for tp, r in ranges.items()} if read else {}
    short_of = [f"{tp}: {found} of {planned}" for tp, (found, planned) in by_one.items() if found < planned]
    assert report.records is not None
    if short_of or report.records < window.span:
        listed = f" ({name_some(short_of)})" if short_of else ""
        raise NoReportError(
            f"Window {window.id}: {report} reported {counted(report.records, 'record')} for {counted(window.span, 'offset')}{listed}, so "
            "nothing is committed. For a topic that is compacted or written in transactions, set KafkaGroup(expect_gaps=True). "
            f"{WITHOUT}"
        )
