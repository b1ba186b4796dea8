"""Write the window of an exchange to Parquet, and report; or end well and have read nothing, when told to.

Arguments: what the plan task returned as `exchange`, the directory to write to, the file that tells it.
"""

import os
import sys

from pyspark.sql import SparkSession

from airflow_kafka_offsets.spark import current_window

exchange, lake, silent = sys.argv[1:]
if os.path.exists(silent):
    sys.exit()
window = current_window(SparkSession.builder.getOrCreate(), exchange)
window.write_parquet(window.read().select("partition", "offset"), lake)
