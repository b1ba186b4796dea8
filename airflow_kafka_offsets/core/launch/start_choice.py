"""What a user chooses about a driver's start. Apart from core/launch/start.py, because each parse of a DAG checks only this."""

from __future__ import annotations

from typing import Literal, get_args

from airflow_kafka_offsets.core.fields import one_of

Compiler = Literal["auto", "quick", "late", "full"]
StartArchive = Literal["use", "make", "off"]

COMPILER = one_of(get_args(Compiler))
START_ARCHIVE = one_of(get_args(StartArchive))
