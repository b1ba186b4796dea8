"""``kafka-offsets freeze-schemas``."""

from __future__ import annotations

import contextlib
import getpass
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from airflow_kafka_offsets.adapters.registry import ConfluentRegistry
from airflow_kafka_offsets.cli import airflow_runs
from airflow_kafka_offsets.core.group import KafkaGroup
from airflow_kafka_offsets.core.history import Attempt
from airflow_kafka_offsets.core.offsets import TopicPartition
from airflow_kafka_offsets.core.plan.request import Windows
from airflow_kafka_offsets.core.schemas import Subject
from airflow_kafka_offsets.core.window import Claim, Outcome, Window
from airflow_kafka_offsets.ledger.sql_ledger import SqlLedger
from airflow_kafka_offsets.service.windows import WindowService
from tests.cli.conftest import Cli, Lake, cells
from tests.cli.test_definition import keys_in_page, keys_of, window_keys
from tests.lab.registry import Registry

GROUP = KafkaGroup("lake.payments", topics=["payments"], registry="registry")
PAYMENTS = TopicPartition("payments", 0)
FREEZE = ("freeze-schemas", "lake.payments", "--windows", "1-2", "--why", "a replica was behind")


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    with Registry() as server:
        monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", server.connection())
        server.register("payments-value", '"long"')
        yield server


@pytest.fixture
def there(lake: Lake, registry: Registry) -> Lake:
    """Two committed windows of a group with a registry."""
    lake.log.create("payments")
    for run in (1, 2):
        commit(lake, registry, run)
    return lake


def service_of(lake: Lake, registry: Registry) -> WindowService:
    return WindowService(lake.ledger, lake.log, lake.clock, registry=ConfluentRegistry(registry.url, "registry"))


def plan(lake: Lake, registry: Registry, run: int) -> tuple[Window, Claim]:
    lake.log.produce(PAYMENTS, 10)
    claim = Claim("payments", f"scheduled__{run}", "load")
    return service_of(lake, registry).plan(GROUP, claim, lambda _: True)[0].window, claim


def commit(lake: Lake, registry: Registry, run: int) -> None:
    window, claim = plan(lake, registry, run)
    attempt = lake.service.start_attempt(window, claim)
    lake.service.end_attempt(attempt, Outcome.SUCCEEDED, window.span)
    lake.service.commit(window.id, claim, attempt)


def frozen(lake: Lake, seq: int) -> Subject | None:
    return lake.service.frozen(f"lake.payments-{seq:06d}")["payments-value"]


def rows(out: str) -> list[list[str]]:
    return [cells(line) for line in out.split("\n\n")[1].splitlines()[2:]]


def test_a_dry_run_says_what_would_change_and_changes_nothing(cli: Cli, there: Lake, registry: Registry) -> None:
    registry.register("payments-value", '"string"')
    before = there.dump()
    done = cli(*FREEZE)
    assert done.code == 4
    assert done.out.startswith("This would freeze the schemas of 2 windows of group lake.payments again:\n\n")
    assert rows(done.out) == [["1-2", "payments-value", "AVRO", "101, now 102", "102", "-"]]
    assert "whether payments/scheduled__1/load, payments/scheduled__2/load may still be at work" in done.out
    assert "to write it again, clear their tasks, or replay windows 1-2" in done.out
    assert there.dump() == before


def test_yes_freezes_what_the_registry_has_now_and_records_who_and_why(
    cli: Cli, there: Lake, registry: Registry
) -> None:
    registry.register("payments-value", '"string"')
    numbers = {
        f"lake.payments-{n:06d}": there.ledger.window(f"lake.payments-{n:06d}").held.window.schemas for n in (1, 2)
    }
    done = cli(*FREEZE, "--yes")
    assert done.code == 0
    assert f"The schemas of 2 windows of group lake.payments are frozen again, by {getpass.getuser()}:" in done.out
    now = Subject("AVRO", 102, {101: '"long"', 102: '"string"'})
    assert (frozen(there, 1), frozen(there, 2)) == (now, now)
    [act] = there.ledger.acts("lake.payments")
    assert (act.kind, act.who, act.why) == ("freeze-schemas", getpass.getuser(), "a replica was behind")
    assert act.details == {"refrozen": numbers}
    assert act.window_ids == ("lake.payments-000001", "lake.payments-000002")
    status = cli("status", "lake.payments").out
    assert ["freeze-schemas", "1-2"] in [cells(line)[1:3] for line in status.splitlines()]


