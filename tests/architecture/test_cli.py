"""docs/design.md, Layers: commands are typed by people who wait for them, so each imports what it needs and no more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.architecture.test_parsing import GROUP, PACKAGE

HELP = {
    *GROUP,
    "cli",
    "cli.arguments",
    "cli.parser",
    "cli.running",
    "core.output_tables",
    "core.source.offsets",
    "core.window",
    "core.window_id",
}
# The use cases and the choice of adapters are light; of the adapters themselves only the ledger's is there.
STATUS = {
    *HELP,
    "airflow_versions",
    "adapters",
    "ledger.*",
    "documents",
    "cli.sources",
    "cli.status",
    "cli.tables",
    "core.*",
    "ports",
    "service.*",
    "wiring.*",
}
METRICS = {*STATUS, "adapters.prometheus", "cli.metrics"}

# By command line: our modules, and the libraries of others that we import; what these import is their own business.
# {ledger} is a URL. The connection is Airflow's, which asks our entry point for the providers that it knows.
ALLOWED: dict[str, tuple[set[str], set[str]]] = {
    "--help": (HELP, set()),
    "reset --help": (HELP, set()),
    "status --offline --ledger {ledger}": (STATUS, {"sqlalchemy"}),
    "metrics --ledger {ledger}": (METRICS, {"sqlalchemy", "prometheus_client"}),
    "status --offline --ledger my_ledger": ({*STATUS, "get_provider_info"}, {"sqlalchemy", "airflow"}),
}


@pytest.fixture(scope="module")
def ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ledger without groups."""
    path = tmp_path_factory.mktemp("cli") / "ledger.db"
    Ledger(f"sqlite:///{path}", create=True)
    return path


def imports(line: str, ledger: Path) -> dict[str, str]:
    """Run a command, and return what it imports beyond the standard library, and who imports it."""
    environment = {
        **os.environ,
        "AIRFLOW_HOME": str(ledger.parent / "airflow"),
        "AIRFLOW_CONN_MY_LEDGER": json.dumps({"conn_type": "sqlite", "host": str(ledger)}),
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.architecture.commands", *line.format(ledger=f"sqlite:///{ledger}").split()],
        env=environment,
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def is_ours(name: str) -> bool:
    """Whether a module is of this package."""
    return name.partition(".")[0] == PACKAGE


def is_listed(name: str, listed: set[str]) -> bool:
    """Whether one of our modules is in a list; ``a.*`` lists a package with what is below it, and ``a.b`` the package ``a``, too."""
    below = name.removeprefix(PACKAGE).removeprefix(".")
    packages = {entry.removesuffix(".*") for entry in listed if entry.endswith(".*")}
    return (
        below in {"", *listed, *packages}
        or any(below.startswith(f"{package}.") for package in packages)
        or any(entry.startswith(f"{below}.") for entry in listed)
    )


@pytest.mark.parametrize("line", ALLOWED)
def test_a_command_imports_only_what_the_list_allows(line: str, ledger: Path) -> None:
    modules, libraries = ALLOWED[line]
    found = imports(line, ledger)
    strange: list[Any] = [
        name
        for name, importer in found.items()
        if (is_ours(name) and not is_listed(name, modules))
        or (is_ours(importer) and not is_ours(name) and name.partition(".")[0] not in libraries)
    ]
    assert [
        f"kafka-offsets {line} imports {name}, and {found[name]} is who imports it: let it do so where a command first needs it, "
        "or add the module to ALLOWED if this one does"
        for name in strange
    ] == []
