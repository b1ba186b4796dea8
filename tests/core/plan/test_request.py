"""What a run asks for: read from params and conf, refused with the reason."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError, OffsetsJsonError
from airflow_kafka_offsets.core.plan.request import (
    MAX_NAMED_WINDOWS,
    REPLAY_KEYS,
    SCOPED,
    Ranges,
    TimeSpan,
    Windows,
    check_keys,
    new_run,
    parse_replay,
    parse_seq,
    parse_windows,
    scoped,
    span,
)
from airflow_kafka_offsets.core.run import Run
from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.core.window_id import name_window, name_windows
from tests.core.examples import ranges, tp

BERLIN = ZoneInfo("Europe/Berlin")
FROM, TO = "2026-01-31T00:00:00Z", "2026-02-01T00:00:00Z"
LOW, HIGH = '{"orders":{"0":5,"1":2}}', '{"orders":{"0":9,"1":2}}'


@pytest.mark.parametrize("nothing", [None, "", {}, [], "  "])
def test_nulls_and_empties_choose_nothing(nothing: Any) -> None:
    assert parse_replay("lake", dict.fromkeys(REPLAY_KEYS, nothing)) is None
    assert parse_replay("lake", {"mine": 5, "other": "x"}) is None
    assert parse_replay("lake", {}) is None
    form = dict.fromkeys(REPLAY_KEYS, nothing) | {"windows": "7"}
    assert parse_replay("lake", form) == Windows((7,))


@pytest.mark.parametrize(
    ("text", "seqs"),
    [
        ("12", (12,)),
        (12, (12,)),
        ("12-15", (12, 13, 14, 15)),
        ("12-12", (12,)),
        (" 3 , 1 ,2-3 ", (1, 2, 3)),
        ("lake-000012", (12,)),
        ("5,lake-000012,lake-1000000", (5, 12, 1_000_000)),
    ],
)
def test_windows_are_named_by_number_range_or_id(text: Any, seqs: tuple[int, ...]) -> None:
    assert parse_replay("lake", {"windows": text}) == Windows(seqs)


@pytest.mark.parametrize("group", ["5", "2024", "a-5", "lake.orders", "1-2"])
def test_an_id_is_an_id_whatever_the_groups_name(group: str) -> None:
    assert parse_windows(group, name_window(group, 12)) == [12]
    assert parse_windows(group, "12-14") == [12, 13, 14]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0", "names no window"),
        ("15-12", "names no window"),
        ("0-3", "names no window"),
        (f"1-{MAX_NAMED_WINDOWS + 1}", "more than 1000 windows"),
        (f"1-{MAX_NAMED_WINDOWS},{MAX_NAMED_WINDOWS + 1}", "more than 1000 windows"),
        ("1-999999999999999999", "more than 1000 windows"),
        ("9" * 5000, "not a window id"),
        ("other-000012", "belongs to group other, not to lake"),
        ("lake-12", "not a window id"),
        ("lake-0000012", "not a window id"),
        ("12-", "not a window id"),
        ("-12", "not a window id"),
        ("1,,2", "'1,,2' has an empty part"),
        ("1-2-3", "not a window id"),
        ("१२", "not a window id"),
        ("all", "not a window id"),
    ],
)
def test_what_names_no_window_is_refused(text: str, why: str) -> None:
    with pytest.raises(BadInputError, match=why):
        parse_replay("lake", {"windows": text})


def test_1000_windows_may_be_named() -> None:
    assert len(parse_windows("lake", f"1-{MAX_NAMED_WINDOWS}")) == MAX_NAMED_WINDOWS


@given(st.sets(st.integers(1, 2000), min_size=1, max_size=50), st.randoms())
def test_windows_are_read_in_order_and_once_however_they_are_named(seqs: set[int], random: Any) -> None:
    names = [random.choice([str, lambda s: f"{s}-{s}", lambda s: name_window("lake", s)])(s) for s in seqs] * 2
    random.shuffle(names)
    assert parse_windows("lake", ",".join(names)) == sorted(seqs)


def test_one_window_is_named_by_number_or_id() -> None:
    assert parse_seq("lake", "12") == parse_seq("lake", "lake-000012") == 12
    with pytest.raises(BadInputError, match="belongs to group other"):
        parse_seq("lake", "other-000012")


@pytest.mark.parametrize(
    "params",
    [
        {"windows": "1", "from": FROM},
        {"windows": "1", "from": FROM, "to": TO},
        {"from": FROM, "to": TO, "starting_offsets": LOW, "ending_offsets": HIGH},
        {"windows": "1", "ending_offsets": HIGH},
    ],
)
def test_two_ways_at_once_are_refused_and_named(params: dict[str, str]) -> None:
    with pytest.raises(
        BadInputError,
        match="Name one replay: by windows, or by from and to, or by starting_offsets and ending_offsets",
    ) as raised:
        parse_replay("lake", params)
    assert str(raised.value).startswith(f"The replay has {' and '.join(params)}. ")


@pytest.mark.parametrize(
    ("params", "missing"),
    [
        ({"from": FROM}, "'to' is missing"),
        ({"to": TO, "from": None}, "'from' is missing"),
        ({"starting_offsets": LOW}, "'ending_offsets' is missing"),
        ({"ending_offsets": HIGH, "starting_offsets": ""}, "'starting_offsets' is missing"),
    ],
)
def test_half_a_way_is_refused_and_the_other_half_named(params: dict[str, Any], missing: str) -> None:
    with pytest.raises(BadInputError, match=missing):
        parse_replay("lake", params)


@pytest.mark.parametrize("form", [str, json.loads])
def test_offset_ranges_are_sparks_json_as_text_or_as_an_object(form: Any) -> None:
    asked = parse_replay("lake", {"starting_offsets": form(LOW), "ending_offsets": form(HIGH)})
    assert asked == Ranges(ranges({tp(0): (5, 9), tp(1): (2, 2)}))


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        (LOW, '{"orders":{"0":9}}', "only one names orders-1"),
        (HIGH, LOW, "orders-0: the end offset 5 lies before the start offset 9"),
        ('{"orders":{"0":-2,"1":2}}', HIGH, "earliest"),
        (LOW, '{"orders":{"0":-1,"1":2}}', "latest"),
        ("{", HIGH, "must be JSON"),
        ("5", "9", "must be a JSON object"),
    ],
)
def test_offset_ranges_that_mean_nothing_are_refused(start: str, end: str, why: str) -> None:
    with pytest.raises(BadInputError, match=why):
        parse_replay("lake", {"starting_offsets": start, "ending_offsets": end})
    assert issubclass(OffsetsJsonError, BadInputError)


@pytest.mark.parametrize(
    "text", ["2026-01-31T00:00:00Z", "2026-01-31T01:00:00+01:00", " 2026-01-30T18:00:00-06:00 ", "20260131T000000Z"]
)
def test_a_time_may_have_any_zone(text: str) -> None:
    asked = parse_replay("lake", {"from": text, "to": TO})
    assert asked == TimeSpan(datetime(2026, 1, 31, tzinfo=UTC), datetime(2026, 2, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("start", "end", "why"),
    [
        ("2026-01-31", TO, "from: the time 2026-01-31T00:00:00 has no zone"),
        (datetime(2026, 1, 31), TO, "has no zone"),
        (FROM, "2026-02-01T00:00:00", "to: .* has no zone"),
        ("yesterday", TO, "from: 'yesterday' is not a time"),
        (FROM, 5, "to: 5 is not a time"),
        (TO, FROM, "can't go from"),
        (FROM, FROM, "can't go from"),
        (FROM, "2026-01-31T01:00:00+01:00", "can't go from"),
        ("0001-01-01T00:00:00+14:00", TO, "years 1 to 9999"),
        (FROM, "9999-12-31T23:59:59-12:00", "years 1 to 9999"),
    ],
)
def test_a_span_that_means_nothing_is_refused(start: Any, end: Any, why: str) -> None:
    with pytest.raises(BadInputError, match=why):
        parse_replay("lake", {"from": start, "to": end})


@pytest.mark.parametrize(
    ("day", "hours"),
    [
        (datetime(2026, 3, 28), 24),
        (datetime(2026, 3, 29), 23),
        (datetime(2026, 10, 25), 25),
        (datetime(2026, 10, 26), 24),
    ],
)
def test_a_day_is_as_long_as_it_is_where_the_person_lives(day: datetime, hours: int) -> None:
    """In Berlin the clocks changed on 2026-03-29 and 2026-10-25."""
    start, end = day.replace(tzinfo=BERLIN), (day + timedelta(days=1)).replace(tzinfo=BERLIN)
    for given_as in (lambda t: t, datetime.isoformat):
        asked = parse_replay("lake", {"from": given_as(start), "to": given_as(end)})
        assert isinstance(asked, TimeSpan)
        assert asked.end - asked.start == timedelta(hours=hours)
        assert asked.start.tzinfo is asked.end.tzinfo is UTC


def test_the_hour_that_the_clocks_show_twice_is_two_hours() -> None:
    first = datetime(2026, 10, 25, 2, 30, tzinfo=BERLIN)
    second, earlier_on_the_clock = first.replace(fold=1), first.replace(minute=15, fold=1)
    assert span(first, second).end - span(first, second).start == timedelta(hours=1)
    asked = span(first, earlier_on_the_clock)
    assert asked.end - asked.start == timedelta(minutes=45)
    with pytest.raises(BadInputError, match="can't go from"):
        span(earlier_on_the_clock, first)
    interval = TimeSpan(first, second, is_interval=True)
    assert (interval.start, interval.end) == (asked.start, asked.start + timedelta(hours=1))


@given(st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1), timezones=st.timezones()), st.integers(1, 10**9))
def test_a_span_survives_being_written_down_in_any_zone(start: datetime, seconds: int) -> None:
    instant = start.astimezone(UTC)
    end = (instant + timedelta(seconds=seconds)).astimezone(start.tzinfo)
    asked = parse_replay("lake", {"from": start.isoformat(), "to": end.isoformat()})
    # A zone of long ago may have seconds that ISO 8601 keeps, and so nothing is lost.
    assert asked == TimeSpan(instant, instant + timedelta(seconds=seconds))


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("window", "windows"),
        ("Windows", "windows"),
        ("WINDOW", "windows"),
        ("window_id", "windows"),
        ("window_ids", "windows"),
        ("windws", "windows"),
        (" windows", "windows"),
        ("From", "from"),
        ("TO", "to"),
        ("startingOffsets", "starting_offsets"),
        ("starting-offset", "starting_offsets"),
        ("endingOffsets", "ending_offsets"),
        ("ending_ofsets", "ending_offsets"),
        ("Group", "group"),
        ("groups", "group"),
    ],
)
def test_a_key_that_looks_like_ours_is_refused_with_the_one_that_is_meant(key: str, meant: str) -> None:
    with pytest.raises(BadInputError, match=f"{key!r}, which looks like {meant!r}"):
        check_keys({"mine": 1, key: "3"}, own=())


def test_keys_that_are_ours_or_a_dags_own_or_say_nothing_are_no_typos() -> None:
    check_keys(dict.fromkeys((*REPLAY_KEYS, "group"), "3"), own=())
    check_keys({"window": 5, "From": "ada"}, own=("window", "From"))
    check_keys({"window": None, "Windows": "", "startingOffsets": {}}, own=())
    strangers = (
        "window_size",
        "windowing",
        "form",
        "tot",
        "token",
        "offsets",
        "start",
        "until",
        "topics",
        "group_id",
        "group_by",
        "day",
        "",
        7,
    )
    check_keys(dict.fromkeys(strangers, "x"), own=())


@pytest.mark.parametrize("text", ["3", "3,7", "3-5,7", "1-2,4-5", "999999-1000001"])
def test_the_numbers_of_windows_are_written_as_they_are_read(text: str) -> None:
    assert name_windows(parse_windows("lake", text)) == text


def test_what_is_ours_can_stand_in_an_object_of_its_own() -> None:
    inner = {"group": "lake", "windows": "3"}
    assert scoped({SCOPED: inner, "mine": 1}) == inner
    assert [scoped(conf) for conf in ({}, {SCOPED: None}, {SCOPED: {}}, {"windows": "3"})] == [None] * 4
    check_keys({SCOPED: inner}, own=())


@pytest.mark.parametrize("wrong", ["12-15", 7, ["12"], {"windws": "3"}, {"windows": "3", "mine": 1}])
def test_an_object_with_anything_else_is_refused(wrong: Any) -> None:
    with pytest.raises(BadInputError, match=r"an object with keys of windows, from, .*, group, trigger_consumers, got"):
        scoped({SCOPED: wrong})


@pytest.mark.parametrize("key", ["kafka-offsets", "kafkaOffsets", "kafka_offset"])
def test_a_misspelled_name_of_the_object_is_refused(key: str) -> None:
    with pytest.raises(BadInputError, match=f"{key!r}, which looks like 'kafka_offsets'"):
        check_keys({key: {"windows": "3"}}, own=())


DAG_RUN = Claim("orders", "manual__1", "load")


@pytest.mark.parametrize(
    ("conf", "keys"),
    [
        ({"windows": "x"}, ("windows",)),
        ({"Window_id": "x"}, ("windows",)),
        ({"to": "2026"}, ("from", "to")),
        ({SCOPED: {"starting_ofsets": LOW}}, ("starting_offsets", "ending_offsets")),
        ({SCOPED: {"starting_offsets": LOW}}, ("starting_offsets", "ending_offsets")),
        ({SCOPED: 5}, ("windows",)),
        ({"group": "gone", "secret": "hunter2"}, ("windows",)),
    ],
)
def test_the_run_that_replaces_one_with_a_wrong_conf_has_values_to_fill_in(
    conf: dict[str, Any], keys: tuple[str, ...]
) -> None:
    command = new_run(Run(DAG_RUN, conf=conf), "lake")
    assert command is not None
    assert shlex.split(command)[:-1] == ["airflow", "dags", "trigger", "orders", "--conf"]
    assert json.loads(shlex.split(command)[-1]) == {SCOPED: {"group": "lake", **dict.fromkeys(keys, "...")}}


@pytest.mark.parametrize("conf", [{}, {"mine": 5}, {"windows": None}])
def test_a_conf_that_says_nothing_to_us_needs_no_other_run(conf: dict[str, Any]) -> None:
    assert new_run(Run(DAG_RUN, conf=conf), "lake") is None


def test_a_backfill_with_a_wrong_conf_is_replaced_by_a_time_span() -> None:
    command = new_run(Run(DAG_RUN, kind="backfill", conf={"Group": "x"}), "lake")
    assert command is not None
    assert json.loads(shlex.split(command)[-1])[SCOPED] == {"group": "lake", "from": "...", "to": "..."}
