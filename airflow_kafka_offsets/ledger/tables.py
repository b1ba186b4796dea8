"""The ledger's tables. They have no row per partition: a window's ranges are one document, written once.

Neither the watermark nor the position is stored, so they can't contradict the windows. The position is the end of the last live window
that owns its offsets. Without such a window it is the group's origin: where its first window started, or where a person moved it. The
watermark is the start of the oldest open live window, or the position if none is open.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    DateTime,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    TypeDecorator,
    UniqueConstraint,
)
from sqlalchemy.dialects.mysql import DATETIME, LONGBLOB, LONGTEXT, VARCHAR

from airflow_kafka_offsets.core.errors import short
from airflow_kafka_offsets.core.output_tables import LEDGER_PREFIX
from airflow_kafka_offsets.ledger.documents import damaged

NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s",
    "pk": "pk_%(table_name)s",
}
metadata = MetaData(naming_convention=NAMING)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment, stored in UTC without a zone and read with the zone. It has microseconds on every database."""

    # By default, MySQL's DATETIME drops fractions of a second.
    impl = DateTime().with_variant(DATETIME(fsp=6), "mysql", "mariadb")
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> datetime | None:
        """Refuse a time without a zone, because it does not name a moment."""
        if value is not None and value.tzinfo is None:
            raise ValueError(f"{value!r} has no time zone")
        return value.astimezone(UTC).replace(tzinfo=None) if value is not None else None

    def result_processor(self, dialect: Any, coltype: Any) -> Any:
        """Read a time. SQLite stores it as a text, which may be damaged."""
        read = super().result_processor(dialect, coltype)

        def intact_time(value: Any) -> datetime | None:
            try:
                return cast("datetime | None", read(value) if read else value)
            except (TypeError, ValueError) as exc:
                raise damaged(f"the time {short(value)}", exc) from exc

        return intact_time

    def process_result_value(self, value: datetime | None, dialect: Any) -> datetime | None:
        """Add the zone again."""
        return value.replace(tzinfo=UTC) if value is not None else None


def name(length: int) -> String:
    """Return a column type for names. Case matters in Kafka and in Airflow, but MySQL's default collation ignores it."""
    exact = VARCHAR(length, charset="utf8mb4", collation="utf8mb4_bin")
    return String(length).with_variant(exact, "mysql", "mariadb")


def document() -> Text:
    """Return a column type for JSON texts. MySQL's TEXT has at most 64 kB."""
    return Text().with_variant(LONGTEXT(charset="utf8mb4"), "mysql", "mariadb")


# SQLite auto-increments only an INTEGER primary key.
_BIG = BigInteger().with_variant(Integer(), "sqlite")

# One row: a random id, made with the table. Output carries it, so that no other ledger writes beside it.
identity = Table(LEDGER_PREFIX + "identity", metadata, Column("id", String(32), primary_key=True))

