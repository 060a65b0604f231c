"""A tenant's server that accepts and does not answer is given up, and the passes of all other streams continue meanwhile."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from exactlyonce.connectors.postgres.connection import Limits, PostgresAddress
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.control.bulkheads import Bulkheads
from exactlyonce.control.next_pass import Next
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import LedgerRefused, StoreBusy, Unreachable
from testbed.hostile_postgres import HostilePostgres, Manner
from testbed.postgres import Postgres
from tests.certificates import certificate
from tests.conftest import address_of
from tests.ledgers import STREAM, ledger_on, started
from tests.operator_in_process import running_operator, until

WORKERS = 4
SHORT = Limits(connect_seconds=2, lock_seconds=1, transaction_seconds=1, answer_seconds=1)
HOSTILE = [Key("shop", f"orders-{number}") for number in range(6)]
WELL = [Key("web", f"clicks-{number}") for number in range(12)]


@dataclass
class Passes:
    """Each pass looks at the ledger of its namespace, in a place of it; `events` tells in which order they went."""

    bulkheads: Bulkheads
    ledgers: dict[str, PostgresLedger]
    events: list[tuple[str, Key]] = field(default_factory=list)
    given_up: Counter[Key] = field(default_factory=Counter)
    ended: Counter[Key] = field(default_factory=Counter)
    in_hand: set[Key] = field(default_factory=set)
    meanwhile: set[Key] = field(default_factory=set)
    guard: threading.Lock = field(default_factory=threading.Lock)

    def run(self, key: Key) -> Next:
        """Be one pass."""
        self.bulkheads.belongs(key, key.namespace)
        try:
            with self.bulkheads.store(key.namespace).entered():
                with self.guard:
                    self.in_hand.add(key)
                self.ledgers[key.namespace].view(STREAM)
        except StoreBusy:
            return Next(0.1)
        except Unreachable:
            with self.guard:
                self.given_up[key] += 1
            return Next(0.1)
        finally:
            with self.guard:
                self.in_hand.discard(key)
        with self.guard:
            self.ended[key] += 1
            if self.in_hand & set(HOSTILE):
                self.meanwhile.add(key)
        return Next(0.05)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("manner", list(Manner))
def test_a_server_that_does_not_answer_is_given_up_and_passes_of_other_streams_end_meanwhile(
    postgres_18: Postgres, name: str, manner: Manner
) -> None:
    started(ledger_on(postgres_18, name))
    with HostilePostgres(manner) as server:
        # As a secret could once say it: no limit for a connection.
        parameters = {"host": "127.0.0.1", "port": str(server.port), "dbname": "d", "user": "u", "connect_timeout": "0"}
        ledgers = {
            "shop": PostgresLedger(PostgresAddress(parameters, "u@hostile"), limits=SHORT),
            "web": PostgresLedger(address_of(postgres_18, name)),
        }
        passes = Passes(Bulkheads(WORKERS, hangs_seconds=0.3), ledgers)

        async def scene() -> None:
            due = [*HOSTILE, *WELL]  # the hostile ones come first
            async with running_operator(passes, passes.bulkheads, WORKERS, due):
                await until(
                    lambda: set(WELL) <= passes.meanwhile,
                    "every other stream ends a pass while one of these is running",
                )
                await until(lambda: sum(passes.given_up.values()) >= 3, "the hostile server's passes come to an end")

        asyncio.run(scene())
        assert server.clients
        assert not any(passes.ended[key] for key in HOSTILE)


def test_a_session_has_nothing_of_the_environment_or_the_home_of_the_process(
    postgres_18: Postgres, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(ledger_on(postgres_18, name))
    passwords = tmp_path / ".pgpass"
    passwords.write_text(f"*:*:*:*:{postgres_18.password}\n")
    passwords.chmod(0o600)
    (tmp_path / ".pg_service.conf").write_text("[other]\nhost=127.0.0.1\nport=1\noptions=-c statement_timeout=7\n")
    variables = {
        "HOME": str(tmp_path), "PGSERVICE": "other", "PGHOSTADDR": "127.0.0.9", "PGOPTIONS": "-c search_path=elsewhere",
        "PGTZ": "Asia/Tokyo", "PGSSLMODE": "require", "PGTARGETSESSIONATTRS": "standby", "PGDATESTYLE": "German",
        "PGPASSFILE": str(passwords), "PGPASSWORD": postgres_18.password,
    }  # fmt: skip
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    address = address_of(postgres_18, name)
    assert PostgresLedger(address).view(STREAM) is not None
    connection = PostgresLedger(address).open_connection()
    with connection.cursor() as cursor:
        cursor.execute(
            "select current_setting('search_path'), current_setting('timezone'), current_setting('datestyle')"
        )
        shown = cursor.fetchone()
    connection.close()
    assert shown is not None
    assert "elsewhere" not in shown[0]
    assert shown[1] != "Asia/Tokyo"
    assert shown[2].startswith("ISO")
    without = {key: value for key, value in address.parameters.items() if key != "password"}
    with pytest.raises(LedgerRefused, match="no password supplied"):
        PostgresLedger(PostgresAddress(without, "lands@elsewhere")).view(STREAM)


def test_a_server_is_trusted_by_the_certificate_in_the_secret_and_by_no_other(tmp_path: Path) -> None:
    own, other = certificate(tmp_path, "own"), certificate(tmp_path, "other")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(own, own.with_suffix(".key"))
    with HostilePostgres(Manner.ANSWERS_NO_QUERY, tls=context) as server:
        secret = {"uri": f"postgresql://u:pass-canary@127.0.0.1:{server.port}/d", "ca.crt": own.read_text()}
        connection = PostgresLedger(PostgresAddress.from_secret("warehouse", secret), limits=SHORT).open_connection()
        assert connection.info.ssl_in_use
        connection.close()
        refused = PostgresAddress.from_secret("warehouse", {**secret, "ca.crt": other.read_text()})
        with pytest.raises(LedgerRefused, match="certificate verify failed") as told:
            PostgresLedger(refused, limits=SHORT).open_connection()
        assert "canary" not in str(told.value)
