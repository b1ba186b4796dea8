"""Every error of this package, grouped by what the reader should do next: docs/reference/errors.md has a paragraph on each.

An adapter translates its client's exceptions into these, always ``from exc``.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from shlex import quote
from typing import TYPE_CHECKING, ClassVar, Self

# Jobs use these, too, and do not have core.
from airflow_kafka_offsets.spark.shared import MAX_NAMED as MAX_NAMED
from airflow_kafka_offsets.spark.shared import MAX_VALUE as MAX_VALUE
from airflow_kafka_offsets.spark.shared import counted as counted
from airflow_kafka_offsets.spark.shared import error_in_short as error_in_short
from airflow_kafka_offsets.spark.shared import short as short

if TYPE_CHECKING:
    from airflow_kafka_offsets.core.offsets import TopicPartition

MAX_MESSAGE = 10_000
"""Characters of a message, whatever names and values it is about."""


def name_some(items: Collection[object], separator: str = "; ") -> str:
    """Join the first few items and count the others, so that 20,000 partitions stay one readable sentence."""
    rest = len(items) - MAX_NAMED
    named = separator.join(map(str, islice(items, MAX_NAMED)))
    return f"{named}{separator}and {rest} more" if rest > 0 else named


def cut(message: str) -> str:
    """Cut the middle out of a message that is too long to be read. Its end names what to do."""
    if len(message) <= MAX_MESSAGE:
        return message
    return f"{message[: MAX_MESSAGE // 2]} [...] {message[-MAX_MESSAGE // 3 :]}"


def publish_again(group: str, store: str) -> str:
    """Return the command that brings an offset store to the ledger's watermark, on a line of its own."""
    return f"\n    kafka-offsets copy {group} --from ledger --to '{store}' --why '...'"


def verify_command(group: str, store: str) -> str:
    """Return the command that compares an offset store with the ledger, on a line of its own."""
    return f"\n    kafka-offsets verify {group} --store '{store}'"


def import_command(group: str, store: str, topics: Sequence[str], conn_id: str) -> str:
    """Return the command that continues a group under another name from its offset store, on a line of its own.

    >>> import_command("lake_2", "kafka://", ["orders"], "kafka_default").split(" --")[0].strip()
    'kafka-offsets import lake_3'
    """
    name, _, number = group.rpartition("_")
    new = f"{name}_{int(number) + 1}" if name and number.isdecimal() else f"{group}_2"
    named = "".join(f" --topic {quote(topic)}" for topic in topics)
    kafka = "" if conn_id == "kafka_default" else f" --kafka-conn-id {quote(conn_id)}"
    return f"\n    kafka-offsets import {new} --from '{store}' --as {group}{named}{kafka} --why '...'"


def abandon_command(window_id: str) -> str:
    """Return the command that abandons a window, on a line of its own."""
    return f"\n    kafka-offsets abandon {window_id} --why '...'"


class KafkaOffsetsError(Exception):
    """Anything that this package raises on purpose.

    Attributes:
        may_pass: whether waiting may help: Kafka, the ledger's database or an offset store did not answer. A refusal does
            not count.
    """

    may_pass: ClassVar[bool] = False

    def __init__(self, message: str = "") -> None:
        super().__init__(cut(message))


def rebuilt(kind: str, message: str) -> KafkaOffsetsError:
    """Return an error from the name of its class and its message, as a trigger reports it."""
    error: KafkaOffsetsError = globals()[kind].__new__(globals()[kind])
    KafkaOffsetsError.__init__(error, message)
    return error


def may_pass(error: BaseException) -> bool:
    """Whether waiting may help. For an error of another package the answer is no."""
    return isinstance(error, KafkaOffsetsError) and error.may_pass


def mends_itself(error: BaseException) -> bool:
    """Whether another try may succeed although no one corrects anything: an outage, or something that is not there yet."""
    not_yet = isinstance(error, NotYetError) and not isinstance(error, NoConnectionError)
    return (
        not_yet
        or may_pass(error)
        or isinstance(error, WindowBusyError | ConcurrentChangeError | ClusterUnavailableError)
    )


class BadInputError(KafkaOffsetsError, ValueError):
    """What the user wrote can't be used; nothing was changed."""


class NotYetError(BadInputError):
    """The thing asked for is not there, but may be later; nothing was changed."""


class NoConnectionError(NotYetError):
    """Airflow has no connection of this id, or a secrets backend did not answer.

    Attributes:
        conn_id: the id.
        example: such a connection, as JSON.
    """

    def __init__(self, conn_id: str, example: str, conn_ids: Sequence[str] = ()) -> None:
        super().__init__(
            f"Airflow has no connection {conn_id!r}{did_you_mean(conn_id, conn_ids)}. Create it, for example:\n"
            f"    airflow connections add {quote(conn_id)} --conn-json '{example}'"
        )
        self.conn_id = conn_id
        self.example = example

    def with_suggestion(self, conn_ids: Sequence[str]) -> NoConnectionError:
        """Return the same error, with a suggestion from the connections that Airflow has."""
        return NoConnectionError(self.conn_id, self.example, conn_ids)


