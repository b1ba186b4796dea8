"""The tree of errors is the one that its docstring draws."""

from __future__ import annotations

import re
from itertools import permutations

import pytest

from airflow_kafka_offsets.core import errors
from airflow_kafka_offsets.core.offsets import TopicPartition

REAL = {name: value for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}


def drawn_parents() -> dict[str, str | None]:
    """Return each error of the drawing with the one above it."""
    parents: dict[str, str | None] = {}
    above: list[str] = []
    for indent, name in re.findall(r"^ {4}([ │├└─]*)(\w+Error)\b", errors.__doc__ or "", flags=re.MULTILINE):
        depth = len(indent) // 4
        parents[name] = above[depth - 1] if depth else None
        above[depth:] = [name]
    return parents


def test_the_tree_in_the_docstring_is_the_real_one() -> None:
    ours = {name: [base for base in error.__bases__ if base in REAL.values()] for name, error in REAL.items()}
    assert drawn_parents() == {name: bases[0].__name__ if bases else None for name, bases in ours.items()}
    assert [name for name, bases in ours.items() if len(bases) != 1] == ["KafkaOffsetsError"]


def test_silence_may_pass_and_nothing_else() -> None:
    assert {name for name, error in REAL.items() if error.may_pass} == {
        "KafkaUnavailableError",
        "LedgerUnavailableError",
        "RegistryUnavailableError",
        "StoreUnavailableError",
        "StoreOutcomeUnknownError",
    }


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
    assert f": orders-0: found 7, expected {expected}. Someone else" in str(drift(before, 8))


@pytest.mark.parametrize("cause", [errors.StoreUnavailableError("Redis did not answer"), drift(6, 8)])
def test_a_store_that_is_behind_says_why_and_names_the_command_once_and_last(cause: errors.StoreError) -> None:
    told = str(errors.StoreBehindError("memory://", "lake", cause))
    assert f"memory:// did not follow: {cause}" in told
    command = "kafka-offsets copy lake --from ledger --to 'memory://' --why '...' --yes"
    assert told.count(command) == 1
    assert told.endswith(command)


def test_a_busy_window_names_who_works_on_it_and_the_way_out() -> None:
    error = errors.WindowBusyError("lake-000012", "dag/run/load")
    assert (error.window_id, error.holder) == ("lake-000012", "dag/run/load")
    assert str(error).endswith("kafka-offsets abandon lake-000012 --why '...'")


@pytest.mark.parametrize("kind", REAL.values())
def test_a_trigger_reports_each_error_by_its_name_and_message(kind: type[errors.KafkaOffsetsError]) -> None:
    error = errors.rebuilt(kind.__name__, "Kafka said no")
    assert type(error) is kind
    assert str(error) == "Kafka said no"
