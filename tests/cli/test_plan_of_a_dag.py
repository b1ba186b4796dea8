"""``kafka-offsets plan --dag``: the next window as a DAG defines it, before its first run too."""

from __future__ import annotations

import json
import sqlite3
from importlib.util import cache_from_source
from pathlib import Path

import pytest
from airflow.sdk.definitions._internal.contextmanager import DagContext

from airflow_kafka_offsets.core.errors import LedgerSchemaError
from airflow_kafka_offsets.core.plan.ownership import GroupState
from airflow_kafka_offsets.ledger.schema import VERSION_TABLE
from airflow_kafka_offsets.wiring import connections
from airflow_kafka_offsets.wiring.absent import open_ledger_or_absent
from tests.cli.conftest import Cli, Lake, in_a_process, set_revision

HEAD = "from airflow.sdk import DAG\nfrom airflow_kafka_offsets import KafkaGroup, PlanWindowOperator, KafkaLagSensor\n"
DAG = """
with DAG({dag_id!r}):
    PlanWindowOperator(task_id={task_id!r}, group=KafkaGroup({group!r}, topics=[{topic!r}], {options}))
"""


def dag(group: str, topic: str = "orders", options: str = "", dag_id: str = "new", task_id: str = "load") -> str:
    """Return the text of a DAG that plans a group."""
    return DAG.format(dag_id=dag_id, task_id=task_id, group=group, topic=topic, options=options)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Airflow's folder of DAGs."""
    folder = tmp_path / "dags"
    folder.mkdir()
    monkeypatch.setenv("AIRFLOW__CORE__DAGS_FOLDER", str(folder))
    monkeypatch.setenv("AIRFLOW__CORE__LOAD_EXAMPLES", "False")
    # Airflow forgets this module again, but not if a file there ends the process.
    monkeypatch.setattr(DagContext, "current_autoregister_module_name", None)
    return folder


def write(folder: Path, *dags: str, name: str = "new.py") -> str:
    """Write a DAG file, and return its path."""
    path = folder / name
    path.write_text(HEAD + "".join(dags))
    # Python takes the compiled file of a second ago for this one's if both have the same length.
    Path(cache_from_source(path)).unlink(missing_ok=True)
    return str(path)


def test_the_first_window_is_shown_before_the_first_run_and_nothing_is_written(
    cli: Cli, lake: Lake, folder: Path
) -> None:
    before = lake.dump()
    done = cli("plan", "--dag", write(folder, dag("lake.new", options="max_offsets=700")))
    assert done.code == 0, done.err
    assert done.out.startswith(
        "Group lake.new has no watermark yet. Its first window would have span 700 in 2 partitions, at most 700."
    )
    assert lake.dump() == before


def test_starting_offsets_of_the_dag_count(cli: Cli, folder: Path) -> None:
    file = write(folder, dag("lake.new", options='starting_offsets={"orders": {"0": 990, "1": 4990}}'))
    document = cli("plan", "--dag", file, "-o", "json").json
    assert document["dag_id"] == "new"
    assert document["is_first"] is True
    assert document["no_ledger_in"] is None
    assert [(p["start"], p["end"], p["verdict"]) for p in document["partitions"]] == [
        (990, 1000, "first"),
        (4990, 5000, "first"),
    ]


@pytest.mark.parametrize("is_empty_file", [False, True])
def test_no_ledger_is_needed_and_none_is_made(
    cli: Cli, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_empty_file: bool
) -> None:
    path = tmp_path / "none.db"
    if is_empty_file:
        path.touch()
    monkeypatch.setenv("KAFKA_OFFSETS_LEDGER", f"sqlite:///{path}")
    file = write(folder, dag("lake.new"))
    done = cli("plan", "--dag", file)
    assert (done.code, done.err) == (0, "")
    assert "span 6000 in 2 partitions" in done.out
    assert done.out.endswith(f"sqlite:///{path} has no ledger yet: the group counts as new.\n")
    assert cli("plan", "--dag", file, "-o", "json").json["no_ledger_in"] == f"sqlite:///{path}"
    assert path.exists() is is_empty_file
    replay = cli("plan", "--dag", file, "--windows", "1")
    assert (replay.code, replay.out) == (2, "")
    assert "Group lake.new" in replay.err
    without = cli("plan", "lake.new")
    assert without.code == 3
    assert "kafka-offsets db upgrade" in without.err


