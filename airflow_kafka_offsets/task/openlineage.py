"""The windows of a task in the words of OpenLineage. Only its provider leads here, so its client may be imported."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from airflow.providers.openlineage.extractors import OperatorLineage
from airflow.providers.openlineage.extractors.manager import ExtractorManager
from attrs import define
from openlineage.client.event_v2 import InputDataset
from openlineage.client.facet_v2 import InputDatasetFacet, RunFacet, base_subset_dataset, input_statistics_input_dataset

from airflow_kafka_offsets.core.lineage import (
    ReadTopic,
    ReadWindow,
    WindowRange,
    facet_content,
    namespace_of,
    read_topics,
)

FACET = "kafkaOffsets_window"
"""The name of the run facet."""

TOTALS = "kafkaOffsets_totals"
"""The name of the facet of each topic."""


def _schema_of(entity: str) -> str:
    return f"urn:airflow-kafka-offsets:openlineage:1-0-0:{entity}#/$defs/{entity}"


SCHEMA = _schema_of("KafkaOffsetsWindowRunFacet")
"""The run facet's schema, in a file of this package: ``schemas/openlineage/1-0-0/KafkaOffsetsWindowRunFacet.json``."""

TOTALS_SCHEMA = _schema_of("KafkaOffsetsTotalsInputDatasetFacet")
"""That of a topic's facet, in a file beside it."""


@define
class KafkaOffsetsWindowRunFacet(RunFacet):
    """The windows that a run worked on; the schema describes the attributes."""

    group: str
    windowCount: int
    windows: list[dict[str, Any]]

    @staticmethod
    def _get_schema() -> str:
        return SCHEMA


@define
class KafkaOffsetsTotalsInputDatasetFacet(InputDatasetFacet):
    """How much of a topic the windows of a run have; the schema describes the attributes."""

    partitions: int
    ranges: int
    span: int
    records: int | None

    @staticmethod
    def _get_schema() -> str:
        return TOTALS_SCHEMA


def nothing_read() -> OperatorLineage[Any, Any]:
    """Return the lineage of a task that had no window. The provider adds inlets and outlets to it."""
    return OperatorLineage()


def lineage_of(
    operator: Any, task_instance: Any, servers: str, group_topics: Container[str], read: Sequence[ReadWindow]
) -> OperatorLineage[Any, Any]:
    """Return what a task read and wrote: its windows, and what its inlets and outlets name.

    Args:
        operator: the task. The provider leaves out inlets and outlets if it gets anything else, so they are added here.
        task_instance: of Airflow; it has the assets that were added to aliases.
        servers: Kafka's bootstrap servers.
        group_topics: the topics that the group reads now.
        read: the windows that the task worked on; at least one.
    """
    namespace = namespace_of(servers)
    topics = [_dataset(namespace, topic) for topic in read_topics(read, group_topics)]
    lineage: OperatorLineage[Any, Any] = OperatorLineage(
        run_facets={FACET: KafkaOffsetsWindowRunFacet(**facet_content(read, group_topics))}
    )
    ExtractorManager().extract_inlets_and_outlets(lineage, operator, task_instance)
    named = {(topic.namespace, topic.name) for topic in topics}
    # An inlet may name the topic, too.
    lineage.inputs = [*topics, *(inlet for inlet in lineage.inputs if (inlet.namespace, inlet.name) not in named)]
    return lineage


def _dataset(namespace: str, topic: ReadTopic) -> InputDataset:
    facets: dict[str, InputDatasetFacet] = {
        TOTALS: KafkaOffsetsTotalsInputDatasetFacet(topic.partitions, topic.ranges, topic.span, topic.records)
    }
    if topic.parts is not None:
        condition = base_subset_dataset.PartitionSubsetCondition([_partition(part) for part in topic.parts])
        facets["subset"] = base_subset_dataset.InputSubsetInputDatasetFacet(condition)
    if topic.records is not None:
        facets["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
            rowCount=topic.records
        )
    return InputDataset(namespace, topic.topic, inputFacets=facets)


def _partition(part: WindowRange) -> base_subset_dataset.Partition:
    ends = {"startOffset": part.range.start, "endOffset": part.range.end}
    return base_subset_dataset.Partition(
        {"partition": part.partition, **ends, "window": part.window_id}, str(part.partition)
    )
