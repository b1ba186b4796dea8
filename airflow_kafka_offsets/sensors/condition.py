"""What all our sensors do: look once, then leave the waiting to the triggerer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.sdk import BaseSensorOperator
from airflow.sdk.bases.sensor import PokeReturnValue

from airflow_kafka_offsets.core import errors
from airflow_kafka_offsets.core.conditions import Condition, LedgerCondition, condition_to_json, ledger_conn_id
from airflow_kafka_offsets.core.errors import KafkaOffsetsError, may_pass
from airflow_kafka_offsets.core.fields import FLAG, check_attributes

if TYPE_CHECKING:
    from airflow.sdk import Context

    from airflow_kafka_offsets.core.plan.waiting import Decision


class ConditionSensor(BaseSensorOperator):
    """Wait for a condition.

    If Kafka or the ledger does not answer, it is asked again until the time-out. If a login is refused, a topic is missing or
    records are gone, the task fails at once, because waiting does not help.

    :param deferrable: wait in the triggerer, so that the wait takes no worker slot. Unlike with Airflow's own sensors, this
        is the default.
    :param kwargs: those of Airflow's sensors. While deferred, `timeout` or a shorter `execution_timeout` ends the waiting, and
        `poke_interval` is at least 5 s.
    """

    ui_color = "#d5e8f0"

    def __init__(self, *, deferrable: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.deferrable = deferrable
        check_attributes(self, {"deferrable": FLAG})

    def condition(self) -> Condition:
        """Return what is waited for, after templates were rendered."""
        raise NotImplementedError

    def execute(self, context: Context) -> Any:
        """Look, and wait if the condition is not met yet."""
        if not self.deferrable:
            return super().execute(context)
        # A trigger that fires at once can fail its task (a race in Airflow 3.3). So look here first, and there later.
        try:
            result = self.poke(context)
        except KafkaOffsetsError as exc:
            result = PokeReturnValue(self._survive(exc))
        return result.xcom_value if result else self._defer()

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""
        try:
            answer = self._look()
        except KafkaOffsetsError as exc:
            if not may_pass(exc):
                raise
            self.log.warning("Still waiting: %s", exc)
            return PokeReturnValue(False)
        self.log.info("%s: %s", "There" if answer.is_met else "Waiting", dict(answer.facts))
        return PokeReturnValue(answer.is_met, dict(answer.facts))

    def _look(self) -> Decision:
        from airflow_kafka_offsets import wiring
        from airflow_kafka_offsets.service import freshness
        from airflow_kafka_offsets.wiring import absent

        condition = self.condition()
        open_ledger = partial(absent.open_ledger_to_look, ledger_conn_id(condition))
        open_log = None if isinstance(condition, LedgerCondition) else partial(wiring.open_log, condition.group)
        (answer,) = freshness.ask([condition], open_ledger, open_log)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _defer(self) -> NoReturn:
        from airflow_kafka_offsets.triggers.conditions import ConditionTrigger

        seconds = self.timeout
        if self.execution_timeout:
            seconds = min(seconds, self.execution_timeout.total_seconds())
        trigger = ConditionTrigger(
            condition=condition_to_json(self.condition()),
            poll_interval=self.poke_interval,
            silent_fail=self.silent_fail,
        )
        self.defer(trigger=trigger, method_name="resume", timeout=timedelta(seconds=seconds))

    def resume(self, context: Context, event: Mapping[str, Any]) -> Any:
        """Return the facts from the triggerer, or fail with the error that ended its wait."""
        if "error" not in event:
            return event["seen"]
        error = errors.rebuilt(event["error"], event["message"])
        self._survive(error)
        raise error

    def _survive(self, error: KafkaOffsetsError) -> bool:
        """Return False (not met yet) if the user set `silent_fail`; else fail or skip."""
        if self.silent_fail:
            self.log.error("Still waiting: %s", error)
            return False
        if self.never_fail:
            from airflow_kafka_offsets.airflow_versions import AirflowSkipException

            raise AirflowSkipException(f"Skipped (never_fail): {error}") from error
        raise error
