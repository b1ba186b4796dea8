"""The places where tries of one task run are those of the tests of launches."""

from tests.launch.conftest import worker

__all__ = ["worker"]
