"""The world of the service."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.lab.memory import IN_MEMORY
from tests.service.world import World


@pytest.fixture
def quick_folder() -> Iterator[Path]:
    """Return a folder for a ledger."""
    with TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder)


@pytest.fixture
def world(quick_folder: Path) -> World:
    """Return a fresh world."""
    return World(quick_folder)
