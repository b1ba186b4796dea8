"""What a driver's JVM is started with."""

from __future__ import annotations

import doctest

import pytest

from airflow_kafka_offsets.core.launch import start
from airflow_kafka_offsets.core.launch.start import QUICK, QUICK_SPAN, archive_options, compiler_options

LATE = [
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
]


@pytest.mark.parametrize(("span", "quick"), [(0, True), (QUICK_SPAN, True), (QUICK_SPAN + 1, False), (10**12, False)])
def test_small_windows_get_the_quick_compiler(span: int, quick: bool) -> None:
    assert compiler_options(span) == ([QUICK] if quick else LATE)


def test_each_java_has_options_that_it_knows() -> None:
    # A JVM does not start with a name in -Xlog that it does not know; 24 renamed what it logs of archives.
    logs = {version: [o for o in archive_options("a", version) if "log" in o] for version in (17, 23, 24, 25)}
    assert logs[17] == logs[23] == ["-Xlog:cds*=off"]
    assert logs[24] == logs[25] == ["-Xlog:cds*=off", "-Xlog:aot*=off"]


def test_a_damaged_archive_is_looked_for_whenever_one_is_used() -> None:
    assert "-XX:+VerifySharedSpaces" in archive_options("a", 17)


def test_the_examples_are_true() -> None:
    assert doctest.testmod(start).failed == 0
