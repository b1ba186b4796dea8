"""Run as a program: one command of ``kafka-offsets``; then what it imported beyond the standard library, and who did, as JSON."""

from __future__ import annotations

import json
import sys

from tests.architecture.importers import Importers, beyond_the_standard_library

if __name__ == "__main__":
    before = set(sys.modules)
    importers = Importers()
    sys.meta_path.insert(0, importers)
    from airflow_kafka_offsets.cli import main

    try:
        main(sys.argv[1:])
    except SystemExit as ended:
        if ended.code:
            raise
    found = beyond_the_standard_library(set(sys.modules) - before)
    print(json.dumps({name: importers.of.get(name, "no one by its name") for name in found}))
