"""Which ledger a command opens, and that no secret is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_kafka_offsets import wiring
from airflow_kafka_offsets.core.errors import BadInputError
from airflow_kafka_offsets.ledger import schema
from tests.cli.conftest import Cli, Lake

CANARY = "hunter2-canary"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://user:{CANARY}@127.0.0.1/db",
        f"postgresql://user@127.0.0.1/db?password={CANARY}",
        f"mysql://user@127.0.0.1/db?passwd={CANARY}",
        f"postgresql://user@127.0.0.1/db?sslkey_passphrase={CANARY}",
        f"mysql://user@127.0.0.1/db?auth_token={CANARY}",
        f"postgresql://user:{CANARY}@127.0.0.1:notaport/db",
        f"://{CANARY}",
    ],
)
def test_a_password_in_argv_is_refused_and_not_repeated(cli: Cli, url: str) -> None:
    done = cli("status", "--offline", "--ledger", url)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("--ledger ")
    assert CANARY not in done.err


def test_the_refusal_names_the_environment_variable(cli: Cli) -> None:
    assert "put the URL into KAFKA_OFFSETS_LEDGER" in cli("db", "current", "--ledger", "mysql://u:p@127.0.0.1/d").err


@pytest.mark.parametrize(
    ("url", "code"),
    [
        (f"postgresql://user:{CANARY}@127.0.0.1:1/db", 3),
        (f"mysql://user:{CANARY}@127.0.0.1:1/db", 3),
        (f"postgresql://user@127.0.0.1:1/db?password={CANARY}", 2),
        (f"oracle://user:{CANARY}@127.0.0.1:1/db", 2),
    ],
)
def test_a_password_in_the_environment_is_not_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, url: str, code: int
) -> None:
    monkeypatch.setenv("KAFKA_OFFSETS_LEDGER", url)
    done = cli("status", "--offline")
    assert (done.code, done.out) == (code, "")
    assert "Traceback" not in done.err
    assert CANARY not in done.err


@pytest.mark.parametrize("value", [CANARY, f"postgresql:/user:{CANARY}@host/db", f"user:{CANARY}@host/db"])
def test_what_stands_in_the_environment_is_not_repeated_when_it_is_no_url(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("KAFKA_OFFSETS_LEDGER", value)
    done = cli("status", "--offline")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("KAFKA_OFFSETS_LEDGER is neither a URL (no '://')")
    assert CANARY not in done.err


def test_an_argument_that_can_be_no_connection_id_is_not_repeated(cli: Cli) -> None:
    done = cli("status", "--offline", "--ledger", f"user:{CANARY}@host/db")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("--ledger is neither a URL (no '://')")
    assert CANARY not in done.err


@pytest.mark.parametrize("path", ["/var/lib/kafka_offsets.db", "./kafka_offsets.db"])
def test_a_path_in_the_place_of_a_url_leads_to_the_url_of_a_file(cli: Cli, path: str) -> None:
    done = cli("status", "--offline", "--ledger", path)
    assert done.code == 2
    assert "or sqlite:////var/lib/kafka_offsets.db" in done.err
    assert "password@" not in done.err, "it would be refused here"


def test_a_slash_that_is_missing_in_the_url_of_a_file_is_thought_of(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = cli("status", "--offline", "--ledger", "sqlite:///var/lib/kafka_offsets.db")
    assert done.code == 2
    assert done.err == (
        f"There is no folder {tmp_path}/var/lib for the ledger sqlite:///var/lib/kafka_offsets.db: check the path (an absolute one "
        "begins with four slashes), or make the folder\n"
    )


@pytest.mark.parametrize(
    "backend", ["sqlite:////nowhere/at/all.db", "postgresql://u@127.0.0.1:1/d", "mysql://u@127.0.0.1:1/d"]
)
@pytest.mark.parametrize("name", ["sslpassword", "api_key", "sslkeypassphrase", "x"])
def test_what_stands_behind_the_question_mark_of_a_url_is_not_shown(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, backend: str, name: str
) -> None:
    monkeypatch.setenv("KAFKA_OFFSETS_LEDGER", f"{backend}?{name}={CANARY}")
    for command in (("status", "--offline"), ("db", "current"), ("db", "upgrade")):
        done = cli(*command)
        assert done.code in (2, 3)
        assert CANARY not in done.out + done.err


def test_the_argument_wins_over_the_environment(cli: Cli, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KAFKA_OFFSETS_LEDGER", "sqlite:////nowhere/at/all.db")
    assert cli("status", "--offline", "--ledger", lake.url).code == 0
    assert cli("status", "--offline").code == 2


def test_what_is_no_url_is_an_airflow_connection(cli: Cli, lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def ledger_url(conn_id: str | None = None) -> str:
        if conn_id == "my_ledger":
            return lake.url
        raise BadInputError(f"Airflow has no connection {conn_id!r}")

    monkeypatch.setattr(wiring, "ledger_url", ledger_url)
    assert cli("status", "--offline", "--ledger", "my_ledger").code == 0
    done = cli("status", "--offline", "--ledger", "typo")
    assert (done.code, done.err) == (2, "Airflow has no connection 'typo'\n")


@pytest.mark.parametrize("command", [("status",), ("windows", "g"), ("plan", "g"), ("db", "current")])
def test_a_question_makes_no_file(cli: Cli, tmp_path: Path, command: tuple[str, ...]) -> None:
    path = tmp_path / "typo.db"
    done = cli(*command, "--ledger", f"sqlite:///{path}")
    assert done.code == 3
    assert "kafka-offsets db upgrade" in done.err
    assert not path.exists()


def test_upgrade_makes_the_tables_once(cli: Cli, tmp_path: Path) -> None:
    ledger = ("--ledger", f"sqlite:///{tmp_path / 'new.db'}")
    assert cli("db", "current", *ledger, "-o", "json").json == {
        "revision": None,
        "needed": schema.REVISION,
        "current": False,
    }
    assert f"revision none (no tables) before, {schema.REVISION} now" in cli("db", "upgrade", *ledger).out
    assert cli("db", "upgrade", *ledger, "-o", "json").json == {"before": schema.REVISION, "after": schema.REVISION}
    assert cli("db", "current", *ledger).code == 0
    assert cli("status", "--offline", *ledger).out.startswith("The ledger has no groups yet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("bootstrap.servers", "line 1: expected name=value"),
        (f"sasl.password={CANARY}\n{CANARY}", "line 2: expected name=value"),
        (f"# nothing\nsasl.password={CANARY}", "has no bootstrap.servers"),
    ],
)
def test_a_bad_properties_file(cli: Cli, tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "kafka.properties").write_text(content)
    for command in (("status",), ("plan", "lake.orders")):
        done = cli(*command, "--kafka-config", str(tmp_path / "kafka.properties"))
        assert (done.code, done.out) == (2, "")
        assert message in done.err
        assert CANARY not in done.err


def test_a_missing_properties_file(cli: Cli) -> None:
    done = cli("plan", "lake.orders", "--kafka-config", "/nowhere/at/all")
    assert (done.code, done.err) == (2, "Can't read /nowhere/at/all: No such file or directory\n")


def test_no_command_is_a_usage_error(cli: Cli) -> None:
    assert cli().code == 2
    assert cli("db").code == 2
    assert cli("windows").code == 2
    assert cli("status", "--output", "xml").code == 2


def test_a_slip_in_the_id_of_a_connection_is_answered_with_the_one_that_may_be_meant(
    cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_OUR_LEDGER", '{"conn_type": "sqlite", "host": "/nowhere.db"}')
    done = cli("status", "--ledger", "our_legder")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith(
        "Airflow has no connection 'our_legder' (did you mean our_ledger?). Create it, for example:\n    airflow "
    )
