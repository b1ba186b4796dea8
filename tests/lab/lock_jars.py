"""`make lock-jars`: find out again which jars the lab's servers need, and list them."""

from __future__ import annotations

import json
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.lab import ivy
from tests.lab.jars import LIST, SETS, SETS_OF_MATRIX, JarSet


def entry(jar_set: JarSet) -> dict[str, Any]:
    """Return the set with all its jars, as their descriptions say today."""
    with tempfile.TemporaryDirectory() as folder:
        jars = ivy.resolve(jar_set.roots, jar_set.without, Path(folder))
    return {"roots": jar_set.roots, "without": jar_set.without, "jars": jars}


def main() -> None:
    """Write the list."""
    jar_sets = (*SETS, *SETS_OF_MATRIX)
    with ThreadPoolExecutor(3) as pool:
        entries = dict(zip((jar_set.name for jar_set in jar_sets), pool.map(entry, jar_sets), strict=True))
    LIST.write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
