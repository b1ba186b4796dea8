"""SQLAlchemy compiles a statement once for each engine. Tests open thousands of them, so those of one process share what is compiled."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import Dialect, Engine, create_engine
from sqlalchemy.util import LRUCache

from airflow_kafka_offsets.ledger import engine as engines

_COMPILED: LRUCache[Any, Any] = LRUCache(2000)


def share_compiled_statements() -> None:
    """Let the engines that the package opens from now on share what they compile."""
    engines.create_engine = sharing_engine


def sharing_engine(*arguments: Any, **options: Any) -> Engine:
    """Return an engine, as `sqlalchemy.create_engine`; it shares its compiled statements with others of its kind of database."""
    engine = create_engine(*arguments, **options)
    engine.dialect.__class__ = _any(type(engine.dialect))
    engine.update_execution_options(compiled_cache=_COMPILED)
    return engine


@cache
def _any(kind: type[Dialect]) -> type[Dialect]:
    """Return a dialect that is like any other of its kind: a compiled statement is found by its dialect, too."""

    class Sharing(kind):  # type: ignore[misc, valid-type]
        supports_statement_cache = True

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Sharing)

        def __hash__(self) -> int:
            return hash(Sharing)

    return Sharing
