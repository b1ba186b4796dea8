"""Who does something by hand, and why."""

from __future__ import annotations

from airflow_kafka_offsets.core.errors import BadInputError

MAX_WHO = 200


def check_signature(who: str, why: str) -> None:
    """Want a name and a reason: both are kept in the ledger.

    Raises:
        BadInputError: one is empty, or the name is too long.
    """
    if not why.strip():
        raise BadInputError("Say why: the reason is kept in the ledger for whoever finds this later")
    if not who.strip() or len(who) > MAX_WHO:
        raise BadInputError(f"Say who does this, in at most {MAX_WHO} characters; got {who[:MAX_WHO]!r}")
