"""What Airflow learns about this provider; checked against Airflow's own schema by a test."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Return the provider's description. Airflow calls this in every process: import nothing heavy here."""
    return {
        "package-name": "airflow-provider-kafka-offsets",
        "name": "Kafka Offsets",
        "description": "Kafka topics as replayable windows for scheduled Spark batches.",
        "integrations": [
            {
                "integration-name": "Kafka Offsets",
                "external-doc-url": "https://kafka.apache.org/",
                "tags": ["software"],
            }
        ],
        "operators": [
            {
                "integration-name": "Kafka Offsets",
                "python-modules": [
                    "airflow_kafka_offsets.operators.kafka_spark",
                    "airflow_kafka_offsets.operators.kafka_spark_sql",
                    "airflow_kafka_offsets.operators.spark_submit",
                    "airflow_kafka_offsets.operators.window",
                ],
            }
        ],
        "sensors": [
            {
                "integration-name": "Kafka Offsets",
                "python-modules": [
                    "airflow_kafka_offsets.sensors.kafka",
                    "airflow_kafka_offsets.sensors.window",
                ],
            }
        ],
        "triggers": [
            {
                "integration-name": "Kafka Offsets",
                "python-modules": [
                    "airflow_kafka_offsets.triggers.conditions",
                    "airflow_kafka_offsets.triggers.event",
                ],
            }
        ],
        "task-decorators": [
            {"name": "kafka_spark", "class-name": "airflow_kafka_offsets.decorators.kafka_spark.kafka_spark_task"},
        ],
        "cli": ["airflow_kafka_offsets.cli.airflow_command.get_cli_commands"],
        "config": {
            "kafka_offsets": {
                "description": "Windows of Kafka topics.",
                "options": {
                    "ledger_conn_id": {
                        "description": (
                            "Airflow connection (postgres or mysql) to the database that holds the ledger of windows. "
                            "Empty: SQLite in AIRFLOW_HOME/kafka_offsets.db, made on first use."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "kafka_offsets_ledger",
                        "default": None,
                    },
                    "cache_folder": {
                        "description": (
                            "Folder for what can be made again at any time: the jars of Spark's Kafka connector, and start archives. "
                            "Empty: airflow_kafka_offsets in the user's folder for caches (XDG_CACHE_HOME, else ~/.cache). "
                            "It is made on first use, for its user alone."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "/var/cache/airflow_kafka_offsets",
                        "default": None,
                    },
                    "start_archive": {
                        "description": (
                            "What a launch does about the archive from which the JVM of a driver starts: use (one that is there), make "
                            "(it after the first job that found none, and use it: for workers that live long), off. "
                            "An operator's start_archive wins."
                        ),
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "make",
                        "default": "use",
                    },
                },
            }
        },
    }