class OffsetsJsonError(BadInputError):
    """A text is not Spark's JSON of offsets."""


class CollidingOptionError(BadInputError):
    """An option of the user would override what the window fixes."""


class UnknownGroupError(BadInputError):
    """The ledger has no such group."""


class UnknownWindowError(BadInputError):
    """The ledger has no such window."""


class PrunedWindowError(UnknownWindowError):
    """The window was pruned after Kafka no longer held its offsets, so no run can read it again."""


def did_you_mean(name: str, names: Sequence[str]) -> str:
    """Return the one of these names that may be meant, as words in brackets after a space, or empty if none is near.

    >>> did_you_mean("lake.ordres", ["lake.clicks", "lake.orders"]), did_you_mean("x", ["lake.orders"])
    (' (did you mean lake.orders?)', '')
    """
    from difflib import get_close_matches

    # Groups of one lake begin with the same letters, so the usual likeness would find some for any name.
    folded = {name.casefold(): name for name in names}
    near = get_close_matches(name.casefold(), folded, n=1, cutoff=0.8)
    return f" (did you mean {folded[near[0]]}?)" if near else ""


def no_window(window_id: str, group: str) -> UnknownWindowError:
    """Return the error for a window that the ledger does not have."""
    return UnknownWindowError(
        f"The ledger has no window {window_id}. List those that it has:\n    kafka-offsets windows {group}"
    )


def no_group(name: str, groups: Sequence[str]) -> UnknownGroupError:
    """Return the error for a group that the ledger does not have.

    >>> print(no_group("lake.ordres", ["lake.clicks", "lake.orders"]))
    The ledger has no group lake.ordres (did you mean lake.orders?); it has lake.clicks, lake.orders
    """
    has = name_some(groups, ", ") or "none yet"
    return UnknownGroupError(f"The ledger has no group {name}{did_you_mean(name, groups)}; it has {has}")


class ForeignGroupError(BadInputError):
    """The group belongs to another DAG or task, which alone gets its live windows."""


class UnreadTopicError(BadInputError):
    """A window has records of a topic that the group's definition does not read."""


class LogError(KafkaOffsetsError):
    """Kafka does not hold what the plan needs.

    Attributes:
        partitions: the partitions concerned, each with the sentence about its problem.
    """

    def __init__(self, message: str, partitions: Mapping[TopicPartition, str] | None = None) -> None:
        super().__init__(message)
        self.partitions: dict[TopicPartition, str] = dict(partitions or {})

    @classmethod
    def naming(cls, partitions: Mapping[TopicPartition, str], hint: str) -> Self:
        """Return the error about these partitions, with what to do at its end."""
        return cls(f"{name_some(partitions.values())}. {hint}", partitions)


class DataLossError(LogError):
    """Records were gone before they were read."""


class AtRiskError(LogError):
    """Retention may remove records before a window has read them, and the group plans no such window."""


class LogTruncatedError(DataLossError):
    """The log ends before the watermark; or it did once, and other records have these offsets now."""


class TopicRecreatedError(LogError):
    """The topic was deleted and made again: the recorded offsets are those of another log."""


class MissingPartitionError(LogError):
    """A topic or partition that the group reads is not there."""


class KafkaAnswerError(KafkaOffsetsError):
    """Kafka gave no useful answer. Raise one of its subclasses.

    Attributes:
        topics: the topics without an answer, if only some have none.
    """

    topics: Collection[str] = ()

    def __init__(self, message: str = "", *, topics: Collection[str] = ()) -> None:
        super().__init__(message)
        self.topics = frozenset(topics)


class KafkaUnavailableError(KafkaAnswerError):
    """Kafka did not answer, or not for every partition; trying again may help."""

    may_pass = True


class KafkaRefusedError(KafkaAnswerError):
    """Kafka refused: login, TLS or authorization. Trying again does not help until that is corrected."""


class KafkaLacksError(KafkaAnswerError):
    """Kafka does not support a kind of request: it is old, or of another maker."""


class LedgerError(KafkaOffsetsError):
    """The ledger can't be used."""


class LedgerUnavailableError(LedgerError):
    """The ledger's database did not answer; what was under way may or may not be written."""

    may_pass = True


class DamagedRowError(LedgerError):
    """A row of one group is in a form that this package never writes."""


class LedgerSchemaError(LedgerError):
    """The ledger's tables are missing or of another version of this package."""


class NoLedgerError(LedgerSchemaError):
    """The ledger's database has no ledger yet.

    Attributes:
        where: the database, without a password.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(message)
        self.where = where


class StoreError(KafkaOffsetsError):
    """An offset store can't be used."""


class StoreAnswerError(StoreError):
    """The offset store gave no useful answer. Raise one of its subclasses."""


class StoreUnavailableError(StoreAnswerError):
    """The offset store did not answer; nothing was written."""

    may_pass = True


OUTCOME_OPEN = ". The outcome is open: a retry shows it"
"""The end of the message of a `StoreOutcomeUnknownError`."""


