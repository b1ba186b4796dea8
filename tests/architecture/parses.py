"""Run as a program: what the DAG files of the bench import beyond what ours extends, and who imports it, as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from multiprocessing import get_context
from typing import Any

from tests.bench.parsing import FILES, SDK

_names: dict[str, Any] = {}


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


def imported(files: tuple[str, str]) -> dict[str, str]:
    """Parse both files, and return what the second one imports, the standard library left out, with the importer."""
    extended, ours = files
    exec(extended, _names)
    before = set(sys.modules)
    importers = Importers()
    sys.meta_path.insert(0, importers)
    exec(ours, _names | {"__name__": "the DAG file"})
    found = (name for name in set(sys.modules) - before if name.partition(".")[0] not in sys.stdlib_module_names)
    return {name: importers.of.get(name, "nobody by its name") for name in sorted(found)}


if __name__ == "__main__":
    exec(SDK, _names)
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        print(json.dumps(dict(zip(FILES, pool.map(imported, FILES.values(), chunksize=1), strict=True))))
