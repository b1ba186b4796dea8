"""Groups as DAGs define them, for commands: the files are imported as Airflow imports them, and nothing is written.

How Airflow finds and imports DAGs is its own business: this file alone asks it, and a test runs it against the installed Airflow.
"""

from __future__ import annotations

import logging
import os
import platform
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.cli.running import explained
from airflow_kafka_offsets.core.errors import BadInputError, name_some, short
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.plan.ownership import Owner
from airflow_kafka_offsets.task.airflow import is_given_window, tasks_of_groups
from airflow_kafka_offsets.task.dag_files import Ahead
from airflow_kafka_offsets.wiring.connections import without_secrets

if TYPE_CHECKING:
    from airflow.dag_processing.bundles.base import BaseDagBundle
    from airflow.dag_processing.dagbag import DagBag

MAX_REASON = 600
"""Characters of what a file raised."""

# Airflow keeps the last frames only, and the line of the DAG file may stand above those of libraries.
_ALL_FRAMES = {"AIRFLOW__CORE__DAGBAG_IMPORT_ERROR_TRACEBACK_DEPTH": "1000"}

_NAME_THE_FILE = "Name the file of the DAG instead of its id"


@dataclass(frozen=True, slots=True)
class Definition:
    """A group as a DAG defines it.

    Attributes:
        group: the definition.
        planners: the tasks that plan it, at least one.
        tasks: Airflow's, that plan it or work on its windows.
    """

    group: KafkaGroup
    planners: tuple[Owner, ...]
    tasks: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Outlook:
    """What can be seen of tasks before a run: on this machine and in Airflow's connections, without asking a cluster.

    Attributes:
        task_problems: why they can't run, a sentence each.
        task_warnings: what is not on this machine and may be on that of the task, a sentence each.
        not_checked: what could not be looked at yet, by the task's name.
    """

    task_problems: list[str]
    task_warnings: list[str]
    not_checked: list[str]


def find_definition(file_or_dag_id: str, group: str | None) -> Definition:
    """Return a group as a DAG defines it.

    Args:
        file_or_dag_id: a DAG file, or the id of a DAG in one of Airflow's bundles.
        group: its name; None: there is only one.

    Raises:
        BadInputError: there is no such file, DAG or group, the file can't be imported, or there are several groups.
    """
    # The id of a DAG has no slash.
    is_file = os.sep in file_or_dag_id or file_or_dag_id.endswith((".py", ".zip"))
    dags = _dags_of_file(file_or_dag_id) if is_file else [_dag_of_id(file_or_dag_id)]
    return _chosen(file_or_dag_id, [(group, task) for dag in dags for task, group in tasks_of_groups(dag)], group)


def _owner(task: Any) -> Owner:
    return Owner(task.dag_id, task.task_id)


def _chosen(source: str, found: Sequence[tuple[KafkaGroup, Any]], name: str | None) -> Definition:
    by_name: dict[str, list[tuple[KafkaGroup, Owner]]] = {}
    for group, task in found:
        if not is_given_window(task):
            by_name.setdefault(group.name, []).append((group, _owner(task)))
    names = name_some(sorted(by_name), ", ")
    if not by_name:
        raise BadInputError(f"{source} plans no group: none of its tasks does, and sensors only look")
    if name is None and len(by_name) > 1:
        raise BadInputError(
            f"{source} plans the groups {names}; name one of them: kafka-offsets plan --dag {source} {min(by_name)}"
        )
    if name is not None and name not in by_name:
        raise BadInputError(f"{source} plans no group {name}; it plans {names}")
    same_name = by_name[name or min(by_name)]
    planners = tuple(planner for _, planner in same_name)
    first = same_name[0][0]
    if any(other != first for other, _ in same_name):
        raise BadInputError(
            f"{source} defines group {first.name} in more than one way: in {name_some(sorted(map(str, planners)), ', ')}. Use "
            "one definition, or give the other group a name of its own"
        )
    return Definition(first, planners, tuple(task for group, task in found if group.name == first.name))


