"""Runs SQL files: one statement after the other, on a window as a view."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.fields import Kind, check_fields, type_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from airflow_kafka_offsets.spark import KafkaWindow

OURS = ("window_id", "group", "seq", "lane", "planned_until", "is_rerun")
"""The values of the window that each statement can use."""

_NAME = re.compile(r"[A-Za-z_]\w*")
VIEW = Kind("a name of letters, digits and _", lambda view: isinstance(view, str) and _NAME.fullmatch(view) is not None)
_PARAMETERS = Kind(
    "a mapping of names to values",
    lambda parameters: isinstance(parameters, Mapping) and all(isinstance(name, str) for name in parameters),
    type_of,
)
_SQL = Kind(
    "SQL, or a list of SQL texts",
    lambda sql: isinstance(sql, str) or (isinstance(sql, Sequence) and all(isinstance(text, str) for text in sql)),
)

logger = logging.getLogger(__name__)


def split(sql: str | Sequence[str]) -> list[str]:
    """Return the statements of one or several texts. Comments without a statement are left out.

    >>> split(["delete from t where s = ';'; insert into t -- all; of it", "select 1;"])
    ["delete from t where s = ';'", 'insert into t -- all; of it', 'select 1']
    """
    import sqlparse

    check_fields({"sql": sql}, {"sql": _SQL})
    texts = [sql] if isinstance(sql, str) else sql
    statements = [statement for text in texts for statement in sqlparse.split(text, strip_semicolon=True)]
    return [statement for statement in statements if _code(statement)]


def _code(statement: str) -> str:
    """Return a statement without its comments and string literals."""
    import sqlparse
    from sqlparse import tokens

    (parsed, *_) = sqlparse.parse(statement) or (None,)
    words = parsed.flatten() if parsed is not None else ()
    left_out = (tokens.Comment, tokens.Literal.String.Single)
    code = "".join(" " if any(t.ttype in kind for kind in left_out) else t.value for t in words)
    return code.strip().strip(";").strip()


def check_statements(statements: Sequence[str], view: str, parameters: Mapping[str, object]) -> None:
    """Refuse statements that can't be the job of a window.

    Args:
        statements: the task's.
        view: name of the window's view.
        parameters: the user's parameters.

    Raises:
        BadInputError: no statement names the view, so the records would be committed unread; or a name can't be used.
    """
    check_fields({"view": view, "parameters": parameters}, {"view": VIEW, "parameters": _PARAMETERS})
    taken = [name for name in parameters if name in OURS]
    if taken:
        raise BadInputError(f"parameters must not have {', '.join(taken)}: the window sets these")
    named = re.compile(rf"\b{view}\b", re.IGNORECASE)
    if not any(named.search(_code(statement)) for statement in statements):
        raise BadInputError(
            f"None of the statements ({len(statements)}) reads {view}. For another name of the view: KafkaSparkSqlOperator(view=...)"
        )


def run_statements(
    spark: SparkSession,
    window: KafkaWindow,
    statements: Sequence[str],
    view: str,
    parameters: Mapping[str, object],
    read: Mapping[str, Any],
) -> None:
    """Run statements on a window, which is read once, counted, and cached for all of them.

    Args:
        spark: the session.
        window: the window that they read.
        statements: in this order. The rows of a query are computed, so that its assertions are checked, and dropped.
        view: the name of the view with the records.
        parameters: named markers, in addition to those of the window.
        read: arguments of `KafkaWindow.persisted`.
    """
    of_window = {name: getattr(window, "id" if name == "window_id" else name) for name in OURS}
    with window.persisted(**read) as rows:
        rows.createOrReplaceTempView(view)
        for name in ("window_id", "seq"):
            spark.conf.set(name, str(of_window[name]))  # ${window_id}, for where Spark's grammar takes no marker
        for number, statement in enumerate(statements, 1):
            logger.info("Window %s: statement %d of %d", window.id, number, len(statements))
            frame = spark.sql(statement, args={**parameters, **of_window})
            if frame.columns:
                frame.write.format("noop").mode("overwrite").save()
