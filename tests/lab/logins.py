"""A broker that takes each login that Kafka has, and who gives what it asks for: an issuer of tokens, a KDC."""

from __future__ import annotations

import base64
import json
import ssl
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs

from tests.lab.certificates import encrypt_key, make_client_certificate, make_keystore
from tests.lab.kafka import SecureKafkaBroker
from tests.lab.kerberos import REALM, Kdc
from tests.lab.processes import free_port
from tests.lab.small_server import Handler, SmallServer

if TYPE_CHECKING:
    from pathlib import Path

CLIENT = "lake"
"""Who logs in, whatever the mechanism."""

_OAUTH = "org.apache.kafka.common.security.oauthbearer"


class Issuer(SmallServer):
    """Gives a signed token to whoever has the client's secret (OIDC, client credentials), over HTTPS.

    Args:
        secret: the client's.
        scope: what the client has to ask for.
    """

    def __init__(self, secret: str, scope: str) -> None:
        from cryptography.hazmat.primitives.asymmetric import rsa

        self._secret, self._scope = secret, scope
        self._key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        super().__init__(self._handler())

    @property
    def url(self) -> str:
        """Where tokens are."""
        return f"https://localhost:{self.port}/token"

    def serve_with(self, certificate: Path) -> None:
        """Speak TLS, with the key and the chain of a file."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)

    def keys(self) -> str:
        """Return the key with which a broker checks tokens, as a JSON web key set."""
        from jwt.algorithms import RSAAlgorithm

        key = RSAAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        return json.dumps({"keys": [{**key, "kid": "lab", "use": "sig", "alg": "RS256"}]})

    def _token(self) -> str:
        import jwt

        now = int(time.time())
        claims = {"sub": CLIENT, "iss": "lab", "aud": "kafka", "scope": self._scope, "iat": now, "exp": now + 3600}
        return jwt.encode(claims, self._key, algorithm="RS256", headers={"kid": "lab"})

    def _handler(self) -> type[Handler]:
        issuer = self
        wanted = "Basic " + base64.b64encode(f"{CLIENT}:{self._secret}".encode()).decode()

        class Answers(Handler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"])).decode()
                is_right = self.headers["Authorization"] == wanted and parse_qs(body)["scope"] == [issuer._scope]
                answer: dict[str, Any] = {"error": "invalid_client"}
                if is_right:
                    answer = {"access_token": issuer._token(), "token_type": "Bearer", "expires_in": 3600}
                self.send(200 if is_right else 401, json.dumps(answer), {"Content-Type": "application/json"})

        return Answers


class AnyLoginBroker(SecureKafkaBroker):
    """At `localhost:port` SASL_SSL with each mechanism, and at `tls_port` TLS with a certificate of the client."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.tls_port = free_port()
        self.kdc = Kdc(folder / "kerberos")
        self.issuer = Issuer(self.password("oidc"), scope="kafka")
        self._stack = ExitStack()
        # Kafka's client asks no other address for a key or a token. The keys come from a file.
        urls = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{folder}/keys.json"
        self._jvm_options = [*self._jvm_options, urls, f"-Djava.security.krb5.conf={self.kdc.settings}"]

    def __enter__(self) -> Self:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._stack.enter_context(self.kdc)
        for principal in (CLIENT, "kafka/localhost"):
            self.kdc.key_tab(principal)
        (self.folder / "keys.json").write_text(self.issuer.keys())
        self.start()
        self.issuer.serve_with(self.tls / "broker.pem")
        self._stack.enter_context(self.issuer)
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()
        self._stack.close()

    def logins(self) -> dict[str, dict[str, str]]:
        """Return librdkafka's settings for each way in, by name."""
        authority = {"ssl.ca.location": str(self.tls / "ca.crt")}
        sasl = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": "SASL_SSL", **authority}
        password = {"sasl.username": CLIENT, "sasl.password": self.password(CLIENT)}
        tls = {"bootstrap.servers": f"localhost:{self.tls_port}", "security.protocol": "SSL"}
        certificate = {"ssl.certificate.location": str(self.tls / f"{CLIENT}.crt")}
        scram = {**sasl, "sasl.mechanism": "SCRAM-SHA-512", **password}
        return {
            "plain": {**sasl, "sasl.mechanism": "PLAIN", **password},
            "scram": scram,
            "tls": {**tls, **authority, **certificate, "ssl.key.location": str(self.tls / f"{CLIENT}.key")},
            "tls_password": {
                **tls,
                **authority,
                **certificate,
                "ssl.key.location": str(self.tls / f"{CLIENT}.encrypted.key"),
                "ssl.key.password": self.password("key"),
            },
            "tls_keystore": {
                **tls,
                **authority,
                "ssl.keystore.location": str(self.tls / f"{CLIENT}.p12"),
                "ssl.keystore.password": self.password("key"),
            },
            "tls_pem": {
                **tls,
                "ssl.ca.pem": (self.tls / "ca.crt").read_text(),
                "ssl.certificate.pem": (self.tls / f"{CLIENT}.crt").read_text(),
                "ssl.key.pem": (self.tls / f"{CLIENT}.key").read_text(),
            },
            "oidc": {
                **sasl,
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.client.id": CLIENT,
                "sasl.oauthbearer.client.secret": self.password("oidc"),
                "sasl.oauthbearer.scope": "kafka",
                "sasl.oauthbearer.extensions": "logicalCluster=lkc-1,identityPoolId=pool-1",
                "sasl.oauthbearer.token.endpoint.url": self.issuer.url,
                "https.ca.location": str(self.tls / "ca.crt"),
            },
            # The wheel of confluent-kafka can't plan with Kerberos: it does with SCRAM, and the job has a mechanism of its own.
            "kerberos": {**scram, **self.kerberos()},
        }

    def kerberos(self) -> dict[str, str]:
        """Return librdkafka's settings of Kerberos with a key tab."""
        principal = f"{CLIENT}@{REALM}"
        return {"sasl.kerberos.keytab": str(self.kdc.folder / f"{CLIENT}.keytab"), "sasl.kerberos.principal": principal}

    def secrets(self) -> list[str]:
        """Return what must be seen nowhere."""
        key = "".join((self.tls / f"{CLIENT}.key").read_text().splitlines()[1:-1])
        return [self.password(CLIENT), self.password("key"), self.password("oidc"), key[:40]]

    def properties(self) -> dict[str, str]:
        """Return the content of server.properties."""
        client, plain = "listener.name.client", "org.apache.kafka.common.security.plain.PlainLoginModule required"
        secure = super().properties()
        tls = {
            name.replace(client, "listener.name.tls"): value
            for name, value in secure.items()
            if name.startswith(f"{client}.ssl")
        }
        key_tab = self.kdc.folder / "kafka_localhost.keytab"
        kerberos = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true storeKey=true"
        return {
            **secure,
            **tls,
            "listener.name.tls.ssl.client.auth": "required",
            "super.users": f"User:admin;User:root;User:{CLIENT};User:CN={CLIENT}",
            f"{client}.sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER,GSSAPI",
            f"{client}.plain.sasl.jaas.config": f'{plain} user_{CLIENT}="{self.password(CLIENT)}";',
            f"{client}.oauthbearer.sasl.jaas.config": f"{_OAUTH}.OAuthBearerLoginModule required;",
            f"{client}.oauthbearer.sasl.server.callback.handler.class": f"{_OAUTH}.OAuthBearerValidatorCallbackHandler",
            f"{client}.oauthbearer.sasl.oauthbearer.jwks.endpoint.url": f"file://{self.folder}/keys.json",
            f"{client}.oauthbearer.sasl.oauthbearer.expected.audience": "kafka",
            f"{client}.gssapi.sasl.jaas.config": f'{kerberos} keyTab="{key_tab}" principal="kafka/localhost@{REALM}";',
            f"{client}.sasl.kerberos.service.name": "kafka",
            **self._extra,
        }

    users = ("root", CLIENT)

    def _listeners(self) -> dict[str, str]:
        secure, address = super()._listeners(), f",TLS://localhost:{self.tls_port}"
        added = {"listeners": address, "advertised.listeners": address, "listener.security.protocol.map": ",TLS:SSL"}
        return {name: value + added.get(name, "") for name, value in secure.items()}

    def _format(self, *arguments: str) -> None:
        super()._format(*arguments)
        make_client_certificate(self.tls, CLIENT)
        make_client_certificate(self.tls, "stranger", "other-ca")
        encrypt_key(self.tls, CLIENT, self.password("key"))
        make_keystore(self.tls, CLIENT, self.password("key"))


def with_wrong_secrets(login: dict[str, str], folder: Path) -> dict[str, str]:
    """Return a way in with a wrong secret: a password, or a certificate that no trusted authority signed (in `folder`)."""
    stranger = {suffix: folder / f"stranger.{suffix}" for suffix in ("crt", "key")}
    other = {
        "sasl.password": "hunter2",
        "sasl.oauthbearer.client.secret": "hunter2",
        "ssl.keystore.password": "hunter2",
        "ssl.certificate.location": str(stranger["crt"]),
        "ssl.key.location": str(stranger["key"]),
        "ssl.certificate.pem": stranger["crt"].read_text(),
        "ssl.key.pem": stranger["key"].read_text(),
    }
    kept = {name: value for name, value in login.items() if name != "ssl.key.password"}
    return {name: other.get(name, value) for name, value in kept.items()}
