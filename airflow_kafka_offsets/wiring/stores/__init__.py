"""Offset stores, each from its Airflow connection."""
