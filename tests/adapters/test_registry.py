"""Requests to a schema registry, and its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from airflow_kafka_offsets.adapters.registry import ConfluentRegistry
from airflow_kafka_offsets.core.errors import RegistryRefusedError, RegistryUnavailableError
from airflow_kafka_offsets.core.schemas import Subject
from airflow_kafka_offsets.wiring.registry import open_registry
from tests.lab.processes import free_port
from tests.lab.registry import Registry

CITY = {"type": "record", "name": "City", "namespace": "geo", "fields": [{"name": "name", "type": "string"}]}


def order(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [dict(zip(("name", "type"), f, strict=True)) for f in fields],
    }


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry() as server:
        yield server


def of(server: Registry, **options: Any) -> ConfluentRegistry:
    return ConfluentRegistry(server.url, "registry", **options)


def test_a_subject_has_all_its_schemas_and_the_latest_one(registry: Registry) -> None:
    first = registry.register("orders-value", order(("id", "long")))
    second = registry.register("orders-value", order(("id", "long"), ("city", "string")))
    subject = of(registry).subject("orders-value")
    texts = {
        number: json.dumps(order(*fields))
        for number, fields in ((first, [("id", "long")]), (second, [("id", "long"), ("city", "string")]))
    }
    assert subject == Subject("AVRO", second, texts)


def test_a_subject_that_is_not_there_is_none(registry: Registry) -> None:
    assert of(registry).subject("orders-value") is None


def test_a_name_may_hold_any_character(registry: Registry) -> None:
    registry.register(":.eu:a/b c?-value", '"string"')
    subject = of(registry).subject(":.eu:a/b c?-value")
    assert subject is not None
    assert list(subject.schemas.values()) == ['"string"']


def test_deleted_versions_are_kept_for_the_records_that_have_their_id_and_are_not_the_latest(
    registry: Registry,
) -> None:
    first, second = registry.register("s", '"int"'), registry.register("s", '"long"')
    registry.delete("s", 2)
    assert of(registry).subject("s") == Subject("AVRO", first, {first: '"int"', second: '"long"'})
    registry.delete("s", 1)
    subject = of(registry).subject("s")
    assert subject is not None
    assert subject.latest == second


def test_versions_of_another_kind_are_left_out(registry: Registry) -> None:
    registry.register("s", '{"type": "object"}', kind="JSON")
    number = registry.register("s", '"long"')
    assert of(registry).subject("s") == Subject("AVRO", number, {number: '"long"'})


def test_what_a_schema_refers_to_is_put_into_it(registry: Registry) -> None:
    registry.register("city", CITY)
    address = {
        "type": "record",
        "name": "Address",
        "namespace": "shop",
        "fields": [{"name": "city", "type": "geo.City"}],
    }
    registry.register("address", address, references=(("geo.City", "city", 1),))
    number = registry.register(
        "orders-value",
        order(("from", "Address"), ("to", "Address"), ("via", "geo.City")),
        references=(("shop.Address", "address", 1),),
    )
    subject = of(registry).subject("orders-value")
    assert subject is not None
    whole = json.loads(subject.schemas[number])
    first, second, third = (field["type"] for field in whole["fields"])
    assert (first["name"], first["fields"][0]["type"]["name"]) == ("Address", "City")
    assert (second, third) == ("Address", "geo.City")


def test_a_registry_that_is_away_may_come_back() -> None:
    with pytest.raises(
        RegistryUnavailableError, match=r"registry http://127\.0\.0\.1:\d+ \(connection 'registry'\) does not answer"
    ) as caught:
        ConfluentRegistry(f"http://127.0.0.1:{free_port()}", "registry").subject("s")
    assert caught.value.may_pass


def test_a_registry_that_is_ill_may_recover(registry: Registry) -> None:
    registry.answer = (500, "oh no")
    with pytest.raises(RegistryUnavailableError, match="answered 500"):
        of(registry).subject("s")


@pytest.mark.timeout(60)  # who obeys waits for an hour
@pytest.mark.parametrize(("status", "times"), [(503, 3), (429, 1)])
def test_a_registry_that_wants_to_be_left_alone_for_an_hour_does_not_hold_the_task(
    registry: Registry, status: int, times: int
) -> None:
    registry.answer, registry.retry_after = (status, "later"), 3600
    with pytest.raises(RegistryUnavailableError, match=f"answered {status}"):
        of(registry).subject("s")
    assert len(registry.asked) == times


@pytest.mark.parametrize("status", [401, 403])
def test_a_refusal_names_the_connection(registry: Registry, status: int) -> None:
    registry.answer = (status, '{"error_code": 40301, "message": "no"}')
    with pytest.raises(RegistryRefusedError, match=rf"\(connection 'registry'\) can't be used: {status}.*login"):
        of(registry).subject("s")


@pytest.mark.parametrize(
    "answer", [(200, "<html>log in</html>"), (404, "<html>"), (404, '{"error_code": 404}'), (302, "")]
)
def test_what_is_no_registry_is_refused(registry: Registry, answer: tuple[int, str]) -> None:
    registry.answer = answer
    with pytest.raises(RegistryRefusedError, match=r"Correct the address.*/apis/ccompat/v7"):
        of(registry).subject("s")


def connect(monkeypatch: pytest.MonkeyPatch, connection: str) -> Any:
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", connection)
    return open_registry("registry")
