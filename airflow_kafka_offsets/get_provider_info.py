"""What Airflow learns about this provider; checked against Airflow's own schema by a test."""

from __future__ import annotations

from typing import Any

_NAME = "Kafka Offsets"


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description. Airflow calls this in every process: import nothing heavy here."""
    return {
        "package-name": "airflow-kafka-offsets",
        "name": _NAME,
        "description": "Kafka topics as replayable windows for scheduled Spark batches.",
        "integrations": [
            {"integration-name": _NAME, "external-doc-url": "https://kafka.apache.org/", "tags": ["software"]}
        ],
        "operators": _modules("operators", "kafka_spark", "kafka_spark_sql", "spark_submit", "window"),
        "sensors": _modules("sensors", "kafka", "window"),
        "triggers": _modules("triggers", "conditions", "driver", "event"),
        "task-decorators": [
            {"name": "kafka_spark", "class-name": "airflow_kafka_offsets.decorators.kafka_spark.kafka_spark_task"},
        ],
        "cli": ["airflow_kafka_offsets.cli.airflow_command.get_cli_commands"],
        "config": {
            "kafka_offsets": {
                "description": "Windows of Kafka topics.",
                "options": {
                    "ledger_conn_id": _option(
                        "Airflow connection (postgres or mysql) to the ledger's database. Empty: SQLite in AIRFLOW_HOME/kafka_offsets.db.",
                        example="kafka_offsets_ledger",
                    ),
                    "cache_folder": _option(
                        "Folder for the jars of Spark's Kafka connector and start archives; it may be deleted. "
                        "Empty: airflow_kafka_offsets in XDG_CACHE_HOME, else in ~/.cache.",
                        example="/var/cache/airflow_kafka_offsets",
                    ),
                },
            }
        },
    }


def _modules(folder: str, *names: str) -> list[dict[str, Any]]:
    return [{"integration-name": _NAME, "python-modules": [f"airflow_kafka_offsets.{folder}.{name}" for name in names]}]


def _option(description: str, *, example: str, default: str | None = None) -> dict[str, Any]:
    return {
        "description": description,
        "version_added": "0.1.0",
        "type": "string",
        "example": example,
        "default": default,
    }
