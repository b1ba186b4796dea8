"""Ivy, which PySpark ships: it downloads jars, and finds out which jars others need.

A jar is named by its coordinates, `group:name:version` or `group:name:version:classifier`; after an `@` comes the end of another kind of file.
"""

from __future__ import annotations

import subprocess
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

from tests.lab.java import java, pyspark_home

if TYPE_CHECKING:
    from collections.abc import Sequence

# The namespace is the one by which Ivy knows Maven's classifiers.
_MODULE = """\
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="lab" module="{name}"/>
  <configurations><conf name="default"/></configurations>
  <dependencies defaultconfmapping="default->default">
{dependencies}
  </dependencies>
</ivy-module>
"""
# Ivy's own defaults ask for the sources and the javadoc of each jar, too, and wait forever for an answer.
_SETTINGS = """\
<ivysettings>
  <property name="ivy.maven.lookup.sources" value="false"/>
  <property name="ivy.maven.lookup.javadoc" value="false"/>
  <settings defaultResolver="central"/>
  <timeout-constraints>
    <timeout-constraint name="patient" connectionTimeout="20000" readTimeout="60000"/>
  </timeout-constraints>
  <caches artifactPattern="[organisation]/[artifact]-[revision](-[classifier]).[ext]"/>
  <resolvers>
    <ibiblio name="central" m2compatible="true" usepoms="{usepoms}" timeoutConstraint="patient"/>
  </resolvers>
</ivysettings>
"""
# It lives for seconds, and waits most of them.
_JVM = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


class IvyError(Exception):
    """Ivy failed; the message is the end of what it said."""


def file_of(jar: str) -> str:
    """Return where below a folder of jars this one lies, the same that `_SETTINGS` tells Ivy."""
    coordinates, end = _with_end(jar)
    group, *others = coordinates.split(":")
    return f"{group}/{'-'.join(others)}.{end}"


def _with_end(jar: str) -> tuple[str, str]:
    coordinates, _, end = jar.partition("@")
    return coordinates, end or "jar"


def download(jars: Sequence[str], folder: Path) -> None:
    """Download exactly these jars, each to its `file_of` below the folder.

    Raises:
        IvyError: Some are not there. Those that are there are complete: Ivy gives a file its name last, after it has
            compared the checksum.
    """
    _run("\n".join(_by_module(jars)), folder, name="all", usepoms=False)


def resolve(roots: Sequence[str], without: Sequence[str], folder: Path) -> list[str]:
    """Return these and all jars that they need at run time, sorted; their files are in the folder then, too.

    Args:
        roots: Jars without a classifier.
        without: What to leave out though someone needs it, as `group:name`; the name may be `*`.
        folder: An empty one.
    """
    dependencies = ['<dependency org="{}" name="{}" rev="{}"/>'.format(*root.split(":")) for root in roots]
    excludes = ['<exclude org="{}" module="{}"/>'.format(*module.split(":")) for module in without]
    _run("\n".join([*dependencies, *excludes]), folder, name="all", usepoms=True)
    report = ET.parse(folder / "lab-all-default.xml")
    return sorted(
        _coordinates(module.attrib["organisation"], module.attrib["name"], revision.attrib["name"], artifact)
        for module in report.iter("module")
        for revision in module.iter("revision")
        for artifact in revision.iter("artifact")
    )


def _coordinates(group: str, name: str, version: str, artifact: ET.Element) -> str:
    classifier = Path(artifact.attrib["location"]).stem.removeprefix(f"{name}-{version}").removeprefix("-")
    return ":".join(filter(None, (group, name, version, classifier)))


def _by_module(jars: Sequence[str]) -> list[str]:
    """Return Ivy's XML for them: one element a module, as a second one of the same module would replace the first."""
    files: dict[tuple[str, str, str], str] = {}
    for jar in sorted(jars):
        coordinates, end = _with_end(jar)
        group, name, version, *classifier = coordinates.split(":")
        extra = f' m:classifier="{classifier[0]}"' if classifier else ""
        known = files.get((group, name, version), "")
        files[group, name, version] = f'{known}<artifact name="{name}" type="{end}" ext="{end}"{extra}/>'
    return [
        f'<dependency org="{group}" name="{name}" rev="{version}" transitive="false">{artifacts}</dependency>'
        for (group, name, version), artifacts in files.items()
    ]


def _run(dependencies: str, folder: Path, *, name: str, usepoms: bool) -> None:
    settings, module = folder / f"{name}-settings.xml", folder / f"{name}.xml"
    settings.write_text(_SETTINGS.format(usepoms=str(usepoms).lower()))
    module.write_text(_MODULE.format(name=name, dependencies=dependencies))
    [jar] = (pyspark_home() / "jars").glob("ivy-*.jar")
    command = [
        java(),
        *_JVM,
        "-cp",
        jar,
        "org.apache.ivy.Main",
        "-settings",
        settings,
        "-ivy",
        module,
        "-cache",
        folder,
    ]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode != 0:
        raise IvyError("\n".join([line for line in done.stdout.splitlines() if line.strip()][-10:]))
