"""An offset store in one line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.store_address import StoreAddress, parse_store_address


def test_an_address_names_kind_connection_path_and_options() -> None:
    address = parse_store_address("s3://aws_default/bucket/prod/offsets?timeout=30")
    assert (address.kind, address.conn_id, address.path) == ("s3", "aws_default", "/bucket/prod/offsets")
    assert (dict(address.options), address.timeout) == ({"timeout": "30"}, 30)
    assert parse_store_address(address) is address


def test_the_timeout_has_a_default() -> None:
    assert parse_store_address("redis://redis_default").timeout == 10


def test_true_and_false_are_read_in_any_case_and_nothing_else_is() -> None:
    create = [parse_store_address(f"sql://db?create={text}").is_on("create") for text in ("True", "true", "False")]
    assert create == [True, True, False]
    with pytest.raises(BadInputError, match=r"option create of .* must be true or false"):
        parse_store_address("sql://db?create=yes").is_on("create")


@given(path=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=30), timeout=st.integers(1, 300))
def test_an_address_is_read_as_it_is_written(path: str, timeout: int) -> None:
    address = StoreAddress("files", "", f"/at/{path}", {"timeout": str(timeout)})
    assert parse_store_address(str(address)) == address
    assert hash(parse_store_address(str(address))) == hash(address)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("redis_default", "such as 'redis://redis_default', holds '://'"),
        ("mongo://mongo_default", "no offset store 'mongo'; there are files, hbase"),
        ("redis:me:pw@redis:6379", "such as 'redis://redis_default', holds '://'"),
        ("redis://[pw", "not a URL"),
        ("redis://a\u2100b", "not a URL"),
        ("redis://:pw@redis:6379/0", "holds no host, user or password"),
        ("redis://redis:6379", "holds no host, user or password"),
        ("redis://redis_default?kee=x", "has no option kee; it has"),
        ("redis://redis_default?timeout=1&timeout=2", "names an option once"),
        ("redis://redis_default#0", "holds no '#'"),
        ("redis://redis_default?timeout=soon", "1 to 300 seconds, got 'soon'"),
        ("redis://redis_default?timeout=0.5", "1 to 300 seconds, got '0.5'"),
        ("redis://redis_default?timeout=nan", "1 to 300 seconds, got 'nan'"),
    ],
)
def test_what_is_no_address_is_refused(text: str, says: str) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_store_address(text)
    assert says in str(caught.value)
    assert "pw" not in str(caught.value)


def test_a_group_takes_an_address_or_an_object_and_keeps_it_as_text() -> None:
    written = KafkaGroup("lake", topics=["orders"], offset_store="redis://redis_default?timeout=5")
    built = KafkaGroup(
        "lake", topics=["orders"], offset_store=StoreAddress("redis", "redis_default", options={"timeout": "5"})
    )
    assert written == built
    assert written.offset_store == "redis://redis_default?timeout=5"
    assert KafkaGroup.from_json(written.to_json()) == written
    with pytest.raises(BadInputError, match="holds no host, user or password"):
        KafkaGroup("lake", topics=["orders"], offset_store="redis://redis:6379")
