"""The schema registry behind an Airflow connection."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets import KafkaGroup, wiring
from airflow_kafka_offsets.core.errors import BadInputError, NotYetError, RegistryRefusedError, RegistryUnavailableError
from airflow_kafka_offsets.wiring import connections
from airflow_kafka_offsets.wiring.registry import open_registry
from tests.lab.certificates import make_certificates
from tests.lab.identity import IdentityProvider
from tests.lab.registry import Registry


@pytest.fixture
def registry() -> Iterator[Registry]:
    with Registry(login="me:hunter2 x") as server:
        server.register("s", '"long"')
        yield server


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    make_certificates(folder)
    return folder


def connect(monkeypatch: pytest.MonkeyPatch, **values: Any) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", json.dumps({"conn_type": "http", **values}))


def test_the_login_is_that_of_the_connection(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", registry.connection(login="me", password="hunter2 x"))
    assert open_registry("registry").subject("s") is not None
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", registry.connection(login="me", password="canary"))
    with pytest.raises(RegistryRefusedError, match="401") as refused:
        open_registry("registry").subject("s")
    assert "canary" not in str(refused.value)


def test_a_token_is_a_header_in_the_extra_and_is_masked(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "Basic bWU6aHVudGVyMiB4"
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", registry.connection(extra={"Authorization": token, "timeout": 5}))
    assert open_registry("registry").subject("s") is not None
    assert connections.without_secrets(f"sent {token}") == "sent ***"


def test_the_end_of_a_line_is_no_part_of_a_token(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    token = "Basic bWU6aHVudGVyMiB4"
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", registry.connection(extra={"Authorization": f"{token}\n"}))
    assert open_registry("registry").subject("s") is not None
    assert connections.without_secrets(f"sent {token}") == "sent ***"


def test_white_space_around_a_value_is_no_part_of_it(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(
        monkeypatch,
        host=f" {registry.url}\n",
        schema=" ",
        login="me\n",
        password="\thunter2 x\r\n",
        extra={" X-Trace ": " a "},
    )
    assert open_registry("registry").subject("s") is not None
    assert registry.headers[0]["x-trace"] == "a"


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
@pytest.mark.parametrize(("verify", "cert"), [(" {ca}\n", "{own} \n"), ("\tfalse ", ["{own} ", " {own}"])])
def test_white_space_around_what_is_for_tls_is_no_part_of_it(
    monkeypatch: pytest.MonkeyPatch, certificates: Path, verify: str, cert: str | list[str]
) -> None:
    files = {"ca": certificates / "ca.crt", "own": certificates / "broker.pem"}
    extra = {
        " verify": verify.format(**files),
        "cert ": cert.format(**files) if isinstance(cert, str) else [part.format(**files) for part in cert],
    }
    with Registry(certificates=certificates) as server:
        server.register("s", '"long"')
        connect(monkeypatch, host=server.url, extra=extra)
        assert open_registry("registry").subject("s") is not None


@pytest.mark.parametrize("extra", [{"verify": "{gone}"}, {"cert": "{gone}"}, {"cert": ["{there}", "{gone}"]}])
def test_a_file_for_tls_that_is_not_on_this_machine_is_named(
    monkeypatch: pytest.MonkeyPatch, certificates: Path, extra: dict[str, str | list[str]]
) -> None:
    gone = str(certificates / "gone.pem")
    text = json.dumps(extra).replace("{gone}", gone).replace("{there}", str(certificates / "broker.pem"))
    connect(monkeypatch, host="h", extra=json.loads(text))
    with pytest.raises(BadInputError, match=f"'registry': this machine can't read {next(iter(extra))}='{gone}'"):
        open_registry("registry")


@pytest.mark.parametrize("password", ["hushed-1\n", "  hushed-2"])
def test_a_password_is_masked_as_it_is_sent(monkeypatch: pytest.MonkeyPatch, password: str) -> None:
    connect(monkeypatch, host="h", login="me", password=password)
    open_registry("registry")
    sent = base64.b64encode(f"me:{password.strip()}".encode()).decode()
    assert connections.without_secrets(f"{password.strip()} {sent} me") == "*** *** me"


def test_a_token_is_masked_without_the_word_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, host="h", extra={"authorization": "Bearer  hushed-3\n"})
    open_registry("registry")
    assert connections.without_secrets("got hushed-3 of Bearer") == "got *** of Bearer"


def test_a_wrong_password_is_refused_and_not_shown(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", registry.connection(login="me ", password=" hushed-4 "))
    with pytest.raises(RegistryRefusedError, match=r"401.*correct the login") as refused:
        open_registry("registry").subject("s")
    assert "hushed" not in str(refused.value)


def test_a_password_of_white_space_is_none(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", registry.connection(login=" ", password="\n"))
    with pytest.raises(RegistryRefusedError, match="401"):
        open_registry("registry").subject("s")


@pytest.mark.parametrize("name", ["Author ization", "Authorization:", "", "X-\u20ac"])
def test_what_no_header_is_named_is_refused(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    connect(monkeypatch, host="h", extra={name: "Bearer canary"})
    with pytest.raises(BadInputError, match="in its extra names no header") as refused:
        open_registry("registry")
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("token", ["Bearer can\nary", "Bearer canary\u20ac"])
def test_what_no_header_may_have_is_refused_and_not_shown(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    connect(monkeypatch, host="h", extra={"Authorization": token})
    with pytest.raises(BadInputError, match="'Authorization' has a character") as refused:
        open_registry("registry")
    assert "ary" not in str(refused.value)


def test_a_connection_of_type_https_is_never_asked_in_clear_text(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = registry.url.removeprefix("http://")
    connect(monkeypatch, conn_type="https", host=address, login="me", password="hunter2 x")
    with pytest.raises(RegistryUnavailableError, match=f"https://{address}.*SSL"):
        open_registry("registry").subject("s")
    assert registry.asked == []


def test_a_login_of_a_netrc_does_not_take_the_place_of_a_token(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "netrc").write_text("machine 127.0.0.1 login me password wrong\n")
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    extra = {"Authorization": "Basic bWU6aHVudGVyMiB4"}
    monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", registry.connection(extra=extra))
    assert open_registry("registry").subject("s") is not None


def test_a_login_may_hold_any_character(monkeypatch: pytest.MonkeyPatch) -> None:
    with Registry(login="me:hunter2\u20ac") as server:
        server.register("s", '"long"')
        monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", server.connection(login="me", password="hunter2\u20ac"))
        assert open_registry("registry").subject("s") is not None


@pytest.mark.parametrize(
    "values",
    [
        {"host": "{url}"},
        {"host": "{url}/"},
        {"host": "{address}"},
        {"host": "127.0.0.1", "port": "{port}"},
        {"host": "http://127.0.0.1", "port": "{port}", "schema": "http"},
    ],
)
def test_an_address_may_be_written_in_any_way_of_airflow(
    registry: Registry, monkeypatch: pytest.MonkeyPatch, values: dict[str, str]
) -> None:
    known = {"url": registry.url, "address": registry.url.removeprefix("http://"), "port": registry.port}
    given: dict[str, Any] = {name: value.format(**known) for name, value in values.items()}
    if "port" in given:
        given["port"] = int(given["port"])
    connect(monkeypatch, login="me", password="hunter2 x", **given)
    assert open_registry("registry").subject("s") is not None


def test_a_path_in_the_host_is_kept(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, host=f"{registry.url}/apis/ccompat/v7", login="me", password="hunter2 x")
    with pytest.raises(RegistryRefusedError):
        open_registry("registry").subject("s")
    assert registry.asked == ["/apis/ccompat/v7/subjects/s/versions"]


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"conn_type": "kafka", "host": "h"}, "has type 'kafka', not 'http' or 'https'"),
        ({"host": ""}, "names no host of the schema registry"),
        (
            {"host": "h", "schema": "apis/ccompat/v7"},
            "its schema is 'apis/ccompat/v7', not http or https",
        ),
        ({"host": "https://me:canary@h"}, "user and password belong into its fields"),
    ],
)
def test_a_connection_that_can_not_be_used_is_refused(
    monkeypatch: pytest.MonkeyPatch, values: dict[str, Any], said: str
) -> None:
    connect(monkeypatch, **values)
    with pytest.raises(BadInputError, match=said) as refused:
        open_registry("registry")
    assert "canary" not in str(refused.value)


def test_a_service_opens_no_connection_before_it_asks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert wiring.registry_of(KafkaGroup("g", topics=["t"])) is None
    found = wiring.registry_of(KafkaGroup("g", topics=["t"], registry="nowhere"))
    assert found is not None
    with pytest.raises(NotYetError, match="Airflow has no connection 'nowhere'"):
        found.subject("s")


def oauth_to(provider: IdentityProvider, **more: Any) -> dict[str, Any]:
    """Return the settings with the names of Confluent's client."""
    names = {
        "bearer.auth.credentials.source": "OAUTHBEARER",
        "bearer.auth.issuer.endpoint.url": provider.endpoint,
        "bearer.auth.client.id": "lake",
        "bearer.auth.client.secret": "hushed-5",
    }
    return {name: value for name, value in {**names, **more}.items() if value is not None}


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider("lake:hushed-5") as server:
        yield server


