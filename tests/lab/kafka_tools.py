"""Kafka's own command line tools, as every Kafka has them in `bin/`."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.lab.jars import fetch, java

if TYPE_CHECKING:
    from tests.lab.kafka import KafkaBroker

KAFKA_TOOLS = ("org.apache.kafka:kafka-tools:4.2.0", "org.slf4j:slf4j-reload4j:1.7.36")


def kafka_tools_classpath() -> str:
    """Return a class path that runs Kafka's tools; with nothing that logs to stdout, where their answers are."""
    return f"{fetch(*KAFKA_TOOLS)}/*"


def kafka_consumer_groups(kafka: KafkaBroker, *arguments: str) -> str:
    """Run `kafka-consumer-groups.sh` and return what it printed."""
    main = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
    command = [java(), "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", kafka_tools_classpath(), main]
    done = subprocess.run(
        [*command, "--bootstrap-server", kafka.bootstrap_servers, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    # It says of some errors that they are, and then that all is well.
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Error" not in done.stdout, done.stdout
    return done.stdout
