"""The two sides of the exchange in Airflow: a plan task hands its window off, and a commit task reads the job's report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from airflow_kafka_offsets.core.evidence import Report, proof_of
from airflow_kafka_offsets.core.exchange import Place, handoff_folder, scheme_of
from airflow_kafka_offsets.launch.job_files import handoff_of, reader_of, refuse_login
from airflow_kafka_offsets.spark.handoff import REPORTS, WINDOW_FILE
from airflow_kafka_offsets.task.plan import patiently
from airflow_kafka_offsets.task.work import ready
from airflow_kafka_offsets.wiring.storage import open_exchange

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.core.window import Claim, Window
    from airflow_kafka_offsets.service.plan import Planned
    from airflow_kafka_offsets.service.windows import WindowService


@dataclass(frozen=True, slots=True)
class Exchange:
    """How windows of a group get to the jobs of another launcher.

    Attributes:
        group: the group.
        address: of the exchange.
        conn_id: the Airflow connection to its storage, or None if none is needed.
        options: for Spark's reader, without secrets.
    """

    group: KafkaGroup
    address: str
    conn_id: str | None
    options: Mapping[str, str]

    def hand_off(self, planned: Planned, service: WindowService, claim: Claim) -> dict[str, Any]:
        """Leave a window in a new folder, record that, and return its address and id for the launcher and the commit task.

        Raises:
            ExchangeError: the folder can't be written.
            WindowBusyError: the claim no longer holds the window.
        """
        handoff_id = uuid4().hex
        folder = handoff_folder(self.address, planned.window.id, handoff_id)
        handoff = handoff_of(ready(service, self.group, planned), self.options, self.group, f"{folder}/{REPORTS}")
        open_exchange(folder, self.conn_id).put(WINDOW_FILE, handoff.to_json())
        patiently(lambda: service.hand_off(planned.window.id, claim, Place(folder, self.conn_id)))
        return {"exchange": folder, "exchange_conn_id": self.conn_id, "handoff": handoff_id}


def checked_exchange(group: KafkaGroup, address: str, conn_id: str | None) -> Exchange:
    """Return an exchange; what can't work there is refused before anything is planned.

    Raises:
        BadInputError: it is no address, its storage is unknown here, or the Kafka connection has a login that would have to leave this
            machine.
    """
    scheme_of(address)
    open_exchange(address, conn_id)
    reader = reader_of(group)
    refuse_login(reader, group.kafka_conn_id, "the job of another launcher")
    return Exchange(group, address, conn_id, reader.options)


def reported(window: Window, group: KafkaGroup, place: Place) -> Report:
    """Return the report of another launcher's job.

    Args:
        window: as the ledger has it.
        group: its group.
        place: where the plan task has left the window.

    Raises:
        NoReportError: no report proves that the window was read.
        ExchangeError: the folder can't be read.
    """
    reports = open_exchange(place.folder, place.conn_id).reports(REPORTS)
    return proof_of(window, reports, expect_gaps=group.expect_gaps, where=f"{place.folder}/{REPORTS}")