def test_a_replay_has_the_new_ones_and_asks_no_registry(cli: Cli, there: Lake, registry: Registry) -> None:
    number = registry.register("payments-value", '"string"')
    cli(*FREEZE, "--yes")
    registry.answer = (500, "")
    service, replay = service_of(there, registry), Claim("replays", "manual__1", "load")
    [planned] = service.plan(GROUP, replay, lambda _: True, Windows((1,)))
    subject = service.frozen(planned.window.id)["payments-value"]
    assert subject is not None
    assert (planned.window.id, subject.latest) == ("lake.payments-000001", number)


def test_only_the_windows_that_change_are_written(cli: Cli, there: Lake, registry: Registry) -> None:
    registry.register("payments-value", '"string"')
    commit(there, registry, 3)
    document = cli(*FREEZE[:3], "1-3", *FREEZE[4:], "--yes", "-o", "json").json
    assert [window["seq"] for window in document["windows"]] == [1, 2]


def test_what_is_right_stays_as_it_is(cli: Cli, there: Lake) -> None:
    before = there.dump()
    done = cli(*FREEZE, "--yes")
    told = "What is frozen with 1-2 is what the registry has. Nothing was changed.\n"
    assert (done.code, done.out, there.dump()) == (0, told, before)
    assert cli(*FREEZE, "--yes", "-o", "json").json["done"] is False


def test_a_kind_that_was_wrong_is_corrected(cli: Cli, there: Lake, registry: Registry) -> None:
    registry.register("payments-value", "{}", kind="JSON")
    commit(there, registry, 3)
    assert frozen(there, 3) == Subject("JSON", 102, {102: "{}"})
    registry.delete("payments-value", 2)
    done = cli(*FREEZE[:3], "3", *FREEZE[4:], "--yes")
    assert rows(done.out) == [["3", "payments-value", "JSON, now AVRO", "102, now 101", "101", "102"]]
    assert frozen(there, 3) == Subject("AVRO", 101, {101: '"long"'})


@pytest.fixture
def another(monkeypatch: pytest.MonkeyPatch) -> Iterator[Registry]:
    """The registry after a loss: it has one schema less."""
    with Registry() as server:
        monkeypatch.setenv("AIRFLOW_CONN_REGISTRY", server.connection())
        yield server


def test_what_the_registry_no_longer_has_stays_until_it_is_dropped(
    cli: Cli, there: Lake, registry: Registry, another: Registry
) -> None:
    registry.register("payments-value", '"string"')
    commit(there, registry, 3)
    another.register("payments-value", '"long"')
    freeze = (*FREEZE[:3], "3", *FREEZE[4:])
    done = cli(*freeze)
    assert rows(done.out) == [["3", "payments-value", "AVRO", "102, now 101", "-", "-"]]
    assert "Ids that the registry no longer has stay. With --drop, they leave." in done.out
    assert rows(cli(*freeze, "--drop").out) == [["3", "payments-value", "AVRO", "102, now 101", "-", "102"]]
    cli(*freeze, "--drop", "--yes")
    assert frozen(there, 3) == Subject("AVRO", 101, {101: '"long"'})


def test_a_subject_that_is_needed_is_not_dropped(cli: Cli, there: Lake, another: Registry) -> None:
    before = there.dump()
    done = cli(*FREEZE, "--drop", "--yes")
    assert (done.code, there.dump()) == (2, before)
    assert "has no subject payments-value for the values of payments. Nothing was written" in done.err
    assert cli(*FREEZE, "--yes").out.endswith("is what the registry has. Nothing was changed.\n")


