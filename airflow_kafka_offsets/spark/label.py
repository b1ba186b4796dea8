"""The note that an output holds about the window that wrote it, so that only this window replaces it.

A window's id is unique within its ledger. But a ledger that was lost and created again, a ledger that was restored from an older
copy, and a second environment give the same ids to other offsets. So each output holds a digest of its window's ranges. An
output with another digest is not replaced.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from airflow_kafka_offsets.spark.errors import OtherWindowError
from airflow_kafka_offsets.spark.handoff import Handoff

MAX_RANGES = 100
"""Up to this number of partitions, an output also gets the ranges themselves. The ledger always has them."""

_MAX_SHOWN = 200
"""Characters of ranges that an error shows."""


@dataclass(frozen=True)
class Label:
    """A window, as its outputs name it.

    Attributes:
        window_id, group, seq: which window it is.
        digest: differs if ranges, planned-until time or topic ids differ.
        ranges: as JSON; None means too many.
        is_rerun: whether the window was committed before, according to the ledger.
    """

    window_id: str
    group: str
    seq: int
    digest: str
    ranges: str | None
    is_rerun: bool

    @property
    def note(self) -> dict[str, Any]:
        """The note that is written with the output."""
        note = {"window_id": self.window_id, "group": self.group, "seq": self.seq, "digest": self.digest}
        return note if self.ranges is None else {**note, "ranges": self.ranges}

    def is_of(self, found: Mapping[str, Any]) -> bool:
        """Whether a note is of this window; a digest without topic ids is compared without them."""
        mine, other = self.digest.partition("-"), str(found["digest"]).partition("-")
        return mine[0] == other[0] and (mine[2] == other[2] or not mine[2] or not other[2])

    def refuse_other(self, where: str, found: Mapping[str, Any] | None, remove: str) -> None:
        """Refuse to replace existing output, unless this window wrote it.

        Args:
            where: the place.
            found: the note of that output; None if it has none. Then `is_rerun` decides.
            remove: the command by which a person removes that output.

        Raises:
            OtherWindowError: another window of this id wrote it.
        """
        if found is None or "digest" not in found:
            if self.is_rerun:
                return
            raise OtherWindowError(
                f"{where} has output of a window {self.window_id} without the digest {_shown(self.note)} of "
                f"this one. {self._what_to_do(remove)}"
            )
        if not self.is_of(found):
            raise OtherWindowError(
                f"{where} has the output of another window {self.window_id}: its digest is {_shown(found)}, "
                f"not {_shown(self.note)}. {self._what_to_do(remove)}"
            )

    def _what_to_do(self, remove: str) -> str:
        return f"It was not replaced. If it may be deleted: {remove}; then run the window again. See docs/reference/errors.md#otherwindowerror"


def label_of(handoff: Handoff) -> Label:
    """Make the label of a window."""
    ranges = handoff.ranges
    text = json.dumps(ranges)
    few = sum(map(len, ranges.values())) <= MAX_RANGES
    known = handoff.topic_ids
    topic_ids = None if known is None else {topic: known[topic] for topic in ranges if topic in known}
    return Label(
        window_id=handoff.window_id,
        group=handoff.group,
        seq=handoff.seq,
        digest=digest(text, datetime.fromisoformat(handoff.planned_until), topic_ids),
        ranges=text if few else None,
        is_rerun=handoff.is_rerun,
    )


def digest(ranges: str, until: datetime, topic_ids: Mapping[str, str] | None) -> str:
    """Return a digest that differs between windows of one id. Its second part, if there is one, is of the topic ids.

    The ids differ between two clusters, whose first windows may have the same ranges and planned-until time. That time differs
    after a ledger was created again.
    """
    first = _short(f"{ranges} {until.timestamp()}", 16)
    return first if topic_ids is None else f"{first}-{_short(json.dumps(sorted(topic_ids.items())), 8)}"


def read_note(text: str | None) -> dict[str, Any] | None:
    """Read a note; None if there is none, or the text is someone else's."""
    try:
        note = json.loads(text or "null")
    except ValueError:
        return None
    return note if isinstance(note, dict) else None


def _short(text: str, length: int) -> str:
    return sha256(text.encode()).hexdigest()[:length]


def _shown(note: Mapping[str, Any]) -> str:
    ranges = str(note.get("ranges") or "")
    shown = ranges if len(ranges) <= _MAX_SHOWN else f"{ranges[:_MAX_SHOWN]}..."
    return f"{note['digest']} ({shown})" if shown else str(note["digest"])
