"""Which ledger and which Kafka a command talks to, from its arguments, the environment and Airflow."""

from __future__ import annotations

import getpass
import os
import re
from argparse import Namespace
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.cli.arguments import LEDGER_VARIABLE
from airflow_kafka_offsets.core.errors import BadInputError, NotYetError
from airflow_kafka_offsets.core.history import check_signature
from airflow_kafka_offsets.core.source.offsets import (
    CheckpointAddress,
    CsvAddress,
    LedgerAddress,
    Meaning,
    SourceAddress,
    check_meaning,
    check_name,
    parse_source_address,
)
from airflow_kafka_offsets.core.store_address import StoreAddress, parse_store_address
from airflow_kafka_offsets.service.move import Selection
from airflow_kafka_offsets.service.sources import LedgerSource, StoreSource
from airflow_kafka_offsets.spark.shared import is_secret
from airflow_kafka_offsets.wiring import late
from airflow_kafka_offsets.wiring.stores import opening
from airflow_kafka_offsets.wiring.stores.opening import CALLBACKS

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup
    from airflow_kafka_offsets.ledger.ledger import Ledger
    from airflow_kafka_offsets.ports import LogOffsets, OffsetSource, OffsetStore
    from airflow_kafka_offsets.service.windows import WindowService


def open_ledger(args: Namespace) -> Ledger:
    """Open the ledger that the arguments name. Nothing is made."""
    return wiring.open_ledger_at(ledger_url(args))


def ledger_url(args: Namespace, conn_id: str | None = None) -> str:
    """Return SQLAlchemy's URL of the ledger; it may hold a password.

    Args:
        args: the arguments.
        conn_id: the connection that a group's definition names, or None.

    Raises:
        BadInputError: a password in argv, not a URL, or no such connection.
    """
    if args.ledger:
        return _url(args.ledger, "--ledger", may_hold_password=False)
    if conn_id:
        return wiring.ledger_url(conn_id)
    if from_environment := os.environ.get(LEDGER_VARIABLE):
        return _url(from_environment, LEDGER_VARIABLE, may_hold_password=True)
    return wiring.ledger_url()


def _url(value: str, source: str, *, may_hold_password: bool) -> str:
    if "://" not in value:
        return _url_of_connection(value, source, may_be_shown=not may_hold_password)
    from sqlalchemy import make_url
    from sqlalchemy.exc import ArgumentError

    try:
        url = make_url(value)
    except (ArgumentError, ValueError):
        # Neither the value nor SQLAlchemy's words for it: both may show a password.
        raise BadInputError(f"{source} is not a database URL such as postgresql://user@host/db") from None
    if any(map(is_secret, url.query)):
        # SQLAlchemy masks only a password before the @.
        raise BadInputError(f"{source} holds a password after the '?': put it before the @")
    if url.password is not None and not may_hold_password:
        raise BadInputError(
            f"{source} holds a password, which others can read: put the URL into {LEDGER_VARIABLE}, or name an Airflow connection"
        )
    return value


def _url_of_connection(conn_id: str, source: str, *, may_be_shown: bool) -> str:
    try:
        return wiring.ledger_url(conn_id)
    except NotYetError:
        if may_be_shown and re.fullmatch(r"[\w.-]+", conn_id):
            raise
        # Not shown, as Airflow's own words would do: it may be a mistyped URL, with its password.
        raise BadInputError(
            f"{source} is neither a URL (no '://') nor an Airflow connection. Write one, such as "
            f"postgresql://user{'' if may_be_shown else ':password'}@host/db or sqlite:////var/lib/kafka_offsets.db"
        ) from None


def open_log(args: Namespace, group: KafkaGroup) -> LogOffsets:
    """Open the Kafka that the arguments name, or else the one of the group's Airflow connection."""
    return wiring.open_log(group, kafka_config(args))


def open_service(args: Namespace, ledger: Ledger, group: KafkaGroup) -> WindowService:
    """Return the use cases on a ledger. The group's Kafka and offset store are opened when they are needed."""
    from airflow_kafka_offsets.service.windows import WindowService

    return WindowService(ledger, late(lambda: open_log(args, group)), store=open_own_store(args, group))


