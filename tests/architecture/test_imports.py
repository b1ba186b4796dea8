"""docs/design.md, Layers: who may import whom, and what an import costs."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import airflow_kafka_offsets

PACKAGE = "airflow_kafka_offsets"
ROOT = Path(airflow_kafka_offsets.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))


@cache
def name_of(path: Path) -> str:
    """Return a module's name."""
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports_of(path: Path, *, anywhere: bool = True, typed: bool = False) -> tuple[str, ...]:
    """Return what a module imports.

    Args:
        path: the module's file.
        anywhere: False: only what is imported when the module is.
        typed: also what only the type checker imports.
    """
    return tuple(_imports_of(path, anywhere, typed))


def _imports_of(path: Path, anywhere: bool, typed: bool) -> Iterator[str]:
    package = name_of(path) if path.name == "__init__.py" else name_of(path).rpartition(".")[0]
    todo: list[ast.AST] = [ast.parse(path.read_text())]
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                base = ".".join(package.split(".")[: len(package.split(".")) - node.level + 1])
                module = f"{base}.{module}".rstrip(".")
            # `from package import module` imports the module.
            yield from (f"{module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test) and not typed:
            todo += node.orelse
        elif anywhere or not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            todo += ast.iter_child_nodes(node)


def is_in(name: str, *packages: str) -> bool:
    """Whether a dotted name lies in one of our packages or modules."""
    return any(f"{name}.".startswith(f"{PACKAGE}.{package}.") for package in packages)


def top(name: str) -> str:
    """Return the first part of a dotted name."""
    return name.partition(".")[0]


def modules_in(*packages: str) -> list[Path]:
    """Return our modules in these packages."""
    return [path for path in MODULES if is_in(name_of(path), *packages)]


def broken(paths: list[Path], allowed) -> list[str]:  # type: ignore[no-untyped-def]
    """Return the imports that are not allowed."""
    return [f"{name_of(p)} imports {i}" for p in paths for i in imports_of(p) if not allowed(i)]


def is_standard(name: str) -> bool:
    """Whether it is of the standard library."""
    return top(name) in sys.stdlib_module_names


# What each folder may import of ours, besides itself: never a floor above it.
LAYERS: dict[str, set[str]] = {
    "airflow_versions": set(),
    "spark": set(),
    "core": {"spark"},
    "documents": {"core"},
    "ports": {"core"},
    "ledger": {"core", "ports"},
    "service": {"core", "ports", "ledger"},
    "adapters": {"spark", "core", "ports", "ledger"},
    "wiring": {"airflow_versions", "spark", "core", "ports", "ledger", "service", "adapters"},
    "launch": {"airflow_versions", "spark", "core", "ports", "wiring"},
    "triggers": {"airflow_versions", "core", "ports", "service", "wiring", "launch"},
    "task": {"airflow_versions", "spark", "core", "ports", "service", "wiring", "triggers", "launch"},
    "operators": {"airflow_versions", "spark", "core", "ports", "service", "wiring", "launch", "task"},
    "sensors": {"airflow_versions", "core", "ports", "service", "wiring", "triggers"},
    "decorators": {"launch", "operators"},
    "params": {"core"},
    "cli": {"airflow_versions", "spark", "core", "documents", "ports", "service", "wiring", "launch", "task"},
    "page": {"airflow_versions", "core", "documents", "ports", "service", "wiring"},
    "get_provider_info": set(),
}


def module_of(name: str) -> str:
    """Return the module of ours that an import leads to."""
    return name if name in {name_of(path) for path in MODULES} else name.rpartition(".")[0]


def ours_of(path: Path, *, typed: bool = False) -> set[str]:
    """Return the modules of ours that a module imports, at any time."""
    return {module_of(i) for i in imports_of(path, typed=typed) if top(i) == PACKAGE} - {name_of(path)}


def folder_of(name: str) -> str:
    """Return the part of a module's name that stands in `LAYERS`."""
    return name.removeprefix(PACKAGE).removeprefix(".").partition(".")[0]


def test_each_folder_has_its_layer() -> None:
    assert {folder_of(name_of(path)) for path in MODULES} - {""} == set(LAYERS)


def test_the_page_lists_the_layers_and_each_imports_only_from_those_above_it() -> None:
    page = (ROOT.parent / "docs" / "design.md").read_text().partition("## Layers")[2].partition("\n## ")[0]
    rows = [re.findall(r"`(\w+)(?:/|\.py)`", row) for row in re.findall(r"^\| (`[^|]*) \|", page, re.MULTILINE)]
    assert {layer for row in rows for layer in row} == set(LAYERS)
    above: set[str] = set()
    for row in rows:
        for layer in row:
            assert LAYERS[layer] <= above, f"{layer} imports from {', '.join(sorted(LAYERS[layer] - above))}"
        above |= set(row)


@pytest.mark.parametrize("folder", LAYERS)
def test_a_layer_knows_only_those_below_it(folder: str) -> None:
    allowed = LAYERS[folder] | {folder, ""}
    assert [
        f"{name_of(path)} imports {found}"
        for path in modules_in(folder)
        for found in ours_of(path)
        if folder_of(found) not in allowed
    ] == []
    below = list(LAYERS)[: list(LAYERS).index(folder)]
    assert LAYERS[folder] <= set(below)


@pytest.mark.parametrize("typed", [False, True])
def test_there_is_no_cycle_between_files(typed: bool) -> None:
    graph = {name_of(path): ours_of(path, typed=typed) for path in MODULES}
    TopologicalSorter(graph).prepare()


def test_the_core_imports_the_standard_library_re2_itself_and_what_jobs_know_too() -> None:
    assert broken(modules_in("core"), lambda i: is_standard(i) or i == "re2" or is_in(i, "core", "spark.shared")) == []


def test_the_service_imports_the_standard_library_core_and_ports() -> None:
    assert (
        broken(modules_in("service", "ports"), lambda i: is_standard(i) or is_in(i, "service", "core", "ports")) == []
    )


def test_adapters_do_not_know_airflow() -> None:
    assert broken(modules_in("adapters"), lambda i: top(i) != "airflow") == []


def test_the_job_side_imports_pyspark_the_standard_library_and_itself() -> None:
    def allowed(name: str) -> bool:
        return is_standard(name) or top(name) in ("pyspark", "py4j", "delta") or is_in(name, "spark")

    assert modules_in("spark")
    assert broken(modules_in("spark"), allowed) == []


@pytest.mark.parametrize(
    "client",
    [
        "confluent_kafka",
        "pyspark",
        "alembic",
        "psycopg",
        "pymysql",
        "redis",
        "kazoo",
        "happybase",
        "boto3",
        "botocore",
        "hdfs",
    ],
)
def test_heavy_clients_are_imported_where_they_are_used(client: str) -> None:
    outside = [p for p in MODULES if not is_in(name_of(p), "adapters", "ledger", "spark")]
    at_import = [name_of(p) for p in outside for i in imports_of(p, anywhere=False) if top(i) == client]
    assert at_import == []


WEB = ("fastapi", "starlette", "jinja2", "airflow.api_fastapi")
"""What only the API server needs."""


def web_imports(paths: list[Path]) -> list[str]:
    """Return the imports of what only the API server needs, at any time."""
    return broken(paths, lambda name: not f"{name}.".startswith(tuple(f"{web}." for web in WEB)))


def test_only_the_page_knows_what_only_the_api_server_needs() -> None:
    pages = modules_in("page")
    assert web_imports([path for path in MODULES if path not in pages]) == []
    assert web_imports(pages)


def test_what_opens_stores_and_places_imports_no_client_before_it_opens_one() -> None:
    clients = ["redis", "kazoo", "happybase", "boto3", "botocore", "hdfs", "pyspark"]
    imported = f"{PACKAGE}.wiring.stores.opening, {PACKAGE}.wiring.storage, {PACKAGE}.wiring.connections"
    assert _python(f"import sys, {imported}\nprint([c for c in {clients} if c in sys.modules])") == "[]"


def _python(code: str, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-B", "-c", code, *arguments], capture_output=True, text=True, cwd=ROOT.parent, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


# Whatever is opened, started or asked for by a module of ours while it is imported; what is read to import is not.
_WATCH = """
import sys, threading
sys.argv, names = sys.argv[:1], sys.argv[1:]
import importlib, os
{before}
environment = dict(os.environ)
seen = []
def hook(event, args):
    writes = event == "open" and isinstance(args[1], str) and any(c in args[1] for c in "wax+")
    loud = event.startswith(("socket.", "subprocess.", "sqlite3.", "os.mkdir", "os.remove", "os.rename", "os.system"))
    if (writes and not str(args[0]).endswith(".pyc") and "__pycache__" not in str(args[0])) or loud:
        if "__pycache__" not in str(args[0] if args else ""):
            seen.append((event, str(args)[:200]))
sys.addaudithook(hook)
for name in names:
    importlib.import_module(name)
print([s for s in seen], dict(os.environ) == environment, threading.active_count())
"""


@pytest.mark.slow
def test_importing_any_module_opens_nothing() -> None:
    ours = [name_of(p) for p in MODULES if "migrations" not in p.parts]
    # Airflow and Spark do what they do at import; only what comes on top of that is ours.
    before = "\n".join(
        [
            "import airflow.sdk, sqlalchemy, sqlalchemy.dialects.mysql, confluent_kafka.admin, asgiref.sync, sqlite3",
            "import airflow.api_fastapi.core_api.security, fastapi.responses, jinja2, airflow.models.dag",
            "import airflow.providers.apache.spark.operators.spark_submit, airflow.triggers.base, airflow.cli.cli_config",
        ]
    )
    assert _python(_WATCH.format(before=before), *ours).splitlines()[-1] == "[] True 1"


def test_importing_the_package_is_light() -> None:
    code = f"import sys; before = set(sys.modules); import {PACKAGE}; print(sorted(set(sys.modules) - before))"
    loaded = set(ast.literal_eval(_python(code)))
    assert {m for m in loaded if top(m) not in sys.stdlib_module_names} <= {PACKAGE}


def test_the_job_side_runs_without_the_other_dependencies(tmp_path: Path) -> None:
    code = (
        f"import sys\nimport {PACKAGE}.spark\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('airflow', 'sqlalchemy', 'confluent_kafka', 'alembic')\n"
        f"       or m.startswith('{PACKAGE}.') and not m.startswith('{PACKAGE}.spark')]\nprint(bad)"
    )
    assert _python(code) == "[]"


def test_what_airflow_imports_of_the_job_side_needs_no_pyspark() -> None:
    modules = ["connector", "errors", "handoff", "parent", "shared", "shipping", "source"]
    imported = ", ".join(f"{PACKAGE}.spark.{module}" for module in modules)
    assert _python(f"import sys, {imported}\nprint('pyspark' in sys.modules)") == "False"


def test_a_task_that_plans_and_launches_imports_neither_sinks_nor_triggers() -> None:
    modules = [
        "service.windows",
        "wiring.clusters",
        "task.plan",
        "task.work",
        "spark.connector",
        "spark.shipping",
    ]
    unneeded = ["spark.window", "spark.reading", "spark.sinks", "triggers", "service.watch", "cli"]
    code = (
        f"import sys\nimport {', '.join(f'{PACKAGE}.{module}' for module in modules)}\n"
        f"print([m for m in {unneeded} if f'{PACKAGE}.{{m}}' in sys.modules])"
    )
    assert _python(code).splitlines()[-1] == "[]"
