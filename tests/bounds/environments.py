"""Python environments with other versions of the dependencies than the lock has, made once in the lab's cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.requirements import Requirement

from tests.lab.cache import CACHE, keep, one_at_a_time, workshop

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT = Path(__file__).parents[2]
# All but this one, which needs a C compiler and the headers of Kerberos.
_NOT_INSTALLED = "hdfs-kerberos"


class NoEnvironmentError(Exception):
    """The versions do not fit together, or can't be installed; the message ends with what uv or pip says."""


@dataclass(frozen=True)
class Environment:
    """Which versions to take.

    Attributes:
        name: for people and for the command line.
        pins: requirements on top of those of the package.
        resolution: of uv, for what the package itself requires: ``highest`` or ``lowest-direct``.
        python: the minor version of Python.
    """

    name: str
    pins: tuple[str, ...] = ()
    resolution: str = "highest"
    python: str = f"{sys.version_info.major}.{sys.version_info.minor}"

    def requirements(self) -> str:
        """Resolve the versions: those of the package and its extras, then those of what the tests use beside them.

        Raises:
            NoEnvironmentError: there are none that fit together.
        """
        with tempfile.TemporaryDirectory() as folder:
            pins, found, all_found = (Path(folder, name) for name in ("pins.txt", "package.txt", "all.txt"))
            pins.write_text("\n".join(self.pins))
            extras = [f"--extra={extra}" for extra in _extras()]
            given = ["pyproject.toml", *extras, f"--constraint={pins}", f"--resolution={self.resolution}"]
            _uv("pip", "compile", *given, *self._for_all(), f"--output-file={found}")
            # The tools of the tests are the newest ones: their lower bounds are no one's business.
            tools = [str(found), "--group=pyproject.toml:dev"]
            _uv("pip", "compile", *tools, *self._for_all(), f"--output-file={all_found}")
            return all_found.read_text()

    def has_python(self) -> bool:
        """Whether this machine has the Python; none is fetched."""
        try:
            _uv("python", "find", "--no-python-downloads", self.python)
        except NoEnvironmentError:
            return False
        return True

    def _for_all(self) -> list[str]:
        return ["--quiet", "--no-header", "--no-annotate", f"--python-version={self.python}", _built_once()]


@dataclass(frozen=True)
class Made:
    """An environment on this machine.

    Attributes:
        python: its interpreter.
    """

    python: Path

    def versions(self, distributions: Sequence[str]) -> dict[str, str]:
        """Return the versions of installed distributions."""
        code = "import importlib.metadata as m, json, sys; print(json.dumps({n: m.version(n) for n in sys.argv[1:]}))"
        done = subprocess.run([self.python, "-c", code, *distributions], capture_output=True, text=True, check=True)
        found: dict[str, str] = json.loads(done.stdout)
        return found

    def pytest(self, *arguments: str, report: Path) -> Outcome:
        """Run tests in it, of this checkout, and return how they ended."""
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "VIRTUAL_ENV": str(self.python.parents[1])}
        # With it a skipped test is a failure, and the quick tests skip what this Airflow does not have. A case counts a skipped test itself.
        environment.pop("CI", None)
        command = [self.python, "-m", "pytest", "-p", "no:cacheprovider", f"--junitxml={report}", *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, check=False)
        return Outcome(done.returncode == 0, read_report(report))


@dataclass(frozen=True)
class Outcome:
    """How a run of tests ended.

    Attributes:
        is_good: whether pytest reports success.
        tests: how each test ended, by its id: ``passed``, ``skipped`` or ``failed``.
    """

    is_good: bool
    tests: Mapping[str, str]

    @property
    def passed(self) -> int:
        """How many tests passed."""
        return list(self.tests.values()).count("passed")

    @property
    def skipped(self) -> int:
        """How many tests were skipped."""
        return list(self.tests.values()).count("skipped")

    @property
    def word(self) -> str:
        """How the run ended, in one word."""
        return "pass" if self.is_good else "fail"

    def of(self, *ids: str) -> str:
        """Return in one word how some tests ended, given by id or by file."""
        found = [end for name, end in self.tests.items() if name in ids or name.partition("::")[0] in ids]
        return "pass" if found and set(found) == {"passed"} else "fail"


