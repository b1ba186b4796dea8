"""The use cases: what happens in which order, on the ledger, Kafka and an offset store. No rule stands here."""
