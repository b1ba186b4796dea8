"""Who sees a group: Airflow's auth manager is asked about DAGs that Airflow has, and about nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from airflow import settings
from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
from airflow.models.dag import DagModel
from airflow.models.dagbundle import DagBundleModel
from airflow.models.team import Team, dag_bundle_team_association_table
from sqlalchemy import create_engine
from sqlalchemy.orm import sessionmaker

from airflow_kafka_offsets.core.plan.overview import Outline
from airflow_kafka_offsets.page import access
from airflow_kafka_offsets.page.access import Reader
from tests.page.auth import LIMITED, SomeDags


class Manager(SomeDags):
    """Counts its questions. Who is `without-runs` may read each DAG, and the runs of none."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.asked: list[tuple[Any, Any]] = []

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        """Whether a user may do something with a DAG."""
        self.asked.append((access_entity, details))
        if user.username == "without-runs" and access_entity is DagAccessEntity.RUN:
            return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)


@pytest.fixture
def manager(monkeypatch: pytest.MonkeyPatch) -> Manager:
    """Let it be Airflow's auth manager."""
    made = Manager()
    monkeypatch.setattr(access, "get_auth_manager", lambda: made)
    return made


@pytest.fixture
def airflow_has(quick_folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Return a function that adds DAGs to Airflow's database, all of one team or of none."""
    engine = create_engine(f"sqlite:///{quick_folder / 'airflow.db'}")
    tables = [model.__table__ for model in (DagBundleModel, Team, DagModel)]
    DagModel.metadata.create_all(engine, tables=[*tables, dag_bundle_team_association_table])
    session = sessionmaker(engine)
    monkeypatch.setattr(settings, "Session", session)

    def has(*dag_ids: str, team: str | None = None) -> None:
        with session.begin() as writing:
            bundle = DagBundleModel(name=f"bundle-{team}")
            bundle.teams = [_team(team)] if team else []
            writing.add(bundle)
            writing.flush()
            for dag_id in dag_ids:
                writing.add(DagModel(dag_id=dag_id, bundle_name=bundle.name, fileloc="dags.py"))  # type: ignore[no-untyped-call]

    yield has
    engine.dispose()


def _team(name: str) -> Team:
    return Team(name=name, id=uuid4()) if hasattr(Team, "id") else Team(name=name)  # Airflow 3.1 has numbers of teams


def reader(name: str, role: str = "viewer") -> Reader:
    """Return the reader of a user."""
    return Reader(SimpleAuthManagerUser(username=name, role=role))


IMPORTED, OF_ORDERS = Outline("hr.imported", 0), Outline("lake.orders", 3, dag_ids=frozenset({"orders"}))


def seen(who: Reader) -> list[str]:
    """Return which of the two groups someone sees: one that no DAG has, and one of the DAG `orders`."""
    return [one.group for one in who.visible([IMPORTED, OF_ORDERS])]


@pytest.mark.usefixtures("manager")
def test_a_group_without_a_dag_is_for_those_who_may_read_the_runs_of_all_dags(airflow_has: Callable[..., None]) -> None:
    airflow_has("orders", "payroll")
    assert seen(reader("viewer")) == ["hr.imported", "lake.orders"]
    assert seen(reader(LIMITED)) == ["lake.orders"]
    assert seen(reader("without-runs")) == []


@pytest.mark.usefixtures("manager")
def test_without_any_dag_in_airflow_it_is_for_those_who_may_read_whatever_comes(
    airflow_has: Callable[..., None],
) -> None:
    airflow_has()
    assert "hr.imported" in seen(reader("viewer"))
    assert "hr.imported" not in seen(reader(LIMITED))


@pytest.mark.usefixtures("manager")
def test_who_may_read_the_only_dag_there_is_reads_all(airflow_has: Callable[..., None]) -> None:
    airflow_has("orders")
    assert seen(reader(LIMITED)) == ["hr.imported", "lake.orders"]


def test_all_dags_are_asked_about_once_and_only_for_a_group_without_one(
    manager: Manager, airflow_has: Callable[..., None]
) -> None:
    airflow_has("orders", "payroll", team="lake")
    someone = reader("ada", "admin")  # of all teams
    assert someone.visible([OF_ORDERS] * 3) == [OF_ORDERS] * 3
    assert [details.id for _, details in manager.asked] == ["orders"], "what all groups have takes no more"
    manager.asked.clear()
    assert len(someone.visible([IMPORTED] * 100)) == 100
    of_runs = [details for entity, details in manager.asked if entity is DagAccessEntity.RUN]
    assert sorted((details.id, details.team_name) for details in of_runs) == [("orders", "lake"), ("payroll", "lake")]
    assert all(details is not None for _, details in manager.asked)
