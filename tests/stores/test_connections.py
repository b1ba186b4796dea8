"""The connections of all offset stores."""

from __future__ import annotations

import json
import sys

import pytest

from airflow_kafka_offsets.airflow_versions import redact
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.store_address import parse_store_address
from airflow_kafka_offsets.wiring.connections import connection_of_type
from airflow_kafka_offsets.wiring.stores.opening import open_store

STORES = [
    ("hbase://lab", "'hbase' or 'generic'", "hbase"),
    ("hdfs://lab/apps", "'webhdfs'", "webhdfs"),
    ("kafka://lab", "'kafka'", "kafka"),
    ("redis://lab", "'redis'", "redis"),
    ("s3://lab/bucket", "'aws'", "aws"),
    ("zookeeper://lab", "'zookeeper' or 'generic'", "zookeeper"),
]


def connect(monkeypatch: pytest.MonkeyPatch, conn_type: str, **extra: str) -> None:
    """Make the connection `lab`."""
    monkeypatch.setenv("AIRFLOW_CONN_LAB", json.dumps({"conn_type": conn_type, "host": "h", "extra": extra}))


@pytest.mark.parametrize(("address", "wanted", "conn_type"), STORES)
def test_another_type_of_connection_is_told_in_one_wording(
    monkeypatch: pytest.MonkeyPatch, address: str, wanted: str, conn_type: str
) -> None:
    connect(monkeypatch, "ftp")
    with pytest.raises(BadInputError, match=f"^Connection 'lab': it has type 'ftp', not {wanted}$"):
        open_store(parse_store_address(address), KafkaGroup("lake.orders", topics=["orders"]))


@pytest.mark.parametrize(("address", "wanted", "conn_type"), STORES)
def test_secrets_under_names_that_airflow_does_not_know_are_masked_for_every_store(
    monkeypatch: pytest.MonkeyPatch, address: str, wanted: str, conn_type: str
) -> None:
    secret = f"geheim-of-{conn_type}"
    connect(monkeypatch, conn_type, **{"sasl.jaas.config": secret, "bootstrap.servers": "h:9092"})
    open_store(parse_store_address(address), KafkaGroup("lake.orders", topics=["orders"]))
    assert secret not in str(redact(f"It said {secret}"))


@pytest.mark.parametrize(
    ("conn_type", "address", "module", "extra"),
    [
        ("hbase", "hbase://lab", "happybase", "hbase"),
        ("webhdfs", "hdfs://lab/apps", "hdfs", "hdfs"),
        ("webhdfs", "hdfs://lab/apps", "requests_kerberos", "hdfs-kerberos"),
        ("redis", "redis://lab", "redis", "redis"),
        ("aws", "s3://lab/bucket", "boto3", "s3"),
        ("aws", "s3://lab/bucket", "botocore", "s3"),
        ("zookeeper", "zookeeper://lab", "kazoo", "zookeeper"),
    ],
)
def test_a_client_that_is_missing_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, conn_type: str, address: str, module: str, extra: str
) -> None:
    connect(monkeypatch, conn_type)
    monkeypatch.setenv("AIRFLOW__CORE__SECURITY", "kerberos")
    monkeypatch.setitem(sys.modules, module, None)
    # An adapter imports its client when it is imported, which an earlier test may have done.
    kind = parse_store_address(address).kind
    monkeypatch.delitem(sys.modules, f"airflow_kafka_offsets.adapters.stores.{kind}", raising=False)
    with pytest.raises(BadInputError, match=rf"needs the Python module {module}:\n    pip install .*\[{extra}\]"):
        open_store(parse_store_address(address), KafkaGroup("lake.orders", topics=["orders"]))


def test_the_connection_is_the_one_of_that_name(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, "generic")
    assert connection_of_type("lab", "redis", "generic").host == "h"
