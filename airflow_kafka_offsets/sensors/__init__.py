"""Sensors: wait for what Kafka holds or for a commit, without reading a record and without holding a worker."""
