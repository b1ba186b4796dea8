"""Work of Spark that stops in the middle while a file is there."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


def slowly_until_released(hold: str) -> Callable[[bytes], str]:
    """Return a function for Spark's Python that stops in the middle of the write while the hold file is there."""

    def slowly(value: bytes) -> str:
        import pathlib
        import time

        while pathlib.Path(hold).exists():
            pathlib.Path(hold + ".reached").touch()
            time.sleep(0.1)
        return bytes(value).decode()

    return slowly