def open_own_store(args: Namespace, group: KafkaGroup) -> OffsetStore | None:
    """Return the group's own offset store, which is opened when it is needed, or None if it has none."""
    if group.offset_store is None:
        return None
    address = parse_store_address(group.offset_store)
    return late(partial(opening.open_store, address, group, kafka_config(args)), name=str(address))


def requested_source(args: Namespace, ledger: Ledger, group: KafkaGroup) -> Selection:
    """Open the source of offsets that the arguments name.

    Raises:
        BadInputError: it is no source, or can't have that name or meaning.
    """
    source, meaning = parse_source_address(args.from_source), Meaning(args.meaning)
    check_meaning(source, meaning)
    check_name(source, args.as_name)
    name = args.as_name or group.name
    return Selection(_open_source(args, ledger, group, source, name), name, meaning, tuple(args.topic or ()))


def _open_source(args: Namespace, ledger: Ledger, group: KafkaGroup, source: SourceAddress, name: str) -> OffsetSource:

    from airflow_kafka_offsets.wiring import storage

    match source:
        case LedgerAddress():
            return LedgerSource(ledger, name)
        case CheckpointAddress():
            return storage.open_checkpoint(source)
        case CsvAddress():
            return storage.CsvFile(source.file, name, is_chosen=args.as_name is not None)
        case _:
            return StoreSource(opening.open_store(source, group, kafka_config(args)), name)


def open_target(args: Namespace, address: str, group: KafkaGroup) -> OffsetStore:
    """Open an offset store that offsets go to, or are compared with.

    Raises:
        BadInputError: it is no offset store.
    """
    match parse_source_address(address):
        case StoreAddress() as source:
            return opening.open_store(source, group, kafka_config(args))
        case LedgerAddress():
            raise BadInputError(
                f"The ledger is no offset store. Use:\n    kafka-offsets import {group.name} --from SOURCE --why '...'"
            )
        case CsvAddress():
            raise BadInputError(
                f"A file is no offset store. Use:\n    kafka-offsets export {group.name} --to FILE --why '...'"
            )
        case _:
            raise BadInputError("Only its query can write to a checkpoint")


def kafka_config(args: Namespace) -> dict[str, Any] | None:
    """Return librdkafka's settings from the arguments, or None if they name no Kafka.

    Raises:
        BadInputError: the file can't be read or names no servers.
    """
    # A command that needs no Kafka, such as take-over, has neither argument.
    file, servers = getattr(args, "kafka_config", None), getattr(args, "bootstrap_servers", None)
    if not file and not servers:
        return None
    config: dict[str, Any] = read_properties(file) if file else {}
    if servers:
        config["bootstrap.servers"] = servers
    if not config.get("bootstrap.servers"):
        raise BadInputError(f"{file} has no bootstrap.servers; add it, or use --bootstrap-servers")
    return config


def read_properties(path: str) -> dict[str, str]:
    """Read ``name=value`` lines; lines that are empty or start with # don't count.

    Raises:
        BadInputError: the file can't be read, or a line is something else. Values are not shown: they may be secrets.
    """
    try:
        with open(path, encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError) as exc:
        raise BadInputError(f"Can't read {path}: {getattr(exc, 'strerror', None) or 'it is not UTF-8'}") from exc
    values: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, equals, value = line.partition("=")
        if not equals or not name.strip():
            raise BadInputError(f"{path}, line {number}: expected name=value")
        if name.strip() in CALLBACKS:
            raise BadInputError(f"{path}, line {number}: {name.strip()} is a function, which a file can't hold")
        values[name.strip()] = value.strip()
    return values


def person(args: Namespace) -> str:
    """Return who does this.

    Raises:
        BadInputError: the operating system has no name for this user, or the ledger can't keep the name or the reason.
    """
    try:
        who = str(args.who or getpass.getuser())
    except (OSError, KeyError) as exc:
        raise BadInputError("Give your name with --who: this user has none") from exc
    check_signature(who, args.why)
    return who
