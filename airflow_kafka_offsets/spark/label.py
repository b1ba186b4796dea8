"""The note in an output about its window, so that no other window replaces the output.

A window's id is unique within its ledger. But a ledger that was lost and created again, one restored from an older copy, and a second
environment give the same ids to other offsets. So each output holds a digest of its window's ranges.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from hashlib import sha256
from typing import Any

from airflow_kafka_offsets.spark.errors import OtherWindowError
from airflow_kafka_offsets.spark.handoff import Handoff

logger = logging.getLogger(__name__)

MAX_RANGES = 100
"""Up to this number of partitions, a note also has the ranges. The ledger always has them."""

OTHER_LEDGER = "docs/howto/keep-the-ledger.md#two-environments"
OTHER_WINDOW = "docs/reference/errors.md#otherwindowerror"


@dataclass(frozen=True)
class Label:
    """A window, as its outputs name it.

    Attributes:
        window_id, group, seq: which window it is.
        digest: differs if ranges, `planned_until` or topic ids differ.
        ranges: as JSON, or None if there are too many.
        is_rerun: whether the window was committed before, according to the ledger.
        ledgers: the ids of the ledger, and of those beside whose output it may write; empty if unknown.
    """

    window_id: str
    group: str
    seq: int
    digest: str
    ranges: str | None
    is_rerun: bool
    ledgers: Sequence[str] = ()

    @property
    def note(self) -> dict[str, Any]:
        """The note that is written with the output."""
        note = {"window_id": self.window_id, "group": self.group, "seq": self.seq, "digest": self.digest}
        if self.ledgers:
            note["ledger"] = self.ledgers[0]
        return note if self.ranges is None else {**note, "ranges": self.ranges}

    def is_of(self, note: Mapping[str, Any]) -> bool:
        """Whether a note is of this window; a digest without topic ids is compared without them."""
        (ranges, _, ids), (other_ranges, _, other_ids) = self.digest.partition("-"), str(note["digest"]).partition("-")
        return ranges == other_ranges and (ids == other_ids or not ids or not other_ids)

    def must_mark(self, target: str, ledger: str | None) -> bool:
        """Whether a target has to get this ledger's id, before the first output of the group there.

        Args:
            target: the name of the output.
            ledger: the id of the ledger that wrote the group's output there last, or None if there is none.

        Raises:
            OtherWindowError: another ledger wrote it.
        """
        if ledger is not None and self.ledgers and ledger not in self.ledgers:
            raise OtherWindowError(
                f"{target} has output of group {self.group} from another ledger, {ledger}: two environments write there, or "
                f"the ledger was made again. Keep the output, give this group a name of its own, and see {OTHER_LEDGER}"
            )
        return bool(self.ledgers) and ledger != self.ledgers[0]

    def refuse_other(self, target: str, note: Mapping[str, Any] | None) -> None:
        """Refuse to replace existing output, unless this window wrote it.

        Args:
            target: the name of the output.
            note: of the output, or None if it has none. Then `is_rerun` decides.

        Raises:
            OtherWindowError: another window of this id wrote it.
        """
        notes = [] if note is None or "digest" not in note else [note]
        if not (all(map(self.is_of, notes)) if notes else self.is_rerun):
            raise self.other_window(target, notes)

    def other_window(self, target: str, notes: Sequence[Mapping[str, Any]]) -> OtherWindowError:
        """Return the error about output of another window of this id, which may have notes."""
        logger.debug("%s has %s, and the window is %s", target, [dict(note) for note in notes], self.note)
        return OtherWindowError(
            f"{target} has output {'of another' if notes else 'without a digest under the id of'} window {self.window_id}: "
            "the ledger was restored from an older copy or made again, or two ledgers write there. Keep the output, which "
            f"may hold records that no window will write again, and see {OTHER_WINDOW}"
        )


def label_of(handoff: Handoff) -> Label:
    """Make the label of a window."""
    ranges = handoff.ranges
    text = json.dumps(ranges)
    few = sum(map(len, ranges.values())) <= MAX_RANGES
    ids = handoff.topic_ids
    topic_ids = None if ids is None else {topic: ids[topic] for topic in ranges if topic in ids}
    return Label(
        window_id=handoff.window_id,
        group=handoff.group,
        seq=handoff.seq,
        digest=digest(text, datetime.fromisoformat(handoff.planned_until), topic_ids),
        ranges=text if few else None,
        is_rerun=handoff.is_rerun,
        ledgers=handoff.ledgers or (),
    )


def digest(ranges: str, until: datetime, topic_ids: Mapping[str, str] | None) -> str:
    """Return a digest that differs between windows of one id. A second part is the digest of the topic ids.

    The topic ids differ between two clusters, the time after a ledger was created again.
    """
    first = _short(f"{ranges} {until.timestamp()}", 16)
    return first if topic_ids is None else f"{first}-{_short(json.dumps(sorted(topic_ids.items())), 8)}"


def read_note(text: str | None) -> dict[str, Any] | None:
    """Return a note, or None if the text is not one of ours."""
    try:
        note = json.loads(text or "null")
    except ValueError:
        return None
    return note if isinstance(note, dict) else None


def _short(text: str, length: int) -> str:
    return sha256(text.encode()).hexdigest()[:length]
