"""The params of a replay: what their schema takes, and that Airflow can store a DAG which has them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import ParamValidationError
from airflow.sdk import DAG
from airflow.sdk.definitions.param import ParamsDict

from airflow_kafka_offsets import replay_params
from tests.versions import read_again, stored

KEYS = ["windows", "from", "to", "starting_offsets", "ending_offsets", "group"]


def resolve(**values: Any) -> dict[str, Any]:
    """Return the params of a run with this conf, as a task gets them."""
    params = ParamsDict(dict(replay_params()))
    params.update(values)
    return params.validate()


def test_what_nobody_fills_in_is_none() -> None:
    assert resolve() == dict.fromkeys(KEYS)


def test_nulls_that_the_form_sends_are_taken() -> None:
    nulls = dict.fromkeys(KEYS)
    assert resolve(**nulls) == nulls


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("windows", "12-15,18"),
        ("windows", "lake.orders-000012"),
        ("windows", 12),
        ("from", "2026-01-31T00:00:00Z"),
        ("to", "2026-01-31T00:00:00.000+01:00"),
        ("starting_offsets", {"orders": {"0": 120}}),
        ("ending_offsets", {"orders": {"0": 180}, "payments": {"11": 0}}),
        ("ending_offsets", '{"orders":{"0":180}}'),
    ],
)
def test_a_value_that_asks_for_a_replay_is_taken_as_it_is(key: str, value: Any) -> None:
    assert resolve(**{key: value}) == {**dict.fromkeys(KEYS), key: value}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("value", [1.5, True, ["12"]])
def test_a_value_of_another_type_is_refused(key: str, value: Any) -> None:
    with pytest.raises(ParamValidationError, match=f"Invalid input for param {key}"):
        resolve(**{key: value})


@pytest.mark.parametrize("key", ["from", "to", "starting_offsets", "ending_offsets"])
def test_a_number_stands_for_no_time_and_no_offsets(key: str) -> None:
    with pytest.raises(ParamValidationError, match=f"Invalid input for param {key}"):
        resolve(**{key: 12})


@pytest.mark.parametrize("key", ["windows", "from", "to", "group"])
def test_an_object_stands_for_offsets_only(key: str) -> None:
    with pytest.raises(ParamValidationError, match=f"Invalid input for param {key}"):
        resolve(**{key: {"orders": {"0": 120}}})


def test_a_dag_has_params_of_its_own_beside_them() -> None:
    with DAG("orders", schedule=None, params={**replay_params(), "mine": 1}) as dag:
        pass
    assert dag.params.dump() == {**dict.fromkeys(KEYS), "mine": 1}


def test_airflow_stores_a_dag_with_them_and_what_its_form_shows() -> None:
    with DAG("orders", schedule=None, params=replay_params()) as dag:
        pass
    shown = read_again(json.loads(json.dumps(stored(dag)))).params
    assert list(shown) == KEYS
    for key in KEYS:
        schema = shown.get_param(key).schema
        assert {"title", "description_md", "section", "type"} <= set(schema)
        assert schema == replay_params()[key].schema


def test_one_dags_params_are_not_anothers() -> None:
    first, second = replay_params(), replay_params()
    first["windows"].value = "12"
    assert second["windows"].value is None
