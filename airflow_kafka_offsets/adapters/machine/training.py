"""The Spark application that runs once to make an archive: it loads the classes that a window's job needs. Nothing imports it.

Spark's Kafka source is seldom among them: jars of ``--jars`` and ``--packages`` have their own class loader, which archives do not cover.
"""

from __future__ import annotations

import sys
from pathlib import Path

RECORDS = 2000


def main(folder: Path) -> None:
    """Write and read in a folder what jobs usually write and read."""
    from pyspark.sql import Observation, SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.builder.appName("start archive").config("spark.sql.shuffle.partitions", "2").getOrCreate()
    seen = Observation("seen")
    records = spark.range(RECORDS, numPartitions=2).select(
        F.col("id").cast("string").cast("binary").alias("key"),
        F.to_json(F.struct("id", F.lit("a text").alias("note"))).cast("binary").alias("value"),
        (F.col("id") % 4).cast("int").alias("partition"),
        F.col("id").alias("offset"),
        F.current_timestamp().alias("timestamp"),
    )
    counted = records.observe(
        seen, F.count(F.lit(1)).alias("records"), F.histogram_numeric("partition", F.lit(4)).alias("bars")
    )
    text = counted.selectExpr("*", "cast(value as string) as json")
    parsed = text.withColumn("value", F.from_json("json", "id long, note string")).select("*", "value.*")
    parsed.drop("value", "json").write.mode("overwrite").parquet(_uri(folder / "parquet"))
    if seen.get["records"] != RECORDS:
        raise SystemExit(f"{seen.get['records']} of {RECORDS} records were written")
    lake = spark.read.parquet(_uri(folder / "parquet"))
    lake.createOrReplaceTempView("lake")
    spark.sql(
        "select partition, count(*) from lake where note is not null group by partition order by partition"
    ).collect()
    joined = lake.join(lake.groupBy("id").agg(F.min("offset").alias("first")), "id")
    joined.write.partitionBy("partition").mode("overwrite").json(_uri(folder / "json"))
    spark.read.json(_uri(folder / "json")).dropDuplicates(["id"]).write.format("noop").mode("overwrite").save()
    spark.createDataFrame([(1, "a")], "number int, text string").cache().count()
    spark.stop()


def _uri(path: Path) -> str:
    return path.absolute().as_uri()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
