"""An identity provider on loopback that gives tokens to clients with an id and a secret, and is as ill as a test wants it."""

from __future__ import annotations

import base64
import json
from typing import Any
from urllib.parse import parse_qsl

from tests.lab.processes import LOOPBACK
from tests.lab.small_server import Handler, SmallServer


class IdentityProvider(SmallServer):
    """The provider; each token is another one.

    Args:
        client: `id:secret` of the client that gets tokens.
        life: how many seconds a token lives; None leaves it out of the answer.
    """

    def __init__(self, client: str, life: object = 3600) -> None:
        self.client = client
        self.life = life
        self.answer: tuple[int, Any] | None = None
        """What it answers instead of a token."""
        self.retry_after: int | None = None
        """The seconds of `Retry-After` in each answer; None sends no such header."""
        self.asked: list[dict[str, str]] = []
        """The forms of all requests."""
        self.tokens: set[str] = set()
        """All that it has given."""
        super().__init__(self._handler())

    @property
    def endpoint(self) -> str:
        """Where it gives tokens."""
        return f"http://{LOOPBACK}:{self.port}/realms/lake/token"

    def _answer_to(self, path: str, login: str | None, form: dict[str, str]) -> tuple[int, Any]:
        self.asked.append(form)
        if self.answer is not None:
            return self.answer
        if not path.endswith("/token"):
            return 404, "<html>nothing here</html>"
        if login != f"Basic {base64.b64encode(self.client.encode()).decode()}":
            return 401, {"error": "invalid_client", "error_description": "Invalid client credentials"}
        if form.get("grant_type") != "client_credentials":
            return 400, {"error": "unsupported_grant_type"}
        token = f"token-{len(self.tokens) + 1}.of.{self.port}"
        self.tokens.add(token)
        life = {} if self.life is None else {"expires_in": self.life}
        return 200, {"access_token": token, "token_type": "Bearer", **life}

    def _handler(self) -> type[Handler]:
        provider = self

        class Answers(Handler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
                status, answer = provider._answer_to(
                    self.path, self.headers.get("Authorization"), dict(parse_qsl(body))
                )
                text = answer if isinstance(answer, str) else json.dumps(answer)
                wait = {} if provider.retry_after is None else {"Retry-After": str(provider.retry_after)}
                self.send(status, text, wait)

        return Answers
