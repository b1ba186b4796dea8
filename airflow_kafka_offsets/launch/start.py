"""What a launch does so that its driver starts cheaply; the rules are those of core/launch/start.py, and of docs/launchers/start.md."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_kafka_offsets.core.launch.start_choice import Compiler, StartArchive
from airflow_kafka_offsets.launch.subprocesses import dying_with_parent

if TYPE_CHECKING:
    from airflow_kafka_offsets.launch.submit_hook import SubmitHook

log = logging.getLogger(__name__)


def variables(
    hook: SubmitHook, command: Sequence[str], archive: StartArchive, compiler: Compiler, span: int
) -> Mapping[str, str]:
    """Return the variables by which a driver in client mode gets our options: no command line shows them.

    Args:
        hook: that is about to start spark-submit.
        command: what it will start.
        archive: what is to be done about the start archive.
        compiler: of the driver's JVM.
        span: of the window, in offsets.
    """
    from airflow_kafka_offsets.wiring.machine.start import start_environment

    said = [*command, _content(hook.properties_file)]
    return start_environment(hook.environment, archive, compiler, span, program=hook.program, said=said)


def _content(file: str | None) -> str:
    try:
        return Path(file).read_text(errors="replace") if file else ""
    except OSError:
        return ""  # spark-submit itself says so


def chosen_archive(archive: StartArchive | None) -> StartArchive:
    """Return what is to be done about the start archive: what the operator says, else the configuration.

    Raises:
        BadInputError: the configuration says none of the three.
    """
    from airflow_kafka_offsets.wiring.machine import start

    return start.chosen_archive(archive)


@contextmanager
def environment_with(added: Mapping[str, str]) -> Iterator[None]:
    """Have these variables in the environment of this process, for a child of whoever takes no other way, and then as it was."""
    before = {name: os.environ.get(name) for name in added}
    os.environ.update(added)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def make_archive_after(environment: Mapping[str, str], program: str | None) -> None:
    """Make the start archive if there is none, when the task's windows are committed: nothing that happens to it can harm them.

    Not beside the job: memory that a second JVM takes may be what the driver needs.
    """
    from airflow_kafka_offsets.wiring.machine import start

    try:
        start.make_archive_after(environment, program, dying_with_parent())
    except AirflowTaskTimeout:
        log.warning(
            "The task's time was over while it made a start archive; its windows are committed, so it is no failure"
        )
