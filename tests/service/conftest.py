"""The world of the service."""

from pathlib import Path

import pytest

from tests.service.world import World


@pytest.fixture
def world(quick_folder: Path) -> World:
    """Return a fresh world."""
    return World(quick_folder)
