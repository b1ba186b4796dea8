"""What a worker's machine needs for a Spark job, and where it is stored."""
