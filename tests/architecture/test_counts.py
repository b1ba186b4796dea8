"""What is counted in a message has a noun that fits its number: "1 partition", never "1 partitions"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.test_imports import MODULES, name_of

NOUNS = "partitions|windows|offsets|records|rows|attempts|topics|groups|jars|statements|batches|jobs|runs"
BEHIND_A_NUMBER = re.compile(rf" (?:[a-z]+ )?(?:{NOUNS})\b")
IN_A_LOG = re.compile(rf"%d{BEHIND_A_NUMBER.pattern}")


def unfitting(tree: ast.AST) -> Iterator[str]:
    """Return the texts where a plural follows a number that may be 1."""
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield from _unfitting_in(node)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and IN_A_LOG.search(node.value):
            yield node.value


def _unfitting_in(text: ast.JoinedStr) -> Iterator[str]:
    for before, number, after in zip([None, *text.values], text.values, text.values[1:], strict=False):
        if not isinstance(number, ast.FormattedValue) or not isinstance(after, ast.Constant):
            continue
        is_share = isinstance(before, ast.Constant) and str(before.value).endswith(" of ")  # 3 of 7 windows
        if not is_share and _is_number(number.value) and BEHIND_A_NUMBER.match(str(after.value)):
            yield ast.unparse(text)


def _is_number(value: ast.expr) -> bool:
    """Whether it may be one: a length, or what is called a number; a constant of ours is never 1."""
    name = ast.unparse(value)
    is_count = re.search(r"len\(|sum\(|span|number|rows|records|found|inserted|count|waiting|offsets$", name)
    return bool(is_count) and not name.isupper()


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_noun_fits_its_number(path: Path) -> None:
    assert list(unfitting(ast.parse(path.read_text()))) == []


@pytest.mark.parametrize("wrong", ['f"{len(x)} partitions"', 'log.info("%d committed windows", n)'])
def test_a_plural_behind_any_number_is_found(wrong: str) -> None:
    assert list(unfitting(ast.parse(wrong)))
