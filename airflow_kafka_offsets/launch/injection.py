"""The arguments `spark` and `window`, which the operator passes to a user's function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from inspect import Parameter, Signature
from typing import Any

from airflow_kafka_offsets.core.errors import BadInputError

INJECTED = ("spark", "window")


def hide_injected(function: Callable[..., Any]) -> None:
    """Make these two arguments optional and keyword-only, so that Airflow binds only the others. Repeating it changes nothing.

    Raises:
        BadInputError: the function does not take the window.
    """
    signature = inspect.signature(function)
    _check(function, signature)
    shown = [p for p in signature.parameters.values() if p.name not in INJECTED]
    hidden = [
        p.replace(kind=Parameter.KEYWORD_ONLY, default=None)
        for p in signature.parameters.values()
        if p.name in INJECTED
    ]
    wildcard = [shown.pop()] if shown and shown[-1].kind is Parameter.VAR_KEYWORD else []
    function.__signature__ = signature.replace(parameters=[*shown, *hidden, *wildcard])  # type: ignore[attr-defined]


def call(
    function: Callable[..., Any], args: Collection[Any], kwargs: Mapping[str, Any], injected: Mapping[str, Any]
) -> Any:
    """Call a function whose signature was hidden, with all its arguments."""
    signature = inspect.signature(function)
    wildcard = next((name for name, p in signature.parameters.items() if p.kind is Parameter.VAR_KEYWORD), None)
    wanted = {name: value for name, value in injected.items() if wildcard or name in signature.parameters}
    arguments = dict(signature.bind(*args, **{**kwargs, **wanted}).arguments)
    others = arguments.pop(wildcard, {}) if wildcard else {}
    return function(**arguments, **others)


def _check(function: Callable[..., Any], signature: Signature) -> None:
    name = getattr(function, "__name__", repr(function))
    shown = f"{name}({', '.join(signature.parameters)})"
    kinds = {p.kind for p in signature.parameters.values()}
    if kinds & {Parameter.VAR_POSITIONAL, Parameter.POSITIONAL_ONLY}:
        raise BadInputError(
            f"{shown} must not have positional-only arguments (/) or *args, because spark and window are passed by name"
        )
    if "window" not in signature.parameters and Parameter.VAR_KEYWORD not in kinds:
        raise BadInputError(
            f"{shown} has no argument `window`, so it can't read the window: write {name}(spark, window)"
        )
    if inspect.iscoroutinefunction(function) or inspect.isgeneratorfunction(function):
        raise BadInputError(
            f"{shown} must be an ordinary function without async and yield, so that its work is done when it returns"
        )
