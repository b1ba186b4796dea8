"""Whether a table holds what the windows read: what is called missing, doubled, without a record, and what no one can tell."""

from __future__ import annotations

from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.source.audit import Audit, Auditor
from airflow_kafka_offsets.core.source.islands import Island
from airflow_kafka_offsets.core.window import Window
from tests.core.examples import ids, tp, window

FIRST = window({tp(0): (10, 20), tp(1): (0, 10)}, 1)
SECOND = window({tp(0): (20, 30), tp(1): (10, 10)}, 2)
ALL = {tp(0): [Island(10, 30, 1)], tp(1): [Island(0, 10, 1)]}


def audit(
    table: dict[TopicPartition, list[Island]],
    *windows: tuple[Window, int | None],
    gaps: bool = False,
    is_whole: bool = True,
) -> Audit:
    auditor = Auditor(table, ids([tp()]), gaps, is_whole)
    return auditor.audit(reversed(windows or ((FIRST, 20), (SECOND, 10))))


def shown(found: Audit, what: str) -> list[tuple[str, str, str]]:
    return [(f.window_id, str(p.tp), str(p.offsets)) for f in found.findings for p in getattr(f, what)]


def test_a_table_that_has_all_once_is_right() -> None:
    found = audit(ALL)
    assert found == Audit(2, 30, 0, ())
    assert found.is_right


def test_an_offset_that_is_not_there_is_missing_when_a_record_was_read_at_each() -> None:
    found = audit({tp(0): [Island(10, 15, 1), Island(17, 30, 1)]})
    assert [(f.window_id, f.missing) for f in found.missing] == [("lake-000001", 12)]
    assert shown(found, "holes") == [("lake-000001", "orders-0", "[15, 17)"), ("lake-000001", "orders-1", "[0, 10)")]
    assert not found.is_right


def test_offsets_that_held_no_record_are_no_loss() -> None:
    found = audit({**ALL, tp(0): [Island(10, 15, 1), Island(17, 30, 1)]}, (FIRST, 18), (SECOND, 10), gaps=True)
    assert found == Audit(2, 28, 2, ())
    assert found.is_right


def test_of_holes_some_of_which_held_no_record_the_number_is_known_and_the_place_is_not() -> None:
    found = audit({**ALL, tp(0): [Island(10, 15, 1), Island(17, 30, 1)]}, (FIRST, 19), (SECOND, 10), gaps=True)
    assert [(f.missing, f.span - f.present) for f in found.missing] == [(1, 2)]
    assert shown(found, "holes") == [("lake-000001", "orders-0", "[15, 17)")]


def test_without_a_count_the_group_says_whether_a_hole_is_a_loss() -> None:
    table = {**ALL, tp(0): [Island(10, 29, 1)]}
    assert [f.missing for f in audit(table, (FIRST, None), (SECOND, None)).missing] == [1]
    found = audit(table, (FIRST, None), (SECOND, None), gaps=True)
    assert not found.missing
    assert [f.window_id for f in found.unknown] == ["lake-000002"]
    assert found.is_right, "nothing is known to be wrong"
    assert audit(ALL, (FIRST, None), (SECOND, None), gaps=True) == Audit(2, 30, 0, ())


def test_a_rerun_that_read_fewer_makes_no_loss_of_what_is_there() -> None:
    assert audit(ALL, (FIRST, 20), (SECOND, 8), gaps=True).is_right


def test_what_is_there_twice_is_named_with_each_window_that_owns_a_part() -> None:
    found = audit({**ALL, tp(0): [Island(10, 18, 1), Island(18, 23, 2), Island(23, 30, 1)]})
    assert shown(found, "doubled") == [("lake-000001", "orders-0", "[18, 20)"), ("lake-000002", "orders-0", "[20, 23)")]
    assert not found.missing
    assert not found.is_right


def test_what_was_there_before_the_first_window_has_to_reach_up_to_it() -> None:
    old = {**ALL, tp(0): [Island(0, 30, 1)]}
    assert [str(p.offsets) for p in audit(old).outside] == ["[0, 10)"]
    assert audit(old).is_right
    short = {**ALL, tp(0): [Island(0, 8, 1), Island(10, 30, 1)]}
    assert [(str(p.tp), str(p.offsets)) for p in audit(short).at_join] == [("orders-0", "[8, 10)")]
    assert not audit(short).is_right
    assert audit(short, gaps=True).is_right, "a marker may stand there"
    twice = {**ALL, tp(0): [Island(0, 5, 2), Island(5, 30, 1)]}
    assert not audit(twice).is_right


