"""Reading what lies in the broker's remote tier alone, which takes longer than a fetch of records at hand."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.lab.tiered_kafka import TieredKafkaBroker
from tests.lab.topics import create_topic, produce

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.conftest import MakeWindow

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredKafkaBroker]:
    """Run a broker whose topic `cold` lies in the remote tier. A read of it takes longer than Kafka's clients wait by default."""
    with TieredKafkaBroker(tmp_path_factory.mktemp("cold"), delay_ms=800) as broker:
        broker.fill("cold", 20_000)
        yield broker


def test_no_read_of_a_slow_remote_tier_is_interrupted(cold: TieredKafkaBroker, make_window: MakeWindow) -> None:
    window = make_window({"cold": {0: (0, 500)}}, options={"kafka.bootstrap.servers": cold.bootstrap_servers})
    assert window.read().count() == 500
    window.check()
    assert cold.interrupts == 0


def test_at_the_end_of_the_log_a_read_waits_for_nothing(cold: TieredKafkaBroker, make_window: MakeWindow) -> None:
    create_topic(cold, "live", 4)
    for partition in range(4):
        produce(cold, "live", 20, partition=partition)
    ends = dict.fromkeys(range(4), (0, 20))
    window = make_window({"live": ends}, options={"kafka.bootstrap.servers": cold.bootstrap_servers})
    started = time.monotonic()
    assert window.read().count() == 80
    assert time.monotonic() - started < 10, "one fetch that waits takes 20 s"


def test_this_broker_would_interrupt_the_reads_of_whoever_waits_for_ten_milliseconds(
    cold: TieredKafkaBroker, make_window: MakeWindow
) -> None:
    servers = {"kafka.bootstrap.servers": cold.bootstrap_servers, "kafkaConsumer.pollTimeoutMs": "2000"}
    impatient = make_window({"cold": {0: (0, 500)}}, options={**servers, "kafka.fetch.max.wait.ms": "10"})
    with pytest.raises(Exception, match="TimeoutException"):
        impatient.read().count()
    assert cold.interrupts > 0
