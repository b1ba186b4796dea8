"""Advance a group on a local disk forever, and print its offset after each advance: `python -m ... BASE GROUP`."""

from __future__ import annotations

import sys

from airflow_kafka_offsets.adapters.stores.files import FilesStore
from airflow_kafka_offsets.adapters.stores.local import LocalFolders
from airflow_kafka_offsets.core.offsets import TopicPartition

PARTITIONS = [TopicPartition("orders", partition) for partition in range(200)]


def main(base: str, group: str) -> None:
    """Start at the group's offset, and print it first."""
    store = FilesStore("files://", LocalFolders(base), keep=10)
    before = store.read(group, ["orders"])
    while True:
        print(before.get(PARTITIONS[0], 0), flush=True)
        after = dict.fromkeys(PARTITIONS, before.get(PARTITIONS[0], 0) + 1)
        store.advance(group, before, after)
        before = after


if __name__ == "__main__":
    main(*sys.argv[1:])
