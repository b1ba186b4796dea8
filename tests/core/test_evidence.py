"""Which reports of jobs prove to a commit that the window was read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_kafka_offsets.core.errors import NoReportError
from airflow_kafka_offsets.core.evidence import Report, proof_of
from tests.core.examples import tp, window

WINDOW = window({tp(0): (5, 10), tp(1): (0, 3), tp(2): (7, 7)}, seq=12)
WHERE = "s3://lake/kafka-offsets/lake-000012/5ad0/reports"
# The clock of the later job is behind.
EARLIER, LATER = "000009-20260131T120500.000000Z-b.1", "000010-20260131T120000.000000Z-a.1"


def report(**values: Any) -> bytes:
    """Return what a job writes that has read the whole window; `values` replace the usual ones."""
    usual = {
        "window_id": "lake-000012",
        "records": 8,
        "counts": {"orders": {"0": 5, "1": 3}},
        "written": True,
        "bad": None,
        "taken_at": "2026-01-31T12:00:00+00:00",
        "application": "app-7",
    }
    return json.dumps({**usual, **values}).encode()


TAKEN = report(records=None, counts={}, written=None)


def proven(found: dict[str, bytes], *, expect_gaps: bool = False) -> Report:
    return proof_of(WINDOW, found, expect_gaps=expect_gaps, where=WHERE)


def refused(found: dict[str, bytes], *, expect_gaps: bool = False) -> str:
    with pytest.raises(NoReportError) as caught:
        proven(found, expect_gaps=expect_gaps)
    assert str(caught.value).startswith("Window lake-000012: ")
    assert "clear the plan task with all tasks after it" in str(caught.value)
    return str(caught.value)


def test_a_report_of_every_record_proves_the_window() -> None:
    found = proven({EARLIER: report(bad=2)})
    assert (found.records, found.counts, found.written, found.bad) == (8, {"orders": {"0": 5, "1": 3}}, True, 2)


def test_a_large_window_is_counted_as_a_whole() -> None:
    assert proven({EARLIER: report(counts={})}).records == 8
    assert "reported 7 records for 8 offsets" in refused({EARLIER: report(counts={}, records=7)})


def test_without_a_report_nothing_is_proven() -> None:
    assert f"no job has reported to {WHERE}" in refused({})


def test_of_two_jobs_only_the_one_that_took_the_window_last_counts() -> None:
    assert "has not reported what it read" in refused({EARLIER: report(), LATER: TAKEN})
    assert proven({EARLIER: TAKEN, LATER: report()}).records == 8


def test_a_job_that_only_took_the_window_proves_nothing_and_is_named() -> None:
    said = refused({EARLIER: TAKEN})
    assert "the last job (app-7, at 2026-01-31T12:00:00+00:00) has not reported" in said


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"null", b"[]", b"\xff\xfe", b'{"window_id": "lake-000012"}', report(counts={"orders": {"x": 1}})],
)
def test_a_newest_report_that_is_not_complete_proves_nothing_and_is_named(content: bytes) -> None:
    assert f"the newest report {WHERE}/{LATER} can't be read" in refused({EARLIER: report(), LATER: content})
    assert proven({EARLIER: content, LATER: report()}).records == 8


@pytest.mark.parametrize("name", ["notes.txt", "20260131T120000.000000Z-b", "-1-a.1", "1-a", "7", ""])
def test_what_no_job_of_this_version_has_reported_proves_nothing_and_is_named(name: str) -> None:
    said = refused({EARLIER: report(), name: report(), LATER: report()})
    assert f"{WHERE}/{name} can't be read as a report" in said
    assert EARLIER not in said


def test_of_two_jobs_that_took_the_window_at_one_moment_the_later_by_the_clock_counts() -> None:
    first, second = EARLIER.replace("000009", "1"), LATER.replace("000010", "1")
    assert "has not reported what it read" in refused({first: TAKEN, second: report()})


def test_the_last_report_of_a_job_counts_and_those_of_two_jobs_of_one_moment_are_not_mixed() -> None:
    second, tenth = f"{LATER[:-1]}2", f"{LATER[:-1]}10"
    assert proven({LATER: TAKEN, second: report(records=None), tenth: report()}).records == 8
    assert "has not reported what it read" in refused({second: report(), tenth: TAKEN})
    assert "has not reported what it read" in refused({"1-a.2": report(), "1-b.1": TAKEN})


def test_a_report_of_another_window_proves_nothing() -> None:
    assert "is of window 'lake-000011'" in refused({EARLIER: report(window_id="lake-000011")})


def test_a_partition_with_fewer_records_than_offsets_is_named() -> None:
    short = report(records=6, counts={"orders": {"0": 3, "1": 3}})
    assert "6 records for 8 offsets (orders-0: 3 of 5)" in refused({EARLIER: short})
    missing = report(records=8, counts={"orders": {"0": 5}})
    assert "(orders-1: 0 of 3)" in refused({EARLIER: missing})


def test_where_gaps_are_normal_any_number_is_fine() -> None:
    short = report(records=1, counts={"orders": {"0": 1}})
    assert proven({EARLIER: short}, expect_gaps=True).records == 1
    assert "has not reported" in refused({EARLIER: TAKEN}, expect_gaps=True)


def test_records_of_a_partition_that_the_window_does_not_have_are_refused() -> None:
    strange = report(counts={"orders": {"0": 5, "1": 3, "2": 1}, "bills": {"0": 4}})
    assert "records of bills-0, orders-2, outside the window" in refused({EARLIER: strange}, expect_gaps=True)


def test_that_an_earlier_run_has_written_the_output_proves_nothing_without_a_count() -> None:
    assert "has not reported what it read" in refused({EARLIER: report(records=None, counts={}, written=False)})
    assert "7 records for 8 offsets" in refused({EARLIER: report(records=7, counts={}, written=False)})
    assert proven({EARLIER: report(written=False)}).written is False


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "NaN", "1e400", "8.5", "true", '"8"', "-1", "[]"])
@pytest.mark.parametrize("field", ["records", "bad", "a count"])
def test_what_is_no_number_of_records_is_refused_with_a_sentence(field: str, number: str) -> None:
    content = report(**{"counts": {"orders": {"0": 5, "1": "?"}}} if field == "a count" else {field: "?"})
    said = refused({EARLIER: content.replace(b'"?"', number.encode())}, expect_gaps=True)
    assert f"the newest report {WHERE}/{EARLIER} can't be read" in said
    assert "is not a number of records" in said


def test_a_report_says_whether_it_was_written_with_true_false_or_nothing() -> None:
    assert "can't be read" in refused({EARLIER: report(written="false")})