def make(environment: Environment) -> Made:
    """Return the environment; make it if this machine does not have it yet.

    Raises:
        NoEnvironmentError: it can't be made.
    """
    requirements = environment.requirements()
    # The package of this checkout is installed in place, with the metadata of its pyproject.toml.
    parts = [requirements, environment.python, str(ROOT), (ROOT / "pyproject.toml").read_text()]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]
    folder = CACHE / "environments" / f"{environment.name.replace(' ', '-')}-{digest}"
    made = Made(folder / "bin" / "python")
    is_ready = folder / "requirements.txt"
    with one_at_a_time(f"environment-{folder.name}"):
        if not is_ready.exists():
            shutil.rmtree(folder, ignore_errors=True)
            folder.parent.mkdir(parents=True, exist_ok=True)
            _uv("venv", "--quiet", "--no-python-downloads", f"--python={environment.python}", str(folder))
            wanted = folder / "wanted.txt"
            wanted.write_text(requirements)
            into = f"--python={made.python}"
            _uv("pip", "install", "--quiet", into, _built_once(), f"--requirement={wanted}")
            _uv("pip", "install", "--quiet", into, "--no-deps", "--editable", str(ROOT))
            keep(is_ready, requirements)
    return made


def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return found


def required() -> list[Requirement]:
    """Return what the package itself requires here, with its extras."""
    of_extras = [line for extra in _extras() for line in project()["optional-dependencies"][extra]]
    found = map(Requirement, [*project()["dependencies"], *of_extras])
    return [wanted for wanted in found if wanted.marker is None or wanted.marker.evaluate()]


def pythons() -> list[str]:
    """Return the minor versions of Python that the package names, oldest first."""
    language = "Programming Language :: Python :: 3."
    return [line.rpartition(" ")[2] for line in project()["classifiers"] if line.startswith(language)]


def _extras() -> list[str]:
    return [extra for extra in project()["optional-dependencies"] if extra != _NOT_INSTALLED]


def _built_once() -> str:
    """Return the option with which uv finds the wheels of what has one exact version, which is PySpark; build them first if none are here.

    PySpark has no wheel on the index. Where the index forbids caching, uv fetches and unpacks its 400 MB again whenever it resolves, and
    builds it again for each environment, which fills a disk.
    """
    exact = [str(wanted) for wanted in required() if any(part.operator == "==" for part in wanted.specifier)]
    folder = CACHE / "wheels" / hashlib.sha256(json.dumps(exact).encode()).hexdigest()[:12]
    with one_at_a_time("wheels"):
        if not folder.exists():
            with workshop("wheels") as work:
                given = (
                    "--quiet",
                    "--use-pep517",
                    "--no-cache-dir",
                    "--no-deps",
                    f"--wheel-dir={work / 'built'}",
                    *exact,
                )
                _run(sys.executable, "-m", "pip", "wheel", *given)
                folder.parent.mkdir(parents=True, exist_ok=True)
                (work / "built").rename(folder)
    return f"--find-links={folder}"


def _uv(*arguments: str) -> None:
    _run(Path(sys.executable).parent / "uv", *arguments)


def _run(program: str | Path, *arguments: str) -> None:
    done = subprocess.run([program, *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        command = " ".join([Path(program).name, *arguments])
        raise NoEnvironmentError(f"{command}: status {done.returncode}\n{done.stdout}{done.stderr}")


def read_report(report: Path) -> dict[str, str]:
    """Return how each test ended, by its id, from pytest's report; a file that could not be collected is one test."""
    from xml.etree import ElementTree

    if not report.exists():
        return {}
    found = {}
    for case in ElementTree.parse(report).getroot().iter("testcase"):
        ends = {child.tag for child in case}
        end = "failed" if ends & {"failure", "error"} else "skipped" if "skipped" in ends else "passed"
        found[_id_of(case.get("classname", ""), case.get("name", ""))] = end
    return found


def _id_of(classname: str, name: str) -> str:
    # The report joins folders, file and classes by dots. A file that could not be collected is in the name.
    parts = (classname or name).split(".")
    in_file = next((n for n in range(len(parts), 0, -1) if ROOT.joinpath(*parts[:n]).with_suffix(".py").is_file()), 0)
    file, classes = "/".join(parts[:in_file]) + ".py", parts[in_file:]
    return "::".join([file, *classes, *([name] if classname else [])])
