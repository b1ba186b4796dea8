"""Sessions on a Spark Connect server: one for each attempt, with an id that the next attempt can compute.

If a client dies, the server continues its operations. With the session's id, the next attempt can stop them and close the session,
so that a client which is still alive somewhere can start nothing more in it.
"""

from __future__ import annotations

import logging
import os
import re
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.providers.apache.spark.hooks.spark_connect import SparkConnectHook

from airflow_kafka_offsets.airflow_versions import NO_TASK_STATE
from airflow_kafka_offsets.core.errors import ClusterUnavailableError, JobAliveError, JobUnseenError
from airflow_kafka_offsets.core.window import Outcome, no_evidence
from airflow_kafka_offsets.launch.twins import PATIENCE, STOPPING, overdue

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Connection

    from airflow_kafka_offsets.core.history import Attempt
    from airflow_kafka_offsets.core.window import Claim

MAX_ENDED = 10
"""How many earlier attempts' sessions are ended. Each costs a call, and older ones have ended by themselves."""

_ANSWER = 60.0
"""Seconds to wait for the server to answer, or to restart."""

# The server drops answers that its client has received. A later client must start after them, one by one.
_PASSED = re.compile(r"INVALID_CURSOR\.POSITION_NOT_AVAILABLE\].* position id (\S+) ")

_IS_FOLLOWED = "INVALID_CURSOR"
"""The server's error for one of two clients that follow the same operation."""

_IS_CLOSED = "SESSION_CLOSED"

_PROGRESS = "spark.connect.progress.reportInterval"
"""How often the server reports to a follower of an operation that it is still running."""

SILENCE = 15.0
"""Seconds of silence. In this time, a running operation reports its progress many times."""

logger = logging.getLogger(__name__)


def remote_url(connection: Connection | None, conf: Mapping[str, Any]) -> str | None:
    """Return the address of the Spark Connect server, as `PySparkOperator` finds it, or None if the task has its own Spark.

    Args:
        connection: the task's.
        conf: Spark's settings, which override the connection.
    """
    if conf.get("spark.remote") or connection is None:
        return conf.get("spark.remote")
    if connection.conn_type == SparkConnectHook.conn_type:
        return SparkConnectHook(connection.conn_id).get_connection_url()
    host = f"{connection.host}:{connection.port}" if connection.port else connection.host
    is_remote = bool(host) and str(host).startswith("sc://")
    return str(host) if is_remote else connection.extra_dejson.get("spark.remote")


def token_in_url(connection: Connection | None) -> str | None:
    """Return the token as the address contains it. Airflow does not mask it in that form."""
    return quote(connection.password) if connection is not None and connection.password else None


def session_url(url: str, attempt: Attempt) -> str | None:
    """Return the address of an attempt's own session, or None if the user named a session, which may be shared.

    >>> from datetime import UTC, datetime
    >>> from airflow_kafka_offsets.core.window import Claim
    >>> from airflow_kafka_offsets.core.history import Attempt
    >>> attempt = Attempt(1, "orders-000001", Claim("d", "r", "t"), 1, Outcome.RUNNING, None, datetime(2026, 1, 1, tzinfo=UTC), None, "0")
    >>> session_url("sc://spark:15002/;user_id=me", attempt)
    'sc://spark:15002/;user_id=me;session_id=967f6701-5fc2-4ccd-9f82-14258b2840fa'
    """
    address, _, given = url.partition(";")
    parameters = given.split(";") if given else []
    names = {parameter.partition("=")[0] for parameter in parameters}
    if "session_id" in names:
        return None
    user = os.environ.get("SPARK_USER", os.environ.get("USER"))  # as pyspark chooses it; a session belongs to a user
    if user and "user_id" not in names:
        parameters.append(f"user_id={quote(user, safe='')}")
    return f"{address.rstrip('/')}/;{';'.join([*parameters, f'session_id={_session_id(attempt)}'])}"


def _session_id(attempt: Attempt) -> str:
    # With the time, because attempts are numbered from 1 in each ledger, and several Airflows may share a server and its user.
    name = f"{attempt.window_id} {attempt.id} {attempt.started_at.isoformat()}"
    return str(uuid.UUID(bytes=sha256(name.encode()).digest()[:16], version=4))


