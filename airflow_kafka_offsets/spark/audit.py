"""The offsets of a table, made small for ``kafka-offsets audit``, which compares them with the windows."""

from __future__ import annotations

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

_BUCKET = 1_000_000
"""Offsets that one task sorts at a time: a partition of a topic may have billions."""


def islands(table: DataFrame, topic: str = "topic", partition: str = "partition", offset: str = "offset") -> DataFrame:
    """Return the islands of a table: offsets that follow one another, with equally many copies in the table.

    The frame has a row for each island: `topic`, `partition`, `first_offset`, `last_offset` and `copies`. An island that crosses a
    multiple of a million has several rows. For ``kafka-offsets audit``, write them as CSV: ``islands(table).write.csv(folder)``.

    Args:
        table: a table with a row for each record, and columns that name the record in Kafka.
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
    keys = ["topic", "partition", "copies"]
    alike = Window.partitionBy(*keys, bucket).orderBy("offset")
    # Within an island both grow by one.
    island = F.col("offset") - F.row_number().over(alike)
    return (
        offsets.withColumn("island", island)
        .withColumn("bucket", bucket)
        .groupBy(*keys, "bucket", "island")
        .agg(F.min("offset").alias("first_offset"), F.max("offset").alias("last_offset"))
        .select("topic", "partition", "first_offset", "last_offset", "copies")
    )
