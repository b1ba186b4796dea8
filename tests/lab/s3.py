"""A server that speaks S3's protocol: moto's. It checks no credentials, and keeps everything in memory."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import urllib.request
from typing import TYPE_CHECKING, Any

from tests.lab.processes import LOOPBACK, OneServer, Server, free_port
from tests.lab.waiting import ANSWER

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_KEYS = {"aws_access_key_id": "test", "aws_secret_access_key": "test-secret", "region_name": "us-east-1"}


class S3(OneServer):
    """One server. After `kill` its buckets are gone; after `suspend` and `resume` they are not.

    Args:
        folder: Where its log is kept.
    """

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self._lock = threading.Lock()
        self._session: Any = None
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

    def client(self, url: str = "", timeout: float = 10, **settings: Any) -> Any:
        """Return a boto3 client of this server, or of one in front of it; it tries nothing twice."""
        import boto3
        from botocore.config import Config

        patience: Mapping[str, Any] = {"connect_timeout": timeout, "read_timeout": timeout}
        config = Config(retries={"total_max_attempts": 1}, **patience)
        # One session, as each would load Amazon's descriptions again; not for two threads at once.
        with self._lock:
            self._session = self._session or boto3.session.Session(**_KEYS)
            return self._session.client("s3", endpoint_url=url or self.url, config=config, **settings)

    def create_bucket(self, name: str) -> str:
        """Create a bucket and return its name."""
        self.client().create_bucket(Bucket=name)
        return name

    @contextlib.contextmanager
    def checking_rights(self, *actions: str) -> Iterator[Any]:
        """Check keys and rights as Amazon does, and give a client of a user who may do only this, e.g. `s3:Get*`."""
        import boto3

        iam = boto3.session.Session(**_KEYS).client("iam", endpoint_url=self.url)
        iam.create_user(UserName="reader")
        rights = {"Effect": "Allow", "Action": list(actions), "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [rights]})
        iam.put_user_policy(UserName="reader", PolicyName="rights", PolicyDocument=policy)
        key = iam.create_access_key(UserName="reader")["AccessKey"]
        keys = {"aws_access_key_id": key["AccessKeyId"], "aws_secret_access_key": key["SecretAccessKey"]}
        self._check_rights_after(0)
        try:
            yield self.client_of(**keys)
        finally:
            self._check_rights_after(float("inf"))
            iam.delete_access_key(UserName="reader", AccessKeyId=key["AccessKeyId"])
            iam.delete_user_policy(UserName="reader", PolicyName="rights")
            iam.delete_user(UserName="reader")

    def client_of(self, **keys: str) -> Any:
        """Return a client with other keys."""
        import boto3

        return boto3.session.Session(**{**_KEYS, **keys}).client("s3", endpoint_url=self.url)

    def _check_rights_after(self, requests: float) -> None:
        # Not as a form, which is urllib's default: moto would find no text in it.
        plain = {"Content-Type": "text/plain"}
        request = urllib.request.Request(f"{self.url}/moto-api/reset-auth", str(requests).encode(), plain)
        with urllib.request.urlopen(request, timeout=ANSWER):
            pass

    def _is_answering(self) -> bool:
        with urllib.request.urlopen(f"{self.url}/moto-api/", timeout=10) as answer:
            return bool(answer.status == 200)
