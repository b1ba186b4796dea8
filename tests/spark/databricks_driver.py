"""What Databricks does with the task of a Python wheel, as far as a test needs it: `python databricks_driver.py <package> <entry point> <parameters>`.

A JVM with a Spark runs already, PySpark's variables of the environment name its gateway, and the job finds that Spark. This uses classes of
PySpark that it does not document.
"""

from __future__ import annotations

import importlib.metadata
import sys
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway


def attach() -> None:
    """Make the Spark of the JVM the one that `SparkSession.builder.getOrCreate()` returns."""
    gateway: Any = launch_gateway()
    running = gateway.jvm.JavaSparkContext.fromSparkContext(gateway.jvm.org.apache.spark.SparkContext.getOrCreate())
    SparkContext(gateway=gateway, jsc=running, conf=SparkConf(_jconf=running.getConf()))


def main() -> None:
    """Call the entry point, and print which file of the job side it has used."""
    package, name, *parameters = sys.argv[1:]
    [entry] = importlib.metadata.distribution(package).entry_points.select(name=name)
    sys.argv = [name, *parameters]
    attach()
    entry.load()()
    print(sys.modules["airflow_kafka_offsets.spark"].__file__)


if __name__ == "__main__":
    main()
