"""Output and offsets in one transaction, from Kafka to the table: a real ledger, a real Kafka, a real Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.adapters.kafka_log import KafkaLog
from airflow_kafka_offsets.adapters.ledger import schema
from airflow_kafka_offsets.adapters.ledger.engine import open_engine
from airflow_kafka_offsets.adapters.ledger.sql_ledger import SqlLedger
from airflow_kafka_offsets.core.errors import OutputError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.request import LIVE_REQUEST as LIVE
from airflow_kafka_offsets.core.window import Claim, State
from airflow_kafka_offsets.operators.job_files import Report, handoff_of
from airflow_kafka_offsets.operators.work import Stop, Work
from airflow_kafka_offsets.service import Planned, WindowService
from airflow_kafka_offsets.spark import KafkaWindow
from airflow_kafka_offsets.spark.errors import TargetError
from tests.lab.topics import create_topic, produce
from tests.spark.jdbc import Database

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.lab.kafka import KafkaBroker
