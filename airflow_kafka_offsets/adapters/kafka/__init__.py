"""What Kafka holds."""
