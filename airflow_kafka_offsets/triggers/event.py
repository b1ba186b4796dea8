"""Run a DAG when enough has arrived in Kafka, or when the verdict on a group changes: triggers for an AssetWatcher."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_kafka_offsets.core.conditions import (
    Arrived,
    Event,
    UnreadAtLeast,
    VerdictIn,
    checked_verdicts,
    condition_from_json,
    condition_to_json,
)
from airflow_kafka_offsets.core.errors import KafkaOffsetsError, may_pass
from airflow_kafka_offsets.core.fields import POLL_INTERVAL, check_fields
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.words import GroupVerdict


class KafkaOffsetsTrigger(BaseEventTrigger):
    """Fires each time that enough has arrived in a group's topics, or that something unread is old enough.

    It looks at offsets only: it joins no consumer group and reads no record. After it has fired, the same records do not count
    again until a run has planned, or 15 minutes have passed without one. If the triggerer restarts in between, it may fire once
    more, and that run finds less, or nothing. It also fires for an error that keeps a run from planning (records are gone, a login
    is refused), because people notice only a run that fails: once until it is mended, and again if it comes back.

    :param group: the group.
    :param min_span: offsets that no window owns yet, summed over all partitions.
    :param max_age: how old the oldest of them may become, by Kafka's timestamps.
    :param poll_interval: seconds between two looks, at least 5.
    """

    def __init__(
        self,
        *,
        group: KafkaGroup | Mapping[str, Any],
        min_span: int | None = None,
        max_age: timedelta | None = None,
        poll_interval: float = 60,
    ) -> None:
        super().__init__()
        if isinstance(group, Mapping):  # from `serialize`
            stored = {"kind": UnreadAtLeast.__name__, "group": group, "min_span": min_span, "max_age": max_age}
            enough = condition_from_json(stored)
            assert isinstance(enough, UnreadAtLeast)
            self.enough = enough
        else:
            check_fields({"poll_interval": poll_interval}, {"poll_interval": POLL_INTERVAL})
            self.enough = UnreadAtLeast(group, min_span, max_age)
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the triggerer needs to make this trigger again: names of connections, no secret."""
        enough = {name: value for name, value in condition_to_json(self.enough).items() if name != "kind"}
        return f"{type(self).__module__}.{type(self).__qualname__}", {**enough, "poll_interval": self.poll_interval}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Wait, fire, and count from there."""
        from airflow_kafka_offsets.triggers.polling import answered

        last: Event | None = None
        reported: type[KafkaOffsetsError] | None = None
        while True:
            try:
                # After an error, any answer will do: it ends the incident, so the same error fires again if it comes back.
                answer = await answered(Arrived(self.enough, last), self.poll_interval, met_or_not=reported is not None)
            except KafkaOffsetsError as exc:
                self.log.warning("Group %s: %s", self.enough.group.name, exc)
                if not may_pass(exc) and type(exc) is not reported:
                    reported = type(exc)
                    yield self._event({"error": str(exc)})
                continue
            reported = None
            if answer.is_met:
                last = answer.event
                yield self._event(answer.facts)

    def _event(self, facts: Mapping[str, Any]) -> TriggerEvent:
        return TriggerEvent({"group": self.enough.group.name, "time": datetime.now(UTC).isoformat(), **facts})


class KafkaVerdictTrigger(BaseEventTrigger):
    """Fires each time that the verdict on a group changes, for a DAG that notifies people.

    The first look fires only if the verdict is not OK. So if the triggerer restarts meanwhile, it may fire once more for a verdict that
    was reported before. An error that does not pass (a login is refused) fires, too: once until it is mended, and again if it comes back.

    The event has ``verdict``, ``before`` (null: the first look), ``reason`` in one sentence, lag, headroom and the worst partitions.

    :param group: the group.
    :param verdicts: those that count: any other counts as OK, also in the event. By default, all count. ``["OK"]`` alone fires each
        time that the group is OK again.
    :param horizon: the group is at risk with less headroom than this. By default: less than a tenth of the retention, or than the
        group's own pace needs.
    :param poll_interval: seconds between two looks, at least 5.
    """

    def __init__(
        self,
        *,
        group: KafkaGroup | Mapping[str, Any],
        verdicts: Sequence[str] = tuple(GroupVerdict),
        horizon: timedelta | None = None,
        poll_interval: float = 300,
    ) -> None:
        super().__init__()
        if isinstance(group, Mapping):  # from `serialize`
            stored = {"kind": VerdictIn.__name__, "group": group, "verdicts": verdicts, "horizon": horizon}
            wanted = condition_from_json(stored)
            assert isinstance(wanted, VerdictIn)
            self.wanted = wanted
        else:
            check_fields({"poll_interval": poll_interval}, {"poll_interval": POLL_INTERVAL})
            self.wanted = VerdictIn(group, checked_verdicts(verdicts), horizon)
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return what the triggerer needs to make this trigger again: names of connections, no secret."""
        wanted = {name: value for name, value in condition_to_json(self.wanted).items() if name != "kind"}
        return f"{type(self).__module__}.{type(self).__qualname__}", {**wanted, "poll_interval": self.poll_interval}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look, and fire for each change."""
        from airflow_kafka_offsets.triggers.polling import answered

        group, horizon = self.wanted.group, self.wanted.horizon
        last: str | None = None
        reported: type[KafkaOffsetsError] | None = None
        while True:
            change = VerdictIn(group, self._others(last), horizon)
            try:
                # After an error, any answer will do, as in the other trigger.
                answer = await answered(change, self.poll_interval, met_or_not=reported is not None)
            except KafkaOffsetsError as exc:
                self.log.warning("Group %s: %s", group.name, exc)
                if not may_pass(exc) and type(exc) is not reported:
                    reported = type(exc)
                    yield self._event({"error": str(exc)}, last)
                continue
            reported = None
            if not answer.is_met:
                continue
            before, last = last, self._counted(answer.facts["verdict"])
            if self._is_reported(before, last):
                yield self._event({**answer.facts, "verdict": last}, before)

    def _others(self, last: str | None) -> tuple[GroupVerdict, ...]:
        """Return the verdicts that would be a change."""
        return tuple(verdict for verdict in GroupVerdict if self._counted(verdict) != last)

    @property
    def _is_only_ok(self) -> bool:
        return set(self.wanted.verdicts) == {GroupVerdict.OK}

    def _counted(self, verdict: str) -> str:
        return str(verdict) if self._is_only_ok or verdict in self.wanted.verdicts else GroupVerdict.OK.value

    def _is_reported(self, before: str | None, verdict: str) -> bool:
        if self._is_only_ok:
            return before is not None and verdict == GroupVerdict.OK
        return before is not None or verdict != GroupVerdict.OK

    def _event(self, facts: Mapping[str, Any], before: str | None) -> TriggerEvent:
        at = datetime.now(UTC).isoformat()
        return TriggerEvent({"group": self.wanted.group.name, "time": at, "before": before, **facts})
