"""Run as a program: what the DAG files of the bench import beyond what ours extends, and who imports it, as JSON."""

from __future__ import annotations

import json
import sys
from multiprocessing import get_context
from typing import Any

from tests.architecture.importers import Importers, beyond_the_standard_library
from tests.bench.parsing import FILES, SDK, Absent

_names: dict[str, Any] = {}


def imported(files: tuple[str, str]) -> dict[str, str]:
    """Parse both files, and return what the second one imports, the standard library left out, with the importer."""
    extended, ours = files
    # Or what the Spark provider imports for OpenLineage would hide that ours imports it, too.
    sys.meta_path.insert(0, Absent())
    exec(extended, _names)
    before = set(sys.modules)
    importers = Importers()
    sys.meta_path.insert(0, importers)
    exec(ours, _names | {"__name__": "the DAG file"})
    found = beyond_the_standard_library(set(sys.modules) - before)
    return {name: importers.of.get(name, "no one by its name") for name in found}


if __name__ == "__main__":
    exec(SDK, _names)
    with get_context("fork").Pool(1, maxtasksperchild=1) as pool:
        print(json.dumps(dict(zip(FILES, pool.map(imported, FILES.values(), chunksize=1), strict=True))))
