"""Certificates for a server on localhost, made with openssl."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

RSA = ("rsa:2048",)
CURVE = ("ec", "-pkeyopt", "ec_paramgen_curve:P-256")
"""For a server with many clients: to sign each handshake with RSA took a tenth of a broker's CPU."""
_NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n"


def make_certificates(folder: Path, kind: Sequence[str] = RSA) -> None:
    """Write ca.crt, broker.pem (PKCS#8 key and chain in one file) and other-ca.crt, which signed nothing; with keys of a kind."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("ca", "other-ca"):
        _make_authority(folder, name, kind)
    _sign(folder, "broker", "localhost", "ca", kind)
    chain = [(folder / part).read_text() for part in ("broker.key", "broker.crt", "ca.crt")]
    (folder / "broker.pem").write_text("".join(chain))


def make_client_certificate(folder: Path, name: str, authority: str = "ca") -> None:
    """Write name.crt and name.key (PKCS#8) of a client, signed by an authority of `make_certificates`."""
    _sign(folder, name, name, authority, CURVE)


def encrypt_key(folder: Path, name: str, password: str) -> Path:
    """Write name.key once more, with a password, and return the file."""
    encrypted = folder / f"{name}.encrypted.key"
    what = ["-topk8", "-in", f"{name}.key", "-out", encrypted.name, "-passout", f"pass:{password}"]
    _openssl(folder, "pkcs8", *what)
    return encrypted


def _make_authority(folder: Path, name: str, kind: Sequence[str]) -> None:
    # Python 3.13 takes no authority without the last one.
    extensions = ["basicConstraints=critical,CA:TRUE", "keyUsage=critical,keyCertSign,cRLSign"]
    what = ["-subj", f"/CN={name}", *(word for extension in extensions for word in ("-addext", extension))]
    files = ["-keyout", f"{name}.key", "-out", f"{name}.crt"]
    _openssl(folder, "req", "-x509", "-newkey", *kind, "-nodes", "-days", "30", *what, *files)


def _sign(folder: Path, name: str, common_name: str, authority: str, kind: Sequence[str]) -> None:
    (folder / "names").write_text(_NAMES)
    files = ["-keyout", f"{name}.key", "-out", f"{name}.csr"]
    _openssl(folder, "req", "-newkey", *kind, "-nodes", "-subj", f"/CN={common_name}", *files)
    signed = ["-CA", f"{authority}.crt", "-CAkey", f"{authority}.key", "-CAcreateserial", "-days", "30"]
    _openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signed, "-extfile", "names", "-out", f"{name}.crt")


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
