"""A broker with a remote tier, whose store is slow."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Self

from tests.lab.debian import ensure_program
from tests.lab.jars import KAFKA_3, class_path
from tests.lab.kafka import KafkaBroker
from tests.lab.topics import create_topic, produce
from tests.lab.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Mapping

SOURCE = Path(__file__).with_name("SlowStore.java")
SEGMENT = 1 << 20


def javac() -> str:
    """Return the path of Java's compiler."""
    return ensure_program(lambda: shutil.which("javac"), package="openjdk-17-jdk-headless")


class TieredKafkaBroker(KafkaBroker):
    """A broker of version 3.7: it interrupts a remote read when the fetch that needs it has waited for as long as its client asked for.

    Args:
        folder: see `KafkaBroker`.
        delay_ms: how long a read of the remote tier takes.
    """

    def __init__(self, folder: Path, delay_ms: int = 200) -> None:
        self._remote = folder / "remote"
        super().__init__(folder, properties=_settings(self._remote, delay_ms), jars=KAFKA_3, classes=folder / "classes")

    def start(self) -> Self:
        """Start the broker, with its store compiled before."""
        classes = self.folder / "classes"
        classes.mkdir(parents=True, exist_ok=True)
        subprocess.run([javac(), "-nowarn", "-cp", class_path(KAFKA_3), "-d", classes, SOURCE], check=True)
        return super().start()

    def fill(self, topic: str, records: int) -> None:
        """Write a topic of records of a kilobyte, and wait until all but its newest segments lie in the remote tier alone."""
        tiered = {"remote.storage.enable": "true", "segment.bytes": str(SEGMENT), "local.retention.bytes": str(SEGMENT)}
        create_topic(self, topic, config={**tiered, "retention.ms": "-1"})
        produce(self, topic, records, padding=1000)
        folder = self.folder / "data" / f"{topic}-0"
        wait_until(lambda: len(list(folder.glob("*.log"))) <= 3, what=f"{topic} lies in the remote tier", seconds=90)

    @property
    def interrupts(self) -> int:
        """How many remote reads it has interrupted."""
        return (self.folder / "broker.log").read_text().count("SlowStore was interrupted")


def _settings(remote: Path, delay_ms: int) -> Mapping[str, str]:
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "SlowStore",
        "remote.log.metadata.manager.listener.name": "CLIENT",
        "remote.log.manager.task.interval.ms": "1000",
        "log.retention.check.interval.ms": "1000",
        "log.initial.task.delay.ms": "500",
        "rsm.config.root": str(remote),
        "rsm.config.delay": str(delay_ms),
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
    }
