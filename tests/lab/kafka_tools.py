"""Kafka's own command line tools, as every Kafka has them in `bin/`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.lab.jars import KAFKA_TOOLS, class_path
from tests.lab.java import LIGHT, java
from tests.lab.waiting import run_to_end

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker


def kafka_consumer_groups(kafka: KafkaBroker, *arguments: str) -> str:
    """Run `kafka-consumer-groups.sh` and return what it printed."""
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    # Without settings for a log: on stdout are the answers.
    command = [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", *LIGHT, "-cp", class_path(KAFKA_TOOLS), main]
    done = run_to_end([*command, "--bootstrap-server", kafka.bootstrap_servers, *arguments])
    # It says of some errors that they are, and then that all is well.
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error" not in done.stdout, done.stdout
    return done.stdout
