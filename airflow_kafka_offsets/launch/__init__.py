"""Airflow's side of a Spark job: how it is launched, watched and stopped."""
