"""What the log of a task ends with."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.ending import (
    MAX_LINES,
    NO_JOB,
    RECONNECTS,
    RUNS_AGAIN,
    SAME_CODE,
    Done,
    Left,
    end_of_done,
    end_of_handoff,
    end_of_left,
    end_without_window,
    in_short,
    starts,
)
from airflow_kafka_offsets.core.window import Lane, State
from airflow_kafka_offsets.spark.errors import OtherWindowError
from airflow_kafka_offsets.spark.label import Label
from tests.core.examples import ranges, tp, window

TEN = {tp(0): (0, 6), tp(1): (10, 14), tp(2): (7, 7)}
OFFSETS = f"    offsets: 10 offsets in 2 partitions\n        orders-0: {ranges(TEN)[tp(0)]}\n        orders-1: {ranges(TEN)[tp(1)]}\n"


def test_a_window_is_shown_with_its_offsets_and_what_is_known_of_its_job() -> None:
    text = end_of_done([Done(window(TEN, 12), False, "10 records read of 10 offsets")])
    assert text == f"Window lake-000012: committed\n{OFFSETS}    job: 10 records read of 10 offsets"


def test_a_quiet_run_says_that_nothing_was_new() -> None:
    text = end_of_done([Done(window({tp(0): (6, 6), tp(1): (14, 14)}, 13), False, NO_JOB)])
    assert text == "Window lake-000013: committed\n    offsets: none\n    job: none, nothing to read"


def test_a_rerun_and_what_was_lost_and_the_cap_are_shown() -> None:
    text = end_of_done([Done(replace(window(TEN), lost=ranges({tp(1): (4, 10)}), is_capped=True), True, "read")])
    assert text.startswith("Window lake-000001: run again; the watermark stays\n")
    assert "offsets: 10 offsets in 2 partitions; capped by max_offsets\n" in text
    assert f"    lost: 6 offsets in 1 partition\n        orders-1: {ranges({tp(1): (4, 10)})[tp(1)]}\n    job" in text


def test_a_window_that_is_not_committed_ends_as_the_page_shows_it() -> None:
    docs = Path(__file__).parents[2] / "docs"
    orders = replace(window({tp(0): (1200, 1400), tp(1): (980, 1180)}, 12), group="lake.orders")
    shown = {
        "guarantees.md": Left(orders, State.PLANNED, starts(2)),
        "howto/correct-a-job.md": Left(orders, State.PLANNED, bundle_version="3f2a91c"),
    }
    for page, left in shown.items():
        assert f"```\n{end_of_left(left)}\n```" in (docs / page).read_text(), page


def test_many_partitions_are_summed_up_by_topic() -> None:
    many = ranges({tp(n): (n, n + 5) for n in range(20_000)})
    assert in_short(many) == ["orders: 100000 offsets in 20000 partitions"]
    assert len(in_short(ranges({tp(n): (0, 1) for n in range(MAX_LINES)}))) == MAX_LINES
    topics = ranges({tp(0, f"topic-{n:02d}"): (0, 1) for n in range(40)})
    assert in_short(topics)[0] == "topic-00: 1 offset in 1 partition"
    assert in_short(topics)[-1] == "and 32 more topics"
    assert len(in_short(topics)) == MAX_LINES + 1


OPEN = window(TEN, 12, State.PLANNED)
OTHER = "dag/other/load"
RERUN = replace(OPEN, state=State.COMMITTED)
BACKFILL = replace(OPEN, lane=Lane.BACKFILL)


def test_what_is_to_be_typed_is_a_command_to_a_shell() -> None:
    lines = [line.strip() for line in end_of_left(Left(OPEN, State.COMMITTING, job="read")).splitlines()]
    typed = [line.removeprefix("type: ") for line in lines if line.startswith("type: ")]
    assert len(typed) == 2
    for line in typed:
        subprocess.run(["bash", "-n", "-c", line], check=True)
        assert "--yes" not in line


@pytest.mark.parametrize(
    ("left", "says"),
    [
        (
            Left(OPEN, State.PLANNED, starts(2)),
            [
                f"Window lake-000012: not committed\n{OFFSETS}    job: it did not succeed\n",
                "now: the window is open\n",
                "next: Airflow starts try 2 of this task: the job runs again on the same offsets\n",
                "type: kafka-offsets windows lake-000012",
            ],
        ),
        (Left(OPEN, State.PLANNED), [f"next: no retry is left. The next run adopts the window; or clear this task: {RUNS_AGAIN}"]),
        (
            Left(OPEN, State.PLANNED, starts(3), job="10 records read of 10 offsets"),
            ["job: 10 records read", "next: Airflow starts try 3 of this task: it only commits\n"],
        ),
        (Left(BACKFILL, State.PLANNED), ["now: the window is open\n", "no retry is left. Clear this task: the job runs again"]),
        (Left(OPEN, State.PLANNED, starts(2), RECONNECTS), ["it continues with the driver; if that is gone, the job runs again"]),
        (Left(OPEN, State.PLANNED, starts(2), RECONNECTS, "read"), ["try 2 of this task: it only commits\n"]),
        (Left(OPEN, State.PLANNED, starts(2, has_policy=True)), ["try 2 of this task, unless its retry policy says no: the job"]),
        (Left(OPEN, State.PLANNED, starts(2, was_stopped=True)), ["try 2 of this task, unless a person stopped it: the job"]),
        (
            Left(OPEN, State.PLANNED, starts(2), job="read", holder=OTHER),
            ["dag/other/load has it\n", "next: dag/other/load commits it\n"],
        ),
        (
            Left(OPEN, State.COMMITTING, starts(2), job="read"),
            ["its commit has begun\n", "now: the window is committing: the next try or run finishes", "it only commits\n", "type: kafka-offsets verify lake"],
        ),
        (
            Left(RERUN, State.COMMITTED, is_rerun=True),
            ["its rerun did not finish", "now: the window stays committed; its output may be incomplete\n", "Clear this task: the job"],
        ),
        (
            Left(RERUN, State.COMMITTED, starts(2), job="read", is_rerun=True),
            ["its rerun did not finish", "now: the window stays committed\n", "it only commits\n"],
        ),
        (Left(OPEN, State.COMMITTED, starts(2), job="read"), ["committed by this try", "now: the window is committed\n", "next: nothing\n"]),
        (
            Left(OPEN, State.COMMITTED, holder=OTHER),
            ["committed meanwhile\n", "now: the window is committed; dag/other/load has it\n", "next: nothing\n"],
        ),
        (Left(OPEN, State.COMMITTED, starts(2)), ["committed meanwhile\n", "try 2 of this task: the job runs again"]),
        (Left(OPEN, State.PLANNED, starts(2), needs_person=True), ["now: the window is open\n", "next: a person decides, as the error says"]),
        (Left(OPEN, State.PLANNED, job=NO_JOB), [f"job: {NO_JOB}\n"]),
        (Left(OPEN, State.ABANDONED, holder=OTHER), ["abandoned meanwhile", "remove what its job wrote", "next: a new run reads what no"]),
        (Left(OPEN, State.SUPERSEDED, starts(2)), ["superseded meanwhile", "next: a new run reads what no window owns"]),
        (Left(OPEN, None, starts(2), job="read", unknown="no answer"), ["not known to be committed", "now: no answer\n", "it only commits"]),
    ],
)  # fmt: skip
def test_a_window_that_is_left_says_what_is_open_what_a_retry_does_and_what_to_type(
    left: Left, says: list[str]
) -> None:
    text = end_of_left(left)
    assert [words for words in says if words not in text] == [], text


def test_the_code_that_a_try_ran_is_named_and_after_a_failure_which_code_a_clear_runs() -> None:
    done = [Done(window(TEN, n), False, "read") for n in range(1, 31)]
    assert end_of_done(done[:1], "3f2a").endswith("    job: read\n    code: bundle version 3f2a")
    assert end_of_done(done, "3f2a").endswith("lake-000030: committed (read)\n    code: bundle version 3f2a")
    again = f"    code: bundle version 3f2a. {SAME_CODE}\n"
    assert f"{again}    now: the window is open\n" in end_of_left(Left(OPEN, State.PLANNED, bundle_version="3f2a"))
    assert f"{again}    next: " in end_without_window("This try", "no jar", None, bundle_version="3f2a")
    only_commits = end_of_left(Left(OPEN, State.PLANNED, starts(2), job="read", bundle_version="3f2a"))
    assert "    code: bundle version 3f2a\n" in only_commits, "nothing is to be corrected in the code"


def test_a_run_of_a_bundle_without_versions_names_no_code() -> None:
    ends = (end_of_done([Done(OPEN, False, "read")]), end_of_left(Left(OPEN, State.PLANNED)))
    assert not [text for text in (*ends, end_without_window("This try", "no jar", None)) if "code:" in text]


def test_several_windows_have_a_line_each() -> None:
    done = [Done(window(TEN, n), True, "10 records read of 10 offsets") for n in range(1, 31)]
    lines = end_of_done(done).splitlines()
    assert lines[0] == "30 windows of group lake done:"
    assert lines[1].startswith("    lake-000001: run again; the watermark stays")
    assert len(lines) == 12
    assert lines[-1].startswith("    lake-000030: ")


def test_windows_that_are_handed_off_are_shown_with_their_offsets() -> None:
    assert end_of_handoff([OPEN]) == f"Window lake-000012: planned\n{OFFSETS}    next: the tasks after this one"
    again = end_of_handoff([window(TEN, n) for n in range(1, 31)]).splitlines()
    assert again[:2] == [
        "30 windows of group lake handed off:",
        "    lake-000001: to be run again; 10 offsets in 2 partitions",
    ]
    assert len(again) == 12


def test_a_task_that_gets_no_window_says_what_failed_and_what_comes_next() -> None:
    head = "This try got no window of group lake"
    assert end_without_window(head, "no jar\n:: PROBLEMS\n", starts(2)) == (
        f"{head}\n    error: no jar\n        :: PROBLEMS\n    next: Airflow starts try 2 of this task"
    )
    assert end_without_window(head, "no jar", None).endswith(
        "no retry is left: correct the error, then clear this task"
    )
    assert end_without_window(head, "no answer", None, may_pass=True).endswith("no retry is left: clear this task")
    new_run = end_without_window(head, "no such window", None, new_run="\n    airflow dags trigger x")
    assert new_run.endswith("otherwise correct the error, then clear this task\n    type: airflow dags trigger x")
    assert "type" not in end_without_window(head, "no such window", starts(2), new_run="airflow dags trigger x")


def test_the_last_error_of_spark_stands_where_the_job_did_not_succeed() -> None:
    error = "ValueError: " + "x" * 1000
    lines = end_of_left(Left(OPEN, State.PLANNED, spark_error=error)).splitlines()
    [line] = [line for line in lines if "Spark" in line]
    assert line.startswith("    error: Spark: ValueError: xxx")
    assert line.endswith("xxx...")
    assert len(line) < 400
    assert "ValueError" not in end_of_left(Left(OPEN, State.PLANNED, job="10 records read", spark_error=error))


def test_an_error_of_this_package_passes_whole_and_its_commands_stay_on_lines_of_their_own() -> None:
    error = (
        f"airflow_kafka_offsets.spark.errors.IncompleteReadError: {'x' * 400}. Set:\n    KafkaGroup(expect_gaps=True)"
    )
    text = end_of_left(Left(OPEN, State.PLANNED, spark_error=error))
    assert (
        f"\n    error: Spark: IncompleteReadError: {'x' * 400}. Set:\n        KafkaGroup(expect_gaps=True)\n    now: "
        in text
    )


def test_after_output_of_another_ledger_was_found_no_abandon_is_offered() -> None:
    label = Label("lake-000012", "lake", 12, "digest", None, False, ("b",))
    with pytest.raises(OtherWindowError) as refused:
        label.must_mark("s3a://lake", "a")
    error = f"airflow_kafka_offsets.spark.errors.OtherWindowError: {refused.value}"
    text = end_of_left(Left(OPEN, State.PLANNED, spark_error=error))
    assert "give this group a name of its own" in text
    assert "abandon" not in text
