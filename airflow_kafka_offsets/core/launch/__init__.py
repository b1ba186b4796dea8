"""How a Spark job is started, found again and stopped."""
