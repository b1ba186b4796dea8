"""``airflow kafka-offsets``: the same commands below Airflow's own. Imported on every ``airflow`` call: keep it light."""

from __future__ import annotations


def get_cli_commands() -> list[object]:
    """Return our commands for Airflow's parser."""
    return []
