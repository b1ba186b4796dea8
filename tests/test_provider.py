"""Airflow finds the provider, and its description passes Airflow's own schema."""

from __future__ import annotations

import json
from importlib import import_module
from importlib.metadata import entry_points, metadata
from importlib.resources import files

from jsonschema.validators import validator_for

from airflow_kafka_offsets.get_provider_info import get_provider_info


def test_the_description_passes_airflows_schema() -> None:
    schema = json.loads((files("airflow") / "provider_info.schema.json").read_text())
    assert not list(validator_for(schema)(schema).iter_errors(get_provider_info()))


def test_the_entry_point_gives_the_description_of_this_distribution() -> None:
    ours = [p for p in entry_points(group="apache_airflow_provider") if p.value.startswith("airflow_kafka_offsets")]
    (point,) = ours
    info = point.load()()
    assert info["package-name"] == metadata("airflow-kafka-offsets")["Name"]


def test_airflow_finds_the_package_by_the_name_of_its_distribution() -> None:
    """It looks for example DAGs there, and logs a traceback in every process that can't import it."""
    assert import_module(get_provider_info()["package-name"].replace("-", "_")).__name__ == "airflow_kafka_offsets"


def test_every_module_that_the_description_names_is_there() -> None:
    info = get_provider_info()
    for kind in ("operators", "sensors", "triggers"):
        for item in info[kind]:
            for module in item["python-modules"]:
                import_module(module)
    for path in info["cli"]:
        module, _, function = path.rpartition(".")
        assert callable(getattr(import_module(module), function))
