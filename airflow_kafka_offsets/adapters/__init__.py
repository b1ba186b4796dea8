"""The ports over real clients: Kafka through confluent-kafka, the ledger through SQLAlchemy.

Nothing imports an adapter before it is needed: each pulls in its client.
"""
