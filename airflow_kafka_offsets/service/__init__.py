"""The use cases: what happens in which order, on the ledger, Kafka and an offset store. The rules are in core."""