def own_and_earlier(attempts: Sequence[Attempt], claim: Claim, try_number: int) -> tuple[Attempt, list[Attempt]]:
    """Return the attempt that a task has just begun, and earlier attempts whose sessions may still work.

    Args:
        attempts: at one window, oldest first.
        claim: the task.
        try_number: the task's. It keeps a worker that was frozen from taking the session of the next try.

    Raises:
        NoEvidenceError: a later attempt has begun since, so this one must no longer work.
    """
    own = next(a for a in reversed(attempts) if (a.claim, a.try_number) == (claim, try_number))
    if own.outcome is not Outcome.RUNNING:
        raise no_evidence(own.window_id, Outcome.LOST)
    unfinished = [a for a in attempts if a.id < own.id and a.outcome is not Outcome.SUCCEEDED]
    return own, unfinished[-MAX_ENDED:]


def end_sessions(url: str, attempts: Sequence[Attempt], store: Any = None) -> None:
    """End the sessions of earlier attempts, which may have died while the server was still working for them.

    Args:
        url: the server's.
        attempts: the earlier attempts.
        store: Airflow's state store of the task, which its tries share, or None on an Airflow that has none.

    Raises:
        JobAliveError: an operation of a session does not end in time; nothing was started.
        JobUnseenError: it may not have ended, and no store would show it to the next try.
        ClusterUnavailableError: the server did not answer.
    """
    import grpc

    for attempt in attempts:
        named = session_url(url, attempt)
        if named is None:
            return
        try:
            _end_session(named, attempt, store)
        except grpc.RpcError as exc:
            if _IS_CLOSED not in str(exc.details()):
                raise ClusterUnavailableError(
                    f"Window {attempt.window_id}: the Spark Connect server did not answer about {_try_of(attempt)} "
                    f"({exc.code().name}: {exc.details()}). Nothing was started; the next try asks again"
                ) from exc


def _end_session(url: str, attempt: Attempt, store: Any) -> None:
    from pyspark.sql.connect import proto
    from pyspark.sql.connect.client import DefaultChannelBuilder

    builder = DefaultChannelBuilder(url)
    session = {"session_id": builder.session_id, "user_context": proto.UserContext(user_id=builder.userId or "")}
    call = {"metadata": builder.metadata(), "timeout": _ANSWER, "wait_for_ready": True}
    with builder.toChannel() as channel:
        server = proto.SparkConnectServiceStub(channel)
        # This makes a session that does not exist yet. So the release below closes it also for a client that comes late.
        everything = proto.InterruptRequest.InterruptType.INTERRUPT_TYPE_ALL
        answer = server.Interrupt(proto.InterruptRequest(interrupt_type=everything, **session), **call)
        for operation in _noted(store, f"connect_operations:{attempt.id}", answer.interrupted_ids):
            logger.info(STOPPING, attempt.window_id, _operation_of(attempt, operation))
            request = proto.ReattachExecuteRequest(operation_id=operation, **session)
            report_progress = partial(_report_progress, server, session, call)
            with _seen_by_this_try_only(operation, attempt) if store is None else nullcontext():
                if not _has_ended(server, request, builder.metadata(), report_progress):
                    # The server accepts one interrupt of each operation. A release would only make it forget the operation.
                    way_out = "To end it at once, restart the server"
                    raise JobAliveError(overdue(attempt.window_id, _operation_of(attempt, operation), way_out))
        server.ReleaseSession(proto.ReleaseSessionRequest(**session), **call)


@contextmanager
def _seen_by_this_try_only(operation: str, attempt: Attempt) -> Iterator[None]:
    """Let no try follow one that does not see an operation end: the next one would start a second operation beside it.

    Raises:
        JobUnseenError: instead of an error after which Airflow tries again.
    """
    from grpc import RpcError

    what = _operation_of(attempt, operation)
    logger.warning(
        "Window %s: %s. If this try ends before %s, the next try starts a second one beside it",
        *(attempt.window_id, NO_TASK_STATE, what),
    )
    try:
        yield
    except (JobAliveError, RpcError) as exc:
        if isinstance(exc, RpcError) and _IS_CLOSED in str(exc.details()):
            raise
        raise JobUnseenError(
            f"Window {attempt.window_id}: {what} may still run; {NO_TASK_STATE}. Wait until the server's page shows its end, or restart the "
            "server; then clear the task"
        ) from exc


