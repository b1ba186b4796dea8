"""Reading what lies in the broker's remote tier alone, which takes longer than a fetch of records at hand."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.lab.tiered_kafka import TieredKafkaBroker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.spark.conftest import MakeWindow

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def cold(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TieredKafkaBroker]:
    """Run a broker whose topic `cold` lies in the remote tier."""
    with TieredKafkaBroker(tmp_path_factory.mktemp("cold")) as broker:
        broker.fill("cold", 20_000)
        yield broker


def test_no_read_of_a_slow_remote_tier_is_interrupted(cold: TieredKafkaBroker, make_window: MakeWindow) -> None:
    window = make_window({"cold": {0: (0, 500)}}, options={"kafka.bootstrap.servers": cold.bootstrap_servers})
    assert window.read().count() == 500
    window.check()
    assert cold.interrupts == 0


def test_this_broker_would_interrupt_the_reads_of_whoever_waits_for_ten_milliseconds(
    cold: TieredKafkaBroker, make_window: MakeWindow
) -> None:
    servers = {"kafka.bootstrap.servers": cold.bootstrap_servers, "kafkaConsumer.pollTimeoutMs": "2000"}
    impatient = make_window({"cold": {0: (0, 500)}}, options={**servers, "kafka.fetch.max.wait.ms": "10"})
    with pytest.raises(Exception, match="TimeoutException"):
        impatient.read().count()
    assert cold.interrupts > 0
