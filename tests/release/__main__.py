"""`make dist`: build a wheel and a source distribution into dist/, and check them.

Arguments: the uv that builds and installs, and the folder with the programs of the dependency group `dist`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
import tomllib
from collections.abc import Sequence
from pathlib import Path

from airflow_kafka_offsets import __version__
from tests.release import contents

ROOT = Path(__file__).parents[2]
DIST = ROOT / "dist"
BUILD = ROOT / "build" / "tried"
INSIDE = Path(__file__).with_name("inside.py")
TUTORIAL = ROOT / "docs" / "tutorial.md"
NOT_TRIED = {"hdfs-kerberos"}
"""Extras that want a C compiler and Kerberos' headers."""
PINNED = {"spark"}
"""Extras of one exact version: their lowest one is their newest one, and a gigabyte."""
_START = time.monotonic()


class Refused(SystemExit):
    """The release must not go out."""


def say(text: str) -> None:
    """Print a line of progress."""
    print(f"[{time.monotonic() - _START:4.0f} s] {text}", flush=True)


def run(*command: str | Path, cwd: Path = ROOT, home: Path | None = None) -> str:
    """Run a command and return what it printed; without `home`, Airflow has none."""
    environment = {**os.environ, **({"AIRFLOW_HOME": str(home)} if home else {})}
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        [str(part) for part in command], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
    if done.returncode:
        raise Refused(f"{' '.join(map(str, command))} failed:\n{done.stdout[-4000:]}{done.stderr[-6000:]}")
    return done.stdout


def tracked() -> list[str]:
    """Return the files that Git knows, and those that it does not ignore."""
    return run("git", "ls-files", "--cached", "--others", "--exclude-standard").splitlines()


def build(uv: Path) -> tuple[Path, Path]:
    """Build the source distribution, and of it the wheel; return both."""
    shutil.rmtree(DIST, ignore_errors=True)
    run(uv, "build", "--quiet", "--no-create-gitignore", "--out-dir", DIST)
    (wheel,), (sdist,) = DIST.glob("*.whl"), DIST.glob("*.tar.gz")
    return wheel, sdist


def check_contents(wheel: Path, sdist: Path) -> None:
    """Compare what is in both with what Git knows."""
    files = tracked()
    pairs = ((wheel, contents.of_wheel(files, __version__)), (sdist, contents.of_sdist(files, __version__)))
    for archive, expected in pairs:
        if wrong := contents.differences(contents.names_in(archive), expected):
            raise Refused(f"{archive.name} is not what it should be:\n" + "\n".join(wrong))
        say(f"{archive.name}: {len(expected)} files, {archive.stat().st_size / 1000:,.0f} kB")


def check_metadata(wheel: Path, programs: Path) -> None:
    """Check what a package index gets to know and to show."""
    metadata = contents.metadata_of(wheel)
    urls = contents.urls_of(metadata)
    lost = contents.lost_links(str(metadata.get_payload()), urls["Source"], __version__, tracked())
    if lost:
        raise Refused(f"Links of the description that lead nowhere: {', '.join(lost)}")
    say(f"metadata: version {metadata['Version']}, {', '.join(urls)}; every link of the description leads somewhere")
    run(programs / "twine", "check", "--strict", wheel, *DIST.glob("*.tar.gz"))
    say("twine check --strict: passed")


def extras() -> list[str]:
    """Return the extras that are tried."""
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    return sorted(known.keys() - NOT_TRIED)


class Clean:
    """An environment without anything of this repository, made anew."""

    def __init__(self, uv: Path, name: str) -> None:
        self.home = BUILD / name
        self.python = self.home / "bin" / "python"
        self._uv = uv
        run(uv, "venv", "--quiet", "--clear", "--python", sys.executable, self.home)

    def install(self, *what: str | Path) -> None:
        """Install into it."""
        run(self._uv, "pip", "install", "--quiet", "--python", self.python, *what)

    def check(self, installed: str) -> None:
        """Check what is installed, from outside of the repository."""
        run(self._uv, "pip", "check", "--python", self.python)
        say(run(self.python, INSIDE, installed, cwd=self.home, home=self.home / "airflow").splitlines()[-1])


def try_newest(uv: Path, wheel: Path, programs: Path) -> None:
    """Install the wheel as people do, and write down what came with it."""
    clean = Clean(uv, "newest")
    clean.install(wheel)
    clean.check("alone")
    bom = DIST / f"{wheel.name.partition('-py3')[0]}.cdx.json"
    options = ("--mc-type", "library", "--output-reproducible", "--output-format", "JSON", "--output-file", bom)
    run(programs / "cyclonedx-py", "environment", "--pyproject", ROOT / "pyproject.toml", *options, clean.python)
    document = json.loads(bom.read_text())
    document["metadata"]["component"]["version"] = __version__  # in pyproject.toml it is dynamic, and so left out
    bom.write_text(json.dumps(document, indent=2) + "\n")
    say(f"{bom.name}: the {len(document['components'])} parts of such an installation (CycloneDX)")
    # The index does not have this version yet: the wheel stands in for it.
    typed = contents.typed_requirements(TUTORIAL.read_text())
    clean.install(*typed, f"{contents.DISTRIBUTION} @ {wheel.as_uri()}")
    clean.check("tutorial")
    clean.install(f"{wheel}[{','.join(extras())}]")
    clean.check("extras")


def try_lowest(uv: Path, wheel: Path) -> None:
    """Install the wheel with the lowest version of everything that it names."""
    clean = Clean(uv, "lowest")
    named = ("--resolution", "lowest-direct", "-r", ROOT / "pyproject.toml")
    clean.install(*named)
    clean.install("--no-deps", wheel)
    clean.check("alone")
    clean.install(*named, *(part for extra in extras() if extra not in PINNED for part in ("--extra", extra)))
    clean.check("extras")


def main(arguments: Sequence[str]) -> None:
    """Build, check, try."""
    uv, programs = (Path(argument).absolute() for argument in arguments)
    wheel, sdist = build(uv)
    check_contents(wheel, sdist)
    check_metadata(wheel, programs)
    try_newest(uv, wheel, programs)
    try_lowest(uv, wheel)
    say(f"dist/ is ready: {', '.join(sorted(path.name for path in DIST.iterdir()))}")


if __name__ == "__main__":
    main(sys.argv[1:])
