"""Which steps a job may take with its window."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any, get_args

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from airflow_kafka_offsets.spark.errors import KafkaWindowError, UnfinishedReadError, WriteOptionError
from airflow_kafka_offsets.spark.progress import LIFE, Progress, State, Step, after

ID = "lake.orders-000012"
OUTPUT = {"unwritten", "writing", "late", "written", "failed"}


@pytest.fixture
def progress() -> Progress:
    return Progress(ID)


def fail(progress: Progress, write: str = "write_parquet", **to: Any) -> None:
    with pytest.raises(OSError, match="full"), progress.writing(write, **(to or {"path": "/lake"})):
        raise OSError("full")


def names(progress: Progress) -> list[str]:
    return [name for name, _ in progress.failures.values()]


def test_the_table_has_each_state_and_each_step_and_leads_nowhere_else() -> None:
    assert set(LIFE) == set(get_args(State))
    assert {step for steps in LIFE.values() for step in steps} == set(get_args(Step))
    for state, steps in LIFE.items():
        assert all((end in OUTPUT) is (state in OUTPUT) for end in steps.values()), state


@pytest.mark.parametrize("state", sorted(set(get_args(State)) - OUTPUT))
def test_of_a_read_only_a_second_one_is_refused(state: State) -> None:
    refused = {step for step in ("take", "read", "check", "skip") if step not in LIFE[state]}
    assert refused == ({"read"} if state == "read" else set())


@pytest.mark.parametrize(("state", "step"), [(s, t) for s in LIFE for t in get_args(Step) if t not in LIFE[s]])
def test_a_step_that_is_not_in_the_table_is_an_error(state: State, step: Step) -> None:
    with pytest.raises(KafkaWindowError, match=f"^Window {ID}: "):
        after(state, step, f"Window {ID}")


def test_a_frame_that_was_not_checked_is_in_the_way_of_the_next(progress: Progress) -> None:
    progress.begin()
    progress.to("read")
    with pytest.raises(
        UnfinishedReadError, match=rf"Window {ID}: the frame of an earlier read\(\) was not checked\. .* call check\(\)"
    ):
        progress.begin()
    assert progress.read == "read"
    progress.to("check")
    progress.begin()


def test_a_frame_that_nobody_needed_is_not_in_the_way_unless_it_was_run(progress: Progress) -> None:
    progress.to("read")
    progress.to("skip")
    progress.begin()
    progress.to("run")
    with pytest.raises(UnfinishedReadError):
        progress.begin()


def test_who_has_the_offsets_may_read_all_the_same(progress: Progress) -> None:
    progress.to("take")
    progress.to("read")
    progress.to("take")
    assert progress.read == "read", "that frame has to be checked"


def test_a_second_write_to_a_target_is_refused_and_remembered(progress: Progress) -> None:
    with progress.writing("write_parquet", path="/lake"):
        pass
    with (
        pytest.raises(
            WriteOptionError, match=f"Window {ID}: write_json to /lake/: a second write would replace the first"
        ),
        progress.writing("write_json", path="/lake/"),
    ):
        raise AssertionError("it must not begin")
    assert names(progress) == ["write_json to /lake/"]
    with progress.writing("write_delta", table="/lake"), progress.writing("write_parquet", path="/other"):
        pass


def test_a_write_beside_one_that_runs_is_refused_and_the_first_goes_on(progress: Progress) -> None:
    with progress.writing("write_parquet", path="/lake"):
        with pytest.raises(WriteOptionError), progress.writing("write_parquet", path="/lake"):
            raise AssertionError("it must not begin")
        assert len(progress.failures) == 1
    assert len(progress.failures) == 1, "the refused rows are lost still"


def test_a_failure_is_forgotten_when_the_same_write_succeeds_there_and_by_no_other(progress: Progress) -> None:
    fail(progress)
    with progress.writing("write_json", path="/lake"):
        pass
    assert names(progress) == ["write_parquet to /lake"]
    progress.begin()
    with progress.writing("write_parquet", path="/lake"):
        pass
    assert progress.failures == {}


def test_a_database_is_no_part_of_the_name_and_one_of_the_target(progress: Progress) -> None:
    for url in ("jdbc:a?password=secret", "jdbc:b?password=secret"):
        with progress.writing("write_jdbc", url=url, table="orders"):
            pass
    fail(progress, "stage_jdbc", url="jdbc:c?password=secret", table="orders")
    assert names(progress) == ["stage_jdbc to orders"]


def test_a_function_may_be_called_for_several_frames_and_a_call_that_succeeds_is_its_word(progress: Progress) -> None:
    with progress.writing("write", function=fail), progress.writing("write", function=fail):
        pass
    fail(progress, "write", function=fail)
    assert names(progress) == ["write to fail"]
    with progress.writing("write", function=fail):
        pass
    assert progress.failures == {}


def test_after_a_failure_the_job_begins_anew_and_writes_again_what_it_wrote(progress: Progress) -> None:
    progress.to("read")
    with progress.writing("write_parquet", path="/a"):
        pass
    fail(progress, path="/b")
    progress.begin()
    progress.to("read")
    with progress.writing("write_parquet", path="/a"):
        pass
    assert names(progress) == ["write_parquet to /b"], "which is to be written still"


def test_each_failure_lets_the_job_begin_anew_once(progress: Progress) -> None:
    with progress.writing("write_parquet", path="/a"):
        pass
    fail(progress, path="/b")
    progress.begin()
    with progress.writing("write_parquet", path="/a"):
        pass
    progress.begin()
    with pytest.raises(WriteOptionError), progress.writing("write_parquet", path="/a"):
        raise AssertionError("it must not begin")


def test_who_writes_successfully_after_a_failure_does_not_begin_anew(progress: Progress) -> None:
    with progress.writing("write_parquet", path="/a"):
        pass
    fail(progress, path="/b")
    with progress.writing("write_parquet", path="/b"):
        pass
    progress.begin()
    with pytest.raises(WriteOptionError), progress.writing("write_parquet", path="/a"):
        raise AssertionError("it must not begin")


def test_a_refused_write_is_no_failure_after_which_the_job_begins_anew(progress: Progress) -> None:
    for _ in range(2):
        with contextlib.suppress(WriteOptionError), progress.writing("write_parquet", path="/a"):
            pass
    progress.begin()
    with pytest.raises(WriteOptionError), progress.writing("write_parquet", path="/a"):
        raise AssertionError("it must not begin")


def test_what_a_thread_still_writes_when_the_job_begins_again_may_be_written_again(progress: Progress) -> None:
    with progress.writing("write_parquet", path="/a"):
        progress.end_block(ValueError())
        progress.begin()
    with progress.writing("write_parquet", path="/a"):
        pass
    assert progress.failures == {}


@dataclass
class Upsert:
    """A callable that can't be hashed."""

    table: str

    def __call__(self) -> None:
        """Do nothing."""


