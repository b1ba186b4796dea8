"""Reads Airflow's database for commands: whether the run that holds a window is over, and the ids of the connections.

Tasks ask their supervisor instead. The database is private to Airflow: only this file reads it, and a test runs it against the
installed Airflow.
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

from airflow_kafka_offsets.core.window import Claim
from airflow_kafka_offsets.wiring.runs import RUN_IS_ALIVE, state_name, task_is_over

_VARIABLE = "AIRFLOW_CONN_"

logger = logging.getLogger(__name__)


def is_over(claim: Claim) -> bool | None:
    """Return whether a claim's task or run is over, or None if there is no Airflow here to ask."""
    if not _is_here():
        return None
    try:
        return _is_over(claim)
    except Exception as exc:  # whatever is wrong with that database must not keep a person from the command
        logger.debug("Airflow could not be asked: %s", type(exc).__name__)
        return None


def connection_ids() -> list[str]:
    """Return the ids of the connections in the environment and in Airflow's database; a secrets backend lists none of its own."""
    ids = [name.removeprefix(_VARIABLE).lower() for name in os.environ if name.startswith(_VARIABLE)]
    if _is_here():
        try:
            ids += _stored_connection_ids()
        except Exception as exc:  # the error to report is the missing connection
            logger.debug("Airflow's connections could not be listed: %s", type(exc).__name__)
    return ids


def _is_here() -> bool:
    """Whether Airflow is set up on this machine. Otherwise, starting it would make its folder and an empty database."""
    home = Path(os.path.expandvars(os.environ.get("AIRFLOW_HOME", "~/airflow"))).expanduser()
    is_set = any(name.startswith("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN") for name in os.environ)
    return "airflow" in sys.modules or is_set or (home / "airflow.cfg").exists()


def _is_over(claim: Claim) -> bool:
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import select

    run: dict[str, Any] = {"dag_id": claim.dag_id, "run_id": claim.run_id}
    task = {**run, "task_id": claim.task_id, "map_index": claim.map_index}
    with create_session() as session:
        alive = session.scalars(select(DagRun.state).filter_by(**run).where(DagRun.state.in_(RUN_IS_ALIVE))).all()
        states = session.scalars(select(TaskInstance.state).filter_by(**task)).all()
    return not alive or task_is_over(claim, {state_name(claim): state for state in states})


def _stored_connection_ids() -> list[str]:
    from airflow.models.connection import Connection
    from airflow.utils.session import create_session
    from sqlalchemy import select

    with create_session() as session:
        return list(session.scalars(select(Connection.conn_id)))
