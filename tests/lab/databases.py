"""PostgreSQL and MariaDB servers, from the system's packages, with a database `offsets` and a user `test`."""

from __future__ import annotations

import glob
import os
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path
from typing import Self

from tests.lab.debian import ensure_program
from tests.lab.leftovers import LAB_DB, hold
from tests.lab.memory import IN_MEMORY
from tests.lab.processes import LOOPBACK, Server, ServerError, accepts_connections, free_port

_USER = "test"
_PASSWORD = "test-pw"
_DATABASE = "offsets"


class _Database:
    """What both have in common: a folder of their own, an account to run as, start and stop.

    Port and data stay the same over `stop` and `start`, and over `kill` and `start`, until the context ends.
    """

    _account: str  # who runs the server when we are root, as neither server wants to be root

    def __init__(self) -> None:
        self.port = free_port()
        # Not pytest's temporary folder: others may not enter it, and its paths are too long for a socket.
        self.folder = Path(tempfile.mkdtemp(prefix=LAB_DB, dir=IN_MEMORY))
        hold(self.folder)
        self._server: Server | None = None

    def start(self) -> Self:
        """Start the server, on the data of its last run if there is any, and wait until it answers."""
        if self._server is None:
            self._give_away_folder()
            self._server = self._prepare()
        self._server.start()
        return self

    def revive(self) -> None:
        """Start it again if it has died; what another process started, that one revives."""
        if self._server is None or (self._server.is_ours and not self._server.is_running):
            self.stop()
            self.start()

    def stop(self) -> None:
        """Shut down in good order, also when clients are connected."""
        if self._server:
            self._server.stop()

    def kill(self) -> None:
        """SIGKILL."""
        if self._server:
            self._server.kill()

    def suspend(self) -> None:
        """Keep the connections open but answer nothing."""
        if self._server:
            self._server.suspend()

    def resume(self) -> None:
        """Answer again."""
        if self._server:
            self._server.resume()

    def remove(self) -> None:
        """Stop the server and delete its data."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _prepare(self) -> Server:
        """Make the data folder and return the server, not started."""
        raise NotImplementedError

    @property
    def _run_as(self) -> str | None:
        return self._account if os.geteuid() == 0 else None

    def _give_away_folder(self) -> None:
        if self._run_as:
            shutil.chown(self.folder, self._run_as)

    def _run(self, *command: str) -> None:
        account = {"user": self._run_as, "group": self._run_as, "extra_groups": []} if self._run_as else {}
        done = subprocess.run(
            command,
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=False,
            **account,  # type: ignore[call-overload]
        )
        if done.returncode != 0:
            raise ServerError(f"{' '.join(command)}\nended with status {done.returncode}:\n{done.stdout}{done.stderr}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.remove()


class Postgres(_Database):
    """A PostgreSQL server. It does not fsync: after `kill` its data is there, after a power cut it would not be."""

    _account = "postgres"

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the database, for psycopg 3."""
        return self.url_of(_DATABASE)

    def url_of(self, database: str) -> str:
        """Return the SQLAlchemy URL of another database of this server."""
        return f"postgresql+psycopg://{_USER}:{_PASSWORD}@{LOOPBACK}:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its SQLAlchemy URL."""
        # In a session to another database, and outside of a transaction.
        self._sql(f'CREATE DATABASE "{name}"')
        return self.url_of(name)

    def start(self) -> Self:
        """Start the server, on the data of its last run if there is any, and wait until it answers."""
        is_first = self._server is None
        super().start()
        if is_first:
            self.create_database(_DATABASE)
        return self

    def _prepare(self) -> Server:
        programs = Path(postgres_program()).parent
        password = self.folder / "password"
        password.write_text(_PASSWORD)
        password.chmod(0o644)
        # Each call to the ledger logs in: SCRAM costs four milliseconds of CPU more each time.
        access = ["-U", _USER, f"--pwfile={password}", "--auth=md5"]
        data = str(self.folder / "data")
        self._run(str(programs / "initdb"), "-D", data, *access, "-E", "UTF8", "--no-locale", "--no-sync")
        settings = {
            "listen_addresses": LOOPBACK,
            "port": self.port,
            "unix_socket_directories": "",
            "fsync": "off",
            "max_connections": 400,
        }
        options = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        return Server(
            "PostgreSQL",
            [programs / "postgres", "-D", data, *options],
            log=self.folder / "log",
            ready=self._is_answering,
            user=self._run_as,
            # SIGTERM would wait until the last client has left.
            stop_signal=signal.SIGINT,
        )

    def _is_answering(self) -> bool:
        import psycopg

        try:
            self._sql("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True

    def _sql(self, statement: str) -> None:
        import psycopg

        address = {"host": LOOPBACK, "port": self.port, "user": _USER, "password": _PASSWORD, "dbname": "postgres"}
        with psycopg.connect(**address, autocommit=True, connect_timeout=60) as connection:
            connection.execute(statement)


class MariaDB(_Database):
    """A MariaDB server, which is also what stands for MySQL here: Debian has no MySQL."""

    _account = "mysql"

    @property
    def url(self) -> str:
        """SQLAlchemy URL of the database, for PyMySQL."""
        return self.url_of(_DATABASE)

    def url_of(self, database: str) -> str:
        """Return the SQLAlchemy URL of another database of the server."""
        return f"mysql+pymysql://{_USER}:{_PASSWORD}@{LOOPBACK}:{self.port}/{database}"

    def create_database(self, name: str) -> str:
        """Create an empty database and return its SQLAlchemy URL."""
        self.execute(f"CREATE DATABASE {name}", f"GRANT ALL ON {name}.* TO {_USER}@'{LOOPBACK}'")
        return self.url_of(name)

    def start(self) -> Self:
        """Start the server, on the data of its last run if there is any, and wait until it answers."""
        is_first = self._server is None
        super().start()
        if is_first:
            self._create_user()
        return self

    def _prepare(self) -> Server:
        data = f"--datadir={self.folder / 'data'}"
        self._run(
            mariadb_program("mariadb-install-db"),
            "--no-defaults",
            data,
            "--auth-root-authentication-method=normal",
            "--skip-test-db",
        )
        network = [f"--bind-address={LOOPBACK}", f"--port={self.port}", f"--socket={self._socket}"]
        quick = ["--innodb-flush-log-at-trx-commit=2", "--skip-log-bin", "--skip-name-resolve"]
        size = ["--character-set-server=utf8mb4", "--max-connections=200"]
        return Server(
            "MariaDB",
            [
                mariadb_program("mariadbd"),
                "--no-defaults",
                data,
                f"--pid-file={self.folder / 'pid'}",
                *network,
                *quick,
                *size,
            ],
            log=self.folder / "log",
            ready=self._is_answering,
            user=self._run_as,
        )

    @property
    def _socket(self) -> Path:
        return self.folder / "socket"

    def _is_answering(self) -> bool:
        import pymysql

        if not (self._socket.exists() and accepts_connections(self.port)):
            return False
        try:
            self.execute("SELECT 1")
        except pymysql.OperationalError:
            return False
        return True

    def _create_user(self) -> None:
        self.execute(
            f"CREATE DATABASE {_DATABASE}",
            f"CREATE USER {_USER}@'{LOOPBACK}' IDENTIFIED BY '{_PASSWORD}'",
            f"GRANT ALL ON {_DATABASE}.* TO {_USER}@'{LOOPBACK}'",
        )

    def execute(self, *statements: str) -> None:
        """Run statements as root."""
        import pymysql

        # For TLS, which a socket in a folder does not have, it would read the certificates of all authorities.
        options = {"user": "root", "connect_timeout": 60, "ssl_disabled": True}
        connection = pymysql.connect(unix_socket=str(self._socket), **options)
        with connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)


def postgres_program() -> str:
    """Return the path of the newest `postgres`, which has `initdb` beside it; install it if it is missing."""
    return ensure_program(_newest_postgres, package="postgresql")


def mariadb_program(name: str) -> str:
    """Return the path of one of MariaDB's server programs; install them if it is missing."""
    # Servers live in sbin, which is not on every user's PATH.
    folders = f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin"
    return ensure_program(lambda: shutil.which(name, path=folders), package="mariadb-server")


def _newest_postgres() -> str | None:
    def major(path: str) -> float:
        return float(Path(path).parts[-3])

    # Debian keeps the server programs of each major version off PATH.
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"), key=major)
    return found[-1] if found else shutil.which("postgres")
