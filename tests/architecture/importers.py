"""Who imports what, for the programs of this package."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder


class Importers(MetaPathFinder):
    """Finds nothing, and remembers who looked for each module first."""

    def __init__(self) -> None:
        self.of: dict[str, str] = {}

    def find_spec(self, fullname: str, path: Sequence[str] | None, target: object = None) -> None:
        """Look up the stack, past Python's own machinery."""
        frame = sys._getframe(1)
        while "importlib" in frame.f_globals["__name__"] and frame.f_back:
            frame = frame.f_back
        self.of.setdefault(fullname, frame.f_globals["__name__"])


def beyond_the_standard_library(modules: Iterable[str]) -> list[str]:
    """Return those of others and of ours."""
    return sorted(name for name in modules if name.partition(".")[0] not in sys.stdlib_module_names)
