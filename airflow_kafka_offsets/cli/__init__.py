"""The command line: ``kafka-offsets``, also as ``airflow kafka-offsets``."""
