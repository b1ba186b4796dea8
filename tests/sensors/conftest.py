"""The world behind Airflow's connections."""

from tests.triggers.conftest import places

__all__ = ["places"]
