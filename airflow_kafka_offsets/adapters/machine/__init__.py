"""What a worker's machine has: Spark, the connector's jars, the start archive."""
