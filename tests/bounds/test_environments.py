"""How the tests of a case ended, as pytest's report has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bounds.environments import Outcome, read_report

FILE = "tests/ledger/test_contract.py"
REPORT = """<testsuites><testsuite>
<testcase classname="tests.ledger.test_contract" name="test_alone"/>
<testcase classname="tests.ledger.test_contract.TestPostgres" name="test_both[a.b]">{inside}</testcase>
<testcase classname="tests.ledger.test_engine" name="test_other">{outside}</testcase>
<testcase classname="" name="tests.stores.test_hdfs">{collecting}</testcase>
</testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("inside", "outside", "collecting", "end"),
    [
        ("", "", "", "pass"),
        ("<failure/>", "", "", "fail"),
        ("<error/>", "", "", "fail"),
        ("<skipped/>", "", "", "fail"),
        ("", "<failure/>", "<error/>", "pass"),
    ],
)
def test_a_case_is_good_if_all_tests_of_its_files_are(
    tmp_path: Path, inside: str, outside: str, collecting: str, end: str
) -> None:
    report = tmp_path / "report.xml"
    report.write_text(REPORT.format(inside=inside, outside=outside, collecting=collecting))
    outcome = Outcome(True, read_report(report))
    assert outcome.of(FILE) == end
    assert outcome.of(f"{FILE}::test_alone") == "pass"
    assert outcome.of(f"{FILE}::TestPostgres::test_both[a.b]") == end
    assert outcome.of("tests/stores/test_hdfs.py") == ("fail" if collecting else "pass")
    assert outcome.of("tests/stores/test_sql.py") == "fail", "nothing of it ran"
