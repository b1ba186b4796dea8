"""What a user may see: the groups of a DAG whose runs they may read. A DAG has a group if it has, or had, one of its windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.batch_apis import IsAuthorizedDagRequest
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.team import Team
from airflow.utils.session import create_session
from sqlalchemy import select

from airflow_kafka_offsets.core.plan.overview import Outline

NO_DAG = "~"
"""Stands in for a DAG while Airflow has none. No DAG can have this name, so only someone who may read all DAGs may read it."""


class Reader:
    """What one user may read. It asks Airflow's auth manager once about each DAG.

    It never asks without a DAG: then FAB's auth manager accepts whoever may read any DAG.
    """

    def __init__(self, user: BaseUser) -> None:
        self._user = user
        self._readable: dict[str, bool] = {}

    def readable(self, dag_ids: Iterable[str]) -> frozenset[str]:
        """Return the DAGs whose runs the user may read."""
        wanted = frozenset(dag_ids)
        if new := wanted - self._readable.keys():
            teams = _teams(new)
            for dag_id in new:
                self._readable[dag_id] = self._may("GET", DagDetails(id=dag_id, team_name=teams.get(dag_id)))
        return frozenset(dag_id for dag_id in wanted if self._readable[dag_id])

    def may_read(self, dag_id: str) -> bool:
        """Whether the user may read the runs of a DAG."""
        return dag_id in self.readable([dag_id])

    def may_run(self, dag_id: str) -> bool:
        """Whether the user may start a run of a DAG."""
        return self._may("POST", DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id)))

    def state_of(self, dag_id: str) -> tuple[bool, str | None]:
        """Return whether the user can start a run of a DAG, and why it would not start, or wait; None if it starts at once."""
        if not self.may_run(dag_id):
            return False, "you may not run this DAG"
        dag = DagModel.get_dagmodel(dag_id)
        if dag is None or dag.is_stale:
            return False, "Airflow has no such DAG"
        if dag.has_import_errors:
            return False, "its file has an import error"
        return True, "the run waits until the DAG is unpaused" if dag.is_paused else None

    def may_see(self, group: Outline) -> bool:
        """Whether the user may see a group. A group without a DAG is for those who may read the runs of all DAGs."""
        return bool(self.readable(group.dag_ids)) if group.dag_ids else self.may_read_all

    def visible(self, outlines: Iterable[Outline]) -> list[Outline]:
        """Return the groups that the user may see."""
        groups = list(outlines)
        self.readable(dag_id for group in groups for dag_id in group.dag_ids)  # all of them in one question
        return [group for group in groups if self.may_see(group)]

    @cached_property
    def may_read_all(self) -> bool:
        """Whether the user may read the runs of all DAGs that Airflow has."""
        manager, teams = get_auth_manager(), _teams()
        # First the cheaper question, about DAGs without their runs.
        if not teams.keys() <= manager.get_authorized_dag_ids(user=self._user):
            return False
        runs: list[IsAuthorizedDagRequest] = [
            {
                "method": "GET",
                "access_entity": DagAccessEntity.RUN,
                "details": DagDetails(id=dag_id, team_name=teams.get(dag_id)),
            }
            for dag_id in sorted(teams) or [NO_DAG]
        ]
        return manager.batch_is_authorized_dag(runs, user=self._user)

    def _may(self, method: Any, details: DagDetails) -> bool:
        return get_auth_manager().is_authorized_dag(
            method=method, access_entity=DagAccessEntity.RUN, details=details, user=self._user
        )


def _teams(dag_ids: Iterable[str] | None = None) -> Mapping[str, str | None]:
    """Return the teams of DAGs that Airflow has: of some, or of all."""
    query = (
        select(DagModel.dag_id, Team.name)
        .join(DagBundleModel, DagModel.bundle_name == DagBundleModel.name)
        .join(DagBundleModel.teams, isouter=True)
    )
    if dag_ids is not None:
        query = query.where(DagModel.dag_id.in_(sorted(dag_ids)))
    with create_session() as session:
        return {row.dag_id: row.name for row in session.execute(query)}
