"""The SQL of the JDBC sink: the target's statements, with quoted names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from airflow_kafka_offsets.spark.errors import TargetError
from airflow_kafka_offsets.spark.shared import stage_prefix
from airflow_kafka_offsets.spark.sinks.tables import WINDOW_ID

STAGED = "kafka_offsets_staged"
"""The ledger's table in which a job notes what Airflow publishes."""

PUBLISHED = "kafka_offsets_published"
"""A small table beside a target: a publication locks the row of its window."""

DIGESTS = "kafka_offsets_digests"
"""A small table beside a target with the digest of each published window, so that another window of its id is refused."""

# The class that Spark loads: Spark finds a driver of --jars or --packages only by its class.
_DRIVERS = {
    r"jdbc:postgresql:": "org.postgresql.Driver",
    r"jdbc:mysql:.*[?&]permitMysqlScheme": "org.mariadb.jdbc.Driver",
    r"jdbc:mysql:": "com.mysql.cj.jdbc.Driver",
    r"jdbc:sqlite:": "org.sqlite.JDBC",
}


@dataclass(frozen=True)
class Target:
    """A table that gets windows.

    Args:
        url: its database, for JDBC; it may hold a password, so no message shows it.
        table: its name, with or without a schema: exact, as if quoted.

    Raises:
        TargetError: the url or the name can't be used.
    """

    url: str
    table: str

    def __post_init__(self) -> None:
        if not re.match(r"jdbc:\w+:", self.url):
            raise TargetError("url must be like jdbc:postgresql://host/database")
        if self._is_of("mariadb"):
            raise TargetError("Instead of jdbc:mariadb:, write:\n    jdbc:mysql://host/database?permitMysqlScheme")
        if self._is_of("sqlserver"):
            raise TargetError("SQL Server is not supported")
        if not all(self._parts):
            raise TargetError(f"table must be like orders or sales.orders; got {self.table!r}")

    def _is_of(self, kind: str) -> bool:
        return self.url.lower().startswith(f"jdbc:{kind}:")

    @property
    def _parts(self) -> list[str]:
        return self.table.split(".")

    @property
    def is_mysql(self) -> bool:
        """Whether it is MySQL or MariaDB."""
        return self._is_of("mysql")

    @property
    def schema(self) -> str | None:
        """The schema in the table's name, or None if there is none."""
        return self._parts[-2] if len(self._parts) > 1 else None

    @property
    def name(self) -> str:
        """The table's name without its schema."""
        return self._parts[-1]

    @property
    def driver(self) -> str | None:
        """The class of the usual driver, or None if the user must name it."""
        return next((name for pattern, name in _DRIVERS.items() if re.match(pattern, self.url, re.IGNORECASE)), None)

    def quote(self, name: str) -> str:
        """Quote a name."""
        mark = "`" if self.is_mysql else '"'
        return mark + name.replace(mark, mark * 2) + mark

    def beside(self, name: str) -> str:
        """Quote the name of a table in the target's schema."""
        return ".".join(map(self.quote, [*self._parts[:-1], name]))

    @property
    def quoted(self) -> str:
        """The target's quoted name."""
        return self.beside(self.name)

    def _all(self, columns: Sequence[str]) -> str:
        return ", ".join(map(self.quote, columns))

    @property
    def _id(self) -> str:
        return self.quote(WINDOW_ID)

    @property
    def _of_window(self) -> str:
        return f"WHERE {self._id} = ?"

    def _create(self, name: str) -> str:
        return f"CREATE TABLE IF NOT EXISTS {self.beside(name)}"

    def create_stage(self, stage: str, columns: Sequence[str]) -> str:
        """Create an empty table with columns of the target, which must have them all.

        With the target's types, values are converted as by a direct write to it.
        """
        # IF NOT EXISTS: over Spark Connect, a task runs it, possibly twice.
        return (
            f"{self._create(stage)} AS SELECT {self._all(columns)} FROM {self.quoted} WHERE {self._id} = '' AND 1 = 0"
        )

    def count(self, stage: str) -> str:
        """Count the staged rows."""
        return f"SELECT count(*) AS n FROM {self.beside(stage)}"

    def drop(self, stage: str) -> str:
        """Remove a staging table."""
        return f"DROP TABLE IF EXISTS {self.beside(stage)}"

    def delete(self) -> str:
        """Remove a window's rows."""
        return f"DELETE FROM {self.quoted} {self._of_window}"

    def insert(self, stage: str, columns: Sequence[str]) -> str:
        """Copy the staged rows to the target, under a window's id."""
        names = self._all(columns)
        return f"INSERT INTO {self.quoted} ({names}, {self._id}) SELECT {names}, ? FROM {self.beside(stage)}"

    @property
    def _id_type(self) -> str:
        # For MySQL's default collations, names that differ only by case are equal.
        return "VARCHAR(255)" + (" CHARACTER SET utf8mb4 COLLATE utf8mb4_bin" if self.is_mysql else "")

    def add_window_id(self) -> str:
        """Add the window's column to the target."""
        return f"ALTER TABLE {self.quoted} ADD COLUMN {self._id} {self._id_type}"

    def index_window_id(self) -> str:
        """Index the window's column."""
        name = f"ix_{self.name}"[:40] + "_window_id"
        return f"CREATE INDEX {self.quote(name)} ON {self.quoted} ({self._id})"

    def create_published(self) -> str:
        """Create the table whose rows are locked."""
        return (
            f"{self._create(PUBLISHED)} ({self._id} {self._id_type} NOT NULL PRIMARY KEY, published_at TIMESTAMP NULL)"
        )

    def insert_published(self) -> str:
        """Insert a window's row to lock."""
        return f"INSERT INTO {self.beside(PUBLISHED)} ({self._id}) VALUES (?)"

    def lock_published(self) -> str:
        """Lock a window's row: another publication of the window waits."""
        return f"UPDATE {self.beside(PUBLISHED)} SET published_at = CURRENT_TIMESTAMP {self._of_window}"

    def create_digests(self) -> str:
        """Create the table of digests."""
        return (
            f"{self._create(DIGESTS)} ({self._id} {self._id_type} NOT NULL, target {self._id_type} NOT NULL, "
            f"digest VARCHAR(64) NOT NULL, PRIMARY KEY ({self._id}, target))"
        )

    def find_digest(self) -> str:
        """Select the digest of the window whose rows are in a target."""
        return f"SELECT digest FROM {self.beside(DIGESTS)} {self._of_window} AND target = ?"

    def delete_digest(self) -> str:
        """Delete the digest of a window."""
        return f"DELETE FROM {self.beside(DIGESTS)} {self._of_window} AND target = ?"

    def replace_digest(self) -> str:
        """Replace a digest, if it is still the same."""
        return f"UPDATE {self.beside(DIGESTS)} SET digest = ? {self._of_window} AND target = ? AND digest = ?"

    def insert_digest(self) -> str:
        """Insert the digest of a window."""
        return f"INSERT INTO {self.beside(DIGESTS)} ({self._id}, target, digest) VALUES (?, ?, ?)"

    def has_transactions(self) -> str:
        """Select whether the target's engine in MySQL has transactions."""
        return (
            "SELECT transactions FROM information_schema.tables JOIN information_schema.engines USING (engine) "
            "WHERE table_schema = COALESCE(?, DATABASE()) AND table_name = ?"
        )

    def help(self) -> str:
        """Describe the table that the sink needs."""
        return (
            f"It must exist, with the frame's columns and {WINDOW_ID}:\n"
            f"    {self.add_window_id()}\n    {self.index_window_id()}"
        )


def stage_name(window_id: str, table: str, moment: datetime, salt: str) -> str:
    """Name the staging table of one try; names of one window and target sort by time. At most 63 characters.

    >>> stage_name("lake.orders-000012", "public.orders", datetime(2026, 1, 31, 23, 59, 58), "0f3a9c")
    'kafka_offsets_stage_de6437e2c4_260131235958_0f3a9c'
    """
    return f"{stage_prefix(window_id, table)}{moment:%y%m%d%H%M%S}_{salt}"


def older(names: Sequence[str], stage: str) -> list[str]:
    """Return the staging tables of the same window and target that were made before this one."""
    prefix = stage.rsplit("_", 2)[0] + "_"
    return sorted(name for name in names if name.startswith(prefix) and name < stage)
