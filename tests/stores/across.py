"""From the ledger into a store, and back: the command line, Airflow's connections, a real server.

A subclass is a `pytest` class with the fixture `place`: the address of the store, whose connection is `lab`, and the fields of that connection.
The stores with heavy servers have theirs in the files of these servers, which start once for both.
"""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets.cli import main
from airflow_kafka_offsets.core.errors import StoreDriftError
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Act
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Position
from airflow_kafka_offsets.core.store_address import parse_store_address
from airflow_kafka_offsets.core.window import Claim, Scope
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.service.base import utc_now
from airflow_kafka_offsets.service.windows import WindowService
from airflow_kafka_offsets.wiring import open_log, open_service
from airflow_kafka_offsets.wiring.stores.opening import open_store
from tests.lab.kafka import KafkaBroker
from tests.lab.topics import create_topic, produce

Place = tuple[str, dict[str, Any]]
Run = Callable[..., tuple[int, str]]


class Across:
    """All of it."""

    @pytest.fixture
    def address(self, place: Place, kafka: KafkaBroker, monkeypatch: pytest.MonkeyPatch) -> str:
        """Give Airflow the connection to the store, and return its address."""
        address, fields = place
        monkeypatch.setenv("AIRFLOW_CONN_LAB", json.dumps(fields))
        connection = {"conn_type": "kafka", "extra": kafka.client_config()}
        monkeypatch.setenv("AIRFLOW_CONN_KAFKA_DEFAULT", json.dumps(connection))
        return address

    @pytest.fixture
    def ledger(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ledger:
        """Make the ledger that the command line and the service open."""
        url = f"sqlite:///{tmp_path}/ledger.db"
        monkeypatch.setenv("KAFKA_OFFSETS_LEDGER", url)
        monkeypatch.setattr("airflow_kafka_offsets.wiring.ledger_url", lambda conn_id=None: url)
        return Ledger(url, create=True)

    @pytest.fixture
    def group(self, kafka: KafkaBroker, ledger: Ledger, topic: str, address: str) -> KafkaGroup:
        """Found a group on a topic with two partitions, at the offsets 30 and 7."""
        create_topic(kafka, topic, 2)
        for partition in range(2):
            produce(kafka, topic, 50, partition=partition)
        group = KafkaGroup(f"lake.{uuid.uuid4().hex[:8]}", topics=[topic], kafka_timeout=10, offset_store=address)
        ids = open_log(group).topic_ids([topic])
        act = Act("import", "ada", "begin", utc_now(), {})
        ledger.found(group, Position({TopicPartition(topic, 0): 30, TopicPartition(topic, 1): 7}, ids), act)
        return group

    @pytest.fixture
    def run(self, capsys: pytest.CaptureFixture[str]) -> Run:
        """Run a command, and return its exit code and output."""

        def run(*arguments: str) -> tuple[int, str]:
            capsys.readouterr()
            with pytest.raises(SystemExit) as ended:
                main(arguments)
            shown = capsys.readouterr()
            return int(ended.value.code or 0), shown.out + (shown.err if ended.value.code else "")

        return run

    def test_out_and_back_again(self, run: Run, ledger: Ledger, group: KafkaGroup, address: str) -> None:
        [topic] = group.topics
        stands = {TopicPartition(topic, 0): 30, TopicPartition(topic, 1): 7}
        why = ("--why", "moving")
        copy = ("copy", group.name, "--from", "ledger", "--to", address, *why)
        assert run(*copy)[0] == 4, "a dry run"
        store = open_store(parse_store_address(address), group)
        assert store.read(group.name, [topic]) == {}
        code, output = run(*copy, "--yes")
        assert code == 0, output
        assert store.read(group.name, [topic]) == stands
        assert run("verify", group.name)[0] == 0

        code, output = run("export", group.name, "--from", address, "--to", "-")
        assert code == 0, output
        assert list(csv.reader(io.StringIO(output))) == [[topic, "0", "30"], [topic, "1", "7"]]

        code, output = run(
            "import", f"{group.name}.copy", "--from", address, "--as", group.name, "--topic", topic, *why, "--yes"
        )
        assert code == 0, output
        position = ledger.load(f"{group.name}.copy").position
        assert position is not None
        assert position.offsets == stands
        assert [act.kind for act in ledger.acts(group.name)] == ["import", "copy"]
        assert [act.kind for act in ledger.acts(f"{group.name}.copy")] == ["import"]

    def test_a_window_moves_the_store_and_what_others_move_is_seen_before_the_next(
        self, run: Run, ledger: Ledger, group: KafkaGroup, address: str
    ) -> None:
        [topic] = group.topics
        service: WindowService = open_service(group)
        claim = Claim("dag", "run", "task", scope=Scope.RUN)
        [planned] = service.plan(group, claim, lambda _: True)
        service.commit(planned.window.id, claim)
        end = {TopicPartition(topic, 0): 50, TopicPartition(topic, 1): 50}
        store = open_store(parse_store_address(address), group)
        assert store.read(group.name, [topic]) == end
        assert run("verify", group.name)[0] == 0

        store.advance(group.name, end, {**end, TopicPartition(topic, 1): 40})
        with pytest.raises(StoreDriftError, match=rf"{topic}-1: found 40, expected 50"):
            service.plan(group, Claim("dag", "next", "task", scope=Scope.RUN), lambda _: True)
        code, output = run("verify", group.name)
        assert code == 1, output
        assert "copy" in output
        code, output = run("copy", group.name, "--from", "ledger", "--to", address, "--why", "put right", "--yes")
        assert code == 0, output
        assert run("verify", group.name)[0] == 0