def test_what_is_asked_of_an_absent_ledger_beside_the_state_of_a_group_says_how_it_is_made(tmp_path: Path) -> None:
    ledger = open_ledger_or_absent(f"sqlite:///{tmp_path}/none.db")
    assert ledger.load("lake.new") == GroupState()
    with pytest.raises(LedgerSchemaError, match="kafka-offsets db upgrade"):
        ledger.groups()


def test_a_group_that_the_ledger_does_not_know_yet_leads_to_its_dag(cli: Cli) -> None:
    done = cli("plan", "lake.new")
    assert done.code == 2
    assert done.err == (
        "The ledger has no group lake.new; it has lake.clicks, lake.orders. Before its first run:\n"
        "    kafka-offsets plan --dag FILE\n"
    )


@pytest.mark.parametrize("typed", ["lake.ordres", "Lake.Orders", "lake_orders"])
def test_a_slip_in_a_groups_name_is_answered_with_the_group_that_may_be_meant(cli: Cli, typed: str) -> None:
    done = cli("plan", typed)
    assert done.code == 2
    assert done.err.startswith(
        f"The ledger has no group {typed} (did you mean lake.orders?); it has lake.clicks, lake.orders"
    )
    assert done.err.count(typed) == 1, "no command repeats it"


def test_the_ledger_of_the_definition_is_asked(
    cli: Cli, quiet: Lake, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conn = json.dumps({"conn_type": "sqlite", "host": str(quiet.path)})
    monkeypatch.setenv("AIRFLOW_CONN_ITS_LEDGER", conn)
    monkeypatch.setenv("KAFKA_OFFSETS_LEDGER", f"sqlite:///{tmp_path}/other.db")
    file = write(folder, dag("lake.orders", options="ledger_conn_id='its_ledger'", dag_id="orders"))
    assert cli("plan", "--dag", file, "-o", "json").json["is_first"] is False
    elsewhere = cli("plan", "--dag", file, "--ledger", f"sqlite:///{tmp_path}/other.db", "-o", "json")
    assert elsewhere.json["is_first"] is True


def test_a_ledger_of_another_version_is_not_taken_for_an_empty_one(cli: Cli, lake: Lake, folder: Path) -> None:
    set_revision(lake.url, "0001")
    done = cli("plan", "--dag", write(folder, dag("lake.new")))
    assert (done.code, done.out) == (3, "")
    assert "Another version of airflow-kafka-offsets made the ledger" in done.err


def test_a_ledger_whose_making_was_not_finished_is_not_taken_for_an_empty_one(
    cli: Cli, lake: Lake, folder: Path
) -> None:
    connection = sqlite3.connect(lake.path)
    connection.execute(f"DROP TABLE {VERSION_TABLE}")
    connection.close()
    done = cli("plan", "--dag", write(folder, dag("lake.new")))
    assert (done.code, done.out) == (3, "")
    assert "has not all of its tables yet" in done.err


def test_a_known_group_goes_on_at_its_watermark_with_the_definition_of_the_dag(
    cli: Cli, quiet: Lake, folder: Path
) -> None:
    file = write(folder, dag("lake.orders", options="max_offsets=400", dag_id="orders"))
    document = cli("plan", "--dag", file, "-o", "json").json
    assert document["is_first"] is False
    assert (document["max_offsets"], document["span"]) == (400, 400)
    assert document["partitions"][1]["start"] == 300
    assert document["partitions"][1]["verdict"] == "continue"


def test_an_open_window_comes_first_here_too(cli: Cli, lake: Lake, folder: Path) -> None:
    done = cli("plan", "--dag", write(folder, dag("lake.orders", dag_id="orders")))
    first, *_ = done.out.splitlines()
    assert first == (
        "Window lake.orders-000003 (planned, span 1000, 2 attempts, held by orders/scheduled__3/load) comes first: the next run gets it, "
        "after that run is over."
    )


def test_a_group_of_another_dag_is_refused_as_its_run_would_be(cli: Cli, quiet: Lake, folder: Path) -> None:
    done = cli("plan", "--dag", write(folder, dag("lake.orders", dag_id="stranger")))
    assert (done.code, done.out) == (2, "")
    assert "stranger/load asks for live windows of group lake.orders, which belongs to orders/load" in done.err


def test_a_slip_in_the_name_of_a_group_that_has_windows_is_named_before_a_run(
    cli: Cli, quiet: Lake, folder: Path
) -> None:
    file = write(folder, dag("lake.ordres", dag_id="orders"))
    done = cli("plan", "--dag", file)
    assert (done.code, done.err) == (0, "")
    assert (
        "Warning: orders/load has planned the same topics as group lake.orders, and lake.ordres begins at" in done.out
    )
    assert "docs/howto/rename-a-group.md" in done.out
    [warning] = cli("plan", "--dag", file, "-o", "json").json["warnings"]
    assert warning in done.out
    assert "Warning" not in cli("plan", "--dag", write(folder, dag("lake.orders", dag_id="orders"))).out


def test_of_several_groups_one_has_to_be_named(cli: Cli, folder: Path) -> None:
    file = write(folder, dag("lake.new"), dag("lake.other", topic="clicks", dag_id="other"))
    done = cli("plan", "--dag", file)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"{file} plans lake.new, lake.other. Name one:\n    kafka-offsets plan --dag {file} lake.new\n"  # fmt: skip
    assert cli("plan", "--dag", file, "lake.other", "-o", "json").json["dag_id"] == "other"
    unknown = cli("plan", "--dag", file, "lake.unknown")
    assert unknown.code == 2
    assert unknown.err == f"{file} plans no group lake.unknown; it plans lake.new, lake.other\n"


def test_a_group_with_two_definitions_is_refused(cli: Cli, folder: Path) -> None:
    file = write(folder, dag("lake.new"), dag("lake.new", options="max_offsets=5", dag_id="other"))
    done = cli("plan", "--dag", file)
    assert done.code == 2
    assert "defines group lake.new in more than one way, in new/load, other/load" in done.err


def test_a_file_finds_what_lies_beside_it_and_in_airflows_folder_of_dags(cli: Cli, folder: Path) -> None:
    (folder / "groups.py").write_text(
        "from airflow_kafka_offsets import KafkaGroup\nNEW = KafkaGroup('lake.new', topics=['orders'])\n"
    )
    (folder / "orders").mkdir()
    text = HEAD + "from groups import NEW\nwith DAG('{}'):\n    PlanWindowOperator(task_id='plan', group=NEW)\n"
    for path in (folder / "beside.py", folder / "orders" / "below.py"):
        path.write_text(text.format(path.stem))
        assert cli("plan", "--dag", str(path), "-o", "json").json["dag_id"] == path.stem


@pytest.mark.parametrize("given", ["orders", "dags.zip"])
def test_only_a_file_of_python_is_taken(cli: Cli, folder: Path, given: str) -> None:
    done = cli("plan", "--dag", given)
    assert (done.code, done.out, done.err) == (2, "", f"--dag takes a DAG file (.py), not {given}\n")


def test_a_file_that_can_not_be_imported_is_one_clear_error(cli: Cli, folder: Path) -> None:
    file = write(folder, "import no_such_module\n")
    done = cli("plan", "--dag", file)
    assert (done.code, done.out) == (2, "")
    assert done.err == f"Airflow can't import {file}: ModuleNotFoundError: No module named 'no_such_module' (line 3)\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("x = {}['topics']\n", "KeyError: 'topics' (line 3)"),
        ("len(1)\n", "TypeError: object of type 'int' has no len() (line 3)"),
        ("KafkaGroup('a b', topics=['t'])\n", "got 'a b' (line 3)"),
        ("with DAG('d'\n", "SyntaxError"),
        ("raise RuntimeError('it says:\\nmore')\n", "RuntimeError: it says: more (line 3)"),
        ("raise RuntimeError('it says:\\n  - one\\n  - two')\n", "RuntimeError: it says: - one - two (line 3)"),
        ("raise RuntimeError('long ' * 200 + 'end')\n", "long lon... (line 3)"),
        (
            "from airflow_kafka_offsets import KafkaSparkSubmitOperator as Load\n"
            "with DAG('d'):\n"
            "    Load(task_id='load', group=KafkaGroup('g', topics=['t']), aplication='j.py')\n",
            "Invalid arguments were: **kwargs: {'aplication': 'j.py'} (line 5)",
        ),
        ("int('x', bas=10)\n", "(line 3)"),
    ],
)
def test_whatever_a_file_raises_is_told_as_a_whole(cli: Cli, folder: Path, text: str, reason: str) -> None:
    file = write(folder, text)
    done = cli("plan", "--dag", file)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(f"Airflow can't import {file}: ")
    assert reason in done.err
    assert len(done.err.splitlines()) == 1


