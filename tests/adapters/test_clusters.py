"""How clusters are asked, where no real one is needed: those are in tests/launchers."""

from __future__ import annotations

import doctest
import json
import traceback
from base64 import b64encode
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from airflow_kafka_offsets.adapters.clusters import http
from airflow_kafka_offsets.adapters.clusters.standalone import Addresses, StandaloneCluster
from airflow_kafka_offsets.adapters.clusters.yarn import YarnCluster
from airflow_kafka_offsets.core.errors import ClusterUnavailableError
from airflow_kafka_offsets.core.launch.jobs import JobName, JobState
from tests.lab.processes import LOOPBACK, free_port
from tests.lab.small_server import Handler, SmallServer

if TYPE_CHECKING:
    from collections.abc import Iterator

NAME = JobName("lake-000001", "a" * 20, "b" * 20, datetime(2026, 1, 1, tzinfo=UTC))


def nobody() -> str:
    return f"http://{LOOPBACK}:{free_port()}"


@pytest.mark.parametrize(
    "cluster",
    [YarnCluster(nobody()), StandaloneCluster(Addresses([nobody(), nobody()], [nobody(), nobody()]))],
    ids=["yarn", "standalone"],
)
def test_a_cluster_that_does_not_answer_is_one_error(cluster: Any) -> None:
    for question in (lambda: cluster.jobs(NAME), lambda: cluster.state("1"), lambda: cluster.stop("1")):
        with pytest.raises(ClusterUnavailableError, match="does not answer"):
            question()


@contextmanager
def serving(answer: bytes | None, status: int = 200) -> Iterator[tuple[str, list[tuple[str, str | None]]]]:
    """Give the address of a server that answers or hangs up, and the paths and logins that came."""
    requests_seen: list[tuple[str, str | None]] = []

    class Answers(Handler):
        def do_POST(self) -> None:
            requests_seen.append((self.path, self.headers["Authorization"]))
            if answer is not None:
                self.send(status, answer.decode(), {})
            self.close_connection = True

        do_GET = do_PUT = do_POST

    with SmallServer(Answers) as server:
        yield f"http://{LOOPBACK}:{server.port}", requests_seen


def test_another_master_is_given_a_driver_only_if_the_first_can_not_have_one() -> None:
    with (
        serving(None) as (dying, _),
        serving(b'{"success": true, "submissionId": "driver-1"}') as (leader, requests_seen),
    ):
        with pytest.raises(ClusterUnavailableError, match="does not answer"):
            StandaloneCluster(Addresses([dying, leader], [])).submit([], {}, {})
        assert requests_seen == []
        assert StandaloneCluster(Addresses([nobody(), leader], [])).submit([], {}, {}) == "driver-1"
        assert requests_seen == [("/v1/submissions/create", None)]


@pytest.mark.parametrize(
    ("status", "answer", "state"),
    [
        (200, {"state": "ACCEPTED", "finalStatus": "UNDEFINED"}, JobState.ALIVE),
        (200, {"state": "FINISHED", "finalStatus": "SUCCEEDED"}, JobState.SUCCEEDED),
        (200, {"state": "FINISHED", "finalStatus": "FAILED"}, JobState.OVER),
        (404, {}, None),
    ],
)
def test_yarn_reports_the_state_of_one_application(status: int, answer: dict[str, str], state: JobState | None) -> None:
    with serving(json.dumps({"app": answer}).encode(), status) as (address, requests_seen):
        assert YarnCluster(address).state("application_1_1") is state
    assert requests_seen == [("/ws/v1/cluster/apps/application_1_1", None)]


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        ({"success": True, "driverState": "RELAUNCHING"}, JobState.ALIVE),
        ({"success": True, "driverState": "FINISHED"}, JobState.SUCCEEDED),
        ({"success": True, "driverState": "KILLED"}, JobState.OVER),
        ({"success": False}, None),
    ],
)
def test_a_master_reports_the_state_of_one_driver(answer: dict[str, Any], state: JobState | None) -> None:
    with serving(json.dumps(answer).encode()) as (master, _):
        assert StandaloneCluster(Addresses([master], [])).state("driver-1") is state


def test_a_master_in_recovery_does_not_say_that_a_driver_is_gone() -> None:
    recovering = {"success": False, "message": "Exception from the cluster:\nCurrent state is not alive: RECOVERING"}
    with (
        serving(json.dumps(recovering).encode()) as (master, _),
        pytest.raises(ClusterUnavailableError, match="driver-1: Exception from the cluster"),
    ):
        StandaloneCluster(Addresses([master], [])).state("driver-1")


def test_what_a_cluster_may_lack_depends_on_its_ports() -> None:
    with serving(b"<html>") as (page, _):
        cluster = StandaloneCluster(Addresses([nobody()], [page]))
        with pytest.raises(
            ClusterUnavailableError, match="not on port 8080 with http, set webui-port and webui-scheme"
        ):
            cluster.jobs(NAME)
        with pytest.raises(ClusterUnavailableError, match="rest-port and rest-scheme if they are not 6066 and http"):
            cluster.stop("1")


LOGIN = f"Basic {b64encode(b'me:hunter 2').decode()}"


@pytest.mark.parametrize("answer", [b"no JSON", b'{"RemoteException": {}}', None])
def test_a_login_in_the_address_of_yarn_logs_in_and_is_in_no_error(answer: bytes | None) -> None:
    with serving(answer, status=500) as (address, requests_seen):
        cluster = YarnCluster(address.replace("://", "://me:hunter%202@"))
        for question in (lambda: cluster.jobs(NAME), lambda: cluster.stop("1")):
            with pytest.raises(ClusterUnavailableError, match=f"{address}/ws/v1/cluster/apps") as raised:
                question()
            traces = "".join(traceback.format_exception(raised.value))
            assert "hunter" not in traces
            assert f"@{LOOPBACK}" not in traces
    assert {login for _, login in requests_seen} == {LOGIN}


def test_a_login_that_is_given_wins_over_the_one_in_the_address() -> None:
    with serving(b"{}") as (address, requests_seen):
        YarnCluster(address.replace("://", "://you:canary@"), auth=("me", "hunter 2")).jobs(NAME)
    assert [login for _, login in requests_seen] == [LOGIN]


def test_the_examples_are_true() -> None:
    assert doctest.testmod(http) == (0, 1)
