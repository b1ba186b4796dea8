"""The state of each group: ``kafka-offsets status`` once, and ``kafka-offsets watch`` again and again."""

from __future__ import annotations

import gc
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from operator import itemgetter
from time import sleep
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.cli.running import Answer, Answers, ExitCode
from airflow_kafka_offsets.cli.sources import kafka_config, open_ledger, open_log
from airflow_kafka_offsets.cli.tables import open_text, partitions_table, table, time
from airflow_kafka_offsets.core.errors import KafkaOffsetsError, counted, may_pass
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import KEPT_FROM, acted_on
from airflow_kafka_offsets.core.lag.lag import GroupLag, GroupVerdict, why_unread_unknown
from airflow_kafka_offsets.core.lag.words import advice, length, place
from airflow_kafka_offsets.core.plan.overview import Overview
from airflow_kafka_offsets.core.plan.planning import Verdict
from airflow_kafka_offsets.core.window_id import name_window, name_windows, parse_window_id
from airflow_kafka_offsets.documents import Document, group_document
from airflow_kafka_offsets.service import freshness

if TYPE_CHECKING:
    from airflow_kafka_offsets.ledger.ledger import Ledger

_LINES_ABOVE = 2
"""How many lines a table has above its rows."""

_CLEAR = "\x1b[2J"
_TOP = "\x1b[H"
_REST_OF_LINE, _REST_OF_SCREEN = "\x1b[K", "\x1b[J"
_HIDE, _SHOW = "\x1b[?25l", "\x1b[?25h"

_FRAME_LINES_ABOVE = 2
"""How many lines a frame of `watch` has above its answer."""

_HARMLESS = {None, Verdict.CONTINUE, Verdict.FIRST, Verdict.NEW_PARTITION, Verdict.LEFT_GROUP}


def status(args: Namespace) -> Answer:
    """Show all groups in short, or one of them by topic-partition."""
    return look(args, open_ledger(args))


def look(args: Namespace, ledger: Ledger) -> Answer:
    """Look at all groups, or at one of them.

    Raises:
        UnknownGroupError: there is no such group.
        LedgerError: the ledger did not answer, or refused.
    """
    groups = [ledger.group(args.group)] if args.group is not None else ledger.groups()
    # The ledger first: a commit in between must not look like a log that ends before the watermark.
    overviews = ledger.overviews([group.name for group in groups])
    lags = {} if args.offline else _lags(args, groups, ledger, overviews)
    documents = [group_document(group, overviews[group.name], lags.get(group.name)) for group in groups]
    errors = list(dict.fromkeys(lag.error for lag in lags.values() if lag.error))
    return Answer(
        {"offline": args.offline, "groups": documents},
        lambda: _one_text(documents[0]) if args.group is not None else _all_text(documents),
        ExitCode.UNAVAILABLE if errors else ExitCode.OK,
        "\n".join(errors) or None,
        partial(_left_out, len(documents)) if args.group is None else None,
    )


def _left_out(groups: int, lines: int) -> str | None:
    """Return how many groups are not among the first lines of the text, or None if all are."""
    hidden = groups - max(0, lines - _LINES_ABOVE)
    return f"... and {counted(hidden, 'more group')}" if hidden > 0 else None


def _lags(
    args: Namespace, groups: Sequence[KafkaGroup], ledger: Ledger, overviews: Mapping[str, Overview]
) -> dict[str, GroupLag]:
    states = {name: overview.state for name, overview in overviews.items()}
    is_one_kafka = kafka_config(args) is not None
    return freshness.look(
        groups,
        ledger,
        partial(open_log, args),
        states=states,
        is_one_kafka=is_one_kafka,
        at_once=freshness.AT_ONCE,
    )


def _weight(partition: Mapping[str, Any]) -> tuple[bool, float, int]:
    headroom = partition["headroom_seconds"]
    return (
        partition["verdict"] not in _HARMLESS,
        -headroom if headroom is not None else float("-inf"),
        partition["lag"] or 0,
    )


def _all_text(groups: Sequence[Document]) -> str:
    if not groups:
        return "The ledger has no groups yet: the first plan of each adds it."
    keys = ("group", "verdict", "lag", "waits", "headroom", "open_window", "held_by", "last_committed", "at")
    worst_first = sorted(groups, key=lambda group: place(group["verdict"]))
    return table(keys, map(_row, worst_first)) + "".join(
        f"\n\n{problem}" for group in worst_first if (problem := _problem(group)) is not None
    )


def _row(group: Document) -> Document:
    oldest_open = group["open_windows"][0] if group["open_windows"] else {}
    committed = group["last_committed"] or {}
    return {
        **group,
        **_lengths(group),
        "open_window": oldest_open.get("id"),
        "held_by": oldest_open.get("held_by"),
        "last_committed": committed.get("id"),
        "at": committed.get("committed_at"),
    }


def _lengths(document: Document) -> Document:
    """Return lag in time and headroom in words, or None where they are unknown or nothing is unread."""
    waits = document["lag_seconds"]
    return {"waits": length(waits) if waits else None, "headroom": _headroom(document)}


def _headroom(document: Document) -> str | None:
    seconds = document["headroom_seconds"]
    if seconds is None:
        return "never" if document.get("headroom_is_unlimited") else None
    about = "~" if document.get("headroom_is_estimate") or document.get("estimate") else ""
    return about + length(seconds)


