"""Checks of the machine that starts a launch: spark-submit, Java, and Python files of one version.

Only what certainly fails is refused. If a script could still find Java by itself, there is no check.
"""

from __future__ import annotations

import logging
import shutil
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from airflow_kafka_offsets.adapters.machine.spark_home import (
    find_home,
    find_java,
    home_of_pyspark,
    jar_names,
    pyspark_version,
    python_without_spark,
)
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.launch.spark_versions import (
    check_java,
    check_session_spark,
    check_versions_agree,
    java_warning,
)
from airflow_kafka_offsets.spark.connector import spark_build

logger = logging.getLogger(__name__)

_SUBMIT = "spark-submit"


def check_submit(binary: str, environment: Mapping[str, str]) -> None:
    """Refuse a launch if spark-submit can't start here.

    Args:
        binary: its name, or its path.
        environment: that it is started with.

    Raises:
        BadInputError: it can't start. The message says what to install or set.
    """
    program = shutil.which(binary, path=environment.get("PATH"))
    if program is None:
        raise BadInputError(_no_submit(binary, environment))
    is_sparks_own = (Path(program).resolve().parent / "spark-class").exists()  # another script may set JAVA_HOME
    if is_sparks_own:
        _check_spark_home(environment)
        home = find_home(binary, environment)
        if home is None:
            _refuse_python_without_spark(program, environment)
        _check_java(home, environment)
    try:
        check_pyspark()
    except BadInputError:
        if find_home(binary, environment) == home_of_pyspark({}):  # another Spark has its own Python files
            raise


def check_session(environment: Mapping[str, str]) -> None:
    """Refuse a task if its process can't start its own Spark.

    Raises:
        BadInputError: it can't start. The message says what to install or set.
    """
    _check_spark_home(environment)
    home = home_of_pyspark(environment)
    if home is None or find_spec("py4j") is None:  # pyspark alone requires it
        raise BadInputError(
            "This worker has only a client of Spark Connect. Give the task a connection of type spark_connect. Or: "
            + _install()
        )
    _check_java(home, environment)
    build, ours = spark_build(jar_names(home)), pyspark_version()
    if environment.get("SPARK_HOME") and build and ours:
        check_session_spark(str(home), build.version, ours)


def check_pyspark() -> None:
    """Refuse Python files of two versions of Spark in one folder.

    Raises:
        BadInputError: there are two versions. The message names the command that corrects it.
    """
    check_versions_agree(_installed("pyspark"), _installed("pyspark-client"))


def _installed(distribution: str) -> str | None:
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None


def _no_submit(binary: str, environment: Mapping[str, str]) -> str:
    problem = f"No {binary} is {'there' if '/' in binary else 'on the PATH'}."
    name = Path(binary).name
    bins = [Path(environment["SPARK_HOME"], "bin")] if environment.get("SPARK_HOME") else []
    for folder in [*bins, Path(sys.executable).parent]:
        if (folder / name).exists():
            is_of_pip = (folder / "find_spark_home.py").exists()  # it finds Spark with the Python of the PATH
            other = "" if is_of_pip else f", or set spark_binary='{folder / name}'"
            return f"{problem} Start the worker with it on the PATH{other}:\n    export PATH={folder}:$PATH"
    other = "" if name == _SUBMIT else f", and set the connection's spark-binary to {_SUBMIT}"
    return f"{problem} {_install(other)}"


def _install(also: str = "") -> str:
    return f"Install Spark on each worker{also}:\n    pip install 'airflow-kafka-offsets[spark]'"


def _check_spark_home(environment: Mapping[str, str]) -> None:
    home = environment.get("SPARK_HOME")
    if home and not Path(home, "bin", "spark-class").exists():
        raise BadInputError(f"SPARK_HOME is {home}, which has no bin/spark-class. Correct or unset it")


def _refuse_python_without_spark(program: str, environment: Mapping[str, str]) -> None:
    python = python_without_spark(program, environment)
    if python is None:
        return
    folder = Path(program).absolute().parent
    path = f", or start the worker with its Python first:\n    export PATH={folder}:$PATH"
    raise BadInputError(
        f"{program} looks for Spark with {python}, which has none. Set SPARK_HOME"
        f"{path if (folder / 'python3').exists() else ''}"
    )


def _check_java(home: Path | None, environment: Mapping[str, str]) -> None:
    settings = Path(environment.get("SPARK_CONF_DIR") or (home or Path()) / "conf")
    if home is None or (settings / "spark-env.sh").exists():  # it may set JAVA_HOME
        return
    java = find_java(environment)
    if java is None:
        java_home = environment.get("JAVA_HOME")
        where = f"in JAVA_HOME ({java_home})" if java_home else "on the PATH, and no JAVA_HOME"
        raise BadInputError(f"The worker has no Java {where}. Install Java 17, or set JAVA_HOME")
    build = spark_build(jar_names(home))
    if build is not None and java.version:
        check_java(build.version, java.version, java.program)
        if warning := java_warning(build.version, java.version, java.program):
            logger.warning("%s", warning)
