"""``kafka-offsets status``: where each group stands."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

from airflow_kafka_offsets.cli.exit_codes import ExitCode
from airflow_kafka_offsets.cli.places import kafka_config, open_ledger, open_log
from airflow_kafka_offsets.cli.running import Answer
from airflow_kafka_offsets.cli.tables import open_text, partitions_table, table, time
from airflow_kafka_offsets.core.errors import BadInputError, KafkaAnswerError, KafkaOffsetsError, LogError, name_some
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.log import Bounds
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.overview import Overview
from airflow_kafka_offsets.core.plan.ownership import GroupState, Position, watermark
from airflow_kafka_offsets.core.plan.planning import Verdict, judge_all
from airflow_kafka_offsets.core.plan.request import name_windows
from airflow_kafka_offsets.core.plan.waiting import Seen
from airflow_kafka_offsets.core.window_id import parse_window_id
from airflow_kafka_offsets.documents import Document, window_document
from airflow_kafka_offsets.service import watch

_HARMLESS = {Verdict.CONTINUE, Verdict.FIRST, Verdict.NEW_PARTITION, Verdict.LEFT_GROUP}


def status(args: Namespace) -> Answer:
    """Show all groups in short, or one of them by topic-partition."""
    ledger = open_ledger(args)
    groups = [ledger.group(args.group)] if args.group is not None else ledger.groups()
    # The ledger first: a commit in between must not look like a log that ends before the watermark.
    overviews = ledger.overviews([group.name for group in groups])
    seen = {} if args.offline else _look(args, groups, {name: found.state for name, found in overviews.items()})
    found = [_group_document(group, overviews[group.name], seen.get(group.name)) for group in groups]
    errors = list(dict.fromkeys(str(error) for error in seen.values() if isinstance(error, KafkaOffsetsError)))
    return Answer(
        {"offline": args.offline, "groups": found},
        lambda: _one_text(found[0]) if args.group is not None else _all_text(found),
        ExitCode.UNAVAILABLE if errors else ExitCode.OK,
        "\n".join(errors) or None,
    )


_Seen = Seen | KafkaAnswerError | BadInputError


def _look(args: Namespace, groups: Sequence[KafkaGroup], states: Mapping[str, GroupState]) -> dict[str, _Seen]:
    """Ask each Kafka once for all groups that read it: for what each holds, or why that is not known."""
    is_one_kafka = kafka_config(args) is not None
    of_kafka: dict[tuple[str, float], list[KafkaGroup]] = {}
    for group in groups:
        where = "" if is_one_kafka else group.kafka_conn_id
        of_kafka.setdefault((where, group.kafka_timeout), []).append(group)
    found: dict[str, _Seen] = {}
    for same in of_kafka.values():
        for name, seen in watch.look(same, states, partial(open_log, args, same[0])).items():
            if not isinstance(seen, _Seen):
                raise seen
            found[name] = seen
    return found


def _group_document(group: KafkaGroup, overview: Overview, seen: _Seen | None) -> Document:
    state, look = overview.state, seen if isinstance(seen, Seen) else None
    position = watermark(state)
    partitions, trouble = _partitions(group, position, look)
    lags = [p["lag"] for p in partitions if p["lag"] is not None]
    committed = overview.last_committed
    return {
        "group": group.name,
        "topics": list(group.topics),
        "owner": state.owner,
        "kafka_conn_id": group.kafka_conn_id,
        "isolation_level": group.isolation_level.value,
        "lag": sum(lags) if look is not None and position is not None else None,
        "kafka_error": str(seen) if isinstance(seen, Exception) else None,
        "trouble": trouble,
        "open_windows": [window_document(row) for row in reversed(overview.open)],
        "last_committed": window_document(committed) if committed else None,
        "acts": [asdict(act) for act in overview.acts],
        "partitions": partitions,
    }


def _partitions(group: KafkaGroup, position: Position | None, look: Seen | None) -> tuple[list[Document], str | None]:
    known = position.offsets if position else {}
    bounds = look.log.bounds if look else {}
    verdicts: Mapping[TopicPartition, Verdict] = {}
    missing = ""
    try:
        verdicts = judge_all(group, position, look.log, look.recovered) if look else {}
    except LogError as exc:
        missing = str(exc)
    rows = [
        _partition(tp, known.get(tp), bounds.get(tp), verdicts.get(tp)) for tp in sorted(known.keys() | bounds.keys())
    ]
    bad = [f"{tp} {v}" for tp, v in verdicts.items() if v not in _HARMLESS]
    return rows, missing or name_some(bad, ", ") or None


def _partition(tp: TopicPartition, offset: int | None, bounds: Bounds | None, verdict: Verdict | None) -> Document:
    # After a change to read_committed, an open transaction may put the end offset below the watermark. Nothing is left to
    # read there, and a negative number would hide the lag of other partitions in a sum.
    lag = max(0, bounds.end - offset) if bounds and offset is not None else None
    return {
        **tp._asdict(),
        "watermark": offset,
        "beginning": bounds.beginning if bounds else None,
        "end": bounds.end if bounds else None,
        # Offsets of another topic of the same name can't be compared.
        "lag": None if verdict is Verdict.RECREATED else lag,
        "verdict": verdict,
    }


def _weight(partition: Mapping[str, Any]) -> tuple[bool, int]:
    return partition["verdict"] not in _HARMLESS, partition["lag"] or 0


def _all_text(groups: Sequence[Document]) -> str:
    if not groups:
        return "The ledger has no groups yet: a group is there after it has planned for the first time."
    keys = ("group", "topics", "partitions", "lag", "open_window", "held_by", "last_committed", "at")
    return table(keys, map(_row, groups)) + "".join(f"\n\n{_trouble(g)}" for g in groups if g["trouble"])


def _row(group: Document) -> Document:
    is_open = group["open_windows"][0] if group["open_windows"] else {}
    done = group["last_committed"] or {}
    return {
        **group,
        "topics": name_some(group["topics"], ", "),
        "partitions": len(group["partitions"]),
        "open_window": is_open.get("id"),
        "held_by": is_open.get("held_by"),
        "last_committed": done.get("id"),
        "at": done.get("committed_at"),
    }


def _one_text(group: Document) -> str:
    lines = [f"group:          {group['group']}", f"topics:         {', '.join(group['topics'])}"]
    lines.append(f"belongs to:     {group['owner'] or 'the first task that plans'}")
    lines += [f"open window:    {open_text(window)}" for window in group["open_windows"]] or ["open window:    none"]
    if done := group["last_committed"]:
        lines.append(f"last committed: {done['id']} at {time(done['committed_at'])}, span {done['span']}")
    else:
        lines.append("last committed: none")
    lines.append(f"lag:            {'unknown' if group['lag'] is None else group['lag']}")
    keys = ("topic", "partition", "watermark", "beginning", "end", "lag", "verdict")
    parts = ["\n".join(lines), partitions_table(keys, group["partitions"], _weight)]
    if group["acts"]:
        acts = ({**act, "windows": _windows_of(act)} for act in group["acts"])
        parts.insert(1, table(("at", "kind", "windows", "who", "why"), acts, kind="what people did"))
    if group["trouble"]:
        parts.append(_trouble(group))
    return "\n\n".join(parts)


def _windows_of(act: Document) -> str | None:
    details = act["details"]
    ids = [details["window"]] if "window" in details else details.get("superseded", [])
    if len(ids) > 1:
        return name_windows(parse_window_id(id_)[1] for id_ in ids)
    return ids[0] if ids else None


def _trouble(group: Document) -> str:
    return f"Group {group['group']} needs a look: {group['trouble']}. More: kafka-offsets plan {group['group']}"