def _one_text(group: Document) -> str:
    lines = [f"group:          {group['group']}", f"topics:         {', '.join(group['topics']) or 'none yet'}"]
    if group["topics_pattern"] is not None:
        lines.append(f"that match:     {group['topics_pattern']}")
    lines.append(f"belongs to:     {group['owner'] or 'the first task that plans'}")
    if group["reason"]:
        lines.append(f"verdict:        {group['verdict'] or 'unknown'}: {group['reason']}")
    lines += [f"open window:    {open_text(window)}" for window in group["open_windows"]] or ["open window:    none"]
    if window := group["last_committed"]:
        lines.append(f"last committed: {window['id']} at {time(window['committed_at'])}, span {window['span']}")
    else:
        lines.append("last committed: none")
    if group["pruned_before"]:
        lines.append(f"pruned before:  {name_window(group['group'], group['pruned_before'])}")
    lines.append(f"lag:            {_lag_text(group)}")
    lines.append(f"headroom:       {_headroom_text(group)}")
    keys = ("topic", "partition", "watermark", "beginning", "end", "lag", "waits", "headroom", "verdict")
    rows = [{**partition, **_lengths(partition), "weight": _weight(partition)} for partition in group["partitions"]]
    parts = ["\n".join(lines), partitions_table(keys, rows, itemgetter("weight"))]
    if group["acts"]:
        acts = ({**act, "windows": _windows_of(act)} for act in group["acts"])
        parts.insert(1, table(("at", "kind", "windows", "who", "why"), acts, kind="what people did"))
    parts += [f"Note: {note}." for note in group["notes"]]
    if group["refused"]:
        parts.append(f"Runs fail: {group['refused']}")
    if group["verdict"] in (GroupVerdict.LOST, GroupVerdict.NEEDS_RERUN):
        parts.append(str(advice(group["group"], group["verdict"], group["needs_rerun"])))
    return "\n\n".join(parts)


def _lag_text(group: Document) -> str:
    reason = _why_unknown(group)
    if not group["lag"] and reason is not None:
        return f"unknown: {reason}"
    if group["lag"] is None:
        return "unknown"
    least = "at least " if reason is not None else ""
    waits = f", the oldest unread record waits for {length(group['lag_seconds'])}" if group["lag_seconds"] else ""
    return f"{least}{counted(group['lag'], 'offset')}{waits}"


def _headroom_text(group: Document) -> str:
    if group["headroom_seconds"] is None:
        if (reason := _why_unknown(group)) is not None:
            return f"unknown: {reason}"
        if group["lag"] == 0:
            return "nothing is unread"
        return "never" if group["headroom_is_unlimited"] else "unknown"
    guess = " (an estimate)" if group["headroom_is_estimate"] else ""
    return f"{length(group['headroom_seconds'])} until retention{guess}; at risk below {length(group['needed_seconds'] or 0)}"


def _why_unknown(group: Document) -> str | None:
    return why_unread_unknown(partition["verdict"] for partition in group["partitions"])


def _windows_of(act: Document) -> str | None:
    details = act["details"]
    if KEPT_FROM in details:
        return f"before {details[KEPT_FROM]:06d}"
    ids = acted_on(details)
    if len(ids) > 1:
        return name_windows(parse_window_id(id_)[1] for id_ in ids)
    return ids[0] if ids else None


def _problem(group: Document) -> str | None:
    """Return what is wrong with a group and what to do, or None if nothing is wrong or known."""
    next_step = advice(group["group"], group["verdict"], group["needs_rerun"])
    return (
        None if next_step is None else f"Group {group['group']} is {group['verdict']}: {group['reason']}. {next_step}"
    )


def watch(args: Namespace) -> Answers:
    """Show all groups, or one of them, once per interval."""
    gc.enable()  # `main` turned it off, for commands that end soon
    args.offline = False
    is_in_place = args.output == "table" and args.is_terminal
    return Answers(
        _looks(args), _frame if is_in_place else _line_by_line, *((_HIDE + _CLEAR, _SHOW) if is_in_place else ("", ""))
    )


def _looks(args: Namespace) -> Iterator[Answer]:
    ledger = open_ledger(args)
    for number in range(args.count or sys.maxsize):
        if number:
            sleep(args.interval)
        try:
            yield look(args, ledger)
        except KafkaOffsetsError as exc:
            # The first look fails as `status` does. Later, whoever watches waits for the ledger to come back.
            if not number or not may_pass(exc):
                raise
            yield Answer({"error": str(exc)}, partial(str, exc), ExitCode.UNAVAILABLE)


def _line_by_line(answer: Answer) -> str:
    return f"{_now()}\n{_answer_text(answer)}\n"


def _frame(answer: Answer) -> str:
    """Return a text that overwrites the one before it, and is no larger than the terminal."""
    size = shutil.get_terminal_size()
    lines = [f"kafka-offsets watch, {_now()}; Ctrl-C ends", "", *_answer_text(answer).splitlines()]
    if len(lines) >= size.lines:
        left_out = answer.left_out(size.lines - 2 - _FRAME_LINES_ABOVE) if answer.left_out else None
        lines = [*lines[: size.lines - 2], left_out or "... and more"]
    return _TOP + "".join(f"{line[: size.columns]}{_REST_OF_LINE}\n" for line in lines) + _REST_OF_SCREEN


def _answer_text(answer: Answer) -> str:
    return answer.text() + (f"\n\n{answer.error}" if answer.error else "")


def _now() -> str:
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S}Z"
