"""Real servers on loopback for tests, the demo and the benchmark: Kafka, PostgreSQL, MariaDB, Airflow.

Each server is a context manager, listens on 127.0.0.1 at a port that was free, and is stopped by the id of the process
that was started. Nothing here is installed with the package.
"""
