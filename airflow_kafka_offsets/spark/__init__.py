"""The job side: a window of Kafka offsets, read and written by a Spark job.

Runs on clusters where only pyspark and the standard library are: nothing here imports the rest of this package, pyspark is
imported where it is first used, and the syntax is that of Python 3.9, the oldest that Spark 4 takes.
"""

from airflow_kafka_offsets.spark.errors import KafkaWindowError
from airflow_kafka_offsets.spark.window import KafkaWindow, current_window

__all__ = ["KafkaWindow", "KafkaWindowError", "current_window"]
