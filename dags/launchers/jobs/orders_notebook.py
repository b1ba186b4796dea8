# Databricks notebook source
# The notebook of the DAG `databricks`: one window of the topic to a Delta table. Its parameters are `exchange` and `table`.
# COMMAND ----------
# MAGIC %pip install --no-deps /Volumes/main/default/jobs/airflow_kafka_offsets-0.1.0-py3-none-any.whl
# COMMAND ----------
from airflow_kafka_offsets.spark import current_window

window = current_window(spark, dbutils.widgets.get("exchange"))  # noqa: F821
orders = window.read().selectExpr("partition", "offset", "cast(value as string) as json")
window.write_delta(orders, dbutils.widgets.get("table"), check_first=True)  # noqa: F821
# COMMAND ----------
dbutils.notebook.exit(f"{window.id}: {window.records} records")  # noqa: F821
