"""The ledger's table of dead letters: one row for each record, whichever releases driver and ledger are of."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta

import pytest

from exactlyonce.connectors.postgres.letter_tables import NAMED_LETTERS_SINCE
from exactlyonce.connectors.postgres.tables import MIGRATIONS
from exactlyonce.errors import LedgerRefused
from exactlyonce.positions.ranges import Partition
from testbed.postgres import Postgres
from tests.ledgers import STREAM
from tests.postgres_roles import of_a_role_with_rights, run_release, take_effect


@pytest.fixture(params=[18, 16])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(f"postgres_{request.param}")
    return found


def letters(server: Postgres, name: str) -> list[tuple[object, ...]]:
    return server.execute("select topic_id, record_offset, batch from exactlyonce.dead_letters order by 1, 2", name)


OLD_LETTER = (
    "insert into exactlyonce.dead_letters (stream_id, topic, partition, record_offset, batch, record_timestamp, key, value, "
    "error) values ('shop/orders', 'orders', 0, {offset}, {offset}, null, null, 'x', 'old') on conflict do nothing"
)
"""What a driver of the first two versions does with a malformed record."""


def test_dead_letters_of_a_topic_recreated_stand_beside_those_of_the_topic_before(server: Postgres, name: str) -> None:
    lander = take_effect(of_a_role_with_rights(server, name), batch=1)
    lander.keep_letters(1, [0, 1], "id-1")
    lander.keep_letters(7, [1, 2], "id-2")
    assert letters(server, name) == [("id-1", 0, 1), ("id-1", 1, 1), ("id-2", 1, 7), ("id-2", 2, 7)]


def test_a_record_that_is_read_again_is_one_dead_letter_of_the_batch_that_landed_it_last(
    server: Postgres, name: str
) -> None:
    lander = take_effect(of_a_role_with_rights(server, name), batch=1)
    lander.keep_letters(1, [0, 1], "id-1")
    lander.keep_letters(7, [1], "id-1")
    assert letters(server, name) == [("id-1", 0, 1), ("id-1", 1, 7)]


def test_a_driver_of_an_older_release_keeps_dead_letters_on_after_the_migration(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_release(monkeypatch, *MIGRATIONS[:2])
    ledger = of_a_role_with_rights(server, name)
    lander = take_effect(ledger, batch=1)
    server.execute(OLD_LETTER.format(offset=1), name)
    monkeypatch.undo()
    ledger.prepare()
    lander.land(2)
    server.execute(OLD_LETTER.format(offset=2), name)
    lander.keep_letters(3, [1], "id-2")
    assert letters(server, name) == [("", 1, 1), ("", 2, 2), ("id-2", 1, 3)]


def test_a_driver_that_is_newer_than_the_ledger_loses_no_dead_letter_of_its_batch(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_release(monkeypatch, *MIGRATIONS[:2])
    lander = take_effect(of_a_role_with_rights(server, name), batch=1)
    server.execute(OLD_LETTER.format(offset=1), name)
    lander.keep_letters(3, [1, 2], "id-2")
    assert server.execute("select record_offset, batch from exactlyonce.dead_letters order by 1", name) == [
        (1, 3),
        (2, 3),
    ]


SHARD = Partition("clicks", "shardId-000000000000")
SEQUENCE = 49590338271490256608559692538361571095921575989136588898
FAR = 2**63 - 2
"""Two positions so far apart are the same to whoever keeps 63 bits of them."""


def test_dead_letters_of_shards_are_told_apart_by_the_whole_position_and_replaced_when_they_are_read_again(
    server: Postgres, name: str
) -> None:
    ledger = of_a_role_with_rights(server, name)
    lander = take_effect(ledger, batch=1)
    at = SEQUENCE << 32
    lander.keep_letters(1, [at, at + 1, at + FAR], "made-1", SHARD)
    lander.keep_letters(2, [0, 1], "id-1")
    lander.keep_letters(7, [at + 1, at + 2], "made-1", SHARD)
    lander.keep_letters(8, [at + 1], "made-2", SHARD)
    question = (
        "select topic, partition_name, topic_id, position, batch, place ->> 'offset' from exactlyonce.dead_letters "
        "where position is not null order by topic_id, position"
    )
    told = [
        ("made-1", at, 1),
        ("made-1", at + 1, 7),
        ("made-1", at + 2, 7),
        ("made-1", at + FAR, 1),
        ("made-2", at + 1, 8),
    ]
    assert server.execute(question, name) == [
        (f"clicks/{SHARD.key}", SHARD.key, topic_id, position, batch, str(position))
        for topic_id, position, batch in told
    ]
    plain = (
        "select topic_id, record_offset, batch, place from exactlyonce.dead_letters where position is null order by 2"
    )
    assert server.execute(plain, name) == [("id-1", 0, 2, None), ("id-1", 1, 2, None)]
    with ledger.transaction() as transaction:
        assert transaction.delete_dead_letters(STREAM, timedelta(0), 1000) == 7, "the same retention takes both kinds"


def test_a_ledger_that_was_not_migrated_refuses_dead_letters_of_shards_and_keeps_those_of_topics(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_release(monkeypatch, *MIGRATIONS[: NAMED_LETTERS_SINCE - 1])
    ledger = of_a_role_with_rights(server, name)
    lander = take_effect(ledger, batch=1)
    with pytest.raises(LedgerRefused) as caught:
        lander.keep_letters(2, [SEQUENCE << 32], "made-1", SHARD)
    assert str(caught.value) == (
        f"The ledger's schema exactlyonce at {ledger.address} has version 8, and onMalformed: DeadLetter with named partitions "
        "needs 9: upgrade the operator first, which migrates the schema before its next attempt."
    )
    lander.keep_letters(2, [4], "id-1")
    monkeypatch.undo()
    ledger.prepare()
    lander.keep_letters(3, [4], "id-1")
    lander.keep_letters(3, [SEQUENCE << 32], "made-1", SHARD)
    found = "select topic_id, batch, position from exactlyonce.dead_letters order by 1"
    assert server.execute(found, name) == [("id-1", 3, None), ("made-1", 3, SEQUENCE << 32)]


INTERRUPTED = "update pg_index set indisvalid = false where indexrelid = 'exactlyonce.dead_letters_position'::regclass"
"""What `create index concurrently` leaves behind if it is cancelled."""


def test_the_migration_reads_no_large_table_and_an_index_made_beside_the_drivers_lets_dead_letters_of_shards_in(
    server: Postgres, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody may land while it migrates; a table of one letter stands for a large one."""
    run_release(monkeypatch, *MIGRATIONS[: NAMED_LETTERS_SINCE - 1])
    ledger = of_a_role_with_rights(server, name)
    lander = take_effect(ledger, batch=1)
    lander.keep_letters(2, [4], "id-1")
    monkeypatch.undo()
    assert "<= 268435456 then" in MIGRATIONS[NAMED_LETTERS_SINCE - 1].sql
    small = (replace(each, sql=each.sql.replace("<= 268435456 then", "<= 0 then")) for each in MIGRATIONS)
    run_release(monkeypatch, *small)
    ledger.prepare()
    lander.keep_letters(3, [5], "id-1")
    with pytest.raises(LedgerRefused, match="Let its owner run, beside the drivers: ") as refused:
        lander.keep_letters(3, [SEQUENCE << 32], "made-1", SHARD)
    made = str(refused.value).partition("beside the drivers: ")[2]
    server.execute(made, name)
    server.execute(INTERRUPTED, name)
    with pytest.raises(LedgerRefused, match="drop index concurrently ") as refused:
        lander.keep_letters(3, [SEQUENCE << 32], "made-1", SHARD)
    dropped = re.search(r"drop index concurrently [^;]+;", str(refused.value))
    assert dropped is not None
    server.execute(dropped[0], name)
    server.execute(made, name)
    for number in (3, 4):
        lander.keep_letters(number, [SEQUENCE << 32], "made-1", SHARD)
    found = "select topic_id, record_offset, batch from exactlyonce.dead_letters where position is null order by 2"
    assert server.execute(found, name) == [("id-1", 4, 2), ("id-1", 5, 3)]
    of_shards = "select batch, position from exactlyonce.dead_letters where position is not null"
    assert server.execute(of_shards, name) == [(4, SEQUENCE << 32)]