def look_ahead(tasks: Iterable[Any]) -> Outlook:
    """Look at what the tasks of a group need beside Kafka and the ledger."""
    outlook = Outlook([], [], [])
    for task in tasks:
        try:
            ahead = _look_ahead(task)
        except BadInputError as exc:
            outlook.task_problems.append(f"{_owner(task)} can't run: {explained(exc)}")
            continue
        if ahead.elsewhere:
            are, them = ("is", "it") if len(ahead.elsewhere) == 1 else ("are", "them")
            outlook.task_warnings.append(
                f"{_owner(task)}: {', '.join(ahead.elsewhere)} {are} not on this machine ({platform.node()}). Check that each "
                f"worker of this task has {them}"
            )
        if ahead.unseen:
            outlook.not_checked.append(f"{_owner(task)} ({name_some(ahead.unseen, ', ')})")
    return outlook


def _look_ahead(task: Any) -> Ahead:
    if not getattr(task, "is_mapped", False):
        return _asked(task, task.get_dag())
    if not hasattr(task.operator_class, "look_ahead"):
        return Ahead()
    try:
        operator = task.unmap({})
    except BadInputError:
        raise
    except Exception:  # the operator reads an argument that only the expansion has, or does what its author likes
        return Ahead(unseen=("mapped",))
    ahead = _asked(operator, task.get_dag())
    return replace(ahead, unseen=(*ahead.unseen, "what it is mapped over"))


def _asked(operator: Any, dag: Any) -> Ahead:
    """Ask an operator; one of the user's may call something else `look_ahead`."""
    if not hasattr(operator, "look_ahead"):
        return Ahead()
    try:
        ahead = operator.look_ahead(dag)
    except BadInputError:
        raise
    except Exception as exc:
        return Ahead(unseen=(f"its look_ahead raised {type(exc).__name__}: {_one_line(str(exc))}",))
    return ahead if isinstance(ahead, Ahead) else Ahead(unseen=("its look_ahead is not that of this package",))


def _dags_of_file(path: str) -> list[Any]:
    file = Path(os.path.expanduser(path)).absolute()
    if not os.path.isfile(file):  # Path.is_file() raises for a name that is too long
        raise BadInputError(f"There is no file {path}")
    # One that is not fetched yet can't have it.
    bundle = next((b for b in _bundles_or_none() if file.is_relative_to(b.path)), None)
    bag = _bag(file, bundle.path if bundle else file.parent, bundle.name if bundle else None)
    if bag.import_errors:
        raise BadInputError("; ".join(f"Airflow can't import {path}: {why}" for why in _reasons(bag).values()))
    if not bag.dags:
        raise BadInputError(f"Airflow finds no DAG in {path}")
    return list(bag.dags.values())


def _dag_of_id(dag_id: str) -> Any:
    names: list[str] = []
    broken: dict[str, str] = {}
    bundles, unmade = _bundles()
    for bundle in bundles:
        _fetch(bundle)
        bag = _bag(bundle.path, bundle.path, bundle.name)
        if dag_id in bag.dags:
            return bag.dags[dag_id]
        names.append(bundle.name)
        broken |= _reasons(bag)
    message = f"Airflow's bundles ({', '.join(names) or 'none'}) have no DAG {dag_id}"
    if broken:
        errors = name_some([f"{file}: {why}" for file, why in broken.items()])
        message += f"; these files can't be imported: {errors}"
    if unmade:
        message += f"; these bundles can't be opened on this machine, and may have it: {name_some(unmade, ', ')}. {_NAME_THE_FILE}"
    raise BadInputError(message)


