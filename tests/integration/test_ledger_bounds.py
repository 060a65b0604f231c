"""What a tenant's database holds is as long as the tenant likes; what the operator reads of it is not."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from exactlyonce.connectors.postgres import bounded_reads
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.errors import LedgerRefused
from exactlyonce.ledger.rows import FailureStatus
from testbed.postgres import Postgres
from tests.ledgers import STREAM, ledger_on, started

HELD = (FailureStatus.QUARANTINED,)
_LONG = 300_000


@pytest.fixture
def ledger(postgres_18: Postgres, name: str) -> Iterator[PostgresLedger]:
    made = ledger_on(postgres_18, name)
    started(made)
    yield made
    made.close()


def fill(server: Postgres, database: str, ranges: int, characters: int) -> None:
    """Write failed ranges with texts of so many characters."""
    server.execute(
        "insert into exactlyonce.failures (stream_id, batch, topic, partition, from_offset, until_offset, status, brokers, "
        f"error, origin_id, life, replay) select '{STREAM}', 3, 'orders', 0, n, n + 1, 'Quarantined', it, it, it, it, it "
        f"from generate_series(1, {ranges}) n, repeat('x', {characters}) it",
        database,
    )


def test_each_text_of_a_failed_range_comes_as_long_as_a_driver_writes_it(
    ledger: PostgresLedger, postgres_18: Postgres, name: str
) -> None:
    fill(postgres_18, name, 3, _LONG)
    found = [it.row for it in ledger.kept_failures(STREAM, HELD, None, 10, 1000)]
    assert [row.from_offset for row in found] == [1, 2, 3]
    texts = {(len(it.error), len(it.address), len(it.origin_id), len(it.life), len(it.replay)) for it in found}
    assert texts == {(1000, 300, 300, 300, 300)}
    assert [len(it.row.error) for it in ledger.kept_failures(STREAM, HELD, None, 10)] == [_LONG] * 3, (
        "a person sees all"
    )
    told = ledger.parts_of(STREAM, HELD, found, 10)
    assert [(it.from_offset, it.status) for it in told] == [(it, FailureStatus.QUARANTINED) for it in (1, 2, 3)]


def test_what_is_longer_together_than_drivers_write_it_is_refused_by_a_sentence(
    ledger: PostgresLedger, postgres_18: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(postgres_18, name, 700, 1000)
    postgres_18.execute(
        "insert into exactlyonce.set_backs (stream_id, topic, partition, position, origin_id, batch) "
        f"select '{STREAM}', 'orders', 0, 1, repeat('x', 300), n from generate_series(1, 4000) n",
        name,
    )
    assert len(ledger.kept_failures(STREAM, HELD, None, 1000, 1000)) == 700
    with ledger.transaction() as transaction:
        assert len(transaction.read_set_backs(STREAM)) == 4000
    monkeypatch.setattr(bounded_reads, "MOST_BYTES", 1 << 20)
    with pytest.raises(LedgerRefused, match=r"The failed ranges of .* hold more than 1 MiB, which are not read"):
        ledger.kept_failures(STREAM, HELD, None, 1000, 1000)
    with (
        pytest.raises(LedgerRefused, match=r"The resets of .* hold more than 1 MiB"),
        ledger.transaction() as transaction,
    ):
        transaction.read_set_backs(STREAM)
