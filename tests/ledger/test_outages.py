"""The ledger's server is gone for a while: an error within bounded time, without the password, and nothing is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from sqlalchemy import create_engine, text

from airflow_kafka_offsets.core.errors import LedgerUnavailableError
from airflow_kafka_offsets.ledger import engine, schema
from airflow_kafka_offsets.ledger.ledger import Ledger
from tests.lab.waiting import wait_until
from tests.ledger.examples import NOW, add, check_laws, claim, commit

if TYPE_CHECKING:
    from tests.lab.databases import MariaDB, Postgres


class Outages:
    """Each subclass has a server of its own: it is stopped here."""

    def test_a_stopped_server_is_an_error_and_afterwards_all_is_there(self, server: Postgres | MariaDB) -> None:
        ledger = Ledger(server.url)
        held = add(ledger, "stopped", 0, 10)
        server.stop()
        for ask in (lambda: ledger.load("stopped"), lambda: commit(ledger, held), lambda: Ledger(server.url)):
            self._fails(ask)
        server.start()
        assert ledger.load("stopped").open == (held,)
        assert commit(ledger, held) is True

    def test_what_was_answered_survives_the_servers_death(self, server: Postgres | MariaDB) -> None:
        ledger = Ledger(server.url)
        held = add(ledger, "killed", 0, 10)
        commit(ledger, held)
        server.kill()
        self._fails(lambda: add(ledger, "killed", 10, 20))
        server.start()
        following = add(ledger, "killed", 10, 20, claim("run-2"))
        assert following.window.seq == 2
        check_laws(ledger, "killed")

    def test_a_server_that_hangs_is_an_error_too(
        self, server: Postgres | MariaDB, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setitem(engine._PG_ARGS, "connect_timeout", 2)
        monkeypatch.setitem(engine._MYSQL_ARGS, "read_timeout", 2)
        ledger = Ledger(server.url)
        server.suspend()
        try:
            self._fails(lambda: ledger.load("hanging"))
        finally:
            server.resume()

    def test_a_lock_that_nobody_gives_back_is_an_error(
        self, server: Postgres | MariaDB, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(engine, "LOCK_TIMEOUT", 1)
        monkeypatch.setitem(engine._MYSQL_ARGS, "init_command", "SET innodb_lock_wait_timeout = 1")
        ledger = Ledger(server.url)
        held = add(ledger, "locked", 0, 10)
        hog = create_engine(server.url)
        with hog.connect() as connection:
            connection.execute(text("UPDATE kafka_offsets_windows SET span = span + 1"))
            self._fails(lambda: ledger.hold([held], claim("run-2"), NOW))
        hog.dispose()
        ledger.hold([held], claim("run-2"), NOW)

    def _fails(self, ask) -> None:  # type: ignore[no-untyped-def]
        errors: list[BaseException] = []

        def answer() -> None:
            try:
                ask()
            except Exception as exc:
                errors.append(exc)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        wait_until(lambda: not thread.is_alive(), seconds=engine.CONNECT_TIMEOUT * 10, what="an answer")
        (error,) = errors
        assert isinstance(error, LedgerUnavailableError), repr(error)
        assert "test-pw" not in str(error)


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """Run a server that may be stopped."""
    from tests.lab.databases import Postgres

    with Postgres() as server:
        schema.upgrade(engine.open_engine(server.url))
        yield server


@pytest.fixture(scope="module")
def own_mariadb() -> Iterator[MariaDB]:
    """Run a server that may be stopped."""
    from tests.lab.databases import MariaDB

    with MariaDB() as server:
        schema.upgrade(engine.open_engine(server.url))
        yield server


@pytest.mark.postgres
class TestPostgres(Outages):
    """PostgreSQL."""

    @pytest.fixture
    def server(self, own_postgres: Postgres) -> Postgres:
        """Return the server."""
        return own_postgres


@pytest.mark.mariadb
class TestMariaDB(Outages):
    """MariaDB."""

    @pytest.fixture
    def server(self, own_mariadb: MariaDB) -> MariaDB:
        """Return the server."""
        return own_mariadb