def _try_of(attempt: Attempt) -> str:
    # Airflow's number of the try, because people do not know the ledger's numbers of attempts.
    return f"try {attempt.try_number} of {attempt.claim.run_id}"


def _operation_of(attempt: Attempt, operation: str) -> str:
    return f"operation {operation} of {_try_of(attempt)}"


def _noted(store: Any, key: str, interrupted: Iterable[str]) -> list[str]:
    """Return the operations that were interrupted now or by an earlier try. The server names each only once."""
    if store is None:
        return list(interrupted)
    operations = [*(store.get(key) or []), *interrupted]
    if operations:
        store.set(key, operations)
    return operations


def _report_progress(server: Any, session: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    """Let the server report each second that an operation of this session is running. Return whether it does.

    Raises:
        grpc.RpcError: the server can't be reached, or the session is closed.
    """
    from grpc import RpcError, StatusCode
    from pyspark.sql.connect import proto

    def ask(**operation: Any) -> Any:
        request = proto.ConfigRequest(operation=proto.ConfigRequest.Operation(**operation), **session)
        return server.Config(request, **call)

    try:
        # Not `get`: an older server also returns a value that was set, but reports no progress.
        [setting] = ask(is_modifiable=proto.ConfigRequest.IsModifiable(keys=[_PROGRESS])).pairs
        if setting.value != "true":
            return False
        ask(set=proto.ConfigRequest.Set(pairs=[proto.KeyValue(key=_PROGRESS, value="1s")]))
    except RpcError as exc:
        is_away = exc.code() in (StatusCode.UNAVAILABLE, StatusCode.DEADLINE_EXCEEDED)
        if is_away or _IS_CLOSED in str(exc.details()):
            raise
        return False
    return True


def _has_ended(server: Any, request: Any, metadata: Any, report_progress: Callable[[], bool]) -> bool:
    """Follow an operation to its end. An interrupted one that is publishing its files continues until that is done.

    When an interrupted operation ends, Spark 4.0 drops all answers that it still has. If its client did not get the last one,
    a follower waits for it without end. But a running operation reports its progress. So if an operation is silent twice while
    the server answers other requests, it has ended.

    Raises:
        grpc.RpcError: the server can't be reached.
    """
    from grpc import RpcError, StatusCode

    lost: RpcError | None = None
    silences = 0
    deadline = time.monotonic() + PATIENCE
    has_progress = report_progress()
    while (left := deadline - time.monotonic()) > 0:
        # The server ends a stream every two minutes and expects a new request.
        has_ended, has_answered, error = _follow(server, request, metadata, min(left, SILENCE))
        if has_ended:
            return True
        if has_answered:
            lost = None
        if error is None:
            continue
        details, is_late = str(error.details()), error.code() is StatusCode.DEADLINE_EXCEEDED
        if not is_late:
            lost = error if error.code() is StatusCode.UNAVAILABLE else None
        silences = silences + 1 if is_late and left > SILENCE and not has_answered else 0
        if passed := _PASSED.search(details):
            request.last_response_id = passed[1]
        elif silences and has_progress:
            has_progress, lost = report_progress(), None
            if silences > 1 and has_progress:
                return True
        elif lost or is_late or _IS_FOLLOWED in details:
            time.sleep(min(1.0, left))
        else:
            return True  # it was cancelled, it failed, or it is gone
    if lost is not None:
        raise lost
    return False


def _follow(server: Any, request: Any, metadata: Any, seconds: float) -> tuple[bool, bool, Any]:
    """Read an operation's answers. Return whether it has ended, whether it has answered, and the error that broke off."""
    from grpc import RpcError

    has_answered = False
    try:
        for answer in server.ReattachExecute(request, metadata=metadata, timeout=seconds):
            has_answered = True
            if answer.HasField("result_complete"):
                return True, has_answered, None
            request.last_response_id = answer.response_id
    except RpcError as exc:
        return False, has_answered, exc
    return False, has_answered, None
