"""Kafka's answers in words: lag in time leads, offsets follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from airflow_kafka_offsets.core.errors import (
    DataLossError,
    KafkaRefusedError,
    KafkaUnavailableError,
    LedgerError,
    MissingPartitionError,
    NotYetError,
)
from airflow_kafka_offsets.core.lag.lag import GroupLag, GroupVerdict, PartitionLag
from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.lag.verdict import unknown
from airflow_kafka_offsets.core.lag.words import advice, why_unknown
from airflow_kafka_offsets.core.plan.planning import Verdict
from airflow_kafka_offsets.page import now, render
from airflow_kafka_offsets.page.looks import Kept
from airflow_kafka_offsets.page.now import folded_facts, heat_facts, now_view, order, partition_facts, without_details
from airflow_kafka_offsets.page.render import now_of_one
from tests.core.examples import NOON, tp

WEEK = timedelta(days=7)
BEHIND = PartitionLag(
    *(100, 0, 300),
    lag=200,
    lag_seconds=840,
    headroom_seconds=WEEK.total_seconds() / 2,
    headroom_offsets=100,
    retention=Retention(WEEK),
)


def lag(*partitions: PartitionLag, verdict: GroupVerdict | None = GroupVerdict.OK, **more: object) -> GroupLag:
    """Look at a group of these partitions."""
    group_lag = GroupLag("lake", NOON, verdict, "Because", {tp(i): p for i, p in enumerate(partitions)})
    headrooms = {tp: p.headroom_seconds for tp, p in group_lag.partitions.items() if p.headroom_seconds is not None}
    return replace(group_lag, tightest=min(headrooms, key=headrooms.__getitem__, default=None), **more)  # type: ignore[arg-type]


def test_lag_in_time_leads() -> None:
    view = now_view(lag(BEHIND))
    assert (view.lag, view.offsets) == ("14 min", "200 offsets")
    assert (view.headroom, view.about, view.left) == ("3 d 12 h", "7 d retention", 50.0)
    assert not view.needs_a_look


def test_the_partition_that_retention_reaches_first_is_named() -> None:
    sooner = replace(BEHIND, headroom_seconds=3600.0)
    assert now_view(lag(BEHIND, sooner)).about == "orders-1 first · 7 d retention"


def test_an_estimate_is_called_one() -> None:
    view = now_view(lag(replace(BEHIND, estimate="by size")))
    assert view.headroom == "about 3 d 12 h"


def test_nothing_unread() -> None:
    view = now_view(lag(PartitionLag(5, 0, 5, lag=0, lag_seconds=0)))
    assert (view.lag, view.offsets, view.headroom, view.left) == ("0 s", "nothing unread", "—", None)


RECREATED = PartitionLag(100, 0, 700, Verdict.RECREATED)
MISSING = PartitionLag(100, None, None, Verdict.MISSING)
TRUNCATED = PartitionLag(100, 0, 20, Verdict.TRUNCATED, lag=0, lag_seconds=0.0, headroom_offsets=100)


@pytest.mark.parametrize(
    ("gone", "why"),
    [
        (RECREATED, "a topic was recreated"),
        (MISSING, "a partition is gone"),
        (TRUNCATED, "a log was cut back"),
    ],
)
def test_of_a_topic_that_is_another_one_or_gone_no_one_says_that_nothing_is_unread(
    gone: PartitionLag, why: str
) -> None:
    read = PartitionLag(5, 0, 5, Verdict.CONTINUE, lag=0, lag_seconds=0, retention=Retention(None))
    for partitions in ([gone], [gone, read]):
        view = now_view(lag(*partitions, verdict=GroupVerdict.LOST))
        assert (view.lag, view.offsets, view.headroom, view.about, view.left) == ("?", why, "?", why, None)
    view = now_view(lag(gone, BEHIND, verdict=GroupVerdict.LOST))
    assert (view.lag, view.offsets) == ("at least 14 min", "at least 200 offsets")
    kept = replace(read, lag=4, lag_seconds=60.0)
    assert now_view(lag(gone, kept, verdict=GroupVerdict.LOST)).headroom == "?", "of what is gone, nothing is kept"
    [facts] = partition_facts({tp(0): gone}, "orders-0").values()
    assert facts["behind"] == "—"


def test_only_a_group_without_a_watermark_has_planned_nothing_yet() -> None:
    view = now_view(lag(PartitionLag(None, 0, 5)))
    assert (view.lag, view.offsets, view.headroom, view.about) == (
        "—",
        "nothing planned yet",
        "—",
        "nothing planned yet",
    )
    left = now_view(lag(PartitionLag(5, 0, 9, Verdict.LEFT_GROUP)))
    assert (left.lag, left.offsets, left.headroom, left.about) == ("?", "not known", "?", "not known")


def test_without_time_the_offsets_lead() -> None:
    view = now_view(lag(PartitionLag(5, 2, 9, lag=4, headroom_offsets=3)))
    assert (view.lag, view.offsets) == ("4 offsets", "time not known")
    assert (view.headroom, view.about) == ("—", "3 offsets to the oldest record")


def test_lost_records_are_counted() -> None:
    view = now_view(lag(replace(BEHIND, headroom_offsets=-40), verdict=GroupVerdict.LOST))
    assert (view.verdict, view.headroom, view.about) == ("LOST", "lost", "40 offsets expired unread")
    assert view.needs_a_look
    assert 'class="bad" width="3%"' in now_of_one(view)["parts"]["card-headroom"], "nothing is left, and one sees it"


def test_without_an_answer_nothing_is_claimed() -> None:
    view = now_view(lag(verdict=None, error="away"))
    assert (view.verdict, view.lag, view.headroom) == ("NOT KNOWN", "?", "?")
    assert view.needs_a_look


@pytest.mark.parametrize(
    ("error", "small", "beside"),
    [
        (KafkaUnavailableError("no leader"), "Kafka did not answer", "Kafka did not answer"),
        (KafkaRefusedError("wrong password"), "Kafka refused", "Kafka refused"),
        (NotYetError("there is no connection"), "Kafka was not asked", "Kafka was not asked"),
        (MissingPartitionError("no topic matches"), "Kafka has no such topic", "Kafka has no such topic"),
        (LedgerError("its row is damaged"), "the ledger can't be read", "The ledger can't be read"),
        (DataLossError("of another kind"), "not known", "Not known"),
    ],
)
def test_what_happened_is_said_as_it_was(error: Exception, small: str, beside: str) -> None:
    lag = unknown("lake", NOON, error, Pace())
    view = now_view(lag)
    assert (view.lag, view.offsets, view.headroom, view.about) == ("?", small, "?", small)
    assert view.reason == f"Not known: {'Kafka was not asked: ' * (small == 'Kafka was not asked')}{error}."
    assert now_view(without_details(lag)).reason == f"{beside}. See the page of this group."


def test_beside_other_groups_nothing_is_told_that_may_be_of_them() -> None:
    unknown = now_view(without_details(lag(verdict=None, error="Kafka did not answer: salaries")))
    shown = now_view(without_details(replace(lag(BEHIND), notes=("lag in time is not known: salaries",))))
    for view in (unknown, shown):
        assert "salaries" not in view.reason
    assert "See the page of this group" in unknown.reason


@pytest.mark.parametrize("verdict", GroupVerdict)
def test_the_worst_is_first(verdict: GroupVerdict) -> None:
    assert order(lag(verdict=verdict)) <= order(lag(verdict=GroupVerdict.OK)) < order(None)
    assert order(lag(verdict=None, error="away")) < order(lag(verdict=GroupVerdict.OK)), "it may be lost"


LOST = replace(BEHIND, verdict=Verdict.DATA_LOSS, headroom_offsets=-40)
AT_RISK = replace(BEHIND, headroom_seconds=60.0)


def test_the_summary_begins_with_the_worst() -> None:
    verdicts = (
        None,
        GroupVerdict.BEHIND,
        GroupVerdict.OK,
        GroupVerdict.LOST,
        GroupVerdict.STALLED,
        GroupVerdict.BEHIND,
    )
    shown = {f"lake-{i}": now_view(lag(verdict=verdict)) for i, verdict in enumerate(verdicts)}
    assert render.now_of_all(shown)["parts"]["summary"] == " · 1 lost · 1 stalled · 2 behind · 1 not known"


def test_a_reason_is_a_sentence_whose_numbers_can_be_read() -> None:
    lags = lag(reason="1204512 offsets unread", notes=("the log of orders-2026 was not asked",))
    assert now_view(lags).reason == "1,204,512 offsets unread; the log of orders-2026 was not asked."


def test_cells_tell_the_lag_of_many_partitions() -> None:
    many = [replace(BEHIND, lag=i) for i in range(400)]
    cells = heat_facts(lag(*many))["orders"]
    assert (cells[0], cells[-1]) == ((0, 1, 1, "quiet", 0), (398, 797, 4, "quiet", 0))
    assert heat_facts(lag(BEHIND)) == {}


def test_cells_tell_what_is_lost_and_what_is_at_risk() -> None:
    cells = heat_facts(lag(LOST, *[BEHIND] * 98, AT_RISK))["orders"]
    assert cells[0] == (0, 200, 4, "lost", 40)
    assert cells[99][3:] == ("risk", 0)


def test_a_page_hears_how_many_of_the_worst_have_no_strip() -> None:
    lags = lag(LOST, AT_RISK, *[BEHIND] * 10, *[replace(BEHIND, lag=0, headroom_seconds=None)] * 60)
    assert folded_facts(lags, "") == {"danger": 2, "lag": 12}
    assert folded_facts(lags, "orders-0,orders-1,orders-2") == {"danger": 0, "lag": 9}
    assert folded_facts(lag(LOST), "") == {}, "each has a strip"
    new = replace(LOST, watermark=None)
    assert folded_facts(lag(*[new] * 70), "") == {"danger": 0, "lag": 0}, "a new partition is in no picture yet"


def test_only_the_partitions_of_the_page_are_told() -> None:
    facts = partition_facts({tp(0): BEHIND, tp(1): BEHIND}, "orders-1,other-7")
    assert facts == {"orders-1": {"behind": "200 behind", "beginning": 0, "end": 300, "lost": 0}}


def test_what_a_partition_lost_is_told_beside_its_lag() -> None:
    lost = replace(BEHIND, beginning=1_140, end=9_300, lag=9_200, headroom_offsets=-1_040)
    [facts] = partition_facts({tp(0): lost}, "orders-0").values()
    assert facts == {"behind": "9,200 behind", "beginning": 1_140, "end": 9_300, "lost": lost.lost}
    assert lost.lost == 1_040


def test_of_another_topic_of_the_same_name_no_offsets_are_drawn() -> None:
    recreated = PartitionLag(100, 0, 300, Verdict.RECREATED)
    [facts] = partition_facts({tp(0): recreated}, "orders-0").values()
    assert facts == {"behind": "—", "beginning": None, "end": None, "lost": 0}


def test_what_retention_never_removes_is_kept_whatever_else_is_not_known() -> None:
    kept = PartitionLag(5, 2, 9, lag=4, headroom_offsets=3, retention=Retention(None))
    view = now_view(lag(kept, notes=("whether open transactions hide records is not known: away",)))
    assert (view.headroom, view.about, view.left) == ("never", "Kafka keeps these records", None)
    by_size = now_view(lag(kept, replace(kept, retention=Retention(None, size=1_000))))
    assert (by_size.headroom, by_size.about) == ("—", "3 offsets to the oldest record")


@pytest.mark.parametrize("verdict", [None, *GroupVerdict])
def test_a_group_that_needs_a_look_says_what_to_type_next_as_status_does(verdict: GroupVerdict | None) -> None:
    reason = now_of_one(now_view(lag(BEHIND, verdict=verdict, reason="<b>Because</b>")))["parts"]["reason"]
    next_step = advice("lake", verdict)
    command = next_step and f' {next_step.words}: <code class="command">{next_step.command}</code>'
    assert reason == "&lt;b&gt;Because&lt;/b&gt;." + (command or "")
    assert bool(command) is (verdict not in (None, GroupVerdict.OK))


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Kept[Mapping[str, GroupLag]]:
    """Keep the answers of a process that has just begun."""
    made: Kept[Mapping[str, GroupLag]] = Kept()
    monkeypatch.setattr(now, "LOOKS", made)
    return made


@pytest.mark.parametrize(("own", "of_all"), [(0, 60), (60, 0)])
def test_of_two_looks_the_newer_one_is_the_last(looks: Kept[Mapping[str, GroupLag]], own: int, of_all: int) -> None:
    for name, seconds in (("lake", own), (now.ALL, of_all)):
        answer = lag(BEHIND, at=NOON + timedelta(seconds=seconds))
        looks.get(name, lambda answer=answer: {"lake": answer})  # type: ignore[misc]
    newest = now.last("lake")
    assert newest is not None
    assert newest.at == NOON + timedelta(seconds=60)


def test_a_group_that_only_one_of_the_looks_has_is_known_from_that_one(looks: Kept[Mapping[str, GroupLag]]) -> None:
    assert now.last("lake") is None
    looks.get(now.ALL, lambda: {"other": lag(BEHIND)})
    assert now.last("lake") is None
    looks.get("lake", lambda: {"lake": lag(BEHIND)})
    assert now.last("lake") == lag(BEHIND)


def test_the_script_says_that_nothing_is_known_any_more_in_the_words_of_an_answer() -> None:
    script = (Path(now.__file__).parent / "static" / "page.js").read_text()
    assert f'textContent: "{now.NOT_KNOWN}"' in script
    assert f'"<b>{now.UNKNOWN}</b><small>{why_unknown(None)}</small>"' in script
