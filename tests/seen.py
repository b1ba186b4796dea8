"""What docs/compatibility.md shows of runs with other versions: when they ran, and the tables between two comments."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs" / "compatibility.md"

_END = "<!-- end -->\n"


@dataclass(frozen=True)
class Tables:
    """Tables of the page.

    Attributes:
        command: what writes them. A comment with its name is above them, and `<!-- end -->` below.
        page: the file that has them.
    """

    command: str
    page: Path = PAGE

    def read(self) -> str:
        """Return what the page has."""
        return self.page.read_text().partition(self._begin)[2].partition(_END)[0]

    def write(self, text: str) -> None:
        """Put another text in its place."""
        before, begin, rest = self.page.read_text().partition(self._begin)
        _, end, after = rest.partition(_END)
        if not (begin and end):
            raise ValueError(f"{self.page.name} has no place for tables: {self._begin.strip()} ... {_END.strip()}")
        self.page.write_text(before + begin + text + end + after)

    @property
    def _begin(self) -> str:
        return f"<!-- {self.command} -->\n"


def run_now(folder: str) -> dict[str, str]:
    """Return what tells a run of now from that of another day: the date, and the last commit that changed a folder of this repository."""

    def git(*args: str) -> str:
        return subprocess.run(
            ["git", *args, "--", folder], cwd=_ROOT, capture_output=True, text=True, check=True
        ).stdout

    is_changed = " and changes" if git("status", "--porcelain") else ""
    return {"date": f"{datetime.now(UTC):%Y-%m-%d}", "commit": git("log", "-1", "--format=%h").strip() + is_changed}
