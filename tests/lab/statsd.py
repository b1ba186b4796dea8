"""A StatsD server on loopback: it keeps what it gets."""

from __future__ import annotations

import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Self

from tests.lab.processes import LOOPBACK


@dataclass(frozen=True)
class Sample:
    """One line of StatsD's protocol.

    Attributes:
        name: of the metric, without tags.
        tags: Influx's tags, which stand behind the name.
        value: as sent.
        kind: ``c``: a counter; ``g``: a gauge; ``ms``: a timer, in milliseconds.
    """

    name: str
    tags: Mapping[str, str]
    value: float
    kind: str


def parse(line: str) -> Sample:
    """Read ``name,tag=value:3|c``."""
    name, _, rest = line.partition(":")
    value, _, kind = rest.partition("|")
    plain, *tags = name.split(",")
    return Sample(plain, dict(tag.split("=", 1) for tag in tags), float(value), kind.partition("|")[0])


class StatsdServer:
    """While entered, it listens.

    Args:
        port: where; 0: any free port.
    """

    def __init__(self, port: int = 0) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        self._socket.bind((LOOPBACK, port))
        self.port: int = self._socket.getsockname()[1]
        self._samples: list[Sample] = []
        self._thread = threading.Thread(target=self._listen, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # what waits for a packet wakes up
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._thread.join()

    def _listen(self) -> None:
        with suppress(OSError):
            while packet := self._socket.recv(65_535):
                self._samples += [parse(line) for line in packet.decode().splitlines() if line]

    def samples(self, prefix: str = "") -> list[Sample]:
        """Return what came so far, of names that begin so."""
        return [sample for sample in list(self._samples) if sample.name.startswith(prefix)]

    def total(self, name: str, **tags: str) -> float:
        """Return the sum of a metric over all samples that have these tags."""
        found = [s for s in self.samples() if s.name == name and tags.items() <= s.tags.items()]
        return sum(sample.value for sample in found)
