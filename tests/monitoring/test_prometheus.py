"""A real Prometheus scrapes `kafka-offsets metrics`, and its own tools read the rules."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import requests

from airflow_kafka_offsets.adapters.kafka.log import KafkaLog
from airflow_kafka_offsets.cli.running import ExitCode
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.lag.lag import GroupVerdict
from airflow_kafka_offsets.core.offsets import TopicPartition
from tests.cli.conftest import Lake, in_a_process
from tests.lab.processes import LOOPBACK, free_port, wait_until
from tests.lab.prometheus import Prometheus, promtool
from tests.lab.topics import create_topic, produce
from tests.lab.waiting import ANSWER
from tests.monitoring.test_files import FOLDER, STATE, alert_rules, dashboard
from tests.service.memory_log import MemoryLog

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker

RULES = FOLDER / "alerts.yml"


@pytest.fixture
def shore(kafka: KafkaBroker, topic: str, tmp_path: Path) -> Lake:
    """A group with one window committed, one open, and 30 more records."""
    group = KafkaGroup("lake.real", topics=[topic], kafka_timeout=5)
    create_topic(kafka, topic, 2)
    produce(kafka, topic, 100, partition=0)
    lake = Lake(tmp_path / "ledger.db", KafkaLog(kafka.client_config(), 10))
    lake.commit(group, 1)
    produce(kafka, topic, 50, partition=1)
    lake.plan(group, 2)
    produce(kafka, topic, 30, partition=1)
    return lake


@contextmanager
def serving(ledger: str, servers: str, *arguments: str) -> Iterator[str]:
    """Let `kafka-offsets metrics` serve, and give its `host:port`."""
    where = f"{LOOPBACK}:{free_port()}"
    program = Path(sys.executable).parent / "kafka-offsets"
    command = [program, "metrics", "--listen", where, "--ledger", ledger, "--bootstrap-servers", servers, *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield where
        finally:
            process.terminate()


def scraped(where: str) -> str:
    return requests.get(f"http://{where}/metrics", timeout=ANSWER).text


def says(where: str, line: str) -> bool:
    """Whether a scrape has this line."""
    try:
        return f"{line}\n" in scraped(where)
    except requests.RequestException:
        return False


def test_prometheus_scrapes_every_metric_and_the_queries_of_the_dashboard_find_them(
    kafka: KafkaBroker, shore: Lake, tmp_path: Path
) -> None:
    with (
        serving(shore.url, kafka.bootstrap_servers, "--interval", "1") as where,
        Prometheus(tmp_path / "prometheus", [where], [RULES]) as prometheus,
    ):
        # It is NaN as long as Kafka has not answered.
        wait_until(
            lambda: prometheus.values("kafka_offsets_lag", "group") == {"lake.real": "80"},
            what="Prometheus has the lag",
        )
        assert not [name for name in STATE if not prometheus.query(name)]
        verdicts = prometheus.values("kafka_offsets_verdict", "verdict")
        assert verdicts.keys() == set(GroupVerdict)
        assert sorted(verdicts.values()) == ["0"] * (len(GroupVerdict) - 1) + ["1"]
        for panel in dashboard()["panels"]:
            for target in panel.get("targets", ()):
                found = prometheus.query(target["expr"].replace("$group", ".*"))
                assert found or "kafka_offsets_task_" in target["expr"], target["expr"]
        # The window is not a day old by this clock: that of the lake is in January.
        wait_until(lambda: "KafkaOffsetsWindowOpenForADay" in prometheus.alerts(), what="the alert is there")


@pytest.mark.server
def test_a_scrape_does_not_wait_for_a_kafka_that_never_answers(tmp_path: Path) -> None:
    log = MemoryLog()
    log.create("orders")
    log.produce(TopicPartition("orders", 0), 10)
    lake = Lake(tmp_path / "ledger.db", log)
    lake.plan(KafkaGroup("lake.orders", topics=["orders"], kafka_timeout=3_600), 1)
    with socket.create_server((LOOPBACK, 0)) as silent:
        silent.settimeout(ANSWER)
        with serving(lake.url, f"{LOOPBACK}:{silent.getsockname()[1]}", "--interval", "1") as where:
            asked, _ = silent.accept()
            with asked:
                found = scraped(where)
    assert "kafka_offsets_scrape_timestamp_seconds 0.0\n" in found, "the first collection has ended"
    assert 'kafka_offsets_lag{group="lake.orders",topic="orders"} NaN\n' in found
    assert 'kafka_offsets_open_windows{group="lake.orders",lane="live"} 1.0\n' in found, "the ledger has told it"


def test_with_a_kafka_that_is_down_a_scrape_has_what_the_ledger_knows(shore: Lake) -> None:
    with serving(shore.url, f"{LOOPBACK}:{free_port()}", "--interval", "1") as where:
        wait_until(lambda: says(where, "kafka_offsets_ledger_up 1.0"), what="a collection ends")
        found = scraped(where)
    assert 'kafka_offsets_up{group="lake.real",kafka_conn_id="kafka_default"} 0.0' in found
    assert 'kafka_offsets_open_windows{group="lake.real",lane="live"} 1.0' in found
    assert "kafka_offsets_lag{" in found


@pytest.mark.server
def test_it_serves_although_the_ledger_does_not_answer() -> None:
    nobody = f"{LOOPBACK}:{free_port()}"
    with serving(f"postgresql://offsets@{nobody}/offsets", nobody, "--interval", "1") as where:
        wait_until(lambda: says(where, "kafka_offsets_ledger_up 0.0"), what="the ledger is told to be down")
        assert says(where, "kafka_offsets_scrape_timestamp_seconds 0.0")


@pytest.mark.server
def test_a_ledger_that_is_none_ends_the_command(tmp_path: Path) -> None:
    done = in_a_process("metrics", "--listen", f"{LOOPBACK}:0", "--ledger", f"sqlite:///{tmp_path}/none.db")
    assert done.code == ExitCode.UNAVAILABLE
    assert "kafka-offsets db upgrade" in done.err


def test_what_is_printed_and_written_is_what_prometheus_reads(kafka: KafkaBroker, shore: Lake, tmp_path: Path) -> None:
    common = ("--ledger", shore.url, "--bootstrap-servers", kafka.bootstrap_servers, "--per-partition")
    printed = in_a_process("metrics", *common)
    assert printed.code == 0, printed.err
    file = tmp_path / "kafka_offsets.prom"
    written = in_a_process("metrics", *common, "--output", str(file))
    assert (written.code, written.out) == (0, f"Written: {file}\n")
    assert [path.name for path in tmp_path.glob("*.prom*")] == [file.name]
    for text in (printed.out, file.read_text()):
        promtool("check", "metrics", given=text)
        lags = [line.rpartition(" ")[2] for line in text.splitlines() if line.startswith("kafka_offsets_lag{")]
        assert lags == ["0.0", "80.0"]


@pytest.mark.server
def test_prometheus_reads_the_rules() -> None:
    assert "SUCCESS: 8 rules found" in promtool("check", "rules", RULES)


def series(name: str, values: str, **labels: str) -> dict[str, str]:
    """Return a series of a unit test of rules: one value a minute."""
    said = ",".join(f'{label}="{value}"' for label, value in labels.items())
    return {"series": f"kafka_offsets_{name}{{{said}}}", "values": values}


# By alert: what is seen from minute 0 on, when it does not fire yet, when it does, and for whom.
FIRES: dict[str, tuple[list[dict[str, str]], str | None, str, dict[str, str]]] = {
    "KafkaOffsetsLost": (
        [series("verdict", "0 1x9", group="g", verdict="LOST")],
        "0m",
        "1m",
        {"group": "g", "verdict": "LOST"},
    ),
    "KafkaOffsetsAtRisk": (
        [series("verdict", "1x20", group="g", verdict="AT RISK")],
        *("4m", "5m", {"group": "g", "verdict": "AT RISK"}),
    ),
    "KafkaOffsetsNeedsRerun": (
        [series("verdict", "1x20", group="g", verdict="NEEDS RERUN")],
        *("9m", "10m", {"group": "g", "verdict": "NEEDS RERUN"}),
    ),
    "KafkaOffsetsStalled": (
        [series("verdict", "1x20", group="g", verdict="STALLED")],
        *("9m", "10m", {"group": "g", "verdict": "STALLED"}),
    ),
    "KafkaOffsetsBehind": (
        [series("verdict", "1x90", group="g", verdict="BEHIND")],
        *("59m", "60m", {"group": "g", "verdict": "BEHIND"}),
    ),
    "KafkaOffsetsWindowOpenForADay": (
        [series("open_window_age_seconds", "86400 86401", group="g", lane="live")],
        *("0m", "1m", {"group": "g", "lane": "live"}),
    ),
    "KafkaOffsetsKafkaDown": (
        [series("up", "0x20", group="g", kafka_conn_id="k"), series("up", "1x20", group="h", kafka_conn_id="l")],
        *("9m", "10m", {"kafka_conn_id": "k"}),
    ),
    "KafkaOffsetsMetricsOld": ([series("scrape_timestamp_seconds", "0x30")], "10m", "16m", {}),
    "KafkaOffsetsMetricsOld (absent)": ([series("ledger_up", "1x30")], "4m", "5m", {}),
}


@pytest.mark.server
@pytest.mark.parametrize("alert", FIRES)
def test_an_alert_fires_when_it_should_and_not_before(alert: str, tmp_path: Path) -> None:
    seen, quiet, loud, labels = FIRES[alert]
    alert = alert.removesuffix(" (absent)")
    (rule,) = [one for one in alert_rules() if one["alert"] == alert]
    fired = {"exp_labels": {**rule["labels"], **labels}, "exp_annotations": _shown(rule["annotations"], labels)}
    test = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": seen,
                "alert_rule_test": [
                    {"eval_time": quiet, "alertname": alert, "exp_alerts": []},
                    {"eval_time": loud, "alertname": alert, "exp_alerts": [fired]},
                ],
            }
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps(test))
    assert "SUCCESS" in promtool("test", "rules", file)


@pytest.mark.server
def test_what_is_not_known_of_one_topic_hides_no_other_in_a_panel(tmp_path: Path) -> None:
    shown = {
        target["expr"].replace("$group", ".*"): metric.group(1)
        for panel in dashboard()["panels"]
        for target in panel.get("targets", ())
        if (metric := re.search(r"by \(group\) \(kafka_offsets_(\w+)\{", target["expr"]))
    }
    assert {"lag", "lost_offsets", "headroom_seconds"} <= set(shown.values())
    seen = {"orders": "5x2", "new": "NaN NaN NaN"}
    test = {
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    series(name, values, group="g", topic=topic)
                    for name in sorted(set(shown.values()))
                    for topic, values in seen.items()
                ]
                + [series("needed_headroom_seconds", "0x2", group="g", topic=topic) for topic in seen],
                "promql_expr_test": [
                    {"expr": expression, "eval_time": "1m", "exp_samples": [{"labels": '{group="g"}', "value": 5}]}
                    for expression in shown
                ],
            }
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(json.dumps(test))
    assert "SUCCESS" in promtool("test", "rules", file)


def _shown(annotations: dict[str, str], labels: dict[str, str]) -> dict[str, str]:
    annotations = {key: text.replace("{{ $value }}", "1") for key, text in annotations.items()}
    for label, value in labels.items():
        annotations = {key: text.replace(f"{{{{ $labels.{label} }}}}", value) for key, text in annotations.items()}
    return annotations


def test_every_alert_is_tested() -> None:
    assert {name.partition(" ")[0] for name in FIRES} == {rule["alert"] for rule in alert_rules()}
