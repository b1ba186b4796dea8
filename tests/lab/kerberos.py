"""A Kerberos realm of its own, from Debian's krb5-kdc."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import TYPE_CHECKING, Self

from tests.lab.debian import ensure_program
from tests.lab.processes import LOOPBACK, OneServer, Server, accepts_connections, free_port

if TYPE_CHECKING:
    from pathlib import Path

REALM = "LAB"
# Java, too, comes over TCP: the KDC listens there only.
_CLIENTS = """\
[libdefaults]
default_realm = {realm}
dns_lookup_kdc = false
dns_lookup_realm = false
dns_canonicalize_hostname = false
rdns = false
udp_preference_limit = 1
[realms]
{realm} = {{
  kdc = {address}
}}
"""
_SERVER = """\
[kdcdefaults]
kdc_listen = ""
kdc_tcp_listen = {address}
[realms]
{realm} = {{
  database_name = {folder}/principal
  key_stash_file = {folder}/stash
}}
"""


class Kdc(OneServer):
    """A key distribution center, which forgets nothing over a restart.

    Args:
        folder: Where it keeps its data, settings and log; made if it is missing.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.settings = folder / "krb5.conf"
        """What clients are given."""
        self._environment = {
            **os.environ,
            "KRB5_CONFIG": str(self.settings),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        }
        self._server = Server(
            "Kerberos",
            [],
            log=folder / "kdc.log",
            ready=lambda: accepts_connections(self.port),
            environment=self._environment,
        )

    def start(self) -> Self:
        """Make the realm if there is none, and start."""
        if not self.settings.exists():
            self._make_realm()
        self._server.command = [kdc_program("krb5kdc"), "-n"]
        self._server.start()
        return self

    def key_tab(self, principal: str) -> Path:
        """Add a principal with a random key, and return a file with the key."""
        file = self.folder / f"{principal.replace('/', '_')}.keytab"
        self._run("kadmin.local", "addprinc", "-randkey", principal)
        self._run("kadmin.local", "ktadd", "-k", str(file), principal)
        return file

    def ticket(self, principal: str, key_tab: Path) -> Path:
        """Log in with a key tab, and return the ticket cache."""
        cache = self.folder / f"{principal}.cache"
        command = ["kinit", "-c", f"FILE:{cache}", "-k", "-t", str(key_tab), principal]
        subprocess.run(command, env=self._environment, check=True, capture_output=True)
        return cache

    def _make_realm(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        names = {"realm": REALM, "address": f"{LOOPBACK}:{self.port}", "folder": self.folder}
        (self.folder / "kdc.conf").write_text(_SERVER.format(**names))
        self.settings.write_text(_CLIENTS.format(**names))
        self._run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master")

    def _run(self, program: str, *arguments: str) -> None:
        command = [kdc_program(program), *arguments]
        subprocess.run(command, env=self._environment, check=True, capture_output=True, text=True)


def kdc_program(name: str) -> str:
    """Return the path of a program of the KDC."""
    ensure_program(lambda: shutil.which("kinit"), package="krb5-user")
    ensure_program(lambda: shutil.which("kadmin.local", path=_PATH), package="krb5-admin-server")
    return ensure_program(lambda: shutil.which(name, path=_PATH), package="krb5-kdc")


_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin"
