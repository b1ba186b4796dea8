"""The blocks of the page are settings of librdkafka, and the job gets a login of each."""

from __future__ import annotations

import json

import pytest

from airflow_kafka_offsets.core.launch.login import reader_options
from tests.core.launch.test_login import SETTINGS
from tests.docs.test_docs import ROOT, blocks

BLOCKS = blocks(ROOT / "docs" / "howto" / "log-in-to-your-kafka.md", "json")


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
