"""A schema registry on loopback, with the part of Confluent's API that is asked for, and as ill as a test wants it."""

from __future__ import annotations

import base64
import json
import re
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.lab.processes import LOOPBACK
from tests.lab.small_server import Handler, SmallServer

_VERSIONS = re.compile(r"/subjects/([^/]+)/versions(?:/(\d+|latest))?")


class Registry(SmallServer):
    """The registry; an id is that of a text, whatever subjects have it.

    Args:
        login: `user:password` that each request must have; None lets anyone ask.
        certificates: those of `make_certificates`: it speaks TLS, and each client must have a certificate; None is plain HTTP.
    """

    def __init__(self, login: str | None = None, certificates: Path | None = None) -> None:
        self.login = login
        self.tokens: set[str] | None = None
        """The tokens of which each request must have one; None lets requests without one pass."""
        self.headers: list[dict[str, str]] = []
        """The headers of all requests, with names in lower case."""
        self.answer: tuple[int, str] | None = None
        """What it answers instead of the truth."""
        self.retry_after: int | None = None
        """The seconds of `Retry-After` in each answer; None sends no such header."""
        self.asked: list[str] = []
        """The paths of all requests."""
        self._ids: dict[str, int] = {}
        self._subjects: dict[str, list[dict[str, Any]]] = {}
        self._deleted: set[tuple[str, int]] = set()
        super().__init__(self._handler())
        self._scheme = "https" if certificates else "http"
        if certificates:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates / "ca.crt")
            context.load_cert_chain(certificates / "broker.pem")
            context.verify_mode = ssl.CERT_REQUIRED
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    @property
    def url(self) -> str:
        """Its address."""
        return f"{self._scheme}://{LOOPBACK}:{self.port}"

    def connection(self, **values: Any) -> str:
        """Return an Airflow connection to it, as JSON."""
        return json.dumps({"conn_type": "http", "host": LOOPBACK, "port": self.port, **values})

    def register(
        self, subject: str, schema: Any, kind: str = "AVRO", references: tuple[tuple[str, str, int], ...] = ()
    ) -> int:
        """Add a version to a subject, and return the id of its schema.

        Args:
            subject: the subject.
            schema: as JSON, or a text.
            kind: its type.
            references: to other subjects: name, subject, version.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        number = self._ids.setdefault(text, 101 + len(self._ids))
        versions = self._subjects.setdefault(subject, [])
        names = [dict(zip(("name", "subject", "version"), one, strict=True)) for one in references]
        version = {"subject": subject, "version": len(versions) + 1, "id": number, "schema": text, "references": names}
        versions.append(version if kind == "AVRO" else {**version, "schemaType": kind})
        return number

    def delete(self, subject: str, version: int) -> None:
        """Delete a version, as a registry does at first: who asks for deleted ones still finds it."""
        self._deleted.add((subject, version))

    def _lets_in(self, given: str | None) -> bool:
        if self.tokens is not None:
            return given in {f"Bearer {token}" for token in self.tokens}
        return self.login is None or given == f"Basic {base64.b64encode(self.login.encode()).decode()}"

    def _answer_to(self, path: str, query: str) -> tuple[int, Any]:
        found = _VERSIONS.fullmatch(path)
        if not found:
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        subject, number = unquote(found[1]), found[2]
        shows_deleted = parse_qs(query).get("deleted") == ["true"]
        there = [
            one
            for one in self._subjects.get(subject, [])
            if shows_deleted or (subject, one["version"]) not in self._deleted
        ]
        if not there:
            return 404, {"error_code": 40401, "message": f"Subject '{subject}' not found."}
        if number is None:
            return 200, [one["version"] for one in there]
        chosen = there[-1:] if number == "latest" else [one for one in there if one["version"] == int(number)]
        return (200, chosen[0]) if chosen else (404, {"error_code": 40402, "message": "Version not found."})

    def _handler(self) -> type[Handler]:
        registry = self

        class Answers(Handler):
            def do_GET(self) -> None:
                registry.asked.append(self.path)
                registry.headers.append({name.lower(): value for name, value in self.headers.items()})
                if not registry._lets_in(self.headers.get("Authorization")):
                    self._send(401, json.dumps({"error_code": 401, "message": "Unauthorized"}))
                elif registry.answer:
                    self._send(*registry.answer)
                else:
                    parts = urlsplit(self.path)
                    status, document = registry._answer_to(parts.path, parts.query)
                    self._send(status, json.dumps(document))

            def _send(self, status: int, text: str) -> None:
                wait = {} if registry.retry_after is None else {"Retry-After": str(registry.retry_after)}
                self.send(status, text, {"Content-Type": "application/vnd.schemaregistry.v1+json", **wait})

        return Answers
