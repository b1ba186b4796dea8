"""Run by the Python of a clean environment, away from this repository: what is installed there works.

Its one argument says what is installed: `alone`, the wheel and what it requires; `tutorial`, what docs/tutorial.md installs; or
`extras`, the clients of the extras, too.
It imports only what such an environment has.
"""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any

NAME = "airflow-kafka-offsets"
EXAMPLES = f"{NAME}-example-dags"
MORE_CLIENTS = {"prometheus_client", "pyspark", "openlineage", "airflow.providers.openlineage"}
"""What the extras bring that is no client of an offset store."""
OF_TUTORIAL = {"pyspark"}
"""Those of them that docs/tutorial.md installs, and uses."""
KERBEROS = {"requests_kerberos", "gssapi", "krbcontext"}
"""Clients of the one extra that is not installed: it wants a C compiler."""


def modules(package: Path) -> list[str]:
    """Return the names of the package's modules, without those that Alembic or Airflow runs as scripts."""
    paths = [path.relative_to(package) for path in sorted(package.rglob("*.py"))]
    names = [
        path.with_suffix("").parts
        for path in paths
        if path.parts[0] != "example_dags" and "migrations" not in path.parts
    ]
    return [".".join([package.name, *(part for part in parts if part != "__init__")]) for parts in names]


def import_all(package: Path, installed: str) -> int:
    """Import every module, and return how many. Without the extras, a module may miss the client of one, and nothing else."""
    clients = {*import_module("airflow_kafka_offsets.wiring.stores.opening").EXTRA_OF_MODULE, *MORE_CLIENTS}
    missing = {"alone": clients, "tutorial": clients - OF_TUTORIAL, "extras": set()}
    may_miss = KERBEROS | missing[installed]
    names = modules(package)
    for name in names:
        try:
            import_module(name)
        except ModuleNotFoundError as exc:
            if not any(f"{exc.name}.".startswith(f"{client}.") for client in may_miss):
                raise
    return len(names)


def parse_examples(package: Path) -> list[str]:
    """Let Airflow parse the examples, and return the ids of their DAGs. From 3.3 on, it finds those of a provider by itself."""
    from airflow.dag_processing.bundles.manager import DagBundlesManager

    given: dict[str, Any] = {"bundle_name": EXAMPLES}
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:  # Airflow 3.1, where a bag of DAGs does not know the name of its bundle
        from airflow.models.dagbag import DagBag

        given = {"include_examples": False}
    folder = package / "example_dags"
    found = [Path(bundle.path) for bundle in DagBundlesManager().get_all_dag_bundles() if bundle.name == EXAMPLES]
    is_older = tuple(map(int, version("apache-airflow").split(".")[:2])) < (3, 3)
    if found != [folder] and not is_older:
        raise SystemExit(f"Airflow does not find the examples: {found}")
    bag = DagBag(folder, bundle_path=folder, **given)
    if bag.import_errors:
        raise SystemExit(f"Airflow can't parse the examples: {bag.import_errors}")
    return sorted(name for name, dag in bag.dags.items() if folder in Path(dag.fileloc).parents)


def main() -> None:
    """Check, and say what was seen."""
    [installed] = sys.argv[1:]
    package = Path(import_module("airflow_kafka_offsets").__file__ or "").parent
    if Path(sys.prefix) not in package.parents:
        raise SystemExit(f"{package} is not what was installed into {sys.prefix}")
    if installed == "tutorial":
        for name in OF_TUTORIAL:
            import_module(name)
    command = Path(sys.executable).with_name("kafka-offsets")
    said = subprocess.run([command, "version"], capture_output=True, text=True, check=True).stdout.strip()
    if said != f"kafka-offsets {version(NAME)}":
        raise SystemExit(f"kafka-offsets version says {said!r} for version {version(NAME)}")
    imported = import_all(package, installed)
    dags = parse_examples(package)
    if not dags:
        raise SystemExit("Airflow found no example DAG")
    print(
        f"Python {sys.version.split()[0]}, Airflow {version('apache-airflow')}: {said}, {imported} modules, {len(dags)} example DAGs"
    )


if __name__ == "__main__":
    main()