groups = Table(
    LEDGER_PREFIX + "groups",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", name(200), nullable=False, unique=True),
    # New windows, acts and the end of a commit with a store compare and set it; all else compares state and holds of the window.
    Column("version", BigInteger, nullable=False),
    Column("next_seq", BigInteger, nullable=False),
    # The number of the first window that is here: older ones have left. And the one of these that proved most of how far the group has come
    # in time (`core.history.Frontier`), with its planned-until time; NULL if there is none.
    Column("first_seq", BigInteger, nullable=False),
    Column("proof_seq", BigInteger),
    Column("proof_until", UtcDateTime),
    # Windows below origin_seq are from before the last reset. Without a later window, the next one starts at the origin.
    Column("origin_seq", BigInteger, nullable=False),
    Column("origin", document(), nullable=False),
    Column("definition", document(), nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    # Why the offset store refused the newest plan or commit, or NULL if it did not.
    Column("refused", document()),
    # The task that live windows are cut for, or NULL for the first task that plans.
    Column("owner_dag_id", name(250)),
    Column("owner_task_id", name(250)),
)

claims = Table(
    LEDGER_PREFIX + "claims",
    metadata,
    Column("id", _BIG, primary_key=True),
    Column("dag_id", name(250), nullable=False),
    Column("run_id", name(250), nullable=False),
    Column("task_id", name(250), nullable=False),
    Column("map_index", Integer, nullable=False),
    Column("scope", String(10), nullable=False),
    UniqueConstraint("dag_id", "run_id", "task_id", "map_index"),
)

windows = Table(
    LEDGER_PREFIX + "windows",
    metadata,
    Column("group_id", Integer, ForeignKey(groups.c.id), primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    Column("lane", String(10), nullable=False),
    Column("state", String(12), nullable=False),
    Column("holder", _BIG, ForeignKey(claims.c.id), nullable=False),
    # Counts how often the window was given to a claim, also to the same one. What was read about an earlier hold is outdated.
    Column("holds", Integer, nullable=False),
    Column("planned_until", UtcDateTime, nullable=False),
    Column("isolation_level", String(20), nullable=False),
    Column("span", BigInteger, nullable=False),
    # How many partitions have something to read: lists show it without reading the ranges.
    Column("partitions", Integer, nullable=False),
    Column("ranges", document(), nullable=False),
    # The ranges of a window with many partitions, compressed (`packing.pack`).
    Column("packed", LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")),
    Column("lost", document()),
    # Whether max_offsets cut the window, so that records before its planned-until time may be unplanned.
    Column("is_capped", Boolean, nullable=False),
    Column("planned_at", UtcDateTime, nullable=False),
    Column("committed_at", UtcDateTime),
    # The row of `schemas` with what was frozen, if the group has a schema registry.
    Column("schemas", BigInteger),
    # Where a plan task has left it for another launcher (`core.exchange.Place`), until the window is given to a claim again.
    Column("place", document()),
    # The group's lag when the window was cut, or NULL if it is not known (`core.window.Draft.unread`).
    Column("unread", BigInteger),
    # The newest windows of a lane in some states, and those that were cut in a time.
    Index(None, "group_id", "lane", "state", "seq"),
    # By its convention, its name would be longer than databases take, and then it is not recognized.
    Index("ix_" + LEDGER_PREFIX + "windows_capped", "group_id", "lane", "state", "is_capped", "planned_until"),
    # A claim is deleted when nothing refers to it any more.
    Index(None, "holder"),
)

# What is frozen with windows: the text of a schema, or a document that names such rows. Each content is here once.
schemas = Table(
    LEDGER_PREFIX + "schemas",
    metadata,
    Column("id", _BIG, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("content", document(), nullable=False),
)

claim_windows = Table(
    LEDGER_PREFIX + "claim_windows",
    metadata,
    Column("claim_id", _BIG, ForeignKey(claims.c.id), primary_key=True, autoincrement=False),
    Column("group_id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    ForeignKeyConstraint(["group_id", "seq"], [windows.c.group_id, windows.c.seq]),
    Index(None, "group_id", "seq"),
)

attempts = Table(
    LEDGER_PREFIX + "attempts",
    metadata,
    Column("id", _BIG, primary_key=True),
    Column("group_id", Integer, nullable=False),
    Column("seq", BigInteger, nullable=False),
    Column("claim_id", _BIG, ForeignKey(claims.c.id), nullable=False),
    Column("try_number", Integer, nullable=False),
    # `core.run.Try.series`.
    Column("series", String(64), nullable=False),
    Column("bundle_version", name(250)),
    Column("outcome", String(10), nullable=False),
    Column("records", BigInteger),
    Column("started_at", UtcDateTime, nullable=False),
    Column("ended_at", UtcDateTime),
    ForeignKeyConstraint(["group_id", "seq"], [windows.c.group_id, windows.c.seq]),
    Index(None, "group_id", "seq"),
    Index(None, "claim_id"),
)

# Windows that were committed already and run again, until they are committed again: until then, the output may be a part.
reruns = Table(
    LEDGER_PREFIX + "reruns",
    metadata,
    Column("group_id", Integer, primary_key=True, autoincrement=False),
    Column("seq", BigInteger, primary_key=True, autoincrement=False),
    # NULL if another launcher runs the job.
    Column("attempt_id", _BIG, ForeignKey(attempts.c.id)),
    Column("begun_at", UtcDateTime, nullable=False),
    ForeignKeyConstraint(["group_id", "seq"], [windows.c.group_id, windows.c.seq]),
)

acts = Table(
    LEDGER_PREFIX + "acts",
    metadata,
    Column("id", _BIG, primary_key=True),
    Column("group_id", Integer, ForeignKey(groups.c.id), nullable=False),
    Column("kind", String(20), nullable=False),
    Column("who", name(200), nullable=False),
    Column("why", document(), nullable=False),
    Column("at", UtcDateTime, nullable=False),
    Column("details", document(), nullable=False),
    # The newest acts of a group.
    Index(None, "group_id", "id"),
    Index(None, "group_id", "kind", "id"),
)

# What else stays known of windows that have left: `core.plan.pruning`.
pruned = Table(
    LEDGER_PREFIX + "pruned",
    metadata,
    Column("group_id", Integer, ForeignKey(groups.c.id), primary_key=True, autoincrement=False),
    Column("planned_until", UtcDateTime),
    Column("floors", document(), nullable=False),
)

# The claims that had such windows: of each only a number made from its names, so that a row takes little.
pruned_claims = Table(
    LEDGER_PREFIX + "pruned_claims",
    metadata,
    Column("id", _BIG, primary_key=True, autoincrement=False),
)

# What jobs staged for tables in this database. Spark's JDBC writes it (`spark.sinks.jdbc`), commits publish it.
staged = Table(
    LEDGER_PREFIX + "staged",
    metadata,
    Column("id", _BIG, primary_key=True),
    Column("window_id", name(255), nullable=False),
    Column("target", name(255), nullable=False),
    # NULL after the staging table was dropped.
    Column("staging", name(64)),
    Column("column_names", document(), nullable=False),
    Column("row_count", BigInteger, nullable=False),
    Column("attempt_id", BigInteger),
    Column("published_at", UtcDateTime),
    Index(None, "window_id"),
    Index(None, "staging"),
)
