"""A DAG bundle with versions, as one of Git has. Airflow's components import it, so it has nothing else."""

from __future__ import annotations

from pathlib import Path

from airflow.dag_processing.bundles.local import LocalDagBundle


class FolderBundle(LocalDagBundle):
    """Each version is a folder below `path`, and the file `newest` there names one of them."""

    supports_versioning = True

    def get_current_version(self) -> str:  # type: ignore[override]
        """Return the newest version."""
        return (self._path / "newest").read_text()

    @property
    def path(self) -> Path:
        """The folder of the version of a run, or of the newest one."""
        return self._path / (self.version or self.get_current_version())
