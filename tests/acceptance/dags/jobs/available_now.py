"""What teams run before they move over: a Structured Streaming query with Trigger.AvailableNow and a checkpoint.

Arguments: Kafka's address, topic, lake, checkpoint. Each record lands in the lake as (partition, offset).
"""

import sys

from pyspark.sql import DataFrame, SparkSession

servers, topic, lake, checkpoint = sys.argv[1:]
reader = SparkSession.builder.getOrCreate().readStream.format("kafka").option("kafka.bootstrap.servers", servers)
records = reader.option("subscribe", topic).option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 150)


def append(batch: DataFrame, number: int) -> None:
    batch.select("partition", "offset").write.mode("overwrite").parquet(f"{lake}/window_id=stream-{number}")


query = records.load().writeStream.foreachBatch(append).option("checkpointLocation", checkpoint)
query.trigger(availableNow=True).start().awaitTermination()
