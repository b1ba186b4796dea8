"""docs/design.md, Layers: what decides does no I/O, and Kafka is not asked while a transaction of the ledger is open."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.architecture.test_imports import MODULES, broken, imports_of, is_in, is_standard, modules_in, name_of, top

# Of the standard library, what only computes.
PURE = (
    *("__future__", "bisect", "collections", "csv", "dataclasses", "datetime", "difflib", "enum", "hashlib", "io"),
    *("itertools", "json", "math", "pathlib.PurePosixPath", "re", "shlex", "types", "typing", "urllib.parse"),
)
CLOCKS_AND_IO = {"now", "utcnow", "today", "open", "print", "input", "read_text", "write_text"}

LEDGER = "ledger"


def impure_calls(tree: ast.AST) -> Iterator[str]:
    """Return the calls of a module that read a clock, or read or write anything else."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name.rpartition(".")[2] in CLOCKS_AND_IO:
                yield name


@pytest.mark.parametrize("path", modules_in("core"), ids=name_of)
def test_the_core_reads_no_clock_and_does_no_io(path: Path) -> None:
    pure = [
        name
        for name in imports_of(path)
        if is_standard(name) and not f"{name}.".startswith(tuple(f"{p}." for p in PURE))
    ]
    assert pure == []
    assert list(impure_calls(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize("wrong", ["datetime.now(UTC)", "date.today()", "open('x')", "Path('x').read_text()"])
def test_a_clock_and_a_file_are_found(wrong: str) -> None:
    assert list(impure_calls(ast.parse(wrong)))


def test_the_ledger_knows_nobody_who_could_ask_kafka() -> None:
    def allowed(name: str) -> bool:
        return is_standard(name) or top(name) in ("sqlalchemy", "alembic", "pymysql") or is_in(name, "core", LEDGER)

    assert broken(modules_in(LEDGER), allowed) == []


def test_no_transaction_of_the_ledger_is_open_while_somebody_else_works() -> None:
    classes = [
        node
        for path in modules_in(LEDGER)
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name in {part.__name__ for part in Ledger.__mro__}
    ]
    assert len(classes) == len(Ledger.__mro__) - 1  # all but `object`
    # These two hand out a connection: one that only reads, and a turn, for which the next test is there.
    methods = [
        node
        for ledger in classes
        for node in ledger.body
        if isinstance(node, ast.FunctionDef)
        and not node.name.startswith("_")
        and node.name not in ("one_connection", "turn")
    ]
    assert methods
    for method in methods:
        assert "Callable" not in ast.unparse(method.args), (
            f"{method.name} takes a function, and may call it in its transaction"
        )
        is_generator = any(isinstance(node, ast.Yield | ast.YieldFrom) for node in ast.walk(method))
        assert not is_generator, f"{method.name} hands out values, and may do so in its transaction"


def test_in_a_turn_only_the_ledger_is_asked() -> None:
    """A turn is a transaction. What it does is written with plain functions of the ledger and of values, not with what a service has."""
    turns = [
        (node, name_of(path))
        for path in MODULES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.With) and ".turn(" in ast.unparse(node.items[0].context_expr)
    ]
    assert turns
    for turn, module in turns:
        of_self = {
            ast.unparse(node)
            for statement in turn.body
            for node in ast.walk(statement)
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self"
        }
        assert of_self <= {"self.ledger"}, f"{module}, line {turn.lineno}: {of_self} in a turn"
