"""Settings of the Sparks of the lab: for Delta and Iceberg tables, and for few records."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

CATALOG = "lab"
"""Catalog of the Iceberg tables."""
FEW_RECORDS = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""Settings of a Spark that reads ten records at a time: it interprets its plans, as to compile each costs a quarter of the CPU."""

SHORT_PLANS = {"spark.sql.ui.explainMode": "simple"}
"""Settings of a Spark whose pages and event logs no one reads: it tells its listeners of each plan in short. Of one of Delta's it would otherwise
write 33 KB, and again each time that it changes the plan."""

NO_CHECKSUMS = {"spark.databricks.delta.writeChecksumFile.enabled": "false"}
"""Setting of a Spark that writes Delta tables of ten rows. Delta compares its checksums with its own state only, and to write one is a fifth of a
write. The matrix of Sparks keeps the default."""


def table_settings(warehouse: Path) -> dict[str, str]:
    """Return what a session needs besides the jars; Iceberg's tables lie below `warehouse`."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # 50 tasks for each look at a table of ten rows are 49 too many.
        "spark.databricks.delta.snapshotPartitions": "1",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
        f"spark.sql.catalog.{CATALOG}.warehouse": str(warehouse),
    }
