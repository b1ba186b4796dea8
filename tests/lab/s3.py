"""A server that speaks S3's protocol: moto's. It checks no credentials, and keeps everything in memory."""

from __future__ import annotations

import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from urllib.error import URLError

from tests.lab.processes import LOOPBACK, Server, free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test-secret", "region_name": "us-east-1"}


class S3:
    """One server. After `kill` its buckets are gone; after `suspend` and `resume` they are not.

    Args:
        folder: Where its log is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._server = Server(
            "moto",
            [sys.executable, "-c", "from moto.server import main; main()", "-H", LOOPBACK, "-p", str(self.port)],
            log=folder / "moto.log",
            ready=self._is_answering,
        )

    @property
    def url(self) -> str:
        """What clients are given as endpoint."""
        return f"http://{LOOPBACK}:{self.port}"

    def start(self) -> Self:
        """Start the server and wait until it answers."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Stop it."""
        self._server.stop()

    def kill(self) -> None:
        """SIGKILL."""
        self._server.kill()

    def suspend(self) -> None:
        """Keep the connections open but answer nothing."""
        self._server.suspend()

    def resume(self) -> None:
        """Answer again."""
        self._server.resume()

    def client(self, url: str = "", timeout: float = 10, **settings: Any) -> Any:
        """Return a boto3 client of this server, or of one in front of it; it tries nothing twice."""
        import boto3
        from botocore.config import Config

        patience: Mapping[str, Any] = {"connect_timeout": timeout, "read_timeout": timeout}
        config = Config(retries={"total_max_attempts": 1}, **patience)
        return boto3.session.Session(**_KEYS).client("s3", endpoint_url=url or self.url, config=config, **settings)

    def create_bucket(self, name: str) -> str:
        """Create a bucket and return its name."""
        self.client().create_bucket(Bucket=name)
        return name

    def _is_answering(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, TimeoutError, ConnectionError):
            return False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
