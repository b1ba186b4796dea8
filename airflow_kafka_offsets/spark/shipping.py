"""The job side as a zip for ``--py-files``, so that a cluster needs nothing of this package installed."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile, ZipInfo

_JOB_SIDE = Path(__file__).parent
_PACKAGE = _JOB_SIDE.parent
_NAME = "airflow_kafka_offsets_spark.zip"
# A fixed time and no compression: equal sources give equal bytes, whatever the machine.
_TIME = (2020, 1, 1, 0, 0, 0)


def write_zip(directory: str | os.PathLike[str]) -> Path:
    """Write the zip into a directory and return its path; it replaces an earlier one in one step."""
    target = Path(directory, _NAME)
    descriptor, draft = tempfile.mkstemp(prefix=f".{_NAME}-", dir=directory)
    try:
        with os.fdopen(descriptor, "wb") as file, ZipFile(file, "w") as archive:
            for source in [_PACKAGE / "__init__.py", *sorted(_JOB_SIDE.rglob("*.py"))]:
                name = source.relative_to(_PACKAGE.parent).as_posix()
                archive.writestr(ZipInfo(name, _TIME), source.read_bytes())
        os.chmod(draft, 0o644)  # spark-submit may run as another user
        os.replace(draft, target)
    except BaseException:
        os.unlink(draft)
        raise
    return target


if __name__ == "__main__":
    print(write_zip(sys.argv[1]))
