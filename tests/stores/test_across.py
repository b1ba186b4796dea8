"""From the ledger into each store whose server is light, and back; HBase and HDFS: in their own files."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from tests.lab.processes import LOOPBACK
from tests.stores.across import Across, Place

Fixture = Callable[[str], Any]


def _redis(fixture: Fixture, _: Path) -> Place:
    login = fixture("redis_secure").login()
    fields = {"conn_type": "redis", "host": login["host"], "port": login["port"], "password": login["password"]}
    return "redis://lab", {**fields, "extra": {"ssl": True, "ssl_ca_certs": login["ssl_ca_certs"]}}


def _redis_cluster(fixture: Fixture, _: Path) -> Place:
    fields = {"conn_type": "redis", "host": LOOPBACK, "port": fixture("redis_cluster").port}
    return "redis://lab?cluster=true", fields


def _zookeeper(fixture: Fixture, _: Path) -> Place:
    return "zookeeper://lab", {"conn_type": "zookeeper", "host": LOOPBACK, "port": fixture("zookeeper").port}


def _zookeeper_json(fixture: Fixture, path: Path) -> Place:
    return "zookeeper://lab?layout=json", _zookeeper(fixture, path)[1]


def _database(url: str, conn_type: str) -> Place:
    parsed = make_url(url)
    login = {"login": parsed.username, "password": parsed.password, "schema": parsed.database}
    return "sql://lab/across?create=true", {"conn_type": conn_type, "host": parsed.host, "port": parsed.port, **login}


def _postgres(fixture: Fixture, _: Path) -> Place:
    return _database(fixture("postgres").url, "postgres")


def _mariadb(fixture: Fixture, _: Path) -> Place:
    return _database(fixture("mariadb").url, "mysql")


def _files(_: Fixture, path: Path) -> Place:
    (path / "offsets").mkdir()
    return f"files://{path}/offsets", {"conn_type": "generic"}


def _s3(fixture: Fixture, _: Path) -> Place:
    server = fixture("s3")
    bucket = server.create_bucket(f"across-{uuid.uuid4().hex[:8]}")
    keys = {"login": "key", "password": "secret"}
    return f"s3://lab/{bucket}/offsets", {
        "conn_type": "aws",
        **keys,
        "extra": {"endpoint_url": server.url, "region_name": "us-east-1"},
    }


def _kafka(_: Fixture, __: Path) -> Place:
    return "kafka://kafka_default", {"conn_type": "generic"}


def _kafka_plain(_: Fixture, __: Path) -> Place:
    return "kafka://?commit=plain", {"conn_type": "generic"}


PLACES = [
    _redis,
    _redis_cluster,
    _zookeeper,
    _zookeeper_json,
    _postgres,
    _mariadb,
    _files,
    _s3,
    _kafka,
    _kafka_plain,
]
pytestmark = pytest.mark.server


class TestAcross(Across):
    """All of it."""

    @pytest.fixture(params=PLACES, ids=lambda place: place.__name__.strip("_"))
    def place(self, request: pytest.FixtureRequest, tmp_path: Path) -> Place:
        place: Place = request.param(request.getfixturevalue, tmp_path)
        return place
