"""The rules by which a Spark job is started, found again and stopped."""
