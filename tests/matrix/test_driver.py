"""The Python that a Spark's drivers run on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.jars import JarError
from tests.lab.sparks import SPARKS


@pytest.mark.parametrize("is_there", [True, False])
def test_a_python_that_is_missing_or_does_not_start_is_named(
    is_there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With pyenv, there is a program on the PATH for each Python that any of its versions has."""
    monkeypatch.setenv("PATH", str(tmp_path))
    if is_there:
        program = tmp_path / "python3.8"
        program.write_text("#!/bin/sh\nexit 127\n")
        program.chmod(0o755)
    [spark] = [spark for spark in SPARKS if spark.driver]
    with pytest.raises(JarError, match=r"no python3\.8 on the PATH starts: install it .*--only"):
        _ = spark.program_of_drivers
