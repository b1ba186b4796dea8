"""The Spark application that runs once to make an archive: it loads the classes that a window's job needs. Nothing imports it.

Spark's Kafka source is seldom among them: jars of ``--jars`` and ``--packages`` have their own class loader, which archives do not cover.
"""

from __future__ import annotations

import sys


def main(folder: str) -> None:
    """Write and read in a folder as jobs usually do."""
    from pyspark.sql import Observation, SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.builder.appName("start archive").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    parquet, json, seen = f"{folder}/parquet", f"{folder}/json", Observation("seen")
    records = spark.range(2000, numPartitions=2).select(
        F.col("id").cast("string").cast("binary").alias("key"),
        F.to_json(F.struct("id", F.lit("a text").alias("note"))).alias("json"),
        (F.col("id") % 4).cast("int").alias("partition"),
        F.col("id").alias("offset"),
        F.current_timestamp().alias("timestamp"),
    )
    counted = records.observe(
        seen, F.count(F.lit(1)).alias("records"), F.histogram_numeric("partition", F.lit(4)).alias("bars")
    )
    value = F.from_json("json", "id long, note string")
    counted.withColumn("value", value).select("key", "partition", "offset", "timestamp", "value.*").write.parquet(
        parquet
    )
    assert seen.get["records"] == 2000
    lake = spark.read.parquet(parquet)
    lake.createOrReplaceTempView("lake")
    query = "select partition, count(*) from lake where note is not null group by partition order by partition"
    spark.sql(query).collect()
    firsts = lake.groupBy("id").agg(F.min("offset").alias("first"))
    lake.join(firsts, "id").write.partitionBy("partition").json(json)
    spark.read.json(json).dropDuplicates(["id"]).write.format("noop").mode("overwrite").save()
    spark.createDataFrame([(1, "a")], "number int, text string").cache().count()
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