@pytest.mark.parametrize("yes", [(), ("--yes",)])
def test_a_window_that_a_job_is_at_work_on_is_refused(
    cli: Cli, there: Lake, registry: Registry, monkeypatch: pytest.MonkeyPatch, yes: tuple[str, ...]
) -> None:
    window, claim = plan(there, registry, 3)
    attempt = there.service.start_attempt(window, claim)
    registry.register("payments-value", '"string"')
    monkeypatch.setattr(airflow_runs, "is_over", lambda holder: holder != claim)
    freeze, before = (*FREEZE[:3], "1-3", *FREEZE[4:], *yes), there.dump()
    done = cli(*freeze)
    assert (done.code, done.out, there.dump()) == (1, "", before)
    assert done.err.startswith("Window lake.payments-000003 is being worked on by payments/scheduled__3/load, with the")
    there.service.end_attempt(attempt, Outcome.FAILED)  # it waits for its next try
    assert cli(*freeze).code == (0 if yes else 4)


def test_without_an_attempt_the_run_of_another_launcher_may_be_at_work(
    cli: Cli, there: Lake, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan(there, registry, 3)
    registry.register("payments-value", '"string"')
    freeze = (*FREEZE[:3], "3", *FREEZE[4:])
    monkeypatch.setattr(airflow_runs, "is_over", lambda holder: False)
    assert cli(*freeze).code == 1
    monkeypatch.setattr(airflow_runs, "is_over", lambda holder: True)
    done = cli(*freeze)
    assert done.code == 4
    assert "No Airflow could be asked" not in done.out


@pytest.mark.parametrize("happens", ["adopted", "begun"])
def test_a_run_that_is_faster_than_the_person_keeps_its_schemas_and_that_is_told(
    cli: Cli, there: Lake, registry: Registry, monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    window, claim = plan(there, registry, 3)
    registry.register("payments-value", '"string"')
    look_at_attempts = there.ledger.attempts

    def faster(ledger: SqlLedger, window_id: str) -> Sequence[Attempt]:
        found = look_at_attempts(window_id)
        if happens == "adopted":
            # What the run says is not what the command says.
            with contextlib.redirect_stderr(io.StringIO()):
                service_of(there, registry).plan(GROUP, replace(claim, run_id="scheduled__4"), lambda _: True)
        else:
            there.service.start_attempt(window, claim)
        return found

    monkeypatch.setattr(SqlLedger, "attempts", faster)
    done = cli(*FREEZE[:3], "3", *FREEZE[4:], "--yes")
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("A run took window lake.payments-000003, or it was changed, just now")
    assert frozen(there, 3) == Subject("AVRO", 101, {101: '"long"'})
    assert there.ledger.acts("lake.payments") == []


@pytest.mark.parametrize(("answer", "said"), [((500, ""), "answered 500"), ((401, "{}"), "correct the login")])
def test_a_registry_that_gives_no_answer_changes_nothing(
    cli: Cli, there: Lake, registry: Registry, answer: tuple[int, str], said: str
) -> None:
    registry.answer, before = answer, there.dump()
    done = cli(*FREEZE, "--yes")
    assert (done.code, there.dump()) == (3, before)
    assert said in done.err


def test_windows_that_no_run_reads_are_refused(cli: Cli, there: Lake, registry: Registry) -> None:
    plan(there, registry, 3)
    there.service.abandon("lake.payments-000003", "ann", "poison")
    done = cli(*FREEZE[:3], "2-3", *FREEZE[4:], "--yes")
    assert (done.code, done.err) == (1, "Window lake.payments-000003 was abandoned: no run reads it again\n")
    assert cli(*FREEZE[:3], "9", *FREEZE[4:]).code == 2


def test_a_group_without_a_registry_is_refused_with_what_to_set(cli: Cli, lake: Lake) -> None:
    done = cli("freeze-schemas", "lake.orders", "--windows", "1", "--why", "w")
    assert done.code == 2
    assert done.err.startswith(
        "Group lake.orders names no schema registry, as its last run planned it. Set KafkaGroup("
    )


def test_the_page_tells_the_keys_of_the_json(cli: Cli, there: Lake, registry: Registry) -> None:
    registry.register("payments-value", '"string"')
    document = cli(*FREEZE, "-o", "json").json
    assert keys_of(document) <= keys_in_page("freeze-schemas") | window_keys()
    [change] = document["windows"][0]["changes"]
    assert (change["latest_before"], change["latest"], change["added"], change["dropped"]) == (101, 102, [102], [])
