"""A token for the schema registry: how long it is kept, and the error if there is none. With a real identity provider and registry."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from airflow_kafka_offsets.adapters.oauth import ClientCredentials
from airflow_kafka_offsets.adapters.registry import ConfluentRegistry
from airflow_kafka_offsets.core.errors import RegistryRefusedError, RegistryUnavailableError
from tests.lab.identity import IdentityProvider
from tests.lab.processes import LOOPBACK, free_port
from tests.lab.registry import Registry

SECRET = "s3cr\u20act"


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider(f"lake:{SECRET}") as server:
        yield server


@pytest.fixture
def registry(provider: IdentityProvider) -> Iterator[Registry]:
    with Registry() as server:
        server.register("s", '"long"')
        server.tokens = provider.tokens
        yield server


class Clock:
    """A clock that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


def client(provider: IdentityProvider, clock: Clock | None = None, **options: Any) -> ClientCredentials:
    endpoint, secret = options.pop("endpoint", provider.endpoint), options.pop("secret", SECRET)
    return ClientCredentials(endpoint, "lake", secret, "registry", clock=clock or Clock(), **options)


def of(registry: Registry, login: ClientCredentials) -> ConfluentRegistry:
    return ConfluentRegistry(registry.url, "registry", login=login)


def test_a_token_is_fetched_once_and_kept_until_shortly_before_its_end(
    registry: Registry, provider: IdentityProvider
) -> None:
    clock, tokens = Clock(), list[str]()
    reader = of(registry, client(provider, clock, on_token=tokens.append))
    for _ in range(2):
        assert reader.subject("s") is not None
    clock.now += 3600 * 0.8 - 1
    assert reader.subject("s") is not None
    assert provider.asked == [{"grant_type": "client_credentials"}]
    clock.now += 1
    assert reader.subject("s") is not None
    assert len(provider.asked) == 2
    assert set(tokens) == provider.tokens


@pytest.mark.parametrize(("life", "seconds"), [("300", 240), (None, 48), ("soon", 48), ("nan", 48)])
def test_a_life_may_be_a_text_or_unknown(
    registry: Registry, provider: IdentityProvider, life: object, seconds: float
) -> None:
    clock, provider.life = Clock(), life
    login = client(provider, clock)
    of(registry, login).subject("unknown")
    clock.now += seconds - 1
    of(registry, login).subject("unknown")
    assert len(provider.asked) == 1
    clock.now += 1
    of(registry, login).subject("unknown")
    assert len(provider.asked) == 2


@pytest.mark.parametrize("life", [0, -5])
def test_a_token_that_is_over_at_once_is_used_for_one_request(
    registry: Registry, provider: IdentityProvider, life: int
) -> None:
    provider.life = life
    assert of(registry, client(provider)).subject("s") is not None
    assert len(provider.asked) == len(registry.asked) == len(provider.tokens)


def test_a_scope_is_asked_for(registry: Registry, provider: IdentityProvider) -> None:
    assert of(registry, client(provider, scope="schemas:read all")).subject("s") is not None
    assert provider.asked == [{"grant_type": "client_credentials", "scope": "schemas:read all"}]


def test_a_registry_that_does_not_take_the_token_says_what_may_be_wrong(
    registry: Registry, provider: IdentityProvider
) -> None:
    registry.tokens = {"another"}
    with pytest.raises(
        RegistryRefusedError, match=r"401.*let the client read subjects.*bearer\.auth settings"
    ) as caught:
        of(registry, client(provider)).subject("s")
    assert not any(token in str(caught.value) for token in provider.tokens)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ((401, {"error": "invalid_client"}), r"answered 401 .*\(invalid_client\)\. Correct bearer.auth.client.id and"),
        (
            (400, {"error": "invalid_scope", "error_description": "no x"}),
            r"\(invalid_scope: 'no x'\)\. Correct bearer.auth.scope",
        ),
        ((400, {"error": "unauthorized_client"}), r"\. Let it grant client_credentials"),
        (
            (403, {"error": f"no {SECRET}", "error_description": f"{SECRET} is wrong"}),
            r"answered 403 Forbidden\. Correct",
        ),
        ((400, {"error": {"a": 1}}), r"answered 400 Bad Request\. Correct"),
        ((404, "<html>"), r"without a token.*correct bearer.auth.issuer.endpoint.url"),
        ((200, "<html>log in</html>"), "without a token"),
        ((200, ["a"]), "without a token"),
        ((200, {"access_token": ""}), "without a token"),
        ((200, {"access_token": "a\nb"}), "without a token"),
        ((200, {"access_token": "canary", "token_type": "mac"}), "without a token"),
        ((302, ""), "without a token"),
    ],
)
def test_a_provider_that_gives_no_token_says_what_to_correct_and_no_secret(
    registry: Registry, provider: IdentityProvider, answer: tuple[int, Any], message: str
) -> None:
    provider.answer = answer
    with pytest.raises(RegistryRefusedError, match=message) as caught:
        of(registry, client(provider)).subject("s")
    assert str(caught.value).startswith(f"The token endpoint {provider.endpoint} (connection 'registry')")
    assert SECRET not in str(caught.value)
    assert "canary" not in str(caught.value)
    assert registry.asked == []


def test_a_wrong_secret_is_a_refusal(registry: Registry, provider: IdentityProvider) -> None:
    with pytest.raises(RegistryRefusedError, match="invalid_client") as caught:
        of(registry, client(provider, secret="canary")).subject("s")
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize("status", [500, 429])
def test_a_provider_that_is_ill_may_recover(registry: Registry, provider: IdentityProvider, status: int) -> None:
    provider.answer = (status, {"error": "temporarily_unavailable"})
    login = client(provider)
    with pytest.raises(RegistryUnavailableError, match=f"answered {status}") as caught:
        of(registry, login).subject("s")
    assert caught.value.may_pass
    provider.answer = None
    assert of(registry, login).subject("s") is not None


@pytest.mark.timeout(60)  # who obeys waits for an hour
@pytest.mark.parametrize(("status", "times"), [(503, 3), (429, 1)])
def test_a_provider_that_wants_to_be_left_alone_for_an_hour_does_not_hold_the_task(
    registry: Registry, provider: IdentityProvider, status: int, times: int
) -> None:
    provider.answer, provider.retry_after = (status, {"error": "temporarily_unavailable"}), 3600
    with pytest.raises(RegistryUnavailableError, match=f"answered {status}"):
        of(registry, client(provider)).subject("s")
    assert len(provider.asked) == times


def test_a_provider_that_is_away_may_come_back(registry: Registry, provider: IdentityProvider) -> None:
    endpoint = f"http://{LOOPBACK}:{free_port()}/token"
    with pytest.raises(RegistryUnavailableError, match=f"The token endpoint {endpoint} .* does not answer") as caught:
        of(registry, client(provider, endpoint=endpoint)).subject("s")
    assert SECRET not in str(caught.value)
