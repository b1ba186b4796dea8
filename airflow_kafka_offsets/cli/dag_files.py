"""Groups as DAG files define them, for commands: a file is imported as Airflow imports it, and nothing is written.

The import of DAGs is private to Airflow: only this file uses it, and a test runs it against the installed Airflow.
"""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError, name_some
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.task.airflow import is_given_window, tasks_of_groups
from airflow_kafka_offsets.wiring.connections import without_secrets

if TYPE_CHECKING:
    from airflow.dag_processing.dagbag import DagBag

MAX_REASON = 600
"""Characters of what a file raised."""

# Airflow keeps only the last frames, and the DAG file may be above those of libraries.
_ALL_FRAMES = {"AIRFLOW__CORE__DAGBAG_IMPORT_ERROR_TRACEBACK_DEPTH": "1000"}


@dataclass(frozen=True, slots=True)
class Definition:
    """A group as a DAG defines it.

    Attributes:
        group: the definition.
        planners: the tasks that plan it, at least one.
    """

    group: KafkaGroup
    planners: tuple[Owner, ...]


def find_definition(path: str, group: str | None) -> Definition:
    """Return a group as a DAG file defines it.

    Args:
        path: the file.
        group: its name; None if there is only one.

    Raises:
        BadInputError: there is no such file or group, the file can't be imported, or there are several groups.
    """
    return _chosen(path, [(group, task) for dag in _dags_of(path) for task, group in tasks_of_groups(dag)], group)


def _chosen(source: str, tasks: Sequence[tuple[KafkaGroup, Any]], name: str | None) -> Definition:
    by_name: dict[str, list[tuple[KafkaGroup, Owner]]] = {}
    for group, task in tasks:
        if not is_given_window(task):
            by_name.setdefault(group.name, []).append((group, Owner(task.dag_id, task.task_id)))
    names = name_some(sorted(by_name), ", ")
    if not by_name:
        raise BadInputError(f"No task in {source} plans a group")
    if name is None and len(by_name) > 1:
        raise BadInputError(
            f"{source} plans {names}. Name one:\n    kafka-offsets plan --dag {quote(source)} {min(by_name)}"
        )
    if name is not None and name not in by_name:
        raise BadInputError(f"{source} plans no group {name}; it plans {names}")
    same_name = by_name[name or min(by_name)]
    planners = tuple(planner for _, planner in same_name)
    first = same_name[0][0]
    if any(other != first for other, _ in same_name):
        raise BadInputError(
            f"{source} defines group {first.name} in more than one way, in {name_some(sorted(map(str, planners)), ', ')}. Use one "
            "definition, or two names"
        )
    return Definition(first, planners)


def _dags_of(path: str) -> list[Any]:
    from airflow_kafka_offsets.wiring.machine.start import environment_with

    file = Path(os.path.expanduser(path)).absolute()
    if file.suffix != ".py":
        raise BadInputError(f"--dag takes a DAG file (.py), not {path}")
    if not os.path.isfile(file):  # Path.is_file() raises for a name that is too long
        raise BadInputError(f"There is no file {path}")
    with _quietly(), environment_with(_ALL_FRAMES):
        bag = _bag(file)
    if bag.import_errors:
        reasons = [_reason(name, traceback) for name, traceback in sorted(bag.import_errors.items())]
        raise BadInputError("; ".join(f"Airflow can't import {path}: {why}" for why in reasons))
    if not bag.dags:
        raise BadInputError(f"Airflow finds no DAG in {path}")
    return list(bag.dags.values())


def _bag(file: Path) -> DagBag:
    """Let Airflow import a file, which can import its neighbors and what is in Airflow's folder of DAGs."""
    from airflow_kafka_offsets.airflow_versions import BundleDagBag, conf

    dags_folder = Path(conf.get("core", "dags_folder"))
    folder = dags_folder if file.is_relative_to(dags_folder) else file.parent
    # In Airflow 3.1 a bag of DAGs takes no name of a bundle.
    made_by = [vars(kind)["__init__"] for kind in BundleDagBag.__mro__[:-1] if "__init__" in vars(kind)]
    takes_name = any("bundle_name" in signature(init).parameters for init in made_by)
    return BundleDagBag(file, bundle_path=folder, **({"bundle_name": None} if takes_name else {}))


@contextmanager
def _quietly() -> Iterator[None]:
    """Log nothing: the command reports an import in one sentence."""
    from structlog.testing import capture_logs

    before = logging.root.manager.disable
    logging.disable()
    try:
        # Airflow logs in both ways.
        with capture_logs():
            yield
    finally:
        logging.disable(before)


def _reason(file: str, traceback: str) -> str:
    """Return what was raised as one line, with the file's line: it is below the last frame, whose own lines are indented."""
    lines = traceback.strip().splitlines() or ["no reason given"]
    below = max((i for i, line in enumerate(lines) if line.startswith('  File "')), default=-1) + 1
    while below < len(lines) - 1 and lines[below].startswith(" "):
        below += 1
    # Before it is cut: half a secret would not be recognized.
    message = str(without_secrets(" ".join(" ".join(lines[below:]).split())))
    message = message if len(message) <= MAX_REASON else message[: MAX_REASON - 3] + "..."
    frames = re.findall(rf'^ *File ".*{re.escape(file)}", line (\d+)', traceback, re.MULTILINE)
    return message + (f" (line {frames[-1]})" if frames else "")
