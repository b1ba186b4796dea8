"""What a launch does so that its driver starts faster. The rules are in core/launch/start.py and docs/launchers/start.md."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_kafka_offsets.core.launch.start_choice import Compiler, StartArchive
from airflow_kafka_offsets.spark.parent import dying_with_parent

if TYPE_CHECKING:
    from airflow_kafka_offsets.launch.submit_hook import SubmitHook

logger = logging.getLogger(__name__)


def variables(
    hook: SubmitHook, command: Sequence[str], archive: StartArchive, compiler: Compiler, span: int
) -> Mapping[str, str]:
    """Return the environment variables that give a driver in client mode this package's options. No command line shows them.

    Args:
        hook: the hook that is about to start spark-submit.
        command: the command that it will start.
        archive: the choice about the start archive.
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
        return ""  # spark-submit itself reports a missing file


def chosen_archive(archive: StartArchive | None) -> StartArchive:
    """Return the choice about the start archive: the operator's, else the configuration's.

    Raises:
        BadInputError: the configuration has none of the three values.
    """
    from airflow_kafka_offsets.wiring.machine import start

    return start.chosen_archive(archive)


@contextmanager
def environment_with(added: Mapping[str, str]) -> Iterator[None]:
    """Set variables in this process' environment for a while, for code that starts a child and takes no environment."""
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
    """Make the start archive if there is none. The task's windows are committed before, so that a failure can't harm them.

    It is not made during the job: the driver may need the memory of a second JVM.
    """
    from airflow_kafka_offsets.wiring.machine import start

    try:
        start.make_archive_after(environment, program, dying_with_parent())
    except AirflowTaskTimeout:
        logger.warning(
            "The task timed out while it made a start archive; its windows are committed, so the task does not fail"
        )
