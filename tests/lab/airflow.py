"""Airflow on loopback: API server, scheduler with LocalExecutor, Dag processor and triggerer, each a process of its own.

Not `airflow standalone`: that opens log servers on all interfaces at fixed ports, so two of them cannot run at once.
"""

from __future__ import annotations

import base64
import configparser
import hashlib
import json
import os
import secrets
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import psutil

from tests.lab.airflow_api import AirflowApi
from tests.lab.cache import CACHE, PROVIDER_CACHE, one_at_a_time, workshop
from tests.lab.processes import LOOPBACK, Server, ServerError, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# Name of the command, and of the component in the answer of /monitor/health.
_COMPONENTS = {
    "api-server": "metadatabase",
    "scheduler": "scheduler",
    "dag-processor": "dag_processor",
    "triggerer": "triggerer",
}
# They would serve logs on 0.0.0.0; the API server reads the files.
_NO_LOG_SERVER = ("scheduler", "triggerer")
# The scheduler would wait for the end of its tasks.
_STOP_SECONDS = 10

# What makes a change visible soon: a new Dag file, a mark or clear, a worker that was killed.
_QUICK = {
    "core": {"min_serialized_dag_update_interval": "1", "min_serialized_dag_fetch_interval": "1"},
    "dag_processor": {"refresh_interval": "2", "min_file_process_interval": "2"},
    "scheduler": {
        "scheduler_heartbeat_sec": "1",
        "scheduler_idle_sleep_time": "0.5",
        "task_instance_heartbeat_timeout": "20",
        "task_instance_heartbeat_timeout_detection_interval": "2",
        "orphaned_tasks_check_interval": "10",
        # On a busy machine one round of it took 33 seconds. After 30, it takes itself for dead, and starts all tasks again that it runs.
        "scheduler_health_check_threshold": "120",
    },
    # A task that waits deferred does so for five seconds more than this interval, at least (`triggers.polling.shortest_deferral`).
    # On a busy machine the API server's first answer takes most of a minute, and after the default of 5 seconds a task would give up.
    "workers": {"min_heartbeat_interval": "4", "execution_api_timeout": "90"},
}


_SETTINGS_MODULE = ("import sys", "", "__all__ = []", "", 'if "scheduler" in sys.argv:', "    pass")
# The API server answers up to forty requests at once, and with fifteen connections some of them in vain.
# No test stops this database: to ask it before each use whether it is there took a fifteenth of the API server's time.
_CONNECTIONS = {"sql_alchemy_pool_size": "40", "sql_alchemy_pool_pre_ping": "False"}
# Whoever marks a task makes OpenLineage fork the API server, among its threads: on a busy machine such a request was never answered.
_OF_COMPONENTS = {"api-server": {"AIRFLOW__OPENLINEAGE__DISABLED": "True"}}