def _bundles() -> tuple[list[BaseDagBundle], list[str]]:
    """Return Airflow's bundles, and the names of those that can't be made: Airflow only logs why."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    from airflow_kafka_offsets.airflow_versions import AirflowConfigException

    try:
        with _quietly():
            manager = DagBundlesManager()
            bundles = list(manager.get_all_dag_bundles())
            names = list(_names(manager))
    except Exception as exc:
        # Not the words of whatever else the module of a bundle raises: they may show a password.
        words = f": {exc}" if isinstance(exc, AirflowConfigException | ImportError) else ""
        raise BadInputError(
            f"Airflow's list of bundles can't be used: {type(exc).__name__}{words}. {_NAME_THE_FILE}"
        ) from exc
    made = {bundle.name for bundle in bundles}
    return bundles, [name for name in names if name not in made]


def _names(manager: Any) -> Iterable[str]:
    """Return the names of all bundles, also of those that can't be made."""
    if hasattr(manager, "get_all_bundle_names"):
        return manager.get_all_bundle_names()  # type: ignore[no-any-return]
    return manager._bundle_config  # type: ignore[no-any-return]  # Airflow 3.1 has no other way


def _bundles_or_none() -> list[BaseDagBundle]:
    try:
        return _bundles()[0]
    except BadInputError:
        return []  # a file needs none


def _fetch(bundle: BaseDagBundle) -> None:
    try:
        with _quietly():
            bundle.initialize()
    except Exception as exc:  # whatever its client raises; not its words, which may show the password of a repository
        raise BadInputError(
            f"Airflow's bundle {bundle.name} can't be fetched ({type(exc).__name__}). {_NAME_THE_FILE}"
        ) from exc


def _bag(path: Path, bundle_path: Path, bundle_name: str | None) -> DagBag:
    from airflow_kafka_offsets.wiring.machine.start import environment_with

    try:
        with _quietly(), environment_with(_ALL_FRAMES):
            return _bag_of_bundle(path, bundle_path, bundle_name)
    except SystemExit as exc:  # Airflow catches that of a file, and not that of a file in an archive
        raise BadInputError(
            f"Airflow can't import {path}: a file there ends the process (sys.exit: {short(exc.code)})"
        ) from exc


def _bag_of_bundle(path: Path, bundle_path: Path, bundle_name: str | None) -> DagBag:
    """Let Airflow import files, which find what lies in their bundle."""
    from airflow_kafka_offsets.airflow_versions import BundleDagBag

    # Airflow 3.1 does not tell a bag of DAGs the name of its bundle.
    made_by = [vars(kind)["__init__"] for kind in BundleDagBag.__mro__[:-1] if "__init__" in vars(kind)]
    takes_name = any("bundle_name" in signature(init).parameters for init in made_by)
    return BundleDagBag(path, bundle_path=bundle_path, **({"bundle_name": bundle_name} if takes_name else {}))


@contextmanager
def _quietly() -> Iterator[None]:
    """Leave out what is logged: the command tells what matters of an import, in one sentence."""
    from structlog.testing import capture_logs

    before = logging.root.manager.disable
    logging.disable()
    try:
        # Airflow logs in both ways.
        with capture_logs():
            yield
    finally:
        logging.disable(before)


def _reasons(bag: DagBag) -> dict[str, str]:
    """Return why files can't be imported, in one line each: Airflow has Python's tracebacks."""
    return {file: _reason(file, traceback) for file, traceback in sorted(bag.import_errors.items())}


def _reason(file: str, traceback: str) -> str:
    frames = re.findall(rf'^ *File ".*{re.escape(file)}", line (\d+)', traceback, re.MULTILINE)
    return _message(traceback) + (f" (line {frames[-1]})" if frames else "")


def _message(traceback: str) -> str:
    """Return what was raised, as one line: it stands below the last frame, whose own lines are indented."""
    lines = traceback.strip().splitlines() or ["no reason given"]
    frame = max((i for i, line in enumerate(lines) if line.startswith('  File "')), default=-1)
    below = frame + 1
    while below < len(lines) - 1 and lines[below].startswith(" "):
        below += 1
    return _one_line(" ".join(lines[below:]))


def _one_line(text: str) -> str:
    # Before it is cut: half a secret would not be known for one.
    message = str(without_secrets(" ".join(text.split())))
    return message if len(message) <= MAX_REASON else message[: MAX_REASON - 3] + "..."
