"""Many partitions become a row of cells for each topic, and twenty strips."""

from __future__ import annotations

from datetime import timedelta

from hypothesis import given
from hypothesis import strategies as st

from airflow_kafka_offsets.core.lag.lag import PartitionLag
from airflow_kafka_offsets.core.lag.pace import Pace
from airflow_kafka_offsets.core.lag.retention import Retention
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.planning import Verdict
from airflow_kafka_offsets.core.ranges import OffsetRange
from airflow_kafka_offsets.page import heat
from airflow_kafka_offsets.page.heat import PartitionState, Shade
from airflow_kafka_offsets.page.strips import Kind, Layer, Piece, pieces_of, read_in_a_row


def test_twenty_thousand_partitions_are_two_hundred_cells() -> None:
    [row] = heat.rows({TopicPartition("wide", p): PartitionState(Shade.READ, None, 5) for p in range(20_000)})
    assert (row.topic, row.partitions, len(row.cells)) == ("wide", 20_000, heat.CELLS)
    assert (row.cells[0].first, row.cells[0].last, row.cells[0].recent) == (0, 99, 500)


def test_a_cell_is_as_bad_as_its_worst_partition() -> None:
    states = {TopicPartition("wide", p): PartitionState(Shade.READ, 0, 5) for p in range(1_000)}
    states[TopicPartition("wide", 403)] = PartitionState(Shade.LOST, 0, 5)
    [row] = heat.rows(states)
    assert [(cell.first, cell.last) for cell in row.cells if cell.shade is Shade.LOST] == [(400, 404)]


def test_lag_decides_the_level_where_it_is_known() -> None:
    [row] = heat.rows(
        {
            TopicPartition("t", 0): PartitionState(Shade.READ, 0, 99),
            TopicPartition("t", 1): PartitionState(Shade.READ, 7, 1),
        }
    )
    assert [cell.level for cell in row.cells] == [0, 4]


def test_the_worst_are_unfolded_and_stay_in_order() -> None:
    states = {TopicPartition("t", p): PartitionState(Shade.READ, p) for p in range(100)}
    states[TopicPartition("t", 3)] = PartitionState(Shade.LOST, 0)
    worst = [tp.partition for tp in heat.worst(states, 4)]
    assert worst == [3, 97, 98, 99]


def test_what_was_lost_is_unfolded_before_what_has_no_owner() -> None:
    lost, gap = TopicPartition("t", 0), TopicPartition("t", 1)
    states = {
        lost: PartitionState(Shade.LOST, 0),
        gap: PartitionState(Shade.GAP, 99),
        TopicPartition("t", 2): PartitionState(Shade.READ, 999),
    }
    assert heat.worst(states, 1) == [lost]
    assert heat.worst(states, 2) == [lost, gap]


@given(st.dictionaries(st.integers(0, 5_000), st.sampled_from(Shade), min_size=1, max_size=700))
def test_each_partition_is_in_one_cell(shades: dict[int, Shade]) -> None:
    [row] = heat.rows({TopicPartition("t", p): PartitionState(shade) for p, shade in shades.items()})
    assert len(row.cells) <= heat.CELLS
    covered = [[p for p in shades if cell.first <= p <= cell.last] for cell in row.cells]
    assert sorted(p for some in covered for p in some) == sorted(shades)
    assert abs(row.cells[-1].x + row.cells[-1].width - 100) < 0.5


def test_what_a_partition_has_is_what_its_pieces_are() -> None:
    pieces = [Piece(Kind.COMMITTED, 0, 10, 1), Piece(Kind.LOST, 10, 15, 2), Piece(Kind.OPEN, 15, 20, 2)]
    assert heat.in_all(pieces) == (Shade.LOST, 15)
    assert heat.in_all([]) == (Shade.QUIET, 0)
    gap, gone = Piece(Kind.GAP, 20, 30), [Piece(kind, 30, 40) for kind in (Kind.SUPERSEDED, Kind.PRUNED)]
    assert heat.in_all([gap, *gone, Piece(Kind.BACKFILL, 40, 41, 3)]) == (Shade.GAP, 1)
    lost = Piece(Kind.LOST, 0, 1)
    assert heat.in_all([lost, gap])[0] is heat.in_all([gap, lost])[0] is Shade.LOST


TP = TopicPartition("t", 0)
edges = st.tuples(st.integers(0, 4), st.integers(0, 2)).map(lambda edge: {TP: OffsetRange(edge[0], sum(edge))})
kinds = st.sampled_from([kind for kind in Kind if kind not in (Kind.GAP, Kind.PRUNED)])
layers = st.builds(Layer, kinds, st.integers(1, 9), st.one_of(edges, st.just({})))


@given(st.lists(layers, max_size=4), st.integers(0, 6))
def test_the_short_way_sees_what_the_pieces_are(some: list[Layer], floor: int) -> None:
    shade, recent = heat.in_all(pieces_of(TP, some, floor))
    assert heat.state_of(TP, some, floor) == PartitionState(shade, None, recent)


def test_windows_in_a_row_need_no_pieces() -> None:
    row = [Layer(Kind.COMMITTED, seq, {TP: OffsetRange(10 * seq, 10 * seq + 10)}) for seq in range(3)]
    assert read_in_a_row(TP, row) == 30
    assert read_in_a_row(TP, row[::2]) is None, "a gap"
    assert read_in_a_row(TP, [*row, Layer(Kind.LOST, 4, {TP: OffsetRange(30, 40)})]) is None
    assert read_in_a_row(TopicPartition("t", 1), row) == 0


BEHIND = PartitionLag(
    100, 0, 900_100, Verdict.CONTINUE, lag=900_000, headroom_seconds=500_000.0, retention=Retention(timedelta(days=7))
)
AT_RISK = PartitionLag(
    100, 0, 103, Verdict.CONTINUE, lag=3, headroom_seconds=60.0, retention=Retention(timedelta(days=7))
)
LOST = PartitionLag(100, 110, 112, Verdict.DATA_LOSS, lag=12, headroom_offsets=-10)


def test_what_is_lost_or_soon_lost_is_unfolded_before_what_is_far_behind() -> None:
    states = {
        TopicPartition("t", p): heat.state_of(TopicPartition("t", p), lag=BEHIND, pace=Pace()) for p in range(100)
    }
    states[TopicPartition("t", 7)] = heat.state_of(TopicPartition("t", 7), lag=AT_RISK, pace=Pace())
    states[TopicPartition("t", 3)] = heat.state_of(TopicPartition("t", 3), lag=LOST, pace=Pace())
    lost_before = TopicPartition("t", 5)
    states[lost_before] = heat.state_of(lost_before, [Layer(Kind.LOST, 1, {lost_before: OffsetRange(0, 9)})])
    assert [tp.partition for tp in heat.worst(states, 1)] == [3]
    assert [tp.partition for tp in heat.worst(states, 2)] == [3, 7]
    assert [tp.partition for tp in heat.worst(states, 3)] == [3, 5, 7], "a loss that a window has noted can't be mended"
    [row] = heat.rows(states)
    assert {cell.first: (cell.worst, cell.lost) for cell in row.cells if cell.worst is not Shade.QUIET} == {
        3: (Shade.LOST, 10),
        5: (Shade.LOST, 0),
        7: (Shade.RISK, 0),
    }
