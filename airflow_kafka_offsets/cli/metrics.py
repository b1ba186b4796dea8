"""``kafka-offsets metrics``: the state of groups, for Prometheus."""

from __future__ import annotations

import gc
import sys
from argparse import Namespace
from functools import partial
from time import sleep
from typing import NoReturn

from airflow_kafka_offsets.cli.running import Answer, ExitCode, until_asked_to_stop
from airflow_kafka_offsets.cli.sources import kafka_config, open_ledger, open_log
from airflow_kafka_offsets.core.errors import BadInputError, KafkaOffsetsError, LedgerError, may_pass, short
from airflow_kafka_offsets.core.state_metrics import with_earlier
from airflow_kafka_offsets.service.metrics import Collector
from airflow_kafka_offsets.wiring import metrics as prometheus


def metrics(args: Namespace) -> Answer:
    """Print the metrics, write them into a file, or serve them until someone stops the command."""
    if args.listen and args.to_file:
        raise BadInputError("Use either --listen or --output")
    collector = Collector(
        partial(open_ledger, args),
        partial(open_log, args),
        is_one_kafka=kafka_config(args) is not None,
        per_partition=args.per_partition,
    )
    if args.listen:
        _serve(*_address(args.listen), collector, args.interval)
    return _once(args, collector)


def _once(args: Namespace, collector: Collector) -> Answer:
    errors = collector.collect()
    families = collector.families()
    code, error = ExitCode.UNAVAILABLE if errors else ExitCode.OK, "\n".join(errors) or None
    if args.to_file is None:
        return Answer(None, lambda: prometheus.exposition(families).rstrip("\n"), code, error)
    if errors:
        # Otherwise an alert would end because Kafka went away.
        families = with_earlier(families, prometheus.read(args.to_file))
    prometheus.write(families, args.to_file)
    return Answer(None, lambda: f"Written: {args.to_file}", code, error)


def _address(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    is_port = port.isascii() and port.isdecimal() and len(port) <= 5 and int(port) <= 65_535
    if not colon or not is_port:
        raise BadInputError(f"--listen {short(text)} is not HOST:PORT, such as 127.0.0.1:9310")
    return host.strip("[]") or "0.0.0.0", int(port)


def _serve(host: str, port: int, collector: Collector, interval: int) -> NoReturn:
    """Collect again and again, beside the server. A scrape gets the last answers, and waits for nothing."""
    gc.enable()  # `main` turned it off, for commands that end soon
    with until_asked_to_stop() as is_asked, prometheus.serving(host, port, collector.families) as chosen:
        print(f"Serving metrics on http://{host}:{chosen}/metrics, collected every {interval} s", file=sys.stderr)
        printed: list[str] = []
        while not is_asked():
            errors = _collected(collector)
            for error in errors:
                if error not in printed:
                    print(error, file=sys.stderr, flush=True)
            printed = errors
            sleep(interval)
    raise KeyboardInterrupt  # what ends a command, as for any other


def _collected(collector: Collector) -> list[str]:
    try:
        return collector.collect()
    except KafkaOffsetsError as exc:
        # Otherwise all series would vanish at the first damaged row, or while the ledger is upgraded.
        is_kept = isinstance(exc, LedgerError) and collector.has_collected
        if not is_kept and not may_pass(exc):
            raise
        return [str(exc)]
