"""Bad input changes nothing, and a secret is nowhere to be found."""

from __future__ import annotations

import pytest
from confluent_kafka.admin import AclOperation
from sqlalchemy import create_engine, inspect, text

from airflow_kafka_offsets.core.window import State
from tests.acceptance.conftest import Lab, expect_once
from tests.lab.processes import command_lines


@pytest.mark.parametrize(
    ("dag_id", "says"),
    [
        ("no_such_connection", "Airflow has no connection 'nowhere'"),
        ("no_such_cluster", "Airflow has no connection 'nowhere'"),
        (
            "no_such_job",
            "application 'jobs/none.py' is missing on ",
        ),  # and no retry, which would come after ten minutes
        ("colliding_conf", "conf must not have SPARK.kafka_offsets.window"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(lab: Lab, dag_id: str, says: str) -> None:
    lab.topic(dag_id, 1)
    run = lab.api.run_to(dag_id, state="failed")
    assert says in lab.api.log(dag_id, run, "load")
    assert not lab.windows(dag_id)


def test_a_password_is_in_no_argv_log_xcom_rendered_field_ledger_or_event_log(lab: Lab) -> None:
    canary = lab.secure_kafka.password("alice")
    for operation in (AclOperation.DESCRIBE, AclOperation.READ):
        lab.secure_kafka.allow("alice", operation, topic="canary")
    lab.topic("canary", kafka=lab.secure_kafka)
    run = lab.api.trigger("canary")
    with lab.hold("canary") as hold:
        hold.wait()
        argv = command_lines()
        assert any("spark.kafka_offsets.window" in line for line in argv), "the job's command line was not seen"
        assert not [line for line in argv if canary in line]
    lab.api.wait_for_run("canary", run, "success")
    (row,) = lab.windows("canary")
    assert row.window.state is State.COMMITTED
    expect_once(lab, "canary", [row.window])

    assert canary not in lab.api.log("canary", run, "load")
    assert canary not in str(lab.api.xcom("canary", run, "load"))
    assert canary not in str(lab.api.rendered_fields("canary", run, "load"))
    assert canary not in dump(lab.servers.ledger.url)
    events = [path.read_text(errors="replace") for path in (lab.folder / "events").rglob("*") if path.is_file()]
    assert any("canary" in text for text in events), "there is no event log"
    assert not [1 for text in events if canary in text]
    logs = [p.read_text(errors="replace") for p in (lab.airflow.home / "logs").rglob("*canary*/**/*.log")]
    assert logs
    assert not [1 for log in logs if canary in log]


def dump(url: str) -> str:
    """Return everything in a database as text."""
    engine = create_engine(url)
    with engine.connect() as connection:
        tables = inspect(engine).get_table_names()
        return "\n".join(str(connection.execute(text(f'SELECT * FROM "{table}"')).all()) for table in tables)
