"""What is asked of a ledger costs the same after a hundred times as many windows: the database says what it read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from sqlalchemy import and_, select, text, update

from airflow_kafka_offsets.core.history import KEPT_FROM
from airflow_kafka_offsets.core.lag.pace import MAX_RUNS
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.ownership import Owner, Position
from airflow_kafka_offsets.core.plan.replay import overlapping
from airflow_kafka_offsets.core.ranges import OffsetRange, OffsetRanges
from airflow_kafka_offsets.core.run import Try
from airflow_kafka_offsets.core.window import OPEN, OWNING, Claim, Lane, Outcome, State, WindowRecord
from airflow_kafka_offsets.core.window_id import name_window
from airflow_kafka_offsets.ledger.ledger import Ledger
from airflow_kafka_offsets.ledger.tables import groups, windows
from airflow_kafka_offsets.service import pictures
from airflow_kafka_offsets.service.replay import live_windows, stretches_of
from tests.lab.history import History, write
from tests.ledger.examples import NOW, act, draft, group
from tests.ledger.new_ledger import in_a_file, on_a_server
from tests.ledger.rows_read import scans, work

if TYPE_CHECKING:
    from tests.lab.databases import MariaDB, Postgres

SHORT, LONG = 300, 20_000
FEW, MANY = 30, 5_000
OTHERS = [f"other-{number}" for number in range(50)]
ASKED = [TopicPartition("orders", 0)]

Question = Callable[[Ledger, History], Any]


def newest(history: History, back: int = 0) -> str:
    """Return the id of the newest window, or of one before it."""
    return name_window(history.group.name, history.windows - back)


def claim_of(history: History, seq: int) -> Claim:
    """Return the claim that a window was written with."""
    return Claim("bench", f"{history.group.name} {seq}", "load")


def rows(**wanted: Any) -> Question:
    """Ask for windows."""
    return lambda ledger, history: ledger.windows(history.group.name, **wanted)


def owner_of_an_old_offset(ledger: Ledger, history: History) -> None:
    """Find the window that a replay of an old offset runs again."""
    seq = history.windows // 3
    at = history.ranges(seq).starts[ASKED[0]]
    asked = OffsetRanges({ASKED[0]: OffsetRange(at, at + 1)})
    owners = live_windows(ledger, history.group.name, asked, history.topic_ids)
    assert [held.window.seq for held in overlapping(asked, owners, history.topic_ids)] == [seq]


QUESTIONS: dict[str, Question] = {
    "the state": lambda ledger, history: ledger.load(history.group.name),
    "the state for a new run": lambda ledger, history: ledger.load(history.group.name, Claim("bench", "new", "load")),
    "the state for a run of long ago": lambda ledger, history: ledger.load(history.group.name, claim_of(history, 3)),
    "what a task did": lambda ledger, history: ledger.succeeded(history.group.name, claim_of(history, 3), Try()),
    "the newest page": rows(),
    "the newest committed one": rows(states=[State.COMMITTED], lane=Lane.LIVE, limit=1),
    "some of the newest committed one": lambda ledger, history: ledger.excerpt(history.group.name, ASKED),
    "some of one long ago": lambda ledger, history: ledger.excerpt(history.group.name, ASKED, before=30, since=1),
    "what is open": rows(states=tuple(OPEN)),
    "what is open in the live lane": rows(states=tuple(OPEN), lane=Lane.LIVE),
    "the superseded windows": rows(states=[State.SUPERSEDED]),
    "the backfill windows": rows(states=tuple(OWNING), lane=Lane.BACKFILL),
    "how far it has come": lambda ledger, history: ledger.frontiers([history.group.name]),
    "the newest picture": lambda ledger, history: pictures.group(ledger, history.group.name, list),
    "the picture of a span": lambda ledger, history: pictures.group(
        ledger, history.group.name, list, cut_in=(history.until - timedelta(minutes=10), history.until)
    ),
    "the picture of a span of long ago": lambda ledger, history: pictures.group(
        ledger, history.group.name, list, cut_in=(history.cut(5), history.cut(15))
    ),
    "the picture of its newest window": lambda ledger, history: pictures.window(ledger, newest(history), list),
    "all of it for programs": lambda ledger, history: pictures.in_full(
        ledger, [pictures.group_line(ledger, history.group.name, list)], list
    ),
    "a picture of long ago": lambda ledger, history: pictures.group(ledger, history.group.name, list, before=31),
    "the windows of a run": lambda ledger, history: ledger.windows_of_run("bench", f"{history.group.name} 3"),
    "the windows of a run for programs": lambda ledger, history: pictures.windows_of_run(
        ledger, ledger.windows_of_run("bench", f"{history.group.name} 3")
    ),
    "the newest page in short": lambda ledger, history: ledger.summaries(history.group.name),
    "where it stands": lambda ledger, history: ledger.position(history.group.name),
    "its outline": lambda ledger, history: ledger.outlines([history.group.name]),
    "attempts at some windows": lambda ledger, history: ledger.attempts_at(history.group.name, [3, history.windows]),
    "its newest commits": lambda ledger, history: ledger.recent_commits({history.group.name: MAX_RUNS}),
    "where a window stands": lambda ledger, history: ledger.records([newest(history)]),
    "where ten windows stand": lambda ledger, history: ledger.records([newest(history, back) for back in range(10)]),
    "the owner of an old offset": owner_of_an_old_offset,
    "some by number": rows(seqs=[2, 3]),
    "a page of long ago": rows(before=30, limit=20),
    "the cut of an hour long ago": lambda ledger, history: ledger.windows(
        history.group.name, states=tuple(OWNING), cut_in=(history.cut(5), history.cut(15))
    ),
    "the cut of the newest hour": lambda ledger, history: ledger.windows(
        history.group.name, states=tuple(OWNING), cut_in=(history.until - timedelta(minutes=10), history.until)
    ),
    "the next page of the newest hour": lambda ledger, history: ledger.windows(
        history.group.name,
        states=tuple(OWNING),
        cut_in=(history.until - timedelta(minutes=10), history.until),
        before=history.windows - 3,
    ),
    "one window": lambda ledger, history: ledger.window(newest(history)),
    "its attempts": lambda ledger, history: ledger.attempts(newest(history)),
    "what people did": lambda ledger, history: ledger.acts(history.group.name),
    "the oldest windows": lambda ledger, history: ledger.old_windows(history.group.name, since=1, limit=10),
    "what was pruned": lambda ledger, history: ledger.pruned(history.group.name),
    "the definition": lambda ledger, history: ledger.group(history.group.name),
    "the groups of a task": lambda ledger, _: ledger.groups_of(Owner("bench", "load")),
}


QUESTIONS_OF_ACTS: dict[str, Question] = {
    "the newest acts": lambda ledger, history: ledger.acts(history.group.name, newest=pictures.MOST_ACTS),
    "the picture": QUESTIONS["the newest picture"],
    "where windows start again": lambda ledger, history: stretches_of(ledger, history.group.name, history.windows),
    "what moved the watermark": lambda ledger, history: ledger.moves(history.group.name),
    "all of it for programs": QUESTIONS["all of it for programs"],
}


QUESTIONS_OF_SOME: dict[str, Callable[[Ledger, list[str]], Any]] = {
    "in a line": lambda ledger, names: ledger.outlines(names),
    "for programs": lambda ledger, names: ledger.overviews(names, newest_acts=pictures.MOST_ACTS),
    "how far they have come": lambda ledger, names: ledger.frontiers(names),
    "their newest commits": lambda ledger, names: ledger.recent_commits(dict.fromkeys(names, MAX_RUNS)),
    "their state": lambda ledger, names: ledger.load_all(names),
}


def cut(ledger: Ledger, history: History) -> WindowRecord:
    """Add a window, as a run does."""
    by = Claim("bench", f"run {next(_RUNS)}", "load")
    state = ledger.load(history.group.name, by)
    assert state.position
    start = max(state.position.offsets.values())
    [held] = ledger.add_windows(history.group, state.version, [draft(start, start + 1)], by, NOW)
    return held


def plan_and_commit(ledger: Ledger, history: History) -> None:
    """Add a window, work on it and commit it, as a run does."""
    held = cut(ledger, history)
    by = held.holder
    attempt = ledger.start_attempt(held.id, by, Try(), NOW)
    ledger.end_attempt(attempt, Outcome.SUCCEEDED, 1, NOW)
    assert ledger.commit(held.window.id, by, attempt, NOW)


def take_over(ledger: Ledger, history: History) -> None:
    """Give an old window to another run, which works on it."""
    by = Claim("bench", f"run {next(_RUNS)}", "load")
    held = ledger.window(newest(history, back=20))
    [held] = ledger.hold([held], by, NOW)
    attempt = ledger.start_attempt(held.id, by, Try(), NOW)
    ledger.end_attempt(attempt, Outcome.SUCCEEDED, 1, NOW)
    ledger.commit(held.window.id, by, attempt, NOW)


def abandon(ledger: Ledger, history: History) -> None:
    """Add a window, and give it up."""
    held = cut(ledger, history)
    ledger.abandon(held.window.id, act())


def reset(ledger: Ledger, history: History) -> None:
    """Take the newest window back."""
    name = history.group.name
    state = ledger.load(name)
    [row] = ledger.windows(name, states=[State.COMMITTED], lane=Lane.LIVE, limit=1)
    back = Position(row.window.ranges.starts, row.window.topic_ids)
    ledger.reset(name, state.version, back, [row.window.seq], act("reset"))


def prune(ledger: Ledger, history: History) -> None:
    """Take the oldest windows out."""
    oldest = ledger.old_windows(history.group.name, since=1, limit=5)
    ledger.prune(oldest, replace(act("prune"), details={KEPT_FROM: oldest[-1].window.seq + 1}))


WRITES: dict[str, Question] = {
    "plan, work and commit": plan_and_commit,
    "take over and work": take_over,
    "abandon": abandon,
    "reset": reset,
    "prune": prune,
}
_RUNS = count(1)


class Histories(NamedTuple):
    """A ledger, and groups in it.

    Attributes:
        ledger: the ledger.
        short, long: groups with few and with many windows; in each, one act names all of them.
        few_acts, many_acts: groups with few windows, to which people did little and much.
    """

    ledger: Ledger
    short: History
    long: History
    few_acts: History
    many_acts: History


_LARGE = ("windows", "claims", "claim_windows", "attempts", "acts")
_ANALYZE = {
    "postgresql": ["ANALYZE"],
    "mysql": [f"ANALYZE TABLE kafka_offsets_{name}" for name in _LARGE],
}


def written(url: str) -> Histories:
    """Write the groups into a ledger of their own."""
    ledger = Ledger(url)
    made = [
        History(group(f"flat-{windows}-{acts}"), {"orders": 2}, {"orders": "id-of-orders"}, windows, acts=acts)
        for windows, acts in ((SHORT, 0), (LONG, 0), (FEW, FEW), (FEW, MANY))
    ]
    # As most ledgers have: who looks at the statistics sees small groups, and plans for them.
    others = [History(group(name), {"orders": 2}, {"orders": "id-of-orders"}, FEW) for name in OTHERS]
    write(ledger._engine, [*made, *others])
    for history in made[:2]:
        names = [name_window(history.group.name, seq) for seq in range(1, history.windows + 1)]
        ledger.record(history.group.name, act("import", left_open=names))
    with ledger._engine.begin() as connection:
        for history in made[:2]:
            # Some far apart, as resets leave them.
            mine = select(groups.c.id).where(groups.c.name == history.group.name).scalar_subquery()
            some = [seq for seq in range(1, history.windows) if seq % (history.windows // 50) == 5]
            are_some = and_(windows.c.group_id == mine, windows.c.seq.in_(some))
            connection.execute(update(windows).where(are_some).values(state=State.SUPERSEDED))
        # As PostgreSQL's autovacuum does after some minutes, and InnoDB in the background: without it, a plan of MariaDB depends on whether the
        # statistics of so many new rows are there yet. All costs are the defaults.
        for statement in _ANALYZE.get(connection.dialect.name, ()):
            connection.execute(text(statement))
    return Histories(ledger, *made)


# In the session, not in a class: tests in random order leave a class and come back, and each time it would be written again.


@pytest.fixture(scope="session")
def in_sqlite() -> Iterator[Histories]:
    with in_a_file() as url:
        yield written(url)


@pytest.fixture(scope="session")
def in_postgres(postgres: Postgres) -> Histories:
    return written(on_a_server(postgres))


@pytest.fixture(scope="session")
def in_mariadb(mariadb: MariaDB) -> Histories:
    return written(on_a_server(mariadb))


class Flat:
    """Each subclass says where the ledger is, with a fixture `histories`."""

    @pytest.mark.parametrize("question", QUESTIONS)
    def test_a_question_reads_no_more_of_a_long_history(self, histories: Histories, question: str) -> None:
        self._check(histories.ledger, histories.short, histories.long, QUESTIONS[question])

    @pytest.mark.parametrize("question", QUESTIONS_OF_ACTS)
    def test_a_question_reads_no_more_after_many_acts(self, histories: Histories, question: str) -> None:
        self._check(histories.ledger, histories.few_acts, histories.many_acts, QUESTIONS_OF_ACTS[question])

    def test_what_a_question_reads_is_counted(self, histories: Histories) -> None:
        ledger, ask = histories.ledger, QUESTIONS["the state"]
        assert work(ledger, lambda: ask(ledger, histories.short)) > 0

    def test_no_plan_reads_a_whole_table(self, histories: Histories) -> None:
        ledger = histories.ledger
        # In both: what a write leaves behind, such as entries of deleted rows, is read by the tests that compare them.
        found = {
            (history.group.name, name): found
            for history in (histories.short, histories.long)
            for name, step in {**QUESTIONS, **WRITES}.items()
            if (found := scans(ledger, lambda step=step, history=history: step(ledger, history)))
        }
        assert found == {}

    @pytest.mark.parametrize("step", WRITES)
    def test_a_write_reads_no_more_of_a_long_history(self, histories: Histories, step: str) -> None:
        self._check(histories.ledger, histories.short, histories.long, WRITES[step])

    @pytest.mark.parametrize("question", QUESTIONS_OF_SOME)
    def test_a_list_of_groups_reads_no_more_if_one_has_a_long_history(
        self, histories: Histories, question: str
    ) -> None:
        """A database plans a question about some groups in another way than one about a single group."""
        ledger, ask = histories.ledger, QUESTIONS_OF_SOME[question]
        with_long = [histories.long.group.name, histories.many_acts.group.name, *OTHERS]
        few = work(ledger, lambda: ask(ledger, [histories.short.group.name, histories.few_acts.group.name, *OTHERS]))
        many = work(ledger, lambda: ask(ledger, with_long))
        assert many <= 1.2 * few + 10, f"{few} with short ones, {many} with long ones"
        assert scans(ledger, lambda: ask(ledger, with_long)) == []

    def _check(self, ledger: Ledger, short: History, long: History, step: Question) -> None:
        few, many = (work(ledger, lambda history=history: step(ledger, history)) for history in (short, long))
        assert many <= 1.2 * few + 10, f"{few} for {short.group.name}, {many} for {long.group.name}"


@pytest.mark.slow  # it writes two long histories
class TestSqlite(Flat):
    """In a file."""

    @pytest.fixture
    def histories(self, in_sqlite: Histories) -> Histories:
        """Return the ledger, and the groups."""
        return in_sqlite


class TestPostgres(Flat):
    """On a PostgreSQL server."""

    @pytest.fixture
    def histories(self, in_postgres: Histories) -> Histories:
        """Return the ledger, and the groups."""
        return in_postgres


class TestMariaDB(Flat):
    """On a MariaDB server."""

    @pytest.fixture
    def histories(self, in_mariadb: Histories) -> Histories:
        """Return the ledger, and the groups."""
        return in_mariadb
