"""The partitions of a DAG's schedule, as Airflow's own timetables date and name them. Only an Airflow with all of them leads here."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk.timezone import coerce_datetime
from airflow.serialization.encoders import coerce_to_core_timetable
from airflow.timetables.base import DagRunInfo, TimeRestriction
from airflow.timetables.interval import CronDataIntervalTimetable
from airflow.timetables.trigger import CronPartitionTimetable, CronTriggerTimetable

from airflow_kafka_offsets.core.fields import plain

if TYPE_CHECKING:
    from airflow.timetables.base import Timetable

_KEY_FORMAT = "%Y-%m-%dT%H:%M:%S"
"""That of `CronPartitionTimetable`, for schedules that have none."""


def interval_of(schedule: Any, date: datetime) -> tuple[datetime, datetime] | None:
    """Return start and end of the partition with this date, in UTC, or None if the schedule does not tell where it ends."""
    timetable = coerce_to_core_timetable(schedule)
    if not isinstance(timetable, CronPartitionTimetable):
        return None
    return plain(date), plain(_next_tick(timetable, date).run_after)


def keys_of(schedule: Any, ends: Iterable[datetime]) -> list[str]:
    """Return the key of each partition that ends at one of these moments: none for a moment at which the schedule has no tick.

    A partition starts at the tick before its end. Only schedules by cron have ticks here.
    """
    timetable = coerce_to_core_timetable(schedule)
    if not isinstance(timetable, CronDataIntervalTimetable | CronTriggerTimetable):
        return []
    intervals = CronDataIntervalTimetable.deserialize(timetable.serialize())
    found = [(end, intervals.infer_manual_data_interval(run_after=coerce_datetime(end))) for end in ends]
    starts = [interval.start for end, interval in found if interval.end == end]
    named = [_next_tick(timetable, start - timedelta(seconds=1)).partition_key for start in starts]
    return [key for key in named if key is not None]


def _next_tick(timetable: Timetable, moment: datetime) -> DagRunInfo:
    """Return the first tick of a schedule by cron after a moment, with the key of the partition that starts there."""
    ticks = CronPartitionTimetable.deserialize({"key_format": _KEY_FORMAT, **timetable.serialize(), "run_offset": 0})
    last = DagRunInfo(run_after=coerce_datetime(moment), data_interval=None)
    found = ticks.next_dagrun_info_v2(last_dagrun_info=last, restriction=TimeRestriction(None, None, catchup=True))
    assert found is not None, "the restriction has no end"
    return found
