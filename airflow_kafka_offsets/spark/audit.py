"""What a table holds of Kafka, small enough to carry to the ledger: ``kafka-offsets audit`` compares it with the windows."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_BUCKET = 1_000_000
"""Offsets that one task sorts at a time: a partition of a topic may have billions."""


def islands(table: DataFrame, topic: str = "topic", partition: str = "partition", offset: str = "offset") -> DataFrame:
    """Return the islands of a table: runs of offsets that follow one another, each of which the table has equally often.

    A row for each, with `topic`, `partition`, `first_offset`, `last_offset` and `copies`. Two that touch at a multiple of a million are
    one. Write them as CSV, ``islands(table).write.csv(folder)``, for ``kafka-offsets audit``.

    Args:
        table: any with columns that name the record in Kafka; a row for each record.
        topic: the column with the topic.
        partition: the column with the partition.
        offset: the column with the offset.
    """
    columns = [
        F.col(topic).alias("topic"),
        F.col(partition).cast("int").alias("partition"),
        F.col(offset).cast("bigint").alias("offset"),
    ]
    offsets = table.select(*columns).groupBy("topic", "partition", "offset").agg(F.count(F.lit(1)).alias("copies"))
    bucket = F.floor(F.col("offset") / F.lit(_BUCKET))
    alike = Window.partitionBy("topic", "partition", "copies", bucket).orderBy("offset")
    # Within an island both grow by one.
    island = F.col("offset") - F.row_number().over(alike)
    return (
        offsets.withColumn("island", island)
        .withColumn("bucket", bucket)
        .groupBy("topic", "partition", "copies", "bucket", "island")
        .agg(F.min("offset").alias("first_offset"), F.max("offset").alias("last_offset"))
        .select("topic", "partition", "first_offset", "last_offset", "copies")
    )
