# PYTHON_ARGCOMPLETE_OK
"""The command line: ``kafka-offsets``, also as ``airflow kafka-offsets``.

Started often and by hand: this package imports nothing heavy before a command needs it.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> None:
    """Run a command and exit with its code: the console script ``kafka-offsets``."""
    # The garbage collector took a third of the CPU time of importing Airflow, for modules that stay until the end.
    gc.disable()
    atexit.register(gc.freeze)
    from airflow_kafka_offsets.cli.parser import make_parser, spelled_out
    from airflow_kafka_offsets.cli.running import run

    parser = make_parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks what the tab key can mean
        import argcomplete

        argcomplete.autocomplete(parser)
    args = parser.parse_args(spelled_out(sys.argv[1:] if argv is None else argv))
    sys.exit(run(args.function, args))
