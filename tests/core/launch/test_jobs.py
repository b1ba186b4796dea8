"""Which job a launch goes on with, which it stops, and how a cluster knows them."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.launch.jobs import (
    CONF_JOB,
    DRIVER_LABEL,
    YARN_TAGS,
    Job,
    JobName,
    JobState,
    Step,
    job_name,
    label_value,
    next_step,
    tags,
    yarn_tag,
)
from airflow_kafka_offsets.core.window import Claim, Draft, Window
from tests.core.examples import NOON as NOW
from tests.core.examples import ranges, tp

ALIVE, SUCCEEDED, OVER = JobState
CLAIM = Claim("dag", "run", "load")


def window(**changes) -> Window:
    plain = Draft(ranges({tp(0): (0, 5)}), {"orders": "id"}, NOW, "read_committed")
    return replace(plain.named("Lake", 1), **changes)


def named(claim: Claim = CLAIM, first_attempt: int = 2, planned_at=NOW, **changes) -> JobName:
    return job_name(window(**changes), planned_at, claim, first_attempt)


MINE = named()


def jobs(*states: tuple[str, JobState, str | None]) -> list[Job]:
    return [Job(*state) for state in states]


@pytest.mark.parametrize(
    ("found", "step"),
    [
        ([], Step()),
        ([("1", OVER, MINE.job), ("2", OVER, "older")], Step()),
        ([("1", ALIVE, MINE.job)], Step(go_on_with="1")),
        ([("1", SUCCEEDED, MINE.job)], Step(go_on_with="1")),
        ([("1", OVER, MINE.job), ("2", ALIVE, MINE.job)], Step(go_on_with="2")),
        ([("1", ALIVE, "older")], Step(stop=("1",))),
        ([("1", SUCCEEDED, "older")], Step()),
        ([("1", ALIVE, "older"), ("2", ALIVE, MINE.job)], Step(stop=("1",), go_on_with="2")),
        ([("1", ALIVE, MINE.job), ("2", ALIVE, MINE.job)], Step(stop=("2",), go_on_with="1")),
        ([("1", ALIVE, MINE.job), ("2", SUCCEEDED, MINE.job)], Step(stop=("1",), go_on_with="2")),
        ([("1", ALIVE, None)], Step(unknown=("1",))),
        ([("1", ALIVE, None), ("2", ALIVE, MINE.job)], Step(go_on_with="2")),
        ([("1", OVER, None)], Step()),
    ],
)
def test_what_a_launch_does_about_the_jobs_of_its_window(found: list, step: Step) -> None:
    assert next_step(jobs(*found), MINE, can_reconnect=True) == step


def test_a_job_that_can_not_be_watched_is_stopped_and_its_result_is_not_taken() -> None:
    alive, done = jobs(("1", ALIVE, MINE.job)), jobs(("1", SUCCEEDED, MINE.job))
    assert next_step(alive, MINE, can_reconnect=False) == Step(stop=("1",))
    assert next_step(done, MINE, can_reconnect=False) == Step()


def test_what_a_cluster_can_not_tell_of_the_job_that_was_noted_is_known() -> None:
    found = jobs(("1", ALIVE, None), ("2", ALIVE, None))
    assert next_step(found, MINE, can_reconnect=True, noted="1") == Step(go_on_with="1")
    assert next_step(found[:1], MINE, can_reconnect=False, noted="1") == Step(stop=("1",))
    assert next_step(found, MINE, can_reconnect=True, noted="3") == Step(unknown=("1", "2"))
    # What the cluster does tell is right.
    assert next_step(jobs(("1", ALIVE, "older")), MINE, can_reconnect=True, noted="1") == Step(stop=("1",))


FOUND = st.lists(st.tuples(st.sampled_from(list(JobState)), st.sampled_from([MINE.job, "older", None])), max_size=6)


@given(FOUND, st.booleans())
def test_whatever_is_found_at_most_one_job_of_the_window_goes_on(found: list, can_reconnect: bool) -> None:
    all_jobs = [Job(str(n), *states) for n, states in enumerate(found)]
    step = next_step(all_jobs, MINE, can_reconnect=can_reconnect)
    left = {job.id for job in all_jobs if job.state is ALIVE and job.job is not None} - set(step.stop)
    assert left <= {step.go_on_with}
    assert step.go_on_with not in step.stop
    if step.go_on_with is None:
        assert set(step.unknown) == {job.id for job in all_jobs if job.state is ALIVE and job.job is None}
    else:
        assert next(job for job in all_jobs if job.id == step.go_on_with).job == MINE.job


def test_a_retry_has_the_name_of_the_first_try_and_nobody_else_has() -> None:
    assert named() == MINE
    others = [named(Claim(*who)) for who in (("d", "run", "load"), ("dag", "r", "load"), ("dag", "run", "l"))]
    others += [named(Claim("dag", "run", "load", 0)), named(first_attempt=4)]
    assert {name.window for name in others} == {MINE.window}, "they are jobs of one window"
    assert len({MINE.job, *(name.job for name in others)}) == 6


def test_another_ledger_on_the_same_cluster_has_other_names_for_windows_of_the_same_id() -> None:
    others = [
        named(planned_at=NOW + timedelta(microseconds=1)),
        named(topic_ids={"orders": "another"}),
        named(seq=2),
        named(group="lake"),
    ]
    assert len({MINE.window, *(name.window for name in others)}) == 5


def test_a_users_own_tags_stay() -> None:
    ours = f"lake-000001,{yarn_tag(MINE.window)},{yarn_tag(MINE.job)}"
    assert tags("yarn", MINE, {}) == {YARN_TAGS: ours}
    assert tags("yarn", MINE, {YARN_TAGS: "team-a,nightly"}) == {YARN_TAGS: f"team-a,nightly,{ours}"}
    assert tags("local[2]", MINE, {}) == {}
    assert tags("spark://m:7077", MINE, {}) == {CONF_JOB: f"{MINE.window}.{MINE.job}"}


NAMES = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,190}-[0-9]{6}", fullmatch=True)


@given(NAMES)
def test_yarn_and_kubernetes_take_what_a_driver_is_labelled_with(window_id: str) -> None:
    name = replace(MINE, window_id=window_id)
    for tag in tags("yarn", name, {})[YARN_TAGS].split(","):
        assert tag == tag.lower()
        assert len(tag) <= 100
    labels = tags("k8s://https://api", name, {})
    assert len(labels) == 3
    for key, value in labels.items():
        label = key.removeprefix(DRIVER_LABEL)
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", label)
        assert re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?", value)
    assert label_value(window_id).endswith(window_id[-6:])
