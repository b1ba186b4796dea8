"""Names of Spark that several modules of a launch use."""

from __future__ import annotations

CONF_JOB = "spark.kafka_offsets.job"
"""Spark property with the name of the job, for clusters that have no tags: ``<window>.<job>``."""

SPARK_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
"""The class that a driver of a standalone cluster runs to submit a Python application in client mode."""

YARN_WAITS = "spark.yarn.submit.waitAppCompletion"
"""Spark property: whether spark-submit waits for the end of its job in YARN's cluster mode."""
