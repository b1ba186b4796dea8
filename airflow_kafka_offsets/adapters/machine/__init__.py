"""What a worker's machine has: a Spark, its connector's jars, its start archive."""
