"""What a driver's JVM is started with."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.launch.start import (
    QUICK_SPAN,
    ArchiveName,
    Java,
    archive_name,
    compiler_options,
    options_to_check,
    options_to_make,
    options_to_use,
    parse_archive_name,
)

QUICK = ["-XX:TieredStopAtLevel=1"]
LATE = [
    "-XX:Tier4InvocationThreshold=50000",
    "-XX:Tier4MinInvocationThreshold=6000",
    "-XX:Tier4CompileThreshold=150000",
    "-XX:Tier4BackEdgeThreshold=400000",
]
JAVA = Java("/usr/lib/jvm/java-17/bin/java", 17, 'JAVA_VERSION="17.0.15"')
JARS = [("a.jar", 10, 1), ("b.jar", 20, 2)]


@pytest.mark.parametrize(("span", "quick"), [(0, True), (QUICK_SPAN, True), (QUICK_SPAN + 1, False), (10**12, False)])
def test_small_windows_get_the_quick_compiler(span: int, quick: bool) -> None:
    assert compiler_options(span) == (QUICK if quick else LATE)


def test_each_java_has_options_that_it_knows() -> None:
    # A JVM does not start with a name in -Xlog that it does not know; 24 renamed what it says of archives.
    logs = {version: [o for o in options_to_use("a", _java(version)) if "log" in o] for version in (17, 23, 24, 25)}
    assert logs[17] == logs[23] == ["-Xlog:cds*=off"]
    assert logs[24] == logs[25] == ["-Xlog:cds*=off", "-Xlog:aot*=off"]


def test_a_damaged_archive_is_looked_for_whenever_one_is_used() -> None:
    assert "-XX:+VerifySharedSpaces" in options_to_use("a", JAVA)
    assert set(options_to_use("a", JAVA)) < set(options_to_check("a", JAVA))
    assert "-XX:ArchiveClassesAtExit=a" in options_to_make("a", JAVA)


@pytest.mark.parametrize(
    ("version", "has"), [(8, False), (11, False), (16, False), (17, True), (25, True), (None, False)]
)
def test_an_old_or_unknown_java_has_none(version: int | None, has: bool) -> None:
    assert _java(version).has_archives is has


def test_the_name_changes_with_all_that_an_archive_depends_on_and_the_place_only_with_where_that_is() -> None:
    name = archive_name(JAVA, ["/opt/spark"], JARS, 5)
    assert archive_name(JAVA, ["/opt/spark"], JARS[::-1], 5) == name
    others = [
        archive_name(Java(JAVA.program, 17, "updated"), ["/opt/spark"], JARS, 5),
        archive_name(_java(21), ["/opt/spark"], JARS, 5),
        archive_name(JAVA, ["/opt/spark"], JARS[:1], 5),
        archive_name(JAVA, ["/opt/spark"], [("a.jar", 11, 1), JARS[1]], 5),
        archive_name(JAVA, ["/opt/spark"], [("a.jar", 10, 9), JARS[1]], 5),
    ]
    assert {other.place for other in others} == {name.place}
    assert len({name.state, *(other.state for other in others)}) == len(others) + 1
    assert archive_name(JAVA, ["/opt/other"], JARS, 5).place != name.place
    assert archive_name(Java("/other/java", 17, ""), ["/opt/spark"], JARS, 5).place != name.place


@given(st.integers(0, 10**12))
def test_a_name_says_how_long_its_file_is(size: int) -> None:
    name = archive_name(JAVA, ["/opt/spark"], JARS, size)
    assert parse_archive_name(str(name)) == name


@pytest.mark.parametrize(
    "text",
    ["", ".jsa", "P.jsa", "P-S.jsa", "P-S-c.jsa", "P-S-5", "P-S-05.jsa", "P-S-5.jsa ", ".draft-S-5.jsa", "P-S-٣.jsa"],
)
def test_no_other_file_is_taken_for_an_archive(text: str) -> None:
    place, state = "0123456789abcdef", "fedcba9876543210"
    assert parse_archive_name(f"{place}-{state}-5.jsa") == ArchiveName(place, state, 5)
    assert parse_archive_name(text.replace("P", place).replace("S", state)) is None


def _java(version: int | None) -> Java:
    return Java(JAVA.program, version, JAVA.release)
