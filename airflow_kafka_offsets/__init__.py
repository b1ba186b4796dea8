"""Kafka topics as replayable windows for scheduled Spark batches."""

__version__ = "0.1.0"
