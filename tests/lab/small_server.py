"""A small HTTP server of a test, in threads of its own."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

from tests.lab.processes import LOOPBACK


class SmallServer:
    """While entered, it serves on loopback.

    Args:
        handler: answers a request.
    """

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = ThreadingHTTPServer((LOOPBACK, 0), handler)
        self._server.daemon_threads = True

    def __enter__(self) -> Self:
        # Looks often whether it should end: half a second for each test adds up.
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
