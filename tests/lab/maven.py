"""A Maven repository on loopback, like the mirror of a company: with Spark's Kafka connector alone, and as ill as a test wants it."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, Self

from tests.lab.processes import LOOPBACK

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


class Mirror:
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
        self._server = ThreadingHTTPServer((LOOPBACK, 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.flows.set()
        self._server.shutdown()
        self._server.server_close()

    def settings(self, folder: Path) -> Path:
        """Write settings with which Ivy asks this repository and no other."""
        file = folder / "ivysettings.xml"
        file.write_text(_SETTINGS.format(host=LOOPBACK, port=self._server.server_port))
        return file

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        mirror = self

        class Handler(BaseHTTPRequestHandler):
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

            def log_message(self, *args: Any) -> None:
                pass

        return Handler

    def body_of(self, path: str) -> bytes | None:
        """Return what lies under a path; checksums do not."""
        revision = version("pyspark")
        stem = f"/org/apache/spark/{self.artifact}/{revision}/{self.artifact}-{revision}"
        pom = _POM.format(artifact=self.artifact, version=revision).encode()
        return {f"{stem}.pom": pom, f"{stem}.jar": self.content}.get(path)
