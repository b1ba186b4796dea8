"""What a user may see: a group is visible to whoever may read the runs of a DAG that has, or had, its windows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow.api_fastapi.app import get_auth_manager
from airflow.api_fastapi.auth.managers.models.base_user import BaseUser
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity, DagDetails
from airflow.models.dag import DagModel

from airflow_kafka_offsets.core.plan.overview import Outline


class Reader:
    """What one user may read. Airflow's auth manager is asked once about each DAG."""

    def __init__(self, user: BaseUser) -> None:
        self._user = user
        self._known: dict[str, bool] = {}

    def readable(self, dag_ids: Iterable[str]) -> frozenset[str]:
        """Return the DAGs whose runs the user may read."""
        asked = frozenset(dag_ids)
        if new := asked - self._known.keys():
            teams = _teams(sorted(new))
            for dag_id in new:
                self._known[dag_id] = self._may("GET", DagDetails(id=dag_id, team_name=teams.get(dag_id)))
        return frozenset(dag_id for dag_id in asked if self._known[dag_id])

    def may_read(self, dag_id: str) -> bool:
        """Whether the user may read the runs of a DAG."""
        return dag_id in self.readable([dag_id])

    def may_run(self, dag_id: str) -> bool:
        """Whether the user may start a run of a DAG."""
        return self._may("POST", DagDetails(id=dag_id, team_name=DagModel.get_team_name(dag_id)))

    def state_of(self, dag_id: str) -> tuple[bool, str | None]:
        """Return whether the user can start a run of a DAG, and why it would not start, or would wait; None: it starts at once."""
        if not self.may_run(dag_id):
            return False, "you may look at this DAG, and not run it"
        found = DagModel.get_dagmodel(dag_id)
        if found is None or found.is_stale:
            return False, "Airflow has no such DAG at the moment"
        if found.has_import_errors:
            return False, "its file has an import error"
        return True, "it is paused: the run waits until the DAG is unpaused" if found.is_paused else None

    def may_see(self, group: Outline) -> bool:
        """Whether the user may see a group. One that no DAG has is for those who may read every DAG."""
        if group.dag_ids:
            return bool(self.readable(group.dag_ids))
        return self._may("GET", None)

    def visible(self, outlines: Iterable[Outline]) -> list[Outline]:
        """Return the groups that the user may see."""
        found = list(outlines)
        self.readable(dag_id for one in found for dag_id in one.dag_ids)  # all of them in one question
        return [one for one in found if self.may_see(one)]

    def _may(self, method: Any, details: DagDetails | None) -> bool:
        return get_auth_manager().is_authorized_dag(
            method=method, access_entity=DagAccessEntity.RUN, details=details, user=self._user
        )


def _teams(dag_ids: Sequence[str]) -> Mapping[str, str | None]:
    """Return the teams of DAGs; those of no team may be left out."""
    if hasattr(DagModel, "get_dag_id_to_team_name_mapping"):
        return DagModel.get_dag_id_to_team_name_mapping(list(dag_ids))
    return {dag_id: DagModel.get_team_name(dag_id) for dag_id in dag_ids}  # Airflow 3.1 answers for one DAG at a time
