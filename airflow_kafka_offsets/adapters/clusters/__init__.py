"""Clusters that run Spark drivers apart from Airflow, one file for each kind."""