class StoreOutcomeUnknownError(StoreAnswerError):
    """The offset store stopped answering during a write, or someone else wrote at that moment. A retry shows which."""

    may_pass = True


class StoreRefusedError(StoreAnswerError):
    """The offset store refused: login, rights, read-only, full. Trying again does not help until that is corrected."""


class StoreDriftError(StoreError):
    """Someone else moved the offsets of a store; nothing was written.

    Attributes:
        store: the address of the store.
        group: the group whose offsets were moved.
        partitions: before (None if the group had no offset there), after, and what was found, in next offsets.

    Args:
        advice: what to do, if the ledger is older than the store.
    """

    def __init__(
        self,
        store: str,
        group: str,
        partitions: Mapping[TopicPartition, tuple[int | None, int, int]],
        advice: str = "",
    ) -> None:
        named = [
            f"{tp}: found {found}, expected {_either(before, after)}"
            for tp, (before, after, found) in sorted(partitions.items())
        ]
        super().__init__(
            f"{store} holds other offsets of group {group} than the last commit left: {name_some(named)}. "
            + (
                advice
                or f"Compare, and if the ledger is right, copy its offsets:{verify_command(group, store)}{publish_again(group, store)}"
            )
        )
        self.store = store
        self.group = group
        self.partitions = dict(partitions)


def _either(before: int | None, after: int) -> str:
    if before is None:
        return f"nothing or {after}"
    return str(after) if before == after else f"{before} (the old offset) or {after} (the new one)"


class StoreBehindError(StoreError):
    """A person moved the watermark in the ledger, and the offset store did not follow."""

    def __init__(self, store: str, group: str, cause: Exception) -> None:
        # A drift names the same command. Other causes may end in one of their own, so this begins a line.
        then = "" if isinstance(cause, StoreDriftError) else f"\nBefore the next run:{publish_again(group, store)}"
        super().__init__(f"The watermark of group {group} moved, and {store} did not follow: {cause}{then}")
        self.store = store
        self.group = group


class StoreLimitError(StoreError):
    """An offset store can't take that many partitions at once; nothing was written."""


class StoreContentError(StoreError):
    """What an offset store holds under our names is not an offset."""


class RegistryError(KafkaOffsetsError):
    """The schema registry gave no useful answer. Raise one of its subclasses."""


class RegistryUnavailableError(RegistryError):
    """The schema registry did not answer; trying again may help."""

    may_pass = True


class RegistryRefusedError(RegistryError):
    """The schema registry refused, or what answers is no registry."""


class ExchangeError(KafkaOffsetsError):
    """The folder in which the plan task, the job and the commit task exchange files can't be read or written."""


class OutputError(KafkaOffsetsError):
    """What the job staged can't be published; nothing was committed."""


class WindowError(KafkaOffsetsError):
    """A window is not in a state that allows this; nothing was changed."""


class WindowBusyError(WindowError):
    """Another run works on the window.

    Attributes:
        window_id: the window.
        holder: the claim that works on it; as text ``dag_id/run_id/task_id``.
        is_rerun: whether the window is committed, and only its rerun has to wait.
        others: other windows that the run could take instead.
        crossed: a window of the asking run that the other run needs, too, if that one goes first; or None. Then both would wait for ever.
    """

    def __init__(
        self,
        window_id: str,
        holder: object,
        *,
        is_rerun: bool = False,
        others: Sequence[str] = (),
        crossed: str | None = None,
    ) -> None:
        way_out = f"; to abandon the window instead, first stop that run's job:{abandon_command(window_id)}"
        wait = f"Window {window_id} is being worked on by {holder}. Wait until that run is over"
        cross = f"The run of {holder} and this one need each other's windows {window_id} and {crossed}. Clear this task when that run is over"
        super().__init__(cross if crossed else wait + ("" if is_rerun else way_out))
        self.window_id = window_id
        self.holder = holder
        self.is_rerun = is_rerun
        self.others = tuple(others)
        self.crossed = crossed


class IllegalStepError(WindowError):
    """The window's state does not allow this step."""


class NoEvidenceError(WindowError):
    """No one recorded that the window's job succeeded."""


class NoReportError(NoEvidenceError):
    """The job of another launcher did not report that it read the whole window."""


class ConfirmationError(WindowError):
    """The step takes ownership of offsets away and was not confirmed."""


class ConnectorUnavailableError(KafkaOffsetsError):
    """The jars of Spark's Kafka connector are not on this machine, and could not be fetched; nothing was planned."""


class ConcurrentChangeError(KafkaOffsetsError):
    """Someone else changed the group at the same moment; nothing was written."""


class ClusterError(KafkaOffsetsError):
    """The Spark cluster can't be used; nothing was launched."""


class ClusterUnavailableError(ClusterError):
    """The Spark cluster did not answer."""


class JobAliveError(ClusterError):
    """An earlier job of the window still runs, or may run."""


class JobUnseenError(JobAliveError):
    """An earlier job of the window still runs, and no later try can see it: Airflow must not try again."""


class StartArchiveError(KafkaOffsetsError):
    """A start archive can't be made; launches work without one."""
