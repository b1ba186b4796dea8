"""Airflow's side of a Spark job: launching, watching and stopping it."""
