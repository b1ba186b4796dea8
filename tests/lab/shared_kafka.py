"""One broker for all processes of a test run: `python -m tests.lab.shared_kafka FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.kafka import TwoDoorBroker
from tests.lab.sharing import serve, shared

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


def shared_kafka(folder: Path) -> AbstractContextManager[TwoDoorBroker]:
    """Give the broker of a folder to one more user; see `shared`. No one stops it, and it comes back when it dies."""
    return shared(folder, [sys.executable, "-m", "tests.lab.shared_kafka", str(folder)], what="the shared Kafka")


if __name__ == "__main__":
    FOLDER = Path(sys.argv[1])
    with TwoDoorBroker(FOLDER / "broker") as broker:
        serve(FOLDER, os.getpid(), broker, meanwhile=broker.revive)
