"""The examples around other launchers: parsed and rendered by Airflow with the operators of the real providers, in an environment that has these.

`make fetch` makes that environment in build/launchers. What the providers or their clients make of a task is checked as far as it goes without
a server of theirs. The exchange is used through Amazon's provider on a server that speaks S3's protocol.
"""

from __future__ import annotations

import ast
import base64
import json
import os
import re
import subprocess
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from airflow_kafka_offsets.core.plan.ownership import How
from airflow_kafka_offsets.launch.job_files import placeholders
from airflow_kafka_offsets.service.plan import Planned
from airflow_kafka_offsets.task.work import window_result
from tests.core.examples import group, tp, window
from tests.docs.test_docs import ROOT, blocks
from tests.lab.waiting import LONGEST

if TYPE_CHECKING:
    from tests.lab.s3 import S3

PYTHON = ROOT / "build" / "launchers" / "bin" / "python"
EXAMPLES = ROOT / "dags" / "launchers"
PAGES = ROOT / "docs" / "launchers"

HANDOFF = "5ad0b3c2e1f04a679b8c7d6e5f4a3b2c"
URI = f"s3://example-lake/kafka-offsets/lake-000012/{HANDOFF}"

DAGS = {
    "example_orders_databricks_notebook": "databricks.py",
    "example_orders_databricks_wheel": "databricks.py",
    "example_orders_dataproc": "dataproc.py",
    "example_orders_emr": "emr.py",
    "example_orders_emr_serverless": "emr.py",
    "example_orders_kubernetes": "kubernetes.py",
    "example_orders_livy": "livy.py",
}

pytestmark = pytest.mark.slow


# The first import of some providers compiles them: on a busy machine that takes longer than Airflow allows a DAG file.
_PATIENT = {"AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT": str(LONGEST)}


