"""What `make` runs beside the tests imports what there is: no other test would notice."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = sorted(
    path for folder in ("bench", "bounds", "lab", "release") for path in (ROOT / "tests" / folder).glob("[!_]*.py")
)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: f"{path.parent.name}.{path.stem}")
def test_each_program_can_be_imported(path: Path) -> None:
    import_module(".".join(path.relative_to(ROOT).with_suffix("").parts))
