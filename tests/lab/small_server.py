"""A small HTTP server of a test, in threads of its own."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self

from tests.lab.processes import LOOPBACK

if TYPE_CHECKING:
    from collections.abc import Mapping


class Handler(BaseHTTPRequestHandler):
    """Answers quietly and at once."""

    protocol_version = "HTTP/1.1"
    # A body that follows its headers would wait 40 ms for the client's word that they came.
    disable_nagle_algorithm = True

    def send(self, status: int, text: str, headers: Mapping[str, str]) -> None:
        """Send an answer."""
        self.send_response(status)
        for name, value in {"Content-Length": str(len(text.encode())), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *args: Any) -> None:
        """Say nothing."""


class SmallServer:
    """While entered, it serves on loopback.

    Args:
        handler: answers a request.
    """

    def __init__(self, handler: type[Handler]) -> None:
        self._server = ThreadingHTTPServer((LOOPBACK, 0), handler)
        self._server.daemon_threads = True

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._server.server_port)

    def __enter__(self) -> Self:
        # Looks often whether it should end: half a second for each test adds up.
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
