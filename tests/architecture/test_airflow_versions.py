"""docs/design.md, Layers: what differs between versions of Airflow stands in one module, and the others import it from there."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from airflow_kafka_offsets import airflow_versions
from airflow_kafka_offsets.airflow_versions import PLACES, NeverRaised
from tests.architecture.test_imports import MODULES, imports_of, name_of

THE_ROOM = Path(airflow_versions.__file__)
OTHERS = [path for path in MODULES if path != THE_ROOM]

# What a version has here, another one has elsewhere or not at all.
MOVED_MODULES = (
    *(
        "airflow.configuration",
        "airflow.exceptions",
        "airflow.observability",
        "airflow.plugins_manager",
        "airflow.stats",
    ),
    *("airflow.sdk._shared", "airflow.sdk.configuration", "airflow.sdk.exceptions", "airflow.sdk.log"),
    *("airflow.sdk.observability", "airflow.sdk.plugins_manager", "airflow.utils.log"),
    "airflow.providers.common.compat.sdk",
)


def has_moved(name: str) -> bool:
    """Whether an import, as a dotted name, is of something that the room is for."""
    is_airflows = name.startswith("airflow.")
    of_module = any(f"{name}.".startswith(f"{module}.") for module in MOVED_MODULES)
    return is_airflows and (of_module or name.rpartition(".")[2] in PLACES)


@pytest.mark.parametrize("path", OTHERS, ids=name_of)
def test_no_other_module_imports_what_moved(path: Path) -> None:
    assert [name for name in imports_of(path) if has_moved(name)] == [], (
        "Airflow has this in another module in one of the supported versions: import it from airflow_kafka_offsets.airflow_versions"
    )


@pytest.mark.parametrize(
    "name",
    ["airflow.sdk.conf", "airflow.exceptions.Any", "airflow.sdk._shared.any", "airflow.models.dagbag.BundleDagBag"],
)
def test_an_import_of_what_moved_is_found(name: str) -> None:
    assert has_moved(name)
    assert not has_moved("airflow.sdk.DAG")


def test_the_room_has_no_name_that_no_one_uses() -> None:
    used = {name for path in OTHERS for name in imports_of(path)}
    assert {name for name in PLACES if f"{airflow_versions.__name__}.{name}" not in used} == set()


def test_the_type_checker_knows_the_same_names() -> None:
    [block] = [
        node for node in ast.parse(THE_ROOM.read_text()).body if ast.unparse(node).startswith("if TYPE_CHECKING:")
    ]
    assert {
        alias.asname
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.asname  # the others are types of this file's own functions
    } == set(PLACES)


@pytest.mark.parametrize("name", PLACES)
def test_the_installed_airflow_has_each_name(name: str) -> None:
    assert getattr(airflow_versions, name) is getattr(airflow_versions, name)


def test_a_task_of_airflow_dags_test_has_no_bundle() -> None:
    from airflow.sdk.execution_time.task_runner import RuntimeTaskInstance

    assert airflow_versions.bundle_version_of(RuntimeTaskInstance.model_construct(task=None)) is None


def test_an_exception_that_a_version_lacks_is_one_that_no_one_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLACES, "TaskAwaitingInput", ("airflow.exceptions.nowhere",))
    assert airflow_versions.found("TaskAwaitingInput") is NeverRaised


def test_any_other_name_that_a_version_lacks_is_told_with_the_places_where_it_was_looked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PLACES, "conf", ("airflow.nowhere", "airflow.exceptions"))
    with pytest.raises(ImportError, match=r"has conf in none of airflow\.nowhere, airflow\.exceptions"):
        airflow_versions.found("conf")
    with pytest.raises(ImportError, match="cannot import name 'config'"):
        from airflow_kafka_offsets.airflow_versions import config  # type: ignore[attr-defined]  # noqa: F401
