"""The blocks of the page are settings of librdkafka, and the job gets a login of each; its table is what the tests try."""

from __future__ import annotations

import json

import pytest

from airflow_kafka_offsets.core.launch.login import reader_options
from tests.core.launch.test_login import SETTINGS
from tests.docs.test_docs import ROOT, blocks
from tests.launch import test_logins as logins

PAGE = ROOT / "docs" / "howto" / "log-in-to-your-kafka.md"
BLOCKS = blocks(PAGE, "json")


@pytest.mark.parametrize("block", BLOCKS)
def test_a_block_to_copy_is_a_login_of_planning_and_of_the_job(block: str) -> None:
    connection = json.loads(block)
    assert connection.keys() <= {*SETTINGS, "bootstrap.servers", "security.protocol"}
    reader = reader_options(connection, {})
    login = {"kafka.sasl.jaas.config", "kafka.ssl.keystore.key"}
    assert login & {*reader.options, *reader.secrets}
    assert not any(value in reader.options.values() for name, value in connection.items() if name.endswith("password"))


def test_the_page_has_a_block_for_each_kind() -> None:
    assert len(BLOCKS) == 7


def test_the_table_says_tested_where_a_test_reads_a_window_with_that_login() -> None:
    lines = PAGE.read_text().partition("\n## What was tried\n")[2].splitlines()
    columns, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines if line[:1] == "|")
    places = {
        "planning": logins.test_a_window_is_planned_read_and_committed,
        "local": logins.test_a_window_is_planned_read_and_committed,
        "YARN": logins.test_on_yarn,
        "standalone": logins.test_on_a_standalone_cluster,
        "Connect": logins.test_on_spark_connect,
    }
    tried = {(login, place) for login in logins.LOGINS.values() for place in places}
    planned_with_scram = {(logins.LOGINS["kerberos"], "planning")}
    tried_once = {("Kerberos, ticket", "local"): logins.test_a_job_logs_in_with_the_ticket_of_its_user}
    tested = {(row[0], place) for row in rows for place, cell in zip(columns, row, strict=True) if cell == "tested"}
    assert tested == tried - planned_with_scram | tried_once.keys()
