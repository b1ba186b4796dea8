"""``kafka-offsets db``: the ledger's tables."""

from __future__ import annotations

from argparse import Namespace

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.cli.exit_codes import ExitCode
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.sources import ledger_url
from airflow_kafka_offsets.core.errors import LedgerSchemaError


def upgrade(args: Namespace) -> Answer:
    """Make the ledger's tables."""
    before, after = wiring.upgrade_ledger(ledger_url(args), beside_others=args.beside_others)
    what = "was there" if before == after else "is made"
    return Answer(
        {"before": before, "after": after},
        lambda: f"The ledger {what}: revision {before or 'none (no tables)'} before, {after} now.",
    )


def current(args: Namespace) -> Answer:
    """Show the revision of the ledger's tables."""
    url = ledger_url(args)
    found, needed = wiring.ledger_revisions(url)
    is_current = found == needed
    return Answer(
        {"revision": found, "needed": needed, "current": is_current},
        lambda: f"The ledger is at revision {found or 'none (no tables)'}; this package needs {needed}.",
        ExitCode.OK if is_current else ExitCode.UNAVAILABLE,
        None if is_current else _what_helps(url),
    )


def _what_helps(url: str) -> str | None:
    try:
        wiring.open_ledger_at(url)
    except LedgerSchemaError as exc:
        return str(exc)
    return None  # someone else has made it just now