def test_what_no_window_owns_is_told_wherever_it_lies() -> None:
    later = window({tp(0): (40, 50)}, 3)
    table = {tp(0): [Island(5, 60, 1)], tp(1): [Island(0, 10, 1)], tp(7): [Island(3, 4, 1)]}
    found = audit(table, (FIRST, 20), (SECOND, 10), (later, 10))
    assert [(str(p.tp), str(p.offsets)) for p in found.outside] == [
        ("orders-0", "[5, 10)"),
        ("orders-0", "[30, 40)"),
        ("orders-0", "[50, 60)"),
        ("orders-7", "[3, 4)"),
    ]
    assert found.is_right


def test_a_part_of_the_windows_is_judged_alone() -> None:
    found = audit({tp(0): [Island(0, 30, 1)]}, (SECOND, 10), is_whole=False)
    assert found == Audit(1, 10, 0, ())


def test_windows_of_an_earlier_topic_of_the_name_are_left_out() -> None:
    earlier = window({tp(0): (0, 500)}, 1, orders="another-id")
    found = audit(ALL, (earlier, 500), (FIRST, 20), (SECOND, 10))
    assert (found.windows, found.other_topics, found.is_right) == (2, ("lake-000001",), True)


def audit_after_clicks_was_recreated(
    table: dict[TopicPartition, list[Island]], *windows: tuple[Window, int | None]
) -> Audit:
    now = {"orders": "id-of-orders", "clicks": "id-of-clicks"}
    return Auditor(table, now, expects_gaps=False, is_whole=True).audit(reversed(windows))


def of_both(seq: int, orders: tuple[int, int], clicks: tuple[int, int], clicks_id: str) -> Window:
    return window({tp(0): orders, tp(0, "clicks"): clicks}, seq, clicks=clicks_id)


def test_of_a_window_with_a_topic_that_was_recreated_the_other_topics_are_judged() -> None:
    old, new = of_both(1, (0, 10), (0, 50), "earlier"), of_both(2, (10, 20), (0, 5), "id-of-clicks")
    right = {tp(0): [Island(0, 20, 1)], tp(0, "clicks"): [Island(0, 5, 1)]}
    found = audit_after_clicks_was_recreated(right, (old, 60), (new, 15))
    assert found == Audit(2, 25, 0, (), other_topics=("lake-000001",))
    short = {**right, tp(0): [Island(0, 4, 1), Island(6, 20, 1)]}
    found = audit_after_clicks_was_recreated(short, (old, 60), (new, 15))
    assert [(f.window_id, f.span, f.records, f.missing) for f in found.findings] == [("lake-000001", 10, 10, 2)]
    assert shown(found, "holes") == [("lake-000001", "orders-0", "[4, 6)")]
    assert not found.is_right


def test_how_many_of_the_records_were_of_the_topics_that_are_left_no_one_knows_when_offsets_held_none() -> None:
    old = of_both(1, (0, 10), (0, 50), "earlier")
    table, now = {tp(0): [Island(0, 9, 1)]}, {"orders": "id-of-orders", "clicks": "id-of-clicks"}
    found = Auditor(table, now, expects_gaps=True, is_whole=True).audit([(old, 58)])
    assert [(f.window_id, f.records, f.missing) for f in found.findings] == [("lake-000001", None, None)]


def test_a_window_that_owns_nothing_of_a_topic_that_was_recreated_is_judged_as_all_others() -> None:
    old = of_both(1, (0, 10), (50, 50), "earlier")
    found = audit_after_clicks_was_recreated({tp(0): [Island(0, 9, 1)]}, (old, 10))
    assert ([f.missing for f in found.missing], found.other_topics) == ([1], ())


def test_windows_with_a_topic_that_left_the_group_are_judged_as_all_others() -> None:
    both = window({tp(0): (0, 10), tp(0, "clicks"): (0, 5)}, 1)
    assert audit({tp(0): [Island(0, 10, 1)]}, (both, 15)).missing[0].missing == 5


def test_below_the_floor_of_a_prune_nothing_is_told() -> None:
    table = {tp(0): [Island(0, 18, 2), Island(20, 30, 1), Island(35, 40, 2)], tp(1): [Island(0, 10, 1)]}
    found = Auditor(table, ids([tp()]), False, is_whole=True, floors={tp(0): 20, tp(1): 10}).audit([(SECOND, 10)])
    assert [(str(p.tp), str(p.offsets)) for p in found.outside] == [("orders-0", "[35, 40)")]
    assert found.at_join == ()
    assert not found.findings
