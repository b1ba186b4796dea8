"""How the connections of S3 and HDFS are read: as the providers' hooks read them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import Connection

from airflow_kafka_offsets.adapters.stores.hdfs import HdfsLogin
from airflow_kafka_offsets.wiring.stores.files import aws_keys, hdfs_login, name_nodes, s3_endpoint


def connection(conn_type: str, extra: dict[str, Any] | None = None, **fields: Any) -> Connection:
    return Connection(conn_id="store", conn_type=conn_type, extra=json.dumps(extra or {}), **fields)


@pytest.mark.parametrize(
    ("fields", "extra", "keys"),
    [
        ({}, {}, {}),
        ({"login": "AKIA", "password": "pw"}, {}, {"aws_access_key_id": "AKIA", "aws_secret_access_key": "pw"}),
        (
            {},
            {
                "aws_access_key_id": "AKIA",
                "aws_secret_access_key": "pw",
                "aws_session_token": "t",
                "region_name": "eu-west-1",
            },
            {
                "aws_access_key_id": "AKIA",
                "aws_secret_access_key": "pw",
                "aws_session_token": "t",
                "region_name": "eu-west-1",
            },
        ),
        ({"login": "AKIA"}, {"profile_name": "lake"}, {"profile_name": "lake"}),
    ],
)
def test_keys_of_amazon(fields: dict[str, str], extra: dict[str, str], keys: dict[str, str]) -> None:
    assert aws_keys(connection("aws", extra, **fields)) == keys


@pytest.mark.parametrize(
    ("extra", "endpoint"),
    [
        ({}, {"endpoint_url": None, "verify": None}),
        ({"endpoint_url": "https://minio", "verify": False}, {"endpoint_url": "https://minio", "verify": False}),
        (
            {"endpoint_url": "https://all", "service_config": {"s3": {"endpoint_url": "https://s3"}}},
            {"endpoint_url": "https://s3", "verify": None},
        ),
    ],
)
def test_another_endpoint_than_amazons(extra: dict[str, Any], endpoint: dict[str, Any]) -> None:
    assert s3_endpoint(extra) == endpoint


@pytest.mark.parametrize(
    ("fields", "extra", "urls"),
    [
        ({"host": "nn"}, {}, ["http://nn"]),
        ({"host": "nn1, nn2", "port": 9870}, {}, ["http://nn1:9870", "http://nn2:9870"]),
        (
            {"host": "knox", "port": 8443, "schema": "gateway/default"},
            {"use_ssl": True},
            ["https://knox:8443/gateway/default"],
        ),
        ({"host": "nn", "port": 9871}, {"use_ssl": "True"}, ["https://nn:9871"]),
    ],
)
def test_name_nodes(fields: dict[str, Any], extra: dict[str, Any], urls: list[str]) -> None:
    assert name_nodes(connection("webhdfs", extra, **fields)) == urls


@pytest.mark.parametrize(
    ("fields", "extra", "login"),
    [
        ({}, {}, HdfsLogin()),
        ({"login": "lake"}, {}, HdfsLogin(user="lake")),
        ({"login": "lake", "password": "pw"}, {"verify": "False"}, HdfsLogin("lake", "pw", verify=False)),
        ({}, {"verify": "/etc/ca.pem", "cert": "c.pem"}, HdfsLogin(verify="/etc/ca.pem", cert="c.pem")),
        ({}, {"cert": "c.pem", "key": "k.pem"}, HdfsLogin(cert=("c.pem", "k.pem"))),
        (
            {},
            {"headers": {"X": "1"}, "cookies": {"hadoop.auth": "t"}},
            HdfsLogin(headers={"X": "1"}, cookies={"hadoop.auth": "t"}),
        ),
    ],
)
def test_who_we_are_to_hdfs(fields: dict[str, str], extra: dict[str, Any], login: HdfsLogin) -> None:
    assert hdfs_login(connection("webhdfs", extra, **fields)) == login


def test_a_login_does_not_show_its_secrets() -> None:
    login = HdfsLogin("lake", "geheim", headers={"X": "geheim"}, cookies={"c": "geheim"})
    assert "geheim" not in repr(login)
