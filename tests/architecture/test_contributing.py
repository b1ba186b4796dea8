"""CONTRIBUTING.md names files and folders that exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_file_and_folder_that_it_names_exists() -> None:
    named = re.findall(r"`([\w./-]+/[\w./-]*)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert len(named) > 40
    made_by_commands = {"build/site", "dist/"}
    missing = {
        path for path in named if not (ROOT / path).exists() and not (ROOT / "airflow_kafka_offsets" / path).exists()
    }
    assert missing <= made_by_commands