class Airflow:
    """The four components, with one user `admin` and its password.

    The metadata stays in `home`, or in the database that was given, over `stop` and `start`.

    Args:
        home: AIRFLOW_HOME; made if it is missing.
        dags: Folder of the Dag files.
        database_url: SQLAlchemy URL of an empty PostgreSQL database; None is SQLite in `home`.
        connections: Airflow connections by id, in their JSON form (`{"conn_type": "kafka", "extra": {...}}`).
        environment: Variables that the components and their tasks get on top of ours.
        settings: Airflow settings as `{section: {option: value}}`, stronger than the quick ones of this module.
        preload: Modules that the scheduler imports. Its tasks are forks of it and have them at once: Spark's client alone
            costs each of them two seconds of a processor.
    """

    user = "admin"
    password = "admin-pw"

    def __init__(
        self,
        home: Path,
        dags: Path,
        *,
        database_url: str | None = None,
        connections: Mapping[str, Mapping[str, Any]] | None = None,
        environment: Mapping[str, str] | None = None,
        settings: Mapping[str, Mapping[str, str]] | None = None,
        preload: Sequence[str] = (),
    ) -> None:
        self.home = home.resolve()
        self.dags = dags.resolve()
        self.port = free_port()
        self.url = f"http://{LOOPBACK}:{self.port}"
        self.api = AirflowApi(self.url, self.user, self.password)
        self._database_url = database_url
        self._settings = settings or {}
        self._preload = preload
        self.environment = self._environment(connections or {}, environment or {})
        self._launched = datetime.now(UTC)
        self.components = {command: self._component(command) for command in _COMPONENTS}

    def start(self) -> Self:
        """Migrate the database if that was not done, start the four components and wait until all are healthy."""
        self._write_settings()
        self._write_preload()
        self._migrate()
        self._launched = datetime.now(UTC)
        try:
            for component in self.components.values():
                component.launch()
            for component in self.components.values():
                component.wait_ready()
        except BaseException:
            self.kill()
            raise
        return self

    def restart(self, component: str) -> None:
        """Stop a component in good order if it runs, start it again and wait until it is healthy."""
        server = self.components[component]
        server.stop()
        self._launched = datetime.now(UTC)
        server.start()

    def stop(self) -> None:
        """Stop the components in good order; tasks that do not end by themselves within seconds are killed."""
        api_server, *others = self.components.values()
        for component in others:
            component.ask_to_stop()
        # The API server last: the others report to it while they stop.
        for component in (*others, api_server):
            component.stop()

    def kill(self) -> None:
        """SIGKILL the components, their tasks, and the Spark drivers of the tasks: the machine crashes."""
        for component in self.components.values():
            component.kill()

    def cli(self, *arguments: str) -> str:
        """Run an `airflow` command and return its stdout; its failure is a `ServerError` with all that it said."""
        return _run(*arguments, home=self.home, environment=self.environment)

    def task_process(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> psutil.Process | None:
        """Return the process that runs the task's `execute`; None when there is none, for example while deferred."""
        # Named after the task instance, whose id changes with each try; the executor's worker has a longer name.
        name = f"airflow worker -- {self.api.task(dag_id, run_id, task_id, map_index)['id']}"
        processes = psutil.Process(self.components["scheduler"].pid).children(recursive=True)
        return next((process for process in processes if _command_line(process).strip() == name), None)

    def worker_process(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> psutil.Process | None:
        """Return the executor's worker: the parent of the task's process, which sends its heartbeats."""
        task = self.task_process(dag_id, run_id, task_id, map_index)
        return task.parent() if task else None

    def crash_worker(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> None:
        """SIGKILL the executor's worker, its task and the Spark driver below: the scheduler misses the heartbeats.

        It notices some 20 seconds later. To kill the task alone, whose worker reports that at once, kill its
        `task_process`.
        """
        worker = self.worker_process(dag_id, run_id, task_id, map_index)
        if worker is None:
            raise ServerError(f"{task_id} of {run_id} has no process")
        # The worker first: it would report the death of its task.
        for process in [worker, *worker.children(recursive=True)]:
            process.kill()

    def driver_process(self, dag_id: str, run_id: str, task_id: str, map_index: int = -1) -> psutil.Process | None:
        """Return the Spark driver's JVM below the task's process; None before it is started and after its end."""
        task = self.task_process(dag_id, run_id, task_id, map_index)
        children = task.children(recursive=True) if task else []
        return next((child for child in children if _is_driver(child)), None)

    def _component(self, command: str) -> Server:
        options = ["--skip-serve-logs"] if command in _NO_LOG_SERVER else []
        return Server(
            f"airflow {command}",
            [_airflow(), command, *options],
            log=self.home / "components" / f"{command}.log",
            ready=lambda: self._is_healthy(command),
            stop_timeout=_STOP_SECONDS,
            environment=self.environment | _OF_COMPONENTS.get(command, {}),
            directory=self.home,
        )

    def _is_healthy(self, command: str) -> bool:
        said = self.api.health()[_COMPONENTS[command]]
        if said is None or said["status"] != "healthy":
            return False
        # "healthy" alone may be the last heartbeat of the process before this one.
        beat = said.get(f"latest_{_COMPONENTS[command]}_heartbeat")
        return beat is None or datetime.fromisoformat(beat) > self._launched

    def _environment(self, connections: Mapping[str, Mapping[str, Any]], extra: Mapping[str, str]) -> dict[str, str]:
        return {
            **plain_environment(self.home),
            # Spark drivers of the tasks, too, stay on loopback.
            "SPARK_LOCAL_IP": LOOPBACK,
            **{f"AIRFLOW_CONN_{name.upper()}": json.dumps(fields) for name, fields in connections.items()},
            **extra,
        }

    def _write_settings(self) -> None:
        """Write airflow.cfg, and so spare the components the race to write a default one; keep the keys of an old one."""
        self.home.mkdir(parents=True, exist_ok=True)
        (self.home / "passwords.json").write_text(json.dumps({self.user: self.password}))
        file = self.home / "airflow.cfg"
        settings = configparser.ConfigParser(interpolation=None)
        settings.read_dict(_new_keys())
        settings.read(file)
        for chosen in (self._own_settings(), _QUICK, self._settings):
            settings.read_dict({section: _escaped(options) for section, options in chosen.items()})
        with file.open("w") as opened:
            settings.write(opened)
        file.chmod(0o600)

    def _write_preload(self) -> None:
        # The module that Airflow imports when it begins, in the other components and commands, too.
        folder = self.home / "config"
        folder.mkdir(exist_ok=True)
        lines = [f"    import {module}" for module in self._preload]
        text = "\n".join([*_SETTINGS_MODULE, *lines, ""])
        (folder / "airflow_local_settings.py").write_text(text)

    def _own_settings(self) -> dict[str, dict[str, str]]:
        database_url = self._database_url or f"sqlite:///{self.home}/airflow.db"
        return {
            "core": {
                "dags_folder": str(self.dags),
                "executor": "LocalExecutor",
                "parallelism": "8",
                "load_examples": "False",
                "execution_api_server_url": f"{self.url}/execution/",
                "simple_auth_manager_users": f"{self.user}:admin",
                "simple_auth_manager_passwords_file": str(self.home / "passwords.json"),
            },
            "database": {"sql_alchemy_conn": database_url, **_CONNECTIONS, **self._async_engine()},
            "api": {"host": LOOPBACK, "port": str(self.port), "base_url": self.url},
            "usage_data_collection": {"enabled": "False"},
            "kafka_offsets": {"cache_folder": str(PROVIDER_CACHE)},
        }

    def _async_engine(self) -> dict[str, str]:
        # Else Airflow wants a driver of its own for this, asyncpg.
        return {"sql_alchemy_conn_async": self._database_url} if self._database_url else {}

    def _migrate(self) -> None:
        if self._database_url:
            self.cli("db", "migrate")
        elif not (self.home / "airflow.db").exists():
            shutil.copyfile(empty_metadata(), self.home / "airflow.db")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def empty_metadata() -> Path:
    """Return a SQLite file as `airflow db migrate` makes it, made once for all that have the same migrations."""
    made = CACHE / "airflow" / f"metadata-{_migrations()}.db"
    if made.exists():
        return made
    with one_at_a_time("airflow-metadata"), workshop("airflow-metadata") as home:
        if not made.exists():
            # In a home of its own, so that no one's settings are in it.
            _run("db", "migrate", home=home, environment=plain_environment(home))
            made.parent.mkdir(exist_ok=True)
            (home / "airflow.db").rename(made)
    return made


def _migrations() -> str:
    """Return a name for all that the result of a migration depends on."""
    found = find_spec("airflow")
    assert found is not None
    assert found.origin is not None
    migrations = Path(found.origin).parent / "migrations" / "versions"
    digest = hashlib.sha256(f"alembic {version('alembic')}, sqlalchemy {version('sqlalchemy')}".encode())
    for file in sorted(migrations.glob("*.py")):
        digest.update(file.read_bytes())
    return f"{version('apache-airflow-core')}-{digest.hexdigest()[:12]}"


def plain_environment(home: Path) -> dict[str, str]:
    """Return ours without its Airflow settings, with the program folder of this Python first on PATH."""
    ours = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    return {
        **ours,
        "PATH": f"{Path(sys.executable).parent}:{ours.get('PATH', '')}",
        "AIRFLOW_HOME": str(home),
        "NO_COLOR": "1",
    }


def _run(*arguments: str, home: Path, environment: Mapping[str, str]) -> str:
    done = subprocess.run(
        [_airflow(), *arguments], cwd=home, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise ServerError(f"airflow {' '.join(arguments)}: status {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def _airflow() -> str:
    return str(Path(sys.executable).parent / "airflow")


def _new_keys() -> dict[str, dict[str, str]]:
    # All components need the same ones, and a restart the ones that the rows are encrypted with.
    return {
        "core": {"fernet_key": base64.urlsafe_b64encode(secrets.token_bytes(32)).decode()},
        "api": {"secret_key": secrets.token_hex(16)},
        "api_auth": {"jwt_secret": secrets.token_hex(32)},
    }


def _escaped(options: Mapping[str, str]) -> dict[str, str]:
    # Airflow reads the file with interpolation on, where a lone % is an error.
    return {name: value.replace("%", "%%") for name, value in options.items()}


def _is_driver(process: psutil.Process) -> bool:
    words = _command_line(process).split()
    # spark-submit is a shell script; it asks a short-lived launcher JVM for the command line, then becomes the driver.
    is_java = bool(words) and Path(words[0]).name == "java"
    return is_java and "org.apache.spark.deploy.SparkSubmit" in words and "org.apache.spark.launcher.Main" not in words


def _command_line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:  # it has ended since it was listed
        return ""
