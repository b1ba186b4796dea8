"""The command line: ``kafka-offsets``, also as ``airflow kafka-offsets``.

Started often and by hand: this package imports nothing heavy before a command needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code: the console script ``kafka-offsets``."""
    from airflow_kafka_offsets.cli.parser import make_parser
    from airflow_kafka_offsets.cli.running import run

    args = make_parser().parse_args(argv)
    sys.exit(run(args.function, args))
