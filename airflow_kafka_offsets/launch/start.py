"""What a launch does so that its driver starts cheaply; the rules are those of core/launch/start.py, and of docs/launchers/start.md."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowTaskTimeout

from airflow_kafka_offsets.core.launch.start_choice import Compiler, StartArchive
from airflow_kafka_offsets.launch.subprocesses import dying_with_parent

if TYPE_CHECKING:
    from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook

log = logging.getLogger(__name__)


def add_options(hook: SparkSubmitHook, archive: StartArchive, compiler: Compiler, span: int) -> None:
    """Let the spark-submit that a hook is about to start find our options in its environment: no command line shows them.

    Args:
        hook: in client mode.
        archive: what is to be done about the start archive.
        compiler: of the driver's JVM.
        span: of the window, in offsets.
    """
    from airflow_kafka_offsets.wiring.machine.start import start_environment

    build, read_log = hook._build_spark_submit_command, hook._process_spark_submit_log
    given: list[dict[str, Any] | None] = []

    def build_and_add(application: str) -> list[str]:
        command = build(application)
        given.append(hook._env)
        ours = start_environment(
            environment_of(hook),
            archive,
            compiler,
            span,
            program=hook._connection["spark_binary"],
            said=[*command, _content(hook._properties_file)],
        )
        hook._env = {**(hook._env or {}), **ours}
        return command

    def read_and_restore(itr: Iterator[Any]) -> None:
        hook._env = given[-1]  # spark-submit has it; what the user runs after that is not ours
        read_log(itr)

    hook._build_spark_submit_command = build_and_add  # type: ignore[method-assign]
    hook._process_spark_submit_log = read_and_restore  # type: ignore[method-assign]


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


def environment_of(hook: SparkSubmitHook) -> dict[str, str]:
    """Return the environment that a hook gives to spark-submit; on Kubernetes, the user's variables are for the driver's pod."""
    added = hook._env or (None if hook._is_kubernetes else hook._env_vars) or {}
    return {**os.environ, **{name: str(value) for name, value in added.items()}}


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
