"""The ledger's table of dead letters: one row for each record."""

from __future__ import annotations

from datetime import timedelta

import pytest

from exactlyonce.positions.ranges import Partition
from testbed.postgres import Postgres
from tests.ledgers import STREAM
from tests.postgres_roles import of_a_role_with_rights, take_effect


@pytest.fixture(params=[18, 16])
def server(request: pytest.FixtureRequest) -> Postgres:
    found: Postgres = request.getfixturevalue(f"postgres_{request.param}")
    return found


def letters(server: Postgres, name: str) -> list[tuple[object, ...]]:
    return server.execute("select topic_id, record_offset, batch from exactlyonce.dead_letters order by 1, 2", name)


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
