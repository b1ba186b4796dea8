"""What is used of the Spark provider that it keeps to itself, and what our hook makes of it."""

from __future__ import annotations

import ast
import inspect
import textwrap
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.apache.spark.hooks.spark_submit import SparkSubmitHook
from airflow.providers.apache.spark.operators.spark_submit import SparkSubmitOperator

import airflow_kafka_offsets
from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator
from airflow_kafka_offsets.launch import submit_hook
from airflow_kafka_offsets.launch.submit_hook import LaunchHook, SparkHook, SubmitOperator

ROOT = Path(airflow_kafka_offsets.__file__).parent
THE_ROOM = Path(submit_hook.__file__)


def private_names(node: ast.AST) -> set[str]:
    """Return the private attributes that code asks any object for."""
    return {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and is_private(n.attr)}


def is_private(name: str) -> bool:
    """Whether a name is meant for its own module."""
    return name.startswith("_") and not name.startswith("__")


def of_the_provider(ours: type, theirs: type) -> set[str]:
    """Return the private names that one of our classes takes from the provider's."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(ours))).body
    defined = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
    own = {"_check", "_store", "_output", "_env_as_given"} | {name for name in defined if not hasattr(theirs, name)}
    overridden = {name for name in defined if is_private(name) and hasattr(theirs, name)}
    return (private_names(tree) | overridden) - own


def known_to(provider: type) -> set[str]:
    """Return every name that the code of a class of the provider sets or defines."""
    tree = ast.parse(Path(inspect.getfile(provider)).read_text())
    return {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute)} | set(dir(provider))


OURS = [(SparkHook, SparkSubmitHook), (LaunchHook, SparkSubmitHook), (SubmitOperator, SparkSubmitOperator)]


@pytest.mark.parametrize(("ours", "theirs"), OURS, ids=lambda c: c.__name__)
def test_the_installed_provider_has_what_is_used_of_it(ours: type, theirs: type) -> None:
    used = of_the_provider(ours, theirs)
    assert used
    missing = sorted(used - known_to(theirs))
    assert not missing, (
        f"apache-airflow-providers-apache-spark has no {', '.join(missing)} in {theirs.__name__} any more: look at what took "
        "their place, mend airflow_kafka_offsets/launch/submit_hook.py, and move the upper bound in pyproject.toml"
    )


def test_no_other_module_uses_what_the_provider_keeps_to_itself() -> None:
    theirs = {name for ours, provider in OURS for name in of_the_provider(ours, provider)}
    found: list[str] = []
    for path in sorted(ROOT.rglob("*.py")):
        source = path.read_text()
        if not any(name in source for name in theirs):  # to parse every file takes a second
            continue
        tree = ast.parse(source)
        own = {n.attr for n in ast.walk(tree) if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store)}
        own |= {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)}
        if path != THE_ROOM:
            found += [f"{path.relative_to(ROOT)}: {name}" for name in sorted(private_names(tree) & theirs - own)]
    assert found == []


def test_nothing_is_assigned_over_a_method_of_another_object() -> None:
    assert not [str(path) for path in ROOT.rglob("*.py") if "type: ignore[method-assign]" in path.read_text()]


def test_the_hook_gets_each_argument_that_the_providers_operator_gives_to_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", '{"conn_type": "spark", "host": "spark://m", "port": 7077}')
    names = list(inspect.signature(SparkSubmitHook.__init__).parameters)[1:]
    texts = {name: name for name in names if name not in {"conn_id", "conf", "use_krb5ccache", "deploy_mode"}}
    given: dict[str, Any] = {**texts, "conf": {"a": "b"}, "post_submit_commands": ["c"], "spark_binary": "spark-submit"}
    group = KafkaGroup("g", topics=["t"])
    operator = KafkaSparkSubmitOperator(task_id="load", group=group, application="job.py", **given)
    ours, theirs = vars(SparkHook(operator.hook_arguments())), vars(SparkSubmitOperator._get_hook(operator))
    theirs["_connection"]["deploy_mode"] = "client"  # which the provider leaves open
    assert {**ours, "_log": None} == {**theirs, "_log": None}
    assert {name: operator.hook_arguments()[name] for name in given} == given


def hook_with(**values: Any) -> Any:
    hook = LaunchHook.__new__(LaunchHook)
    vars(hook).update({"_is_yarn_cluster_mode": False, "_is_kubernetes": False, "_driver_id": None, **values})
    return hook


def test_a_job_is_noted_when_spark_submit_says_that_it_is_submitted() -> None:
    yarn = hook_with(_is_yarn_cluster_mode=True)
    assert yarn._submitted("INFO Client: Submitting application application_1_0001 to ResourceManager") is None
    assert yarn._submitted("INFO YarnClientImpl: Submitted application application_1_0001") == "application_1_0001"
    assert hook_with(_driver_id="driver-1")._submitted("whatever") == "driver-1"
    said = "INFO Client: Deployed Spark application lake with application ID spark-1 and submission ID etl:lake-driver into K"
    tracked, untracked = (
        hook_with(_is_kubernetes=True, _should_track_driver_via_k8s_api=lambda answer=answer: answer)
        for answer in (True, False)
    )
    assert tracked._submitted(said) == "etl:lake-driver"
    assert tracked._submitted("INFO Client: something else") is None
    assert untracked._submitted(said) is None
