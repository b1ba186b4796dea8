"""What the log of a task ends with."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.ending import (
    MAX_LINES,
    NO_JOB,
    Done,
    Left,
    NoWindow,
    failed_afterwards,
    handed_on,
    in_short,
    last_words,
    no_window,
)
from airflow_kafka_offsets.core.window import Lane, State
from tests.core.examples import ranges, tp, window

TEN = {tp(0): (0, 6), tp(1): (10, 14), tp(2): (7, 7)}


def test_a_window_is_told_with_its_offsets_and_what_is_known_of_its_job() -> None:
    assert last_words([Done(window(TEN, 12), False, "10 records read of 10 offsets")]) == (
        "Window lake-000012: committed\n"
        "    offsets: 10 offsets in 2 partitions\n"
        "        orders-0: [0, 6)\n"
        "        orders-1: [10, 14)\n"
        "    job: 10 records read of 10 offsets"
    )


def test_a_quiet_run_says_that_nothing_was_new() -> None:
    assert last_words([Done(window({tp(0): (6, 6), tp(1): (14, 14)}, 13), False, NO_JOB)]) == (
        "Window lake-000013: committed; there was nothing new to read\n"
        "    offsets: none in 2 partitions\n"
        "    job: nothing to read, so none was launched"
    )


def test_a_rerun_and_what_was_lost_and_the_cap_are_told() -> None:
    text = last_words([Done(replace(window(TEN), lost=ranges({tp(1): (4, 10)}), is_capped=True), True, "read")])
    assert text.startswith("Window lake-000001: run again; it was committed before, and the watermark stays\n")
    assert "offsets: 10 offsets in 2 partitions; capped by max_offsets, more was there\n" in text
    assert "    lost before it, recorded as a gap: 6 offsets in 1 partition\n        orders-1: [4, 10)\n" in text


def test_a_window_that_is_not_committed_ends_as_the_page_shows_it() -> None:
    page = Path(__file__).parents[2] / "docs" / "guarantees.md"
    orders = replace(window({tp(0): (1200, 1400), tp(1): (980, 1180)}, 12), group="lake.orders")
    assert f"```\n{last_words([], [Left(orders, State.PLANNED, next_try=2)])}\n```" in page.read_text()


def test_many_partitions_are_summed_up_by_topic() -> None:
    many = ranges({tp(n): (n, n + 5) for n in range(20_000)})
    assert in_short(many) == ["orders: 100000 offsets in 20000 partitions; first orders-0: [0, 5), last orders-19999: [19999, 20004)"]  # fmt: skip
    listed = in_short(ranges({tp(n): (0, 1) for n in range(MAX_LINES)}))
    assert len(listed) == MAX_LINES
    topics = ranges({tp(0, f"topic-{n:02d}"): (0, 1) for n in range(40)})
    assert in_short(topics)[0] == "topic-00: 1 offset in 1 partition; topic-00-0: [0, 1)"
    assert in_short(topics)[-1] == "and 32 more topics"
    assert len(in_short(topics)) == MAX_LINES + 1


OPEN = window(TEN, 12, State.PLANNED)
OTHER = "dag/other/load"
GIVE_UP = "type: kafka-offsets abandon lake-000012 --why '...'  # only to abandon it for good"


def test_what_is_to_be_typed_is_a_command_to_a_shell() -> None:
    lines = [line.strip() for line in last_words([], [Left(OPEN, State.PLANNED)]).splitlines()]
    typed = [line.removeprefix("type: ") for line in lines if line.startswith("type: ")]
    assert len(typed) == 2
    for line in typed:
        subprocess.run(["bash", "-n", "-c", line], check=True)


@pytest.mark.parametrize(
    ("left", "says"),
    [
        (
            Left(OPEN, State.PLANNED, next_try=2),
            [
                "Window lake-000012: not committed\n",
                "        orders-1: [10, 14)\n",
                "job: no success of its job is recorded; the error is below\n",
                "now: the window is open: the watermark of group lake has not passed it\n",
                "next: Airflow starts try 2 of this task: the job runs again, on the same offsets under the same id\n",
                "type: kafka-offsets windows lake-000012\n",
                GIVE_UP,
            ],
        ),
        (
            Left(OPEN, State.PLANNED),
            ["no retry is left. The next run of the DAG adopts the window as it is; or clear this task: the job runs"],
        ),
        (
            Left(OPEN, State.PLANNED, "10 records read of 10 offsets", next_try=3),
            ["job: succeeded: 10 records read", "next: Airflow starts try 3 of this task: it only commits\n"],
        ),
        (
            Left(replace(OPEN, lane=Lane.BACKFILL), State.PLANNED),
            ["now: the window is open\n", "Clear this task: the job runs again", "or replay the"],
        ),
        (
            Left(OPEN, State.PLANNED, next_try=2, can_reconnect=True),
            ["next: Airflow starts try 2 of this task: it continues with the driver if that is still there; if not, the job runs again"],
        ),
        (
            Left(OPEN, State.PLANNED, "read", next_try=2, can_reconnect=True),
            ["next: Airflow starts try 2 of this task: it only commits\n"],
        ),
        (
            Left(OPEN, State.PLANNED, can_reconnect=True),
            ["adopts the window as it is; or clear this task: the job runs again"],
        ),
        (
            Left(OPEN, State.PLANNED, next_try=2, has_policy=True),
            ["next: Airflow starts try 2 of this task, unless its retry policy says no: the job runs again"],
        ),
        (
            Left(OPEN, State.PLANNED, "read", taken_by=OTHER, next_try=2),
            ["dag/other/load works on it", "next: dag/other/load commits it; this try does not"],
        ),
        (
            Left(OPEN, State.COMMITTING, "read", next_try=2),
            [
                "its commit has begun and is not finished",
                "now: the window is committing. Its job is done: the next try of its task, or the next run, finishes",
                "type: kafka-offsets verify lake",
            ],
        ),
        (
            Left(OPEN, State.COMMITTED, is_rerun=True),
            ["its rerun did not finish; it stays committed", "the watermark stays where it is", "or replay the window"],
        ),
        (
            Left(OPEN, State.COMMITTED, "read", next_try=2),
            ["committed; the task failed after that", "it is no longer open", "A retry of this task runs no job again"],
        ),
        (
            Left(OPEN, State.COMMITTED, taken_by=OTHER),
            ["committed meanwhile, and not by this try", "dag/other/load had it last", "Only a clear of this task runs"],
        ),
        (
            Left(OPEN, State.COMMITTED, next_try=2),
            ["committed meanwhile, and not by this try", "next: Airflow starts try 2 of this task: the job runs again"],
        ),
        (
            Left(OPEN, State.COMMITTED, "read", is_rerun=True, next_try=2),
            ["run again, but its commit failed; it stays committed", "now: the watermark stays where it is\n", "it only commits"],
        ),
        (
            Left(OPEN, State.PLANNED, next_try=2, needs_person=True),
            ["now: the window is open: the watermark", "next: a person decides: the error below, or that of"],
        ),
        (
            Left(OPEN, State.PLANNED, was_skipped=True),
            ["job: it skipped the task\n", "next: the task was skipped, so there is no retry. The next run of the DAG adopts"],
        ),
        (Left(OPEN, State.PLANNED, NO_JOB), [f"job: {NO_JOB}\n"]),
        (Left(OPEN, State.ABANDONED, taken_by=OTHER), ["unless they were recorded as a gap"]),
        (Left(replace(OPEN, lane=Lane.BACKFILL), State.ABANDONED), ["only a replay plans its offsets again"]),
        (Left(OPEN, State.SUPERSEDED, next_try=2), ["next: a retry of this task is refused"]),
        (
            Left(OPEN, State.COMMITTED, is_rerun=True, was_skipped=True),
            ["next: the task was skipped, so there is no retry. Clear this task", "or replay the window"],
        ),
        (Left(OPEN, State.ABANDONED), ["not committed, because it was abandoned meanwhile", "under another id"]),
        (
            Left(OPEN, None, is_rerun=True, why_unknown="the ledger was not asked"),
            [
                "Window lake-000012: not known to be run again to its end; it was committed before\n",
                "now: the ledger was not asked; whoever",
                "or replay the window",
            ],
        ),
        (
            Left(OPEN, None, "read", next_try=2),
            ["not known to be committed", "now: the ledger does not answer; whoever tries next looks", "it only commits"],
        ),
    ],
)  # fmt: skip
def test_a_window_that_is_left_says_what_is_open_what_a_retry_does_and_what_to_type(
    left: Left, says: list[str]
) -> None:
    text = last_words([], [left])
    assert [words for words in says if words not in text] == [], text


def test_of_several_windows_each_has_a_line_and_the_one_that_failed_the_block() -> None:
    done = [Done(window(TEN, n), True, "10 records read of 10 offsets") for n in range(1, 31)]
    text = last_words(
        done[:2], [Left(window(TEN, 3), State.COMMITTED, is_rerun=True), *[Left(window(TEN, n), None) for n in (4, 5)]]
    )
    assert text.startswith("2 windows of group lake done:\n    lake-000001: run again; it was committed before")
    assert "\nNot begun: 2 windows, from lake-000004 on.\nWindow lake-000003: its rerun did not finish" in text
    lines = last_words(done).splitlines()
    assert lines[0] == "30 windows of group lake done:"
    assert len(lines) == 12
    assert lines[-1].startswith("    lake-000030: ")


def test_a_task_that_fails_when_all_is_done_says_so() -> None:
    text = failed_afterwards([Done(window(TEN), False, "read")])
    assert text.startswith("Window lake-000001: committed\n")
    assert text.endswith("The task failed after that. A retry does not repeat a job that has succeeded.")


def test_windows_that_are_handed_on_are_told_with_their_offsets() -> None:
    assert handed_on([OPEN]) == (
        "Window lake-000012: planned; the tasks after this one run and commit it\n"
        "    offsets: 10 offsets in 2 partitions\n"
        "        orders-0: [0, 6)\n"
        "        orders-1: [10, 14)"
    )
    again = handed_on([window(TEN, n) for n in range(1, 31)]).splitlines()
    assert again[:2] == [
        "30 windows of group lake handed on:",
        "    lake-000001: 10 offsets in 2 partitions; committed before; the tasks after this one run it again",
    ]
    assert len(again) == 12
    assert again[-1].startswith("    lake-000030: ")


NONE_PLANNED = NoWindow("No window of group lake was planned", "application 'job.py' is not there")


@pytest.mark.parametrize(
    ("one", "says"),
    [
        (
            NONE_PLANNED,
            "No window of group lake was planned\n"
            "    failed: application 'job.py' is not there\n"
            "    next: no retry is left. When that is corrected, clear this task",
        ),
        (
            replace(NONE_PLANNED, next_try=2, has_policy=True),
            "next: Airflow starts try 2 of this task, unless its retry policy says no. Until that is corrected, it fails in the same way",
        ),
        (
            replace(NONE_PLANNED, next_try=3, had_tries=True),
            "    now: if an earlier try had a window, it is as that try left it\n"
            "    next: Airflow starts try 3 of this task. Until that is corrected, it fails in the same way",
        ),
        (replace(NONE_PLANNED, look="kafka-offsets windows lake"), "\n    type: kafka-offsets windows lake"),
        (replace(NONE_PLANNED, failed="no jar\n:: PROBLEMS\n"), "    failed: no jar\n        :: PROBLEMS\n    next: "),
    ],
)
def test_a_task_that_gets_no_window_says_what_failed_and_what_comes_next(one: NoWindow, says: str) -> None:
    assert says in no_window(one)


def test_the_last_error_of_spark_stands_where_no_success_is_recorded() -> None:
    said = "ValueError: " + "x" * 1000
    lines = last_words([], [Left(OPEN, State.PLANNED, spark_said=said)]).splitlines()
    [line] = [line for line in lines if "Spark" in line]
    assert line.startswith("    Spark's last error: ValueError: xxx")
    assert line.endswith("xxx...")
    assert len(line) < 400
    assert "last error" not in last_words([], [Left(OPEN, State.PLANNED, "10 records read", spark_said=said)])
