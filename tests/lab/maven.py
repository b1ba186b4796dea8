"""A Maven repository on loopback, like the mirror of a company: with Spark's Kafka connector alone, and as ill as a test wants it."""

from __future__ import annotations

import threading
from importlib.metadata import version
from typing import TYPE_CHECKING

from tests.lab.processes import LOOPBACK
from tests.lab.small_server import Handler, SmallServer

if TYPE_CHECKING:
    from pathlib import Path

_POM = """\
<project><modelVersion>4.0.0</modelVersion>
<groupId>org.apache.spark</groupId><artifactId>{artifact}</artifactId><version>{version}</version>
</project>
"""
_SETTINGS = """\
<ivysettings>
  <settings defaultResolver="mirror"/>
  <resolvers><ibiblio name="mirror" m2compatible="true" root="http://{host}:{port}/"/></resolvers>
</ivysettings>
"""


class Mirror(SmallServer):
    """The repository; nothing that the connector requires is in it.

    Args:
        jar: the connector.
    """

    artifact = "spark-sql-kafka-0-10_2.13"

    def __init__(self, jar: Path) -> None:
        self.content = jar.read_bytes()
        self.asked: list[str] = []
        """The jars that were asked for."""
        self.half_way = threading.Event()
        """Set when a jar was sent by half, while `flows` is not set."""
        self.flows = threading.Event()
        self.flows.set()
        super().__init__(self._handler())

    def __exit__(self, *exc: object) -> None:
        self.flows.set()
        super().__exit__(*exc)

    def settings(self, folder: Path) -> Path:
        """Write settings with which Ivy asks this repository and no other."""
        file = folder / "ivysettings.xml"
        file.write_text(_SETTINGS.format(host=LOOPBACK, port=self.port))
        return file

    def _handler(self) -> type[Handler]:
        mirror = self

        class Answers(Handler):
            def do_HEAD(self) -> None:
                self._answer()

            def do_GET(self) -> None:
                body = self._answer()
                if not self.path.endswith(".jar"):
                    self.wfile.write(body)
                    return
                mirror.asked.append(self.path)
                half = len(body) // 2
                self.wfile.write(body[:half])
                if not mirror.flows.is_set():
                    mirror.half_way.set()
                    mirror.flows.wait()
                self.wfile.write(body[half:])

            def _answer(self) -> bytes:
                body = mirror.body_of(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                return body or b""

        return Answers

    def body_of(self, path: str) -> bytes | None:
        """Return what lies under a path; checksums do not."""
        revision = version("pyspark")
        stem = f"/org/apache/spark/{self.artifact}/{revision}/{self.artifact}-{revision}"
        pom = _POM.format(artifact=self.artifact, version=revision).encode()
        return {f"{stem}.pom": pom, f"{stem}.jar": self.content}.get(path)