def test_what_a_file_raises_is_masked_as_in_a_log(cli: Cli, folder: Path) -> None:
    connections.mask("hunter2")
    done = cli("plan", "--dag", write(folder, "raise RuntimeError('refused:\\nit is hunter2')\n"))
    assert "refused: it is ***" in done.err
    assert "hunter2" not in done.err


def test_a_reason_is_there_without_tracebacks_too(cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__DAGBAG_IMPORT_ERROR_TRACEBACKS", "False")
    file = write(folder, "raise RuntimeError\n")
    assert cli("plan", "--dag", file).err == f"Airflow can't import {file}: no reason given\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "Airflow finds no DAG in {file}"),
        ("with DAG('idle'): pass\n", "No task in {file} plans a group"),
        (
            "with DAG('looks'): KafkaLagSensor(task_id='s', group=KafkaGroup('g', topics=['orders']), max_lag=1)\n",
            "No task in {file} plans a group",
        ),
    ],
)
def test_a_file_that_plans_nothing(cli: Cli, folder: Path, text: str, reason: str) -> None:
    file = write(folder, text)
    done = cli("plan", "--dag", file)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(reason.format(file=file))


@pytest.mark.parametrize("file", ["{folder}/typo.py", "~no-such-user/typo.py"])
def test_a_file_that_is_not_there(cli: Cli, folder: Path, file: str) -> None:
    path = file.format(folder=folder)
    done = cli("plan", "--dag", path)
    assert (done.code, done.out, done.err) == (2, "", f"There is no file {path}\n")