def test_a_client_gets_a_token_with_its_id_and_secret(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "bearer.auth.client.secret": " hushed-5\n",
        "bearer.auth.scope": "schemas",
        "bearer.auth.logical.cluster": "lsrc-1",
        "bearer.auth.identity.pool.id": "pool-1",
        "X-Trace": "a",
    }
    with Registry() as server:
        server.register("s", '"long"')
        server.tokens = provider.tokens
        monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", server.connection(extra=oauth_to(provider, **settings)))
        assert open_registry("registry").subject("s") is not None
    assert provider.asked == [{"grant_type": "client_credentials", "scope": "schemas"}]
    for headers in server.headers:
        sent = (headers["target-sr-cluster"], headers["confluent-identity-pool-id"], headers["x-trace"])
        assert sent == ("lsrc-1", "pool-1", "a")
        assert not [name for name in headers if name.startswith("bearer")]
    [token] = provider.tokens
    assert connections.without_secrets(f"{token} hushed-5 lake") == "*** *** lake"


def test_what_is_not_set_is_not_sent(provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    with Registry() as server:
        server.tokens = provider.tokens
        monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", server.connection(extra=oauth_to(provider)))
        assert open_registry("registry").subject("s") is None
    assert provider.asked == [{"grant_type": "client_credentials"}]
    assert not {"target-sr-cluster", "confluent-identity-pool-id"} & server.headers[0].keys()


@pytest.mark.parametrize(
    "name", ["Bearer.Auth.Client.Secret", "BEARER.AUTH.CLIENT.SECRET ", "bearer_auth_client-secret"]
)
def test_a_secret_that_is_spelled_in_another_way_is_refused_and_masked_and_no_header(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    connect(monkeypatch, host="h", extra={name: "hushed-7"})
    said = f"its extra must have bearer.auth.client.secret instead of '{name.strip()}'"
    with pytest.raises(BadInputError, match=said) as refused:
        open_registry("registry")
    assert "hushed" not in str(refused.value)
    assert connections.without_secrets("got hushed-7") == "got ***"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"bearer.auth.client.secret": None}, "its extra lacks bearer.auth.client.secret"),
        ({"bearer.auth.client.id": " "}, "its extra lacks bearer.auth.client.id"),
        ({"bearer.auth.credentials.source": None}, "set bearer.auth.credentials.source to OAUTHBEARER"),
        ({"bearer.auth.credentials.source": "STATIC_TOKEN"}, "set bearer.auth.credentials.source to OAUTHBEARER"),
        (
            {"bearer.auth.client.secrets": "hushed-6"},
            "there is no setting 'bearer.auth.client.secrets'",
        ),
        ({"bearer.auth.issuer.endpoint.url": "idp/token"}, "must be a whole address"),
        ({"bearer.auth.issuer.endpoint.url": "https://lake:hushed-6@idp/token"}, "without login and query"),
        ({"bearer.auth.issuer.endpoint.url": "https://idp/token?secret=hushed-6"}, "without login and query"),
        ({"bearer.auth.issuer.endpoint.url": "https://[idp"}, "must be a whole address"),
        (
            {"bearer.auth.logical.cluster": "a\u20ac"},
            "bearer.auth.logical.cluster has a character that no header has",
        ),
        ({"authorization": "Bearer hushed-6"}, "has bearer.auth settings and another login"),
    ],
)
def test_settings_of_oauth_that_can_not_be_used_are_refused_and_no_secret_is_shown(
    provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], said: str
) -> None:
    connect(monkeypatch, host="h", extra=oauth_to(provider, **settings))
    with pytest.raises(BadInputError, match=said) as refused:
        open_registry("registry")
    assert "hushed" not in str(refused.value)
    assert provider.asked == []


def test_a_login_beside_oauth_is_refused(provider: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    connect(monkeypatch, host="h", login="me", extra=oauth_to(provider))
    with pytest.raises(BadInputError, match="another login"):
        open_registry("registry")
