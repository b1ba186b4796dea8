"""What a commit publishes of what jobs staged."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from airflow_kafka_offsets.core.errors import BadInputError, OutputError
from airflow_kafka_offsets.core.output_tables import Staged, checked_tables, done_with, to_publish
from airflow_kafka_offsets.spark.sinks import jdbc_sql

ID = "lake.orders-000012"


def staged(number: int, target: str = "orders", **more: Any) -> Staged:
    name = jdbc_sql.stage_name(ID, target, datetime(2026, 1, 31, 12, 0, number, tzinfo=UTC), "abcdef")
    return Staged(number, target, name, ("n",), 10, **more)


def test_each_table_gets_what_was_staged_last() -> None:
    noted = [staged(3), staged(1), staged(2, "lines"), staged(4, "foreign")]
    assert [s.id for s in to_publish(ID, ["orders", "lines"], noted, 7, is_planned=True)] == [3, 2]


def test_a_table_for_which_nothing_was_staged_is_named_with_what_was_staged_instead() -> None:
    with pytest.raises(OutputError, match=r"staged nothing for orders; it was staged for public\.orders\. Call"):
        to_publish(ID, ["orders"], [staged(1, "public.orders")], 7, is_planned=True)
    with pytest.raises(OutputError, match=r"staged nothing for orders\. Call"):
        to_publish(ID, ["orders"], [], None, is_planned=True)


def test_a_commit_that_is_tried_again_publishes_nothing_and_a_rerun_that_staged_nothing_is_an_error() -> None:
    done = staged(1, is_published=True, attempt=7)
    assert to_publish(ID, ["orders"], [done], 7, is_planned=False) == []
    # A twin of the first try was late; what is published is complete.
    assert to_publish(ID, ["orders"], [done, staged(2)], 7, is_planned=False) == []
    assert to_publish(ID, ["orders"], [done, staged(2)], 8, is_planned=False) == [staged(2)]
    with pytest.raises(OutputError, match="staged nothing"):
        to_publish(ID, ["orders"], [done], 8, is_planned=False)


def test_of_a_foreign_launcher_only_what_is_new_is_known() -> None:
    done = staged(1, is_published=True)
    assert to_publish(ID, ["orders"], [done], None, is_planned=False) == []
    assert to_publish(ID, ["orders"], [done, staged(2)], None, is_planned=False) == [staged(2)]


@pytest.mark.parametrize(
    "name",
    [
        "kafka_offsets_windows",
        "kafka_offsets_stage_x",
        jdbc_sql.stage_name("lake.orders-000013", "orders", datetime(2026, 1, 31, tzinfo=UTC), "abcdef"),
    ],
)
def test_a_table_that_is_not_a_staging_table_of_the_window_is_never_published_and_never_dropped(name: str) -> None:
    with pytest.raises(OutputError, match="not the name of a staging table"):
        to_publish(ID, ["orders"], [Staged(1, "orders", name, ("n",), 1)], 7, is_planned=True)


def test_older_tries_of_the_same_window_and_target_are_over() -> None:
    names = [staged(n).staging for n in range(3)]
    others = [staged(0, "lines").staging, "orders"]
    assert done_with([*names, *others], names[1]) == names[:2]
    assert done_with(["kafka_offsets_acts", *names], "kafka_offsets_windows") == []


def test_tables_are_named_one_or_several_with_or_without_a_schema() -> None:
    assert checked_tables("orders") == ("orders",)
    assert checked_tables(["sales.orders", "lines"]) == ("sales.orders", "lines")
    for wrong in ("", "a.b.c", 'a"b', "a b", ".a", ["orders", "orders"], [1]):
        with pytest.raises(BadInputError, match="output_tables"):
            checked_tables(wrong)  # type: ignore[arg-type]
