"""What the docs show works, and what they promise is held by a test that exists."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from airflow_kafka_offsets.airflow_versions import has_partitions
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.core.history import check_signature
from airflow_kafka_offsets.core.launch.jobs import SILENT_LOOKS
from airflow_kafka_offsets.core.launch.spark_versions import check_versions_agree
from airflow_kafka_offsets.launch import connect, twins
from airflow_kafka_offsets.page import app
from airflow_kafka_offsets.service.look import SECOND_LOOKS
from airflow_kafka_offsets.spark.shared import is_secret
from airflow_kafka_offsets.task import plan as planning

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def blocks(page: Path, language: str) -> list[str]:
    """Return the code blocks of a page, those of one language; empty: those that name none."""
    found = re.findall(r"^ *```(\w*)\n(.*?)^ *```", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return [code for named, code in found if named == language]


def dag_blocks() -> list[Any]:
    """Return the Python blocks that run in Airflow; those with a Spark session run on a cluster."""
    return [
        pytest.param(code, id=f"{page.name}-{number}")
        for page in PAGES
        for number, code in enumerate(blocks(page, "python"))
        if "SparkSession" not in code and (has_partitions() or not re.search(r"Partition(edAsset)?Timetable", code))
    ]


def names() -> dict[str, Any]:
    """Return what the blocks of a page take for granted from the ones before."""
    from airflow.providers.standard.operators.empty import EmptyOperator
    from airflow.sdk import task

    from airflow_kafka_offsets import KafkaGroup, KafkaSparkSubmitOperator

    class DatabricksRunNowOperator(EmptyOperator):
        """Stands for a launcher whose provider is not installed here."""

        def __init__(self, job_parameters: dict[str, str], **kwargs: Any) -> None:
            super().__init__(**kwargs)

    return {
        "task": task,
        "KafkaGroup": KafkaGroup,
        "KafkaSparkSubmitOperator": KafkaSparkSubmitOperator,
        "DatabricksRunNowOperator": DatabricksRunNowOperator,
        "orders": KafkaGroup("lake.orders", topics=["orders"]),
    }


@pytest.mark.parametrize("code", dag_blocks())
def test_the_code_of_the_docs_runs(code: str) -> None:
    from airflow.sdk import DAG

    with DAG("docs"):
        exec(compile(code, "docs", "exec"), names())


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_jobs_of_the_docs_compile(page: Path) -> None:
    for code in blocks(page, "python"):
        compile(code, str(page), "exec")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_has_two_versions_of_a_passage(page: Path) -> None:
    assert not re.findall(r"^(?:<{7}|={7}|>{7})(?: |$)", page.read_text(), flags=re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:\s]*)(?:#([^)\s]+))?\)", page.read_text())
    assert not [target for target, _ in targets if not (page.parent / target).exists()]
    to_anchors = [(page.parent / target if target else page, anchor) for target, anchor in targets if anchor]
    assert not [(str(to), anchor) for to, anchor in to_anchors if anchor not in anchors(to)]


@cache
def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub and the docs site give them."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    return {slug(heading) for heading in re.findall(r"^#+ .*$", text, flags=re.MULTILINE)}


def test_the_readme_begins_with_a_picture_a_sentence_an_installation_and_a_dag() -> None:
    beginning = (ROOT / "README.md").read_text().partition("\n## ")[0]
    title, picture, sentence, installation, *rest = beginning.split("\n\n")
    assert re.fullmatch(r"# \w+", title)
    assert re.fullmatch(r"!\[[^\]]+\]\(docs/images/\w+\.svg\)", picture)
    assert re.findall(r"[.!?](?=\s|$)", sentence) == ["."], "one sentence"
    assert sentence.endswith(".")
    assert re.fullmatch(r"```\npip install .*\n```", installation)
    # Until the first release, a line says how to do without it.
    said = [part for part in rest if not part.startswith("Version ")]
    assert said[0].startswith("```python\n")
    assert re.findall(r"^```(\w+)$", beginning, flags=re.MULTILINE) == ["python"], "and no code but this"


def extras() -> dict[str, list[str]]:
    """Return what each extra of the package requires."""
    found: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"][
        "optional-dependencies"
    ]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_the_docs_install_can_be_installed(page: Path) -> None:
    named = re.findall(r"airflow-kafka-offsets\[([\w,-]+)\]", page.read_text())
    assert not [extra for names in named for extra in names.split(",") if extra not in extras()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_page_puts_a_secret_on_a_command_line(page: Path) -> None:
    added = re.findall(r"airflow connections add(?:[^\n]*\\\n)*[^\n]*(?:\n\s+\"[^\n]*)*", page.read_text())
    assert not [command for command in added if is_secret(command)]


def test_the_extra_spark_is_the_pair_of_one_version_that_the_tests_run() -> None:
    pair = extras()["spark"]
    assert pair == [f"{name}=={version(name)}" for name in ("pyspark", "pyspark-client")]
    check_versions_agree(*(requirement.partition("==")[2] for requirement in pair))
    install = next(block for block in blocks(ROOT / "docs" / "quickstart.md", "") if "pip install" in block)
    assert "[spark]" in install
    assert f"`spark` brings Spark {version('pyspark')} " in (ROOT / "docs" / "quickstart.md").read_text()


def test_each_page_of_a_launcher_names_the_versions_with_which_its_example_is_rendered() -> None:
    group = tomllib.loads((ROOT / "pyproject.toml").read_text())["dependency-groups"]["launchers"]
    pinned = dict(re.findall(r"^([\w-]+)(?:\[\w+\])?==(\S+)$", "\n".join(group), flags=re.MULTILINE))
    airflow = pinned.pop("apache-airflow")
    named = {}
    for page in sorted((ROOT / "docs" / "launchers").glob("*.md")):
        text = " ".join(page.read_text().split())
        for provider, seen, core in re.findall(r"\(`(apache-airflow-providers-[\w-]+)` (\S+) on Airflow (\S+)\)", text):
            named[page.stem] = (provider, seen, core)
    examples = {example.stem for example in (ROOT / "dags" / "launchers").glob("*.py")}
    assert named.keys() == examples
    assert {provider: seen for provider, seen, _ in named.values()} == pinned
    assert {core for _, _, core in named.values()} == {airflow}


@dataclass(frozen=True)
class NamedTest:
    """A test, or all tests of a file, that a page names; a folder is neither.

    Attributes:
        path: below the folder tests.
        test: the name of the function; empty: the page names the file, or a folder.
    """

    path: str
    test: str

    def problem(self) -> str:
        """Return why no such test could fail; empty: it could."""
        file = ROOT / "tests" / self.path
        if not file.is_file():
            return f"{self.path} is no file"
        defined = re.findall(r"^ *def (test_\w+)\(", file.read_text(), flags=re.MULTILINE)
        could_fail = self.test in defined if self.test else bool(defined)
        return "" if could_fail else f"{self.path} has no test {self.test}".strip()


def named_tests(text: str) -> list[NamedTest]:
    """Return what a page names as tests, in its order. `...::` stands for the file of the test before it."""
    found = []
    path = ""
    # Every path of a Python file, every folder, and whatever has a test's name.
    for span in re.findall(r"`((?:[\w/]+/[\w.-]*|\.\.\.)(?:::\w+)?)`", text):
        named, _, test = span.partition("::")
        path = path if named == "..." and test else named
        found.append(NamedTest(path, test))
    return found


def test_every_guarantee_names_a_test_that_exists() -> None:
    found = named_tests((ROOT / "docs" / "guarantees.md").read_text())
    assert sum(bool(named.test) for named in found) > 50
    assert [problem for problem in (named.problem() for named in found) if problem] == []


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "`docs/test_docs.py::test_links_lead_somewhere`, `...::test_links_lead_nowhere`",
            "has no test test_links_lead_nowhere",
        ),
        ("`docs/test_docs.py::links`", "has no test links"),
        ("`docs/test_site.py::test_links_lead_somewhere`", "has no test test_links_lead_somewhere"),
        ("`adapters/kafka/test_no_file.py`", "is no file"),
        ("`adapters/kafka/`", "is no file"),
        ("`docs/`", "is no file"),
        ("`docs/__init__.py`", "has no test"),
        ("`...::test_links_lead_somewhere`", "is no file"),
        ("`docs/test_docs.py`, `spark/sinks/contract.py`, `...::test_a_rerun`", "has no test test_a_rerun"),
    ],
)
def test_a_test_that_could_not_fail_is_found(text: str, problem: str) -> None:
    *before, last = named_tests(text)
    assert not any(named.problem() for named in before)
    assert last.problem().endswith(problem)


@pytest.mark.parametrize(
    ("page", "said", "seconds", "meant"),
    [
        ("guarantees.md", "the commit is tried for a minute", planning.PATIENCE, 60),
        ("guarantees.md", "The commit is tried for a minute", planning.PATIENCE, 60),
        ("stores/README.md", "The commit is tried for a minute", planning.PATIENCE, 60),
        ("guarantees.md", "waits for it, for about 15 seconds", sum(SECOND_LOOKS), 15.5),
        ("guarantees.md", "Each of them fails after three minutes", connect.PATIENCE, 180),
        ("launchers/connect.md", "each try waits three minutes", connect.PATIENCE, 180),
        ("launchers/connect.md", "silent for twice 15 seconds", connect.SILENCE, 15),
        ("launchers/connect.md", "the try fails after a minute", connect._ANSWER, 60),
        ("launchers/README.md", "wait three minutes, then fail", twins.PATIENCE, 180),
        ("launchers/README.md", "leaves ten looks without an answer", SILENT_LOOKS, 10),
        ("reference/page.md", "the page says so within two seconds", ceil(app.PATIENCE), 2),
        ("reference/page.md", "Half a minute is the limit", app.LONGEST, 30),
    ],
)
def test_the_times_that_the_pages_name_are_those_of_the_code(
    page: str, said: str, seconds: float, meant: float
) -> None:
    assert said in " ".join((ROOT / "docs" / page).read_text().split())
    assert seconds == meant


def test_the_files_and_functions_that_tell_the_way_of_a_window_exist() -> None:
    text = (ROOT / "docs" / "how-it-works.md").read_text()
    package = ROOT / "airflow_kafka_offsets"
    assert not [path for path in re.findall(r"`(\w+(?:/\w+)*\.py)`", text) if not (package / path).exists()]
    named = re.findall(r"`([\w/]+\.py)`: `(?:\w+\.)*(\w+)`", text)
    assert ("core/plan/decide.py", "decide") in named
    assert not [
        (file, name)
        for file, name in named
        if not re.search(rf"^ *(?:def|class) {name}\b", (package / file).read_text(), re.MULTILINE)
    ]
    sources = "".join(file.read_text() for file in package.rglob("*.py"))
    assert not {name for name in re.findall(r"`(?:\w+\.)?(\w+)`", text) if not re.search(rf"\b{name}\b", sources)}


def test_every_exported_name_can_be_imported() -> None:
    import airflow_kafka_offsets

    for name in airflow_kafka_offsets.__all__:
        assert getattr(airflow_kafka_offsets, name).__name__ == name


def slug(heading: str) -> str:
    """Return the anchor that GitHub gives a heading."""
    return re.sub(r"[^\w -]", "", heading.lstrip("# ").lower()).replace(" ", "-")


def messages(having: str) -> dict[str, str]:
    """Return the texts of the package that have these words, by the line; docstrings are none."""
    found = {}
    for file in sorted((ROOT / "airflow_kafka_offsets").rglob("*.py")):
        source = file.read_text()
        if having not in source:  # to parse every file takes a second
            continue
        tree = ast.parse(source)
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        for node in ast.walk(tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
            if is_text and having in node.value:
                found[f"{file.relative_to(ROOT)}:{node.lineno}"] = node.value
    return found


def test_no_message_confirms_for_a_person() -> None:
    """Only the help, the exit codes and the end of a dry run name the flag that confirms."""
    flag = "--yes"
    places = Counter(line.partition(":")[0].removeprefix("airflow_kafka_offsets/") for line in messages(flag))
    assert places.pop("cli/arguments.py") > 5
    assert places == {"cli/acts.py": 1, "cli/running.py": 1}
    assert messages(flag)[next(line for line in messages(flag) if "cli/acts.py" in line)] == flag
    assert not [page for page in (ROOT / "airflow_kafka_offsets").rglob("*.html") if flag in page.read_text()]


def test_a_reason_in_a_message_is_the_placeholder_that_no_act_takes() -> None:
    reasons = re.findall(r"--why '([^']*)'", " ".join(messages("--why '").values()))
    assert len(reasons) > 5
    assert set(reasons) == {"..."}
    for why in ("...", "'...'"):  # a shell that knows no single quotes hands them on
        with pytest.raises(BadInputError, match="is not a reason"):
            check_signature("ada", why)


def test_a_link_in_a_message_leads_somewhere() -> None:
    found = {line: text for line, text in messages("docs/").items() if re.search(r"(?<!/)docs/\S*\.md", text)}
    assert len(found) > 8
    for line, text in found.items():
        for page, anchor in re.findall(r"(docs/[\w/.-]*\.md)(?:#([\w-]+))?", text):
            headings = {slug(heading) for heading in (ROOT / page).read_text().splitlines() if heading.startswith("#")}
            assert not anchor or anchor in headings, line


def test_what_the_code_cites_is_there() -> None:
    files = [*(ROOT / "airflow_kafka_offsets").rglob("*.py"), *(ROOT / "tests").rglob("*.py")]
    text = "\n".join(file.read_text() for file in files)
    assert not [page for page in set(re.findall(r"\bdocs/[\w/-]+\.md\b", text)) if not (ROOT / page).exists()]
    design = (ROOT / "docs" / "design.md").read_text()
    cited = re.findall(r"docs/design\.md, (rules? [\d ,toand]*\d|Planning|Layers|Offset stores)", text)
    assert cited
    assert not [
        head
        for part in cited
        for head in (re.findall(r"\d+", part) or [part])
        if f"\n### Rule {head}\n" not in design and f"\n## {head}\n" not in design
    ]


def test_every_command_that_the_pages_type_is_in_the_makefile() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))
    typed = {name for page in PAGES for name in re.findall(r"`make ([a-z-]+)", page.read_text())}
    typed |= {name for page in PAGES for name in re.findall(r"^make ([a-z-]+)", page.read_text(), flags=re.MULTILINE)}
    assert {"setup", "test", "test-unit"} <= typed
    assert not typed - targets