def test_a_function_need_not_be_hashable(progress: Progress) -> None:
    upsert = Upsert("orders")
    fail(progress, "write", function=upsert)
    with progress.writing("write", function=Upsert("orders")):
        pass
    assert len(progress.failures) == 1, "another object, though it is equal"
    with progress.writing("write", function=upsert):
        pass
    assert progress.failures == {}


@pytest.mark.parametrize("step", ["read", "check"])
def test_a_frame_that_was_run_may_have_been_checked_or_read_again_by_another_thread(
    progress: Progress, step: Step
) -> None:
    progress.to("skip")
    progress.to("check")
    if step == "read":
        progress.to("read")
    before = progress.read
    progress.to("run")
    assert progress.read == before


class Job(RuleBasedStateMachine):
    """A job with calls in any order. None is lost."""

    def __init__(self) -> None:
        super().__init__()
        self.progress = Progress(ID)
        self.lost: set[tuple[str, str]] = set()
        self.failed: set[tuple[str, str]] = set()
        """Since the job began to read, without the writes that were refused."""
        self.written: set[str] = set()

    @rule(step=st.sampled_from(["take", "check", "skip"]))
    def step(self, step: Step) -> None:
        self.progress.to(step)

    @precondition(lambda self: self.progress.read == "skipped")
    @rule()
    def run(self) -> None:
        self.progress.to("run")

    @rule()
    def read(self) -> None:
        is_refused = self.progress.read == "read" and not self.failed
        try:
            self.progress.begin()
        except UnfinishedReadError:
            assert is_refused
            return
        assert not is_refused
        self.progress.to("read")
        if self.failed:
            self.written.clear()
            self.failed.clear()

    @rule(write=st.sampled_from(["parquet", "json"]), path=st.sampled_from(["/a", "/b"]), fails=st.booleans())
    def write(self, write: str, path: str, fails: bool) -> None:
        try:
            with self.progress.writing(write, path=path):
                assert path not in self.written
                if fails:
                    raise OSError
        except WriteOptionError:
            assert path in self.written
            self.lost.add(("again", path))
        except OSError:
            self.lost.add((write, path))
            self.failed.add((write, path))
        else:
            self.lost.discard((write, path))
            self.failed.discard((write, path))
            self.written.add(path)
        assert {(write, path) for write, (_, path) in self.progress.failures} == self.lost


TestJob = Job.TestCase
