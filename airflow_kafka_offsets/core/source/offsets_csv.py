"""The CSV of ``kafka-consumer-groups --reset-offsets``: what ``--export`` writes and ``--from-file`` reads.

Source: Kafka's ``CsvUtils.java``: no header; ``topic,partition,offset`` for one group, ``group,topic,partition,offset`` for several.
Names of more than 24 characters are in quotes. The offsets are next offsets.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence

from airflow_kafka_offsets.core.errors import BadInputError, name_some, short
from airflow_kafka_offsets.core.offsets import MAX_OFFSET, MAX_PARTITION, Offsets, TopicPartition

EXAMPLE = "orders,0,23"
NUMBER = re.compile(r"[0-9]{1,19}")


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
    rows = [(line, cells, _owner(line, cells)) for line, cells in csv_rows(where, text)]
    groups = {owner for _, _, owner in rows}
    if None in groups and len(groups) > 1:
        raise BadInputError(f"{where} has lines with and without a group")
    if groups == {None} and is_chosen:
        raise BadInputError(f"{where} names no group in its lines: leave --as out")
    if groups and groups.isdisjoint({None, group}):
        names = name_some(sorted(filter(None, groups)), ", ")
        raise BadInputError(f"{where} has no line of group {group}; it has {names}: choose with --as")
    offsets: dict[TopicPartition, int] = {}
    for line, cells, owner in rows:
        if owner not in (None, group):
            continue
        tp, offset = _row(line, cells)
        if tp in offsets:
            raise BadInputError(f"{line}: {tp} is there twice")
        offsets[tp] = offset
    return offsets


def csv_rows(where: str, text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the cells of each line that is not blank, with the file and the line's number for messages.

    Raises:
        BadInputError: the text is not CSV.
    """
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if cells:
                yield f"{where}, line {reader.line_num}", [cell.strip() for cell in cells]
    except csv.Error as exc:
        raise BadInputError(f"{where}, line {reader.line_num}: not CSV ({exc})") from exc


def _owner(line: str, cells: Sequence[str]) -> str | None:
    """Return the group, or None if the line names none."""
    if len(cells) not in (3, 4):
        raise _other_form(line, cells)
    return cells[0] if len(cells) == 4 else None


def _row(line: str, cells: Sequence[str]) -> tuple[TopicPartition, int]:
    """Return the partition and its offset."""
    topic, partition, offset = cells[-3:]
    is_number = NUMBER.fullmatch(partition) and NUMBER.fullmatch(offset)
    if not topic or not is_number or int(partition) > MAX_PARTITION or int(offset) > MAX_OFFSET:
        raise _other_form(line, cells)
    return TopicPartition(topic, int(partition)), int(offset)


def _other_form(line: str, cells: Sequence[str]) -> BadInputError:
    return BadInputError(
        f"{line}: expected [group,]topic,partition,offset, such as {EXAMPLE}; got {short(','.join(cells))}"
    )
