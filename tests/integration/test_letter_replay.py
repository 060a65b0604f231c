"""Dead letters in Postgres: what a replay does with them, and where a stream is set back."""

from __future__ import annotations

from datetime import timedelta

import psycopg2
import pytest

from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.transaction import PostgresTransaction
from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.ledger.history import RecordedLetter
from exactlyonce.ledger.letters import replayed
from exactlyonce.ledger.port import LedgerTransaction
from exactlyonce.ledger.publish import Publication, publish
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce.ledger.replay_letters import LettersNotHeld, claim_letters, settle_letters
from exactlyonce.ledger.rows import LandedPositions
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions
from testbed.postgres import Postgres
from tests.ledgers import IDS, P0, P1, QUERY, STREAM, new_stream
from tests.postgres_roles import Lander, ids, of_a_role_with_rights, take_effect

MINE, OTHER = ReplayClaim(STREAM, "mine"), ReplayClaim(STREAM, "another")
SHARD = Partition("events", "shardId-000000000007")
FAR = 49_590_338_271_490_256_608_559_692_538_361_571_095_921_575_989_136_588_898


@pytest.fixture(params=[18, 16])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(f"postgres_{request.param}")
    return found


def kept(ledger: PostgresLedger) -> list[RecordedLetter]:
    return list(ledger.kept_letters(STREAM, None, None, 100, 1000))


def statuses(ledger: PostgresLedger) -> dict[str, str]:
    return {letter.identifier: str(letter.status) for letter in kept(ledger)}


def set_back(ledger: PostgresLedger, position: int, seed: int) -> None:
    """A new generation, before the batch that is read again."""
    raise_epoch(ledger, new_stream(ledger), Epoch(seed), "ticket")
    view = ledger.view(STREAM)
    assert view is not None
    after = LandedPositions(Positions({P0: position, P1: 0}), IDS)
    publication = Publication(
        Epoch(seed), seed, f"/c/{seed}", BatchNumber(seed), view.landed.positions, after, "set back", QUERY
    )
    publish(ledger, STREAM, publication)


def two_letters(server: Postgres, name: str) -> tuple[PostgresLedger, Lander]:
    ledger = of_a_role_with_rights(server, name)
    lander = take_effect(ledger, batch=1)
    lander.keep_letters(1, [1, 3], "id-1")
    return ledger, lander


def writes(number: int) -> object:
    def write(transaction: LedgerTransaction) -> int:
        assert isinstance(transaction, PostgresTransaction)
        with transaction.cursor() as cursor:
            cursor.execute("insert into shop.target (id) values (%s)", (number,))
            return int(cursor.rowcount)

    return write


def test_a_letter_is_claimed_and_landed_with_its_row_once_by_the_replay_that_took_it_last(
    server: Postgres, name: str
) -> None:
    ledger, _ = two_letters(server, name)
    rows = [letter.row for letter in kept(ledger)]
    former = claim_letters(ledger, OTHER, rows).rows
    mine = claim_letters(ledger, MINE, rows[:1]).rows
    assert statuses(ledger) == {"orders-0/1": "Replaying", "orders-0/3": "Replaying"}
    with pytest.raises(LettersNotHeld):
        settle_letters(ledger, OTHER, former, [replayed(row) for row in former], writes(777))  # type: ignore[arg-type]
    assert settle_letters(ledger, MINE, mine, [replayed(row) for row in mine], writes(778)) == 1  # type: ignore[arg-type]
    assert ids(server, name) == [1, 2, 778], "the two rows of the batch beside it"
    assert statuses(ledger) == {"orders-0/1": "Replayed", "orders-0/3": "Replaying"}
    assert [ledger.replayed_letters(STREAM, it) for it in ("mi", "another", "")] == [1, 0, 1]
    assert claim_letters(ledger, OTHER, rows).refused == (
        "The dead letter orders-0/1 is Replayed: a replay has landed its record.",
    )


def test_where_the_stream_is_set_back_its_letters_are_superseded_until_they_are_kept_again(
    server: Postgres, name: str
) -> None:
    ledger, lander = two_letters(server, name)
    lander.keep_letters(1, [2], "id-0")
    lander.keep_letters(1, [FAR], "made-1", SHARD)
    mine = claim_letters(ledger, MINE, [letter.row for letter in kept(ledger) if letter.row.position == 3]).rows
    set_back(ledger, 2, seed=5)
    told = {"orders-0/1": "Kept", "orders-0/2": "Kept", "orders-0/3": "Superseded", f"{SHARD}/{FAR}": "Kept"}
    assert statuses(ledger) == told, "the record 2 is of a former topic, which is not read again"
    with pytest.raises(LettersNotHeld):
        settle_letters(ledger, MINE, mine, [replayed(row) for row in mine])
    lander.keep_letters(6, [3], "id-1")
    assert statuses(ledger) == told | {"orders-0/3": "Kept"}
    set_back(ledger, 0, seed=7)
    assert statuses(ledger) == told | {"orders-0/1": "Superseded"}


def test_letters_are_read_by_their_keys_and_no_more_than_so_many_bytes_at_once(server: Postgres, name: str) -> None:
    ledger, lander = two_letters(server, name)
    lander.keep_letters(1, [FAR, FAR + 1], "made-1", SHARD)
    everything = [letter.row.key for letter in kept(ledger)]
    assert len(everything) == 4
    some = [everything[3], everything[0], ("orders", "id-1", 0, 77)]
    assert [letter.row.key for letter in ledger.letters_of(STREAM, some, 1000)] == [everything[0], everything[3]]
    assert [letter.value for letter in ledger.letters_of(STREAM, some, 1)] == [b"x"]
    assert ledger.letters_of(STREAM, [], 1000) == ()
    with ledger.transaction() as transaction:
        assert transaction.delete_dead_letters(STREAM, timedelta(0), 100) == 4


def test_a_stream_that_is_forgotten_takes_along_where_it_was_set_back(server: Postgres, name: str) -> None:
    ledger, _ = two_letters(server, name)
    set_back(ledger, 2, seed=5)
    assert server.execute("select partition, position, batch from exactlyonce.set_backs", name) == [(0, 2, 5)]
    with pytest.raises(psycopg2.errors.ForeignKeyViolation):
        server.execute("insert into exactlyonce.set_backs values ('nobody', 'orders', 0, null, '', 1, 1)", name)
    view = ledger.view(STREAM)
    assert view is not None
    ledger.forget(STREAM, view.stream.owner)
    assert server.execute("select count(*) from exactlyonce.set_backs", name) == [(0,)]
