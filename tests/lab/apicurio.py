"""An Apicurio Registry on loopback, which has Confluent's API too; it keeps everything in its memory."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any, Self

import requests

from tests.lab import ivy
from tests.lab.cache import CACHE, one_at_a_time, workshop
from tests.lab.jars import JarError
from tests.lab.java import LIGHT, java
from tests.lab.processes import LOOPBACK, OneServer, Server, free_port

# The newest one that runs on Java 17.
VERSION = "2.6.13.Final"
_ARCHIVE = f"io.apicurio:apicurio-registry-app:{VERSION}:all@tar.gz"
_JVM = ("-Xmx320m", "-XX:TieredStopAtLevel=1", *LIGHT, "-Xshare:auto")


class Apicurio(OneServer):
    """One server.

    Args:
        folder: where its log goes.
    """

    def __init__(self, folder: Path) -> None:
        self._port = free_port()
        self.url = f"http://{LOOPBACK}:{self._port}/apis/ccompat/v7"
        self._server = Server("Apicurio", [], log=folder / "log", ready=self._is_ready, directory=folder)

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        settings = {
            "quarkus.http.host": LOOPBACK,
            "quarkus.http.port": str(self._port),
            "registry.rest.artifact.deletion.enabled": "true",
        }
        given = [f"-D{name}={value}" for name, value in settings.items()]
        self._server.command = [
            java(),
            *_JVM,
            *given,
            "-jar",
            str(apicurio_home() / f"apicurio-registry-app-{VERSION}-runner.jar"),
        ]
        self._server.start()
        return self

    def register(self, subject: str, schema: str, **more: Any) -> int:
        """Add a version to a subject, and return the id of its schema."""
        # Told, because it would guess the type, and can't where a schema refers to another one.
        document = {"schema": schema, "schemaType": "AVRO", **more}
        answer = requests.post(f"{self.url}/subjects/{subject}/versions", json=document, timeout=30)
        assert answer.ok, answer.text
        return int(answer.json()["id"])

    def delete(self, subject: str, version: int) -> None:
        """Delete a version."""
        answer = requests.delete(f"{self.url}/subjects/{subject}/versions/{version}", timeout=30)
        assert answer.ok, answer.text

    def _is_ready(self) -> bool:
        try:
            return requests.get(f"{self.url}/subjects", timeout=5).ok
        except requests.RequestException:
            return False


def apicurio_home() -> Path:
    """Return the folder of the program; what the cache does not have is downloaded (142 MB)."""
    home = CACHE / f"apicurio-registry-{VERSION}"
    with one_at_a_time(home.name), workshop(home.name) as work:
        if not home.exists():
            try:
                ivy.download([_ARCHIVE], work)
            except ivy.IvyError as failure:
                raise JarError(f"could not fetch {_ARCHIVE}:\n{failure}") from failure
            archive, unpacked = work / ivy.file_of(_ARCHIVE), work / "unpacked"
            with tarfile.open(archive) as packed:
                # extractall knows the argument `filter` since Python 3.11.4. Debian 12 has 3.11.2, which unpacks without one.
                packed.extraction_filter = getattr(tarfile, "data_filter", None)
                packed.extractall(unpacked)
            unpacked.rename(home)
    return home
