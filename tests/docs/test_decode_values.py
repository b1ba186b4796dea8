"""What docs/howto/decode-values.md types into a shell is taken; its jobs run in tests/spark/test_decode_values_page.py."""

from __future__ import annotations

import json
import re
import shlex

import pytest

from airflow_kafka_offsets.cli.parser import make_parser
from airflow_kafka_offsets.wiring.registry import open_registry
from tests.docs.test_docs import ROOT, blocks

PAGE = ROOT / "docs" / "howto" / "decode-values.md"


def commands() -> list[list[str]]:
    """Return the arguments of each command of ours that the page types between backticks."""
    prose = re.sub(r"^```.*?^```", "", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    # A command by its name alone is no line to type.
    typed = re.findall(r"`kafka-offsets ([a-z-]+ [^`]*)`", prose)
    return [shlex.split(arguments, comments=True) for arguments in typed]


OURS = commands()


@pytest.mark.parametrize("arguments", OURS, ids=" ".join)
def test_the_cli_takes_what_the_page_types(arguments: list[str]) -> None:
    assert make_parser().parse_args(arguments).function


@pytest.mark.parametrize("block", blocks(PAGE, "json"), ids=["login", "OAuth"])
def test_a_connection_of_the_page_is_that_of_a_registry(block: str, monkeypatch: pytest.MonkeyPatch) -> None:
    [(conn_id, connection)] = json.loads(block).items()
    assert f'registry="{conn_id}"' in blocks(PAGE, "python")[0]
    monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(connection))
    assert open_registry(conn_id)
    assert connection["host"] == "https://registry:8081"


def test_every_block_of_the_page_is_python_or_a_connection() -> None:
    languages = re.findall(r"^```(\w*)\n(?:.*?)^```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
    assert set(languages) == {"python", "json"}
    assert len(OURS) >= 2
