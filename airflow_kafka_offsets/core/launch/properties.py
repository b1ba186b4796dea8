r"""Reads and writes Java's properties files, such as ``spark-defaults.conf`` or the ``--properties-file`` of spark-submit.

https://docs.oracle.com/en/java/javase/17/docs/api/java.base/java/util/Properties.html#load(java.io.Reader)
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

_BLANK = " \t\f"
# The name ends at the first blank, = or : without a backslash before it.
_ENTRY = re.compile(rf"((?:\\.|[^\\=:{_BLANK}])*)[{_BLANK}]*[=:]?[{_BLANK}]*(.*)", re.DOTALL)
_ESCAPED = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
# What Java would not read as it is in the value of a property. A value may have the other signs of the syntax (= : # !).
_SPECIAL = re.compile(r"^ |\\|[^ -~]")
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


def parse_properties(text: str) -> dict[str, str]:
    r"""Return names and values. If a name is there twice, the last value counts.

    >>> parse_properties("# ours\nspark.jars  /a.jar,\\\n    /b.jar\nspark.ui.enabled=false\n")
    {'spark.jars': '/a.jar,/b.jar', 'spark.ui.enabled': 'false'}
    """
    entries = [match for match in map(_ENTRY.fullmatch, _lines(text)) if match]
    return {_unescaped(match[1]): _unescaped(match[2]) for match in entries}


def _lines(text: str) -> Iterator[str]:
    """Yield the logical lines: continued lines joined, comments and blank lines left out."""
    natural = iter(re.split(r"\r\n|\r|\n", text))
    for line in natural:
        logical = line.lstrip(_BLANK)
        if not logical or logical[0] in "#!":
            continue
        while _is_continued(logical):
            logical = logical[:-1] + next(natural, "").lstrip(_BLANK)
        yield logical


def _is_continued(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _unescaped(text: str) -> str:
    units = _ESCAPED.sub(lambda m: chr(int(m[1], 16)) if m[1] else _CONTROL.get(m[2], m[2]), text)
    # Java escapes a character beyond 16 bits as two units.
    return units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def properties_file(values: Mapping[str, str]) -> str:
    r"""Write a Java properties file, in ASCII.

    >>> print(properties_file({"jaas": 'user="zoë"'}), end="")
    jaas=user="zo\u00eb"
    """
    return "".join(f"{name}={_SPECIAL.sub(_escaped, value)}\n" for name, value in values.items())


def _escaped(special: re.Match[str]) -> str:
    units = special[0].encode("utf-16-be")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
