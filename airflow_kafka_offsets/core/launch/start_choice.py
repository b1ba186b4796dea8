"""What a user chooses about a driver's start: here alone, as the parse of a DAG checks it and needs nothing else of core/launch/start.py."""

from __future__ import annotations

from typing import Literal, get_args

from airflow_kafka_offsets.core.fields import one_of

Compiler = Literal["auto", "quick", "late", "full"]
StartArchive = Literal["use", "make", "off"]

COMPILER = one_of(get_args(Compiler))
START_ARCHIVE = one_of(get_args(StartArchive))
