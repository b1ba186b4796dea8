"""What the tree of errors promises, and that a page explains each of them."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import pytest

import airflow_kafka_offsets.spark.errors as job_side
from airflow_kafka_offsets.core import errors
from airflow_kafka_offsets.core.offsets import TopicPartition

REAL = {name: value for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}
JOB_SIDE = {name: value for name, value in vars(job_side).items() if name.endswith("Error")}


def test_each_error_has_one_parent_in_the_tree() -> None:
    ours = {name: [base for base in error.__bases__ if base in REAL.values()] for name, error in REAL.items()}
    assert [name for name, bases in ours.items() if len(bases) != 1] == ["KafkaOffsetsError"]


def test_the_page_of_errors_has_each_class_once_below_its_parent() -> None:
    page = (Path(errors.__file__).parents[2] / "docs" / "reference" / "errors.md").read_text()
    headings = re.findall(r"^### (\w+)$", page, flags=re.MULTILINE)
    classes = {**REAL, **JOB_SIDE}
    assert sorted(headings) == sorted(classes)
    assert len(REAL) + len(JOB_SIDE) == len(classes), "no name means two things"
    for name, kind in classes.items():
        for base in kind.__mro__[1:]:
            assert base.__name__ not in headings or headings.index(base.__name__) < headings.index(name)
    told = re.split(r"^### \w+$", page, flags=re.MULTILINE)[1:]
    assert not [name for name, text in zip(headings, told, strict=True) if not text.strip()]


def test_silence_may_pass_and_nothing_else() -> None:
    assert {name for name, error in REAL.items() if error.may_pass} == {
        "KafkaUnavailableError",
        "LedgerUnavailableError",
        "RegistryUnavailableError",
        "StoreUnavailableError",
        "StoreOutcomeUnknownError",
    }


def test_what_mends_itself_is_an_outage_or_not_there_yet() -> None:
    """Below these, nobody is told to correct something."""
    silent = {name for name, error in REAL.items() if error.may_pass}
    waiting = {"NotYetError", "WindowBusyError", "ConcurrentChangeError", "ClusterUnavailableError"}
    assert {name for name in REAL if errors.mends_itself(errors.rebuilt(name, "no"))} == silent | waiting


def test_no_error_takes_back_what_one_above_it_says() -> None:
    for error in REAL.values():
        says = [kind.may_pass for kind in error.__mro__ if issubclass(kind, errors.KafkaOffsetsError)]
        assert says == sorted(says, reverse=True), f"{error.__name__} does not pass, though one above it may"


@pytest.mark.parametrize("parent", [errors.KafkaAnswerError, errors.StoreAnswerError])
def test_whoever_catches_one_answer_does_not_catch_another(parent: type[errors.KafkaOffsetsError]) -> None:
    answers = [error for error in REAL.values() if issubclass(error, parent) and error is not parent]
    assert len(answers) >= 2
    assert not [(one, other) for one, other in permutations(answers, 2) if issubclass(one, other)]


@pytest.mark.parametrize("number", [0, 1, 10, 11, 20_000])
def test_a_list_names_ten_and_counts_the_rest(number: int) -> None:
    text = errors.name_some([f"p{i}" for i in range(number)], ", ")
    assert text.count("p") == min(number, 10)
    assert text.endswith(f"and {number - 10} more") is (number > 10)


def drift(before: int | None, after: int) -> errors.StoreDriftError:
    """Return the error of a store that holds 7 for one partition."""
    return errors.StoreDriftError("memory://", "lake", {TopicPartition("orders", 0): (before, after, 7)})


@pytest.mark.parametrize(
    ("before", "expected"),
    [(6, "6 (the old offset) or 8 (the new one)"), (8, "8"), (None, "nothing or 8")],
)
def test_a_drift_names_what_was_found_and_all_that_would_have_been_right(before: int | None, expected: str) -> None:
    assert f": orders-0: found 7, expected {expected}. Compare" in str(drift(before, 8))


@pytest.mark.parametrize("cause", [errors.StoreUnavailableError("no answer:\n    redis-cli ping"), drift(6, 8)])
def test_a_store_that_is_behind_says_why_and_names_the_command_once_and_last(cause: errors.StoreError) -> None:
    told = str(errors.StoreBehindError("memory://", "lake", cause))
    assert f"memory:// did not follow: {cause}\n" in f"{told}\n", "nothing stands behind a command of the cause"
    assert told.count("\n    kafka-offsets copy lake --from ledger --to 'memory://' --why '...'") == 1


def test_a_busy_window_names_who_works_on_it_and_the_way_out() -> None:
    error = errors.WindowBusyError("lake-000012", "dag/run/load")
    assert (error.window_id, error.holder) == ("lake-000012", "dag/run/load")
    assert str(error).endswith("kafka-offsets abandon lake-000012 --why '...'")


@pytest.mark.parametrize(
    "error",
    [
        drift(6, 8),
        errors.WindowBusyError("lake-000012", "dag/run/load"),
        errors.WindowBusyError("lake-000012", "dag/run/load", is_rerun=True),
        errors.WindowBusyError("lake-000012", "dag/run/load", crossed="lake-000011"),
    ],
)
def test_an_error_has_two_sentences_and_ends_with_its_commands(error: errors.KafkaOffsetsError) -> None:
    sentences, *commands = str(error).split("\n")
    assert len(sentences.split(". ")) == 2
    assert all(command.startswith("    kafka-offsets ") for command in commands)


@pytest.mark.parametrize("kind", REAL.values())
def test_a_trigger_reports_each_error_by_its_name_and_message(kind: type[errors.KafkaOffsetsError]) -> None:
    error = errors.rebuilt(kind.__name__, "Kafka said no")
    assert type(error) is kind
    assert str(error) == "Kafka said no"