def elsewhere(command: str, given: Any, folder: Path, **environment: str) -> Any:
    """Run a command of `tests.launchers.elsewhere` in the environment of the launchers."""
    assert PYTHON.exists(), "make fetch makes this environment"
    ours = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "AWS", "PYTHON"))}
    done = subprocess.run(
        [PYTHON, "-m", "tests.launchers.elsewhere", command],
        input=json.dumps(given),
        env={**ours, **_PATIENT, "PYTHONPATH": str(ROOT), "AIRFLOW_HOME": str(folder), **environment},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What Airflow makes of the examples in the second try of each launcher."""
    planned = Planned(window({tp(0): (0, 10)}, seq=12), False, How.NEW)
    handed = {
        **window_result(group(), planned),
        **placeholders(planned.window),
        "exchange": URI,
        "exchange_conn_id": "aws_default",
        "handoff": HANDOFF,
    }
    found: dict[str, Any] = elsewhere("render", handed, tmp_path_factory.mktemp("airflow"))
    return found


def test_airflow_parses_each_example_with_the_providers_own_operators(rendered: dict[str, Any]) -> None:
    assert {name: dag["file"] for name, dag in rendered.items()} == DAGS
    for dag in rendered.values():
        tasks = dag["tasks"]
        assert (tasks["plan"]["class"], tasks["commit"]["class"]) == ("PlanWindowOperator", "CommitWindowOperator")
        assert (tasks["plan"]["after"], tasks["load"]["after"]) == ([], ["plan"])
        assert tasks["commit"]["after"] == ["load", "plan"]


@pytest.mark.parametrize("name", DAGS)
def test_the_job_gets_the_address_of_the_exchange_and_nothing_is_left_to_render(
    rendered: dict[str, Any], name: str
) -> None:
    fields, accepted = (json.dumps(rendered[name][part]) for part in ("fields", "accepted"))
    assert json.dumps(URI) in fields
    assert json.dumps(URI) in accepted, "the provider sends it on"
    assert "lake-000012" in accepted or HANDOFF in accepted, "people find the job by its window"
    left = re.findall(r"\{\{.*?\}\}", fields)
    assert left == (["{{secrets/kafka/password}}"] if "databricks" in name else [])


@pytest.mark.parametrize("name", DAGS)
def test_each_launcher_waits_for_the_end_of_its_job_and_starts_one_after_a_clear(
    rendered: dict[str, Any], name: str
) -> None:
    waits = rendered[name]["waits"]
    if "livy" in name or "databricks" in name:
        assert waits["durable"] is False, "after a clear it would start no job"
    if "livy" in name:
        assert waits["_polling_interval"] > 0
    elif "dataproc" in name:
        assert waits["asynchronous"] is False
    elif "kubernetes" in name:
        assert waits["reattach_on_restart"] is True
    else:
        assert waits.get("wait_for_completion", waits.get("wait_for_termination")) is True


def test_each_try_has_its_own_token_where_a_launcher_answers_a_known_one_with_the_old_job(
    rendered: dict[str, Any],
) -> None:
    databricks = rendered["example_orders_databricks_notebook"]["accepted"]
    assert databricks["idempotency_token"] == f"{HANDOFF}-2"
    assert len(databricks["idempotency_token"]) <= 64
    dataproc = rendered["example_orders_dataproc"]["accepted"]
    assert dataproc["request_id"] == f"{HANDOFF}-2"
    assert len(f"{HANDOFF}-9999999") <= 40, "the longest request_id of Dataproc"
    assert re.fullmatch(r"[a-zA-Z0-9_-]{4,100}", dataproc["job"]["reference"]["job_id"])
    assert rendered["example_orders_livy"]["accepted"]["name"].endswith(f"{HANDOFF}-2")


def test_databricks_gets_its_secret_by_name(rendered: dict[str, Any]) -> None:
    [task] = rendered["example_orders_databricks_wheel"]["accepted"]["tasks"]
    assert task["new_cluster"]["spark_env_vars"] == {"KAFKA_PASSWORD": "{{secrets/kafka/password}}"}
    assert task["python_wheel_task"]["parameters"] == [URI, "main.default.orders_by_wheel"]


SPARK_OF_RUNTIME = {"15": "3.5", "16": "3.5", "17": "4.0"}
"""Which Spark each runtime of Databricks has, by their major and minor versions."""
FIRST_WITH_VARIABLES = (3, 5)
"""The first Kafka client that has EnvVarConfigProvider (KIP-887)."""


def test_the_kafka_client_of_databricks_can_look_up_variables_of_the_environment(rendered: dict[str, Any]) -> None:
    clients = {
        seen["spark"].rpartition(".")[0]: tuple(map(int, seen["kafka"].split(".")))
        for seen in json.loads((ROOT / "tests" / "matrix" / "results.json").read_text()).values()
    }
    assert clients["3.5"] < FIRST_WITH_VARIABLES, "docs/launchers/databricks.md says so"
    assert "provider.EnvVarConfigProvider" in (EXAMPLES / "databricks.py").read_text()
    for name in ("example_orders_databricks_notebook", "example_orders_databricks_wheel"):
        [task] = rendered[name]["accepted"]["tasks"]
        runtime, _, scala = task["new_cluster"]["spark_version"].partition(".x-scala")
        assert clients[SPARK_OF_RUNTIME[runtime.partition(".")[0]]] >= FIRST_WITH_VARIABLES
        assert scala == "2.13", "all that a Spark 4 is built for"


def test_the_notebook_asks_for_the_parameters_that_its_task_has(rendered: dict[str, Any]) -> None:
    [task] = rendered["example_orders_databricks_notebook"]["accepted"]["tasks"]
    given = task["notebook_task"]["base_parameters"]
    asked = re.findall(r'dbutils\.widgets\.get\("(\w+)"\)', (EXAMPLES / "jobs" / "orders_notebook.py").read_text())
    assert set(asked) == set(given)
    assert given["exchange"] == URI


def test_a_step_of_emr_stays_within_its_limit(rendered: dict[str, Any]) -> None:
    [step] = rendered["example_orders_emr"]["accepted"]["Steps"]
    assert sum(map(len, step["HadoopJarStep"]["Args"])) < 2000 < 10_240


def test_kubernetes_accepts_the_name_of_the_application(rendered: dict[str, Any]) -> None:
    body = rendered["example_orders_kubernetes"]["accepted"]
    assert re.fullmatch(r"orders-[a-z0-9]{6,}", body["metadata"]["name"])
    assert body["spec"]["restartPolicy"] == {"type": "Never"}


def test_no_two_examples_share_a_group_and_none_holds_a_password() -> None:
    texts = [path.read_text() for path in EXAMPLES.glob("*.py")]
    groups = [name for text in texts for name in re.findall(r'KafkaGroup\("([^"]+)"', text)]
    assert len(groups) == len(set(groups)) == len(DAGS)
    assert all(name.startswith("example.") for name in groups)
    assert not [line for text in texts for line in text.splitlines() if re.search(r"password=\"(?!\$\{)", line)]


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_what_a_page_shows_is_in_its_example(example: Path) -> None:
    shown = blocks(PAGES / f"{example.stem}.md", "py")
    assert shown
    text = textwrap.dedent(example.read_text())
    for code in shown:
        lines = [line.strip() for line in code.strip().splitlines()]
        assert "\n".join(lines) in "\n".join(line.strip() for line in text.splitlines()), code


@pytest.mark.parametrize("job", sorted((EXAMPLES / "jobs").glob("*.py")), ids=lambda path: path.stem)
def test_a_job_imports_only_what_a_cluster_has(job: Path) -> None:
    modules = {
        name
        for node in ast.walk(ast.parse(job.read_text()))
        for name in (
            [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else []
        )
    }
    assert modules <= {"sys", "pyspark.sql", "airflow_kafka_offsets.spark"}


def test_the_exchange_on_s3_goes_through_airflow_s_own_connection(s3: S3, tmp_path: Path) -> None:
    bucket = s3.create_bucket("exchange-of-launchers")
    client = s3.client()
    schemes = ("s3", "s3a")
    folders = {scheme: f"kafka-offsets/lake-000012/5ad0-{scheme}" for scheme in schemes}
    for folder in folders.values():
        for key, text in {
            "": "",  # Hadoop's S3A keeps such an object for a folder
            "1-a/": "",
            "1-a/part-00000.txt": '{"a": 1}',
            "1-a/_SUCCESS": "",
            "2-b/_temporary/0/part-00000.txt": "x",
        }.items():
            client.put_object(Bucket=bucket, Key=f"{folder}/reports/{key}", Body=text.encode())
    connection = {
        "conn_type": "aws",
        "login": "test",
        "password": "test-secret",
        "extra": {"endpoint_url": s3.url, "region_name": "us-east-1"},
    }
    addresses = {scheme: f"{scheme}://{bucket}/{folders[scheme]}" for scheme in schemes}
    given = {"texts": {addresses[scheme]: f'"{scheme}"' for scheme in schemes}, "conn_id": "lake"}
    found = elsewhere("exchange", given, tmp_path, AIRFLOW_CONN_LAKE=json.dumps(connection))
    for scheme in schemes:
        assert found[addresses[scheme]] == {"1-a": '{"a": 1}', "2-b": ""}
        written = client.get_object(Bucket=bucket, Key=f"{folders[scheme]}/window.json")["Body"].read()
        assert written.decode() == f'"{scheme}"'


def test_planning_has_its_token_from_amazons_own_signer_and_asks_googles_own_hook(tmp_path: Path) -> None:
    servers = {
        "amazon": "b-1.lake.abc.c2.kafka.eu-central-1.amazonaws.com:9098",
        "google": "bootstrap.lake.europe-west3.managedkafka.lake.cloud.goog:9092",
    }
    login = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
    connections = {
        f"AIRFLOW_CONN_{name.upper()}": json.dumps({"conn_type": "kafka", "extra": {"bootstrap.servers": at, **login}})
        for name, at in servers.items()
    }
    machine = {
        "AWS_ACCESS_KEY_ID": "lake",
        "AWS_SECRET_ACCESS_KEY": "hunter2",
        "AIRFLOW_CONN_GOOGLE_CLOUD_DEFAULT": json.dumps({"conn_type": "google_cloud_platform"}),
        "NO_GCE_CHECK": "true",
        "CLOUDSDK_CONFIG": str(tmp_path),
    }
    found = elsewhere("tokens", list(servers), tmp_path, **machine, **connections)
    signed = urlsplit(base64.urlsafe_b64decode(f"{found['amazon']}==").decode())
    assert signed.hostname == "kafka.eu-central-1.amazonaws.com"
    asked = parse_qs(signed.query)
    assert asked["Action"] == ["kafka-cluster:Connect"]
    assert asked["X-Amz-Credential"][0].startswith("lake/")
    assert "hunter2" not in signed.query
    assert "Your default credentials were not found" in found["google"]
