"""The timetable of the DAGs whose runs have intervals, wherever the installed Airflow has it."""

from __future__ import annotations

try:
    from airflow.sdk import CronDataIntervalTimetable
except ImportError:  # Airflow 3.1
    from airflow.timetables.interval import CronDataIntervalTimetable  # type: ignore[assignment]

__all__ = ["CronDataIntervalTimetable"]
