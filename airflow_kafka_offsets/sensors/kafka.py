"""Wait for what Kafka holds. Only offsets are looked at: no consumer group is joined, no record is read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.conditions import (
    TIME_PASSED,
    LagAtMost,
    TimePassed,
    UnreadAtLeast,
    VerdictIn,
    checked_verdicts,
    parse_until,
)
from airflow_kafka_offsets.core.fields import check_attributes
from airflow_kafka_offsets.core.lag.words import GroupVerdict
from airflow_kafka_offsets.sensors.condition import ConditionSensor

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.group import KafkaGroup


class KafkaUnreadSensor(ConditionSensor):
    """Wait until enough is unread, or until something unread is old enough.

    `min_span` and `max_age` correspond to `minOffsetsPerTrigger` and `maxTriggerDelay` of Spark's streams. Unread is what lies between the group's
    watermark and the end offset at its isolation level; for a group without a watermark, all that Kafka holds.

    :param group: the group.
    :param min_span: unread offsets, summed over all partitions.
    :param max_age: how old the oldest unread record may become, by Kafka's timestamps.
    """

    def __init__(
        self, *, group: KafkaGroup, min_span: int | None = None, max_age: timedelta | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.enough = UnreadAtLeast(group, min_span, max_age)

    def condition(self) -> UnreadAtLeast:
        """Return what is waited for."""
        return self.enough


class KafkaTimeSensor(ConditionSensor):
    """Wait until Kafka's time has passed a moment: every partition holds a record of that moment or later.

    :param group: the group whose topics are looked at.
    :param until: the moment, usually ``"{{ data_interval_end }}"``. (templated)
    :param idle_after: do not wait for a partition that had no record for this long. By default, it waits for every partition.
    """

    template_fields: Sequence[str] = ("until",)

    def __init__(
        self, *, group: KafkaGroup, until: datetime | str, idle_after: timedelta | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.group = group
        self.until = until
        self.idle_after = idle_after
        check_attributes(self, TIME_PASSED)

    def condition(self) -> TimePassed:
        """Return what is waited for."""
        return TimePassed(self.group, parse_until(self.until), self.idle_after)


class KafkaVerdictSensor(ConditionSensor):
    """Wait until a group has one of some verdicts: by default, until retention is about to take unread records.

    The result (XCom) has the verdict, its reason in one sentence, lag, headroom and the worst partitions by name.

    :param group: the group.
    :param verdicts: wait for one of these: OK, BEHIND, STALLED, NEEDS RERUN, AT RISK, LOST.
    :param horizon: the group is at risk with less headroom than this. By default: less than a tenth of the retention, or than the
        group's own pace needs.
    """

    def __init__(
        self,
        *,
        group: KafkaGroup,
        verdicts: Sequence[str] = (GroupVerdict.AT_RISK, GroupVerdict.LOST),
        horizon: timedelta | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.verdict = VerdictIn(group, checked_verdicts(verdicts), horizon)

    def condition(self) -> VerdictIn:
        """Return what is waited for."""
        return self.verdict


class KafkaLagSensor(ConditionSensor):
    """Wait until the group's lag is small: the end offsets minus the watermark, summed over all partitions.

    For a group without a watermark, the lag is all that Kafka holds, wherever the group will start.

    :param group: the group.
    :param max_lag: the largest lag, in offsets.
    """

    def __init__(self, *, group: KafkaGroup, max_lag: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.lag = LagAtMost(group, max_lag)

    def condition(self) -> LagAtMost:
        """Return what is waited for."""
        return self.lag
