"""A TCP proxy between a client and a server that can refuse, cut or hang, in either direction."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self

from tests.lab.processes import LOOPBACK


class Proxy:
    """Forward connections to a server on loopback, until told otherwise. Its port stays the same.

    Args:
        port: The server's port.
    """

    def __init__(self, port: int) -> None:
        self._target = port
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._healthy = threading.Event()
        self._healthy.set()
        self._may_answer = threading.Event()
        self._may_answer.set()
        self._answers_left: int | None = None
        self._bytes_left: int | None = None
        self._listener: socket.socket | None = None
        self.port = 0
        self.answers = 0
        """How many pieces of answers were passed back; a short answer is one."""

    def start(self) -> Self:
        """Listen, on a free port or again on the one of before."""
        self._listener = socket.create_server((LOOPBACK, self.port))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()
        return self

    def stop(self) -> None:
        """Refuse new connections, and cut those that are open."""
        if self._listener is not None:
            # Wakes up the thread that waits in accept(); close() alone does not.
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            self._listener = None
        self.cut()

    def cut(self) -> None:
        """Reset all connections that are open."""
        with self._lock:
            connections, self._connections = self._connections, set()
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def hang(self) -> None:
        """Accept connections and requests, but pass nothing on."""
        self._healthy.clear()

    def swallow_answers(self, after: int = 0) -> None:
        """Pass requests on, and no answer back but the next few: whoever wrote can't know the outcome."""
        self._answers_left = after

    def cut_after(self, sent: int) -> None:
        """Cut every connection when this many more bytes of requests were passed on; the server got a part."""
        self._bytes_left = sent

    def heal(self) -> None:
        """Cut what is open and forward everything again."""
        self._bytes_left = None
        self._answers_left = None
        self.cut()
        self._healthy.set()
        self._may_answer.set()
        if self._listener is None:
            self.start()

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((LOOPBACK, self._target), timeout=10)
            except OSError:
                client.close()
                continue
            server.settimeout(None)
            with self._lock:
                self._connections |= {client, server}
            for source, target, is_answer in ((client, server, False), (server, client, True)):
                threading.Thread(target=self._forward, args=(source, target, is_answer), daemon=True).start()

    def _forward(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._healthy.wait()
                if is_answer:
                    self._count_answer()
                    self._may_answer.wait()
                    passed = len(data)
                else:
                    passed = self._allowed(len(data))
                target.sendall(data[:passed])
                if passed < len(data):
                    self.cut()
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _count_answer(self) -> None:
        with self._lock:
            self.answers += 1
            if self._answers_left == 0:
                self._may_answer.clear()
            elif self._answers_left is not None:
                self._answers_left -= 1

    def _allowed(self, size: int) -> int:
        with self._lock:
            if self._bytes_left is None:
                return size
            passed = min(size, self._bytes_left)
            self._bytes_left -= passed
            return passed

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self._bytes_left = None
        self.stop()
        self._healthy.set()
        self._may_answer.set()
