"""The report of a job about its reading. If another launcher starts the job, it is the evidence for the commit.

Another launcher sees whether its job succeeded, and not how much the job read. So the job reports that itself, in a folder that its
plan task has made. Each report has a folder of its own there. Only the last report of the job that took the window last counts: an
earlier job may have read the whole window and failed after that, and then its launcher started this one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_kafka_offsets.core.errors import NoReportError, counted, name_some, short
from airflow_kafka_offsets.core.offsets import TopicPartition, is_whole
from airflow_kafka_offsets.core.window import Window
from airflow_kafka_offsets.spark.shared import report_order


@dataclass(frozen=True, slots=True)
class Report:
    """What a job reported about its reading.

    Attributes:
        records: how many records it read, or None if it read nothing, has not counted, or sent no report.
        counts: records by topic and partition, as far as it counted them one by one.
        written: False if the output can be written only once and an earlier run had written it, or None if not reported.
        took_window: whether it asked for its window, or None if it ran where it sends no report.
        bad: how many records it could not decode and left out, or None if not reported.
    """

    records: int | None = None
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    written: bool | None = None
    took_window: bool | None = None
    bad: int | None = None


NO_REPORT = Report()


def proof_of(window: Window, reports: Mapping[str, bytes], *, expect_gaps: bool, where: str) -> Report:
    """Return the report that proves what a job of another launcher read.

    Args:
        window: the window that is to be committed.
        reports: the bytes of each report, by the name of its folder.
        expect_gaps: whether offsets without a record are normal.
        where: the folder of all these, for messages.

    Raises:
        NoReportError: no report proves it.
    """
    if not reports:
        raise _no_proof(window, f"no job has reported to {where}")
    newest = _newest(window, reports, where)
    window_id, report, job = _read(window, reports[newest], f"{where}/{newest}")
    if window_id != window.id:
        raise _no_proof(window, f"the report in {where} is of window {short(window_id)}")
    if report.records is None:
        raise _no_proof(window, f"{job} has not reported what it read")
    _check_counts(window, report, job, expect_gaps=expect_gaps)
    return report


def _no_proof(window: Window, problem: str) -> NoReportError:
    return NoReportError(
        f"Window {window.id}: {problem}. To run the job again, clear the plan task with all tasks after it; causes: "
        "docs/reference/errors.md#noreporterror"
    )


def _newest(window: Window, reports: Mapping[str, bytes], where: str) -> str:
    names = {order: name for name in reports if (order := report_order(name)) is not None}
    if strange := sorted(set(reports) - set(names.values())):
        # It could be a report that came last, of a version of this package that names it differently.
        listed = name_some([f"{where}/{name}" for name in strange], ", ")
        raise _no_proof(window, f"{listed} can't be read as a report")
    return names[max(names)]


def _read(window: Window, content: bytes, file: str) -> tuple[str, Report, str]:
    """Return the window of a report, the report, and words for its job."""
    try:
        document: dict[str, Any] = json.loads(content.decode())
        counts = {
            str(topic): {str(int(number)): _records(read) for number, read in partitions.items()}
            for topic, partitions in document["counts"].items()
        }
        written = document["written"]
        if written is not None and not isinstance(written, bool):
            raise ValueError(f"written is {short(written)}")
        records, bad = (None if document[name] is None else _records(document[name]) for name in ("records", "bad"))
        report = Report(records, counts, written, took_window=True, bad=bad)
        application = document["application"] or "without an id"
        job = f"the last job ({application}, at {document['taken_at']})"
        return str(document["window_id"]), report, job
    except (ValueError, KeyError, TypeError, AttributeError) as exc:
        raise _no_proof(window, f"the newest report {file} can't be read ({short(exc)})") from exc


def _records(value: Any) -> int:
    # Python's JSON has Infinity and NaN.
    if not is_whole(value) or value < 0:
        raise ValueError(f"{short(value)} is not a number of records")
    return int(value)


def _check_counts(window: Window, report: Report, job: str, *, expect_gaps: bool) -> None:
    ranges = window.ranges.without_empty()
    read = {TopicPartition(topic, int(p)): n for topic, counts in report.counts.items() for p, n in counts.items()}
    if strange := sorted(tp for tp in read if tp not in ranges):
        raise _no_proof(window, f"{job} reported records of {name_some(strange, ', ')}, outside the window")
    if expect_gaps:
        return
    # A large window is counted by topic only, and then just the sum is reported.
    by_partition = {tp: (read.get(tp, 0), r.span) for tp, r in ranges.items()} if read else {}
    missing = [f"{tp}: {records} of {span}" for tp, (records, span) in by_partition.items() if records < span]
    assert report.records is not None
    if missing or report.records < window.span:
        listed = f" ({name_some(missing)})" if missing else ""
        raise _no_proof(
            window, f"{job} reported {counted(report.records, 'record')} for {counted(window.span, 'offset')}{listed}"
        )
