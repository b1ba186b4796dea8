"""What runs in the environment that has the providers of the launchers: `build/launchers/bin/python -m tests.launchers.elsewhere`.

It imports nothing of the tests, because that environment has none of their requirements.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "dags" / "launchers"


def render(handed: dict[str, Any]) -> dict[str, Any]:
    """Let Airflow parse the examples, and render their tasks as after a plan task that returned this; by the id of the DAG.

    The launcher is in its second try.
    """
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(EXAMPLES, bundle_path=EXAMPLES, bundle_name="examples")
    if bag.import_errors:
        raise SystemExit(f"Airflow can't parse the examples: {bag.import_errors}")
    return {name: {"file": Path(dag.fileloc).name, **_rendered(dag, handed)} for name, dag in bag.dags.items()}


def _rendered(dag: Any, handed: dict[str, Any]) -> dict[str, Any]:
    variables = SimpleNamespace(value=SimpleNamespace(get=lambda name, default=None: default))
    ti = SimpleNamespace(try_number=2, xcom_pull=lambda task_ids: handed if task_ids == "plan" else None)
    tasks = {}
    for task in dag.tasks:
        if task.task_id == "load":
            task.render_template_fields({"ti": ti, "var": variables}, dag.get_template_env())
        tasks[task.task_id] = {"class": type(task).__name__, "after": sorted(task.upstream_task_ids)}
    load = dag.get_task("load")
    fields = {name: getattr(load, name) for name in load.template_fields}
    waits = {name: getattr(load, name) for name in WAITS if hasattr(load, name)}
    return {"tasks": tasks, "fields": fields, "waits": waits, "accepted": ACCEPTS[type(load).__name__](load)}


WAITS = (
    "wait_for_completion",
    "wait_for_termination",
    "asynchronous",
    "_polling_interval",
    "reattach_on_restart",
    "durable",
)
"""What says whether an operator waits for the end of its job, and finds it again."""


def _databricks(load: Any) -> Any:
    return load._prepare_submit_json({})


def _checked(service: str, call: str, **request: Any) -> Any:
    """Let Amazon's own client check a request, without sending it."""
    import boto3
    from botocore.validate import validate_parameters

    shape = boto3.client(service, region_name="eu-west-1").meta.service_model.operation_model(call).input_shape
    validate_parameters(request, shape)
    return request


def _emr(load: Any) -> Any:
    return _checked("emr", "AddJobFlowSteps", JobFlowId=load.job_flow_id, Steps=load.steps)


def _emr_serverless(load: Any) -> Any:
    return _checked(
        "emr-serverless",
        "StartJobRun",
        clientToken=load.client_request_token,
        applicationId=load.application_id,
        executionRoleArn=load.execution_role_arn,
        jobDriver=load.job_driver,
        name=load.name,
    )


def _dataproc(load: Any) -> Any:
    from google.cloud.dataproc_v1 import Job, SubmitJobRequest

    request = SubmitJobRequest(
        project_id=load.project_id, region=load.region, job=Job(load.job), request_id=load.request_id
    )
    return SubmitJobRequest.to_dict(request)


def _livy(load: Any) -> Any:
    from airflow.providers.apache.livy.hooks.livy import LivyHook

    return LivyHook.build_post_batch_body(**load.spark_params)


def _kubernetes(load: Any) -> Any:
    from airflow.providers.cncf.kubernetes.operators.custom_object_launcher import CustomObjectLauncher

    launcher = CustomObjectLauncher(
        name=load.create_job_name(),
        namespace=load.namespace,
        kube_client=None,
        custom_obj_api=None,
        template_body=load.template_body,
    )
    return launcher.body


ACCEPTS = {
    "DatabricksSubmitRunOperator": _databricks,
    "EmrAddStepsOperator": _emr,
    "EmrServerlessStartJobOperator": _emr_serverless,
    "DataprocSubmitJobOperator": _dataproc,
    "LivyOperator": _livy,
    "SparkKubernetesOperator": _kubernetes,
}
"""The request of each provider or its client for a rendered task. It refuses fields that it does not know."""


def exchange(given: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Leave a text in each of some folders of the exchange, and return what jobs have reported there, by the address."""
    found = {}
    for address, text in given["texts"].items():
        opened = import_module("airflow_kafka_offsets.wiring.storage").open_exchange(address, given["conn_id"])
        opened.put("window.json", text)
        found[address] = {name: content.decode() for name, content in opened.reports("reports").items()}
    return found


def pods(given: dict[str, Any]) -> list[Any]:
    """Ask Kubernetes as a worker does, with Airflow's own client, and return the answers. An error is one of them."""
    wiring = import_module("airflow_kafka_offsets.wiring.clusters")
    target = SimpleNamespace(is_kubernetes=True, is_cluster_mode=True, namespace="etl")
    cluster = wiring.open_kubernetes(target)
    answers: list[Any] = []
    for call, arguments in given["questions"]:
        try:
            answers.append(getattr(cluster, call)(**arguments))
        except import_module("airflow_kafka_offsets.core.errors").ClusterUnavailableError as exc:
            answers.append(f"error: {exc}")
    return answers


def tokens(given: list[str]) -> dict[str, str]:
    """Return by connection the token with which planning logs in to Kafka, or why there is none."""
    from airflow_kafka_offsets.wiring.kafka_login import kafka_config

    found = {}
    for name in given:
        callback = kafka_config(name)["oauth_cb"]
        try:
            found[name] = callback(None)[0]
        except Exception as exc:
            found[name] = f"{type(exc).__name__}: {exc}"
    return found


if __name__ == "__main__":
    commands = {"render": render, "exchange": exchange, "pods": pods, "tokens": tokens}
    print(json.dumps(commands[sys.argv[1]](json.load(sys.stdin)), default=str))