def test_a_group_or_a_dag_has_to_be_named(cli: Cli) -> None:
    done = cli("plan")
    assert (done.code, done.out) == (2, "")
    assert done.err == "Name the group, or its DAG file with --dag\n"


def test_a_mapped_task_plans_too(cli: Cli, folder: Path) -> None:
    text = (
        "from airflow_kafka_offsets import KafkaSparkSubmitOperator\n"
        "with DAG('mapped'):\n"
        "    KafkaSparkSubmitOperator.partial(task_id='load',\n"
        "        group=KafkaGroup('lake.new', topics=['orders'])).expand(application=['j.py'])\n"
    )
    assert cli("plan", "--dag", write(folder, text), "-o", "json").json["group"] == "lake.new"


GIVEN = """
from airflow.sdk import task
from airflow_kafka_offsets import KafkaSparkOperator, KafkaSparkSubmitOperator, PlanBacklogOperator
orders = KafkaGroup("lake.orders", topics=["orders"])
def read(spark, window): pass
with DAG("orders"):
    plan = PlanBacklogOperator(task_id="plan", group=orders)
    {load}
"""


@pytest.mark.parametrize(
    "load",
    [
        "KafkaSparkSubmitOperator.partial(task_id='load', group=orders, application='j.py').expand(window=plan.output)",
        "KafkaSparkSubmitOperator.partial(task_id='load', group=orders, application='j.py').expand_kwargs([{'window': 'w'}])",
        "KafkaSparkSubmitOperator.partial(task_id='load', group=orders, window='w').expand(application=['j.py'])",
        "KafkaSparkSubmitOperator(task_id='load', group=orders, application='j.py', window=plan.output)",
        "KafkaSparkOperator(task_id='load', group=orders, python_callable=read, op_kwargs={'window': plan.output})",
        "PlanWindowOperator.partial(task_id='load', group=orders).expand(window=plan.output)",
        "task.kafka_spark(group=orders, task_id='load')(read)(window=plan.output)",
        "task.kafka_spark(group=orders, task_id='load')(read).expand(window=plan.output)",
    ],
)
def test_a_task_that_is_given_its_windows_plans_none(cli: Cli, quiet: Lake, folder: Path, load: str) -> None:
    """A DAG of one task that became a plan task and this one: the group belongs to the task as it was."""
    done = cli("plan", "--dag", write(folder, GIVEN.format(load=load)))
    assert (done.code, done.out) == (2, "")
    assert "orders/plan asks for live windows of group lake.orders, which belongs to orders/load" in done.err


@pytest.mark.slow
def test_neither_a_ledger_nor_a_database_of_airflow_is_made(folder: Path, tmp_path: Path) -> None:
    file = write(folder, dag("lake.new", options="kafka_timeout=1"))
    home = tmp_path / "home"
    command = ("plan", "--dag", file, "--bootstrap-servers", "127.0.0.1:1")
    done = in_a_process(*command, environment={"AIRFLOW_HOME": str(home)})
    assert (done.code, done.out) == (3, "")
    assert "Kafka at 127.0.0.1:1 did not answer" in done.err
    assert list(home.rglob("*.db")) == []
