"""Install a missing program from Debian's packages, without starting the service that comes with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.cache import one_at_a_time

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLICY = Path("/usr/sbin/policy-rc.d")


class MissingProgramError(Exception):
    """A server program is missing and may not be installed from here; the message names its Debian package."""


def ensure_program(find: Callable[[], str | None], *, package: str) -> str:
    """Return the program's path; install its Debian package first if it is missing and we are root."""
    found = find()
    if found is None:
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            raise MissingProgramError(f"install the Debian package {package}: apt-get install {package}")
        with one_at_a_time("apt-get"):
            # Another one may have been first.
            if find() is None:
                _install(package)
        found = find()
    if found is None:
        raise MissingProgramError(
            f"the Debian package {package} is installed, and its programs are not where they belong"
        )
    return found


def _install(package: str) -> None:
    print(f"==> apt-get install {package}", file=sys.stderr, flush=True)
    _update_package_lists()
    with _services_stay_stopped():
        _apt_get("install", "-y", "--no-install-recommends", package)


@cache
def _update_package_lists() -> None:
    _apt_get("update")


def _apt_get(*arguments: str) -> None:
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(["apt-get", "-q", *arguments], env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise MissingProgramError(f"apt-get {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}")


@contextlib.contextmanager
def _services_stay_stopped() -> Iterator[None]:
    """Forbid that packages start their service; containers' images often forbid it already."""
    if _POLICY.exists():
        yield
        return
    _POLICY.write_text("#!/bin/sh\nexit 101\n")
    _POLICY.chmod(0o755)
    try:
        yield
    finally:
        _POLICY.unlink()
