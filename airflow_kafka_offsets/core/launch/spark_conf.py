"""Words of Spark's that a launch uses, in more than one place."""

from __future__ import annotations

CONF_JOB = "spark.kafka_offsets.job"
"""Spark property that says which job of which window this is, where a cluster has no tags: ``<window>.<job>``."""

SPARK_SUBMIT = "org.apache.spark.deploy.SparkSubmit"
"""What a driver of a standalone cluster runs when it has to submit a Python application in client mode."""

YARN_WAITS = "spark.yarn.submit.waitAppCompletion"
"""Spark property that says whether spark-submit waits for the end of its job in YARN's cluster mode."""
