"""The CSV of ``kafka-consumer-groups --reset-offsets``: what ``--export`` writes and ``--from-file`` reads.

Source: Kafka's ``CsvUtils.java``: no header; ``topic,partition,offset`` for one group, ``group,topic,partition,offset`` for several.
Names of more than 24 characters are in quotes. The offsets are next offsets.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator

from airflow_kafka_offsets.core.errors import BadInputError, name_some, short
from airflow_kafka_offsets.core.offsets import MAX_OFFSET, MAX_PARTITION, Offsets, TopicPartition

EXAMPLE = "orders,0,23"
_NUMBER = re.compile(r"[0-9]{1,19}")


def dump_csv(offsets: Offsets) -> str:
    """Write offsets, sorted: equal offsets give equal bytes.

    >>> print(dump_csv({TopicPartition("orders", 10): 7, TopicPartition("orders", 2): 5}), end="")
    orders,2,5
    orders,10,7
    """
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows((tp.topic, tp.partition, offsets[tp]) for tp in sorted(offsets))
    return text.getvalue()


def load_csv(where: str, text: str, group: str, *, is_chosen: bool = False) -> dict[TopicPartition, int]:
    """Read the offsets of one group.

    Args:
        where: the file, for messages.
        text: what it holds.
        group: read only this group's lines, if the lines name groups.
        is_chosen: whether a person chose that group by name; then the lines must name groups.

    Raises:
        BadInputError: a line has another form, a partition is there twice, or the group has no line.
    """
    rows = list(_rows(where, text))
    widths = {len(row) for _, row in rows}
    if len(widths) > 1:
        raise BadInputError(f"{where} has lines with a group and lines without: write all lines in one form")
    if widths == {3} and is_chosen:
        raise BadInputError(f"{where} names no group in its lines ({EXAMPLE}): leave --as out")
    if widths == {4}:
        groups = sorted({row[0] for _, row in rows})
        if group not in groups:
            raise BadInputError(
                f"{where} has no line of group {group}; it has {name_some(groups, ', ')}: choose with --as"
            )
    offsets: dict[TopicPartition, int] = {}
    for number, row in rows:
        if len(row) == 4 and row[0] != group:
            continue
        tp, offset = _offset(f"{where}, line {number}", row[-3:])
        if tp in offsets:
            raise BadInputError(f"{where}, line {number}: {tp} is there twice")
        offsets[tp] = offset
    return offsets


def _rows(where: str, text: str) -> Iterator[tuple[int, list[str]]]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for row in reader:
            if not row:
                continue
            if len(row) not in (3, 4):
                raise BadInputError(
                    f"{where}, line {reader.line_num}: expected topic,partition,offset or group,topic,partition,offset, such "
                    f"as {EXAMPLE}; got {name_some([short(cell) for cell in row], ', ')}"
                )
            yield reader.line_num, row
    except csv.Error as exc:
        raise BadInputError(f"{where}, line {reader.line_num}: not CSV ({exc})") from exc


def _offset(where: str, row: list[str]) -> tuple[TopicPartition, int]:
    topic, partition, offset = (cell.strip() for cell in row)
    is_number = _NUMBER.fullmatch(partition) and _NUMBER.fullmatch(offset)
    if not topic or not is_number or int(partition) > MAX_PARTITION or int(offset) > MAX_OFFSET:
        raise BadInputError(f"{where}: expected topic,partition,offset, such as {EXAMPLE}; got {short(','.join(row))}")
    return TopicPartition(topic, int(partition)), int(offset)
