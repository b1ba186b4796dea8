"""Asks Kafka's timestamp index for many searches at once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping, Sequence

from airflow_kafka_offsets.core.lag.search import MAX_ROUNDS, Hits, Known, Place, Probe, Search, learn_all, probes
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.ports import LogOffsets

MOST_FOUND = 100_000
"""How many places a process remembers for one Kafka. With more, it forgets all."""


def search_times(
    kafka: LogOffsets,
    searches: Sequence[Search],
    guesses: Mapping[TopicPartition, int],
    more: Iterable[Probe] = (),
    rounds: int = MAX_ROUNDS,
) -> Hits:
    """Let all searches ask together, until all are done or have asked so often; return the answers to what else was to be asked.

    Args:
        kafka: whom to ask.
        searches: they begin with what others found at the same place, and learn from the answers.
        guesses: for some partitions, when the first unread record was probably written.
        more: other probes, which join the first lookup.
        rounds: how many lookups there are at most.

    Raises:
        KafkaAnswerError: there was no answer; the searches keep what they learned before.
    """
    others: Hits = {}
    extra = dict.fromkeys(more)
    _begin(kafka.found_times, searches)
    try:
        for number in range(rounds):
            asked = probes(searches, guesses)
            if not asked and not extra:
                break
            hits = kafka.first_records(list(asked | extra))
            learn_all(searches, hits)
            if number == 0:
                others, extra = {probe: hits[probe] for probe in extra}, {}
    finally:
        _keep(kafka.found_times, searches)
    return others


def _begin(found: Mapping[Place, Known], searches: Iterable[Search]) -> None:
    for search in searches:
        if search.place is not None and (known := found.get(search.place)) is not None:
            search.begin_with(known)


def _keep(found: MutableMapping[Place, Known], searches: Iterable[Search]) -> None:
    if len(found) > MOST_FOUND:
        found.clear()
    found.update((s.place, known) for s in searches if s.place is not None and (known := s.known) is not None)
