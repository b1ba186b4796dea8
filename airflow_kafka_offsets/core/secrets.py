"""Which settings of a Kafka client hold secrets: the one place that knows, as Airflow does not know Kafka's names."""

from __future__ import annotations

import re

_SECRET = re.compile(
    r"password|secret|token(?!\.endpoint)|jaas|oauthbearer\.config|key\.pem|keystore\.key", re.IGNORECASE
)


def is_secret(name: str) -> bool:
    """Whether the value of a setting must never be shown.

    >>> [is_secret(name) for name in ("sasl.password", "kafka.SASL.jaas.config", "ssl.key.location", "group.id")]
    [True, True, False, False]
    """
    return bool(_SECRET.search(name))
