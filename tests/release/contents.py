"""What a wheel and a source distribution have to hold: what Git knows, and nothing else."""

from __future__ import annotations

import re
import shlex
import tarfile
from collections.abc import Iterable, Mapping
from email import message_from_bytes
from email.message import Message
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

PACKAGE = "airflow_kafka_offsets"
DISTRIBUTION = "airflow-kafka-offsets"
EXAMPLES = f"{PACKAGE}/example_dags"
DEMO = "dags/demo_orders.py"

IN_SDIST = (
    *(PACKAGE, "dags", "docs"),
    *("CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "mkdocs.yml", "pyproject.toml"),
)
"""Folders and files of this repository that a source distribution has: what people read, and what a wheel is built from."""

_MADE_FOR_WHEEL = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}
_MADE_FOR_SDIST = {"PKG-INFO", ".gitignore"}


def of_wheel(tracked: Iterable[str], version: str) -> set[str]:
    """Return the names in a wheel, from those of the files in Git.

    >>> sorted(of_wheel(["airflow_kafka_offsets/a.py", "dags/b.py", "dags/demo_orders.py", "tests/c.py"], "1.0"))[:2]
    ['airflow_kafka_offsets-1.0.dist-info/METADATA', 'airflow_kafka_offsets-1.0.dist-info/RECORD']
    """
    files = {name.replace("dags/", f"{EXAMPLES}/", 1) for name in _below(tracked, ["dags"]) if name != DEMO}
    return files | set(_below(tracked, [PACKAGE])) | {f"{PACKAGE}-{version}.dist-info/{n}" for n in _MADE_FOR_WHEEL}


def of_sdist(tracked: Iterable[str], version: str) -> set[str]:
    """Return the names in a source distribution, from those of the files in Git."""
    return {f"{PACKAGE}-{version}/{name}" for name in {*_below(tracked, IN_SDIST), *_MADE_FOR_SDIST}}


def _below(names: Iterable[str], roots: Iterable[str]) -> list[str]:
    return [name for name in names if PurePosixPath(name).parts[0] in roots]


def names_in(archive: Path) -> set[str]:
    """Return the names of the files in a wheel or a source distribution."""
    if archive.suffix == ".whl":
        with ZipFile(archive) as wheel:
            return set(wheel.namelist())
    with tarfile.open(archive) as sdist:
        return {member.name for member in sdist.getmembers() if member.isfile()}


def differences(found: set[str], expected: set[str]) -> list[str]:
    """Return a line for each name that is missing or should not be there.

    >>> differences({"a", "b"}, {"b", "c"})
    ['missing: c', 'unexpected: a']
    """
    return [f"missing: {n}" for n in sorted(expected - found)] + [f"unexpected: {n}" for n in sorted(found - expected)]


def metadata_of(wheel: Path) -> Message:
    """Return the METADATA of a wheel; its payload is the description that a package index shows."""
    with ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return message_from_bytes(archive.read(name))


def links_in(description: str) -> list[str]:
    """Return the targets of the links and pictures of a text in Markdown.

    >>> links_in("[a](x/a.md#b), ![c](https://d/c.svg) and [e](#f)")
    ['x/a.md#b', 'https://d/c.svg', '#f']
    """
    return re.findall(r"\]\(([^)\s]+)\)", description)


def typed_requirements(page: str) -> list[str]:
    r"""Return what the first `pip install` of a page in Markdown installs.

    >>> typed_requirements("Type:\n```\npip install 'a[b]' c    # on Linux\npip install d\n```")
    ['a[b]', 'c']
    """
    line = next(line for line in page.splitlines() if line.startswith("pip install "))
    return shlex.split(line, comments=True)[2:]


def lost_links(description: str, repository: str, version: str, tracked: Iterable[str]) -> list[str]:
    """Return the links that lead nowhere from a package index: relative ones, and those to a file that this version does not have.

    >>> home = "https://github.com/us/it"
    >>> there = f"[a]({home}/blob/v1.0/a.md) ![b]({home}/raw/v1.0/b.svg) [c](https://elsewhere.org) [d]({home}/issues)"
    >>> lost_links(there, home, "1.0", ["a.md", "b.svg"])
    []
    >>> lost_links(f"[a](a.md) [b]({home}/blob/v1.0/b.md) [c]({home}/blob/v0.9/a.md)", home, "1.0", ["a.md"])
    ['a.md', 'https://github.com/us/it/blob/v1.0/b.md', 'https://github.com/us/it/blob/v0.9/a.md']
    """
    files = set(tracked)
    return [link for link in links_in(description) if _is_lost(link, repository, version, files)]


def _is_lost(link: str, repository: str, version: str, files: set[str]) -> bool:
    ours = re.fullmatch(rf"{re.escape(repository)}/(?:blob|raw)/([^/]+)/([^#]+)(?:#.*)?", link)
    if ours is None:
        return not link.startswith(("https://", "#"))
    return ours[1] != f"v{version}" or ours[2] not in files


def urls_of(metadata: Message) -> Mapping[str, str]:
    """Return the project's addresses by their labels."""
    pairs = [line.partition(", ") for line in metadata.get_all("Project-URL", [])]
    return {label: url for label, _, url in pairs}
