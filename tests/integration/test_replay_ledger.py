"""The transactions of a replay over real ledgers: Postgres, and an object log; and what they write to a table."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml

from exactlyonce.cli.local_stream import choose_stream, open_stream
from exactlyonce.connectors.postgres.ledger import PostgresLedger
from exactlyonce.connectors.postgres.spec import PostgresSink
from exactlyonce.ledger.fence import raise_epoch
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.publish import Adoption, adopt
from exactlyonce.ledger.replay import RangeNotHeld, ReplayClaim, claim_ranges, give_up, land_pieces, put_back
from exactlyonce.ledger.replay_rules import Piece, RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.ports import FittedColumn
from exactlyonce_spark.connectors.postgres.replaying import PreparedTableOfReplay, ReplayTarget
from exactlyonce_spark.connectors.postgres.table import read_table
from testbed.postgres import Postgres
from tests.ledgers import P0, P1, STREAM, ledger_on, new_stream, started
from tests.resource_documents import document

MINE, OTHER = ReplayClaim(STREAM, "mine"), ReplayClaim(STREAM, "another")
LAST = Fingerprint(19, "digest", 1_000, 3)


@pytest.fixture(params=["postgres", "object log"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path, name: str) -> Iterator[Ledger]:
    if request.param == "postgres":
        yield ledger_on(request.getfixturevalue("postgres_18"), name)
        return
    changes = {
        "spec.sink": {"files": {"path": str(tmp_path / "lake")}},
        "spec.checkpoint": {"local": {"path": str(tmp_path / "checkpoint")}},
    }
    file = tmp_path / "orders.yaml"
    file.write_text(yaml.safe_dump(document(changes)))
    opened = open_stream(choose_stream(file, None), tmp_path / "state", tmp_path).ledger
    opened.prepare()
    yield opened


def in_quarantine(ledger: Ledger) -> tuple[FailureRow, ...]:
    """A stream that has two ranges in quarantine."""
    started(ledger)
    life = life_of(ledger)
    rows = tuple(
        FailureRow(
            BatchNumber(3),
            partition,
            10,
            20,
            FailureStatus.QUARANTINED,
            "broker",
            "it failed",
            origin_id="id-1",
            fingerprint=LAST,
            life=life,
        )
        for partition in (P0, P1)
    )
    with ledger.transaction() as transaction:
        transaction.write_failures(STREAM, rows)
    return rows


def life_of(ledger: Ledger) -> str:
    view = ledger.view(STREAM)
    assert view is not None
    return view.stream.life


def kept(ledger: Ledger) -> list[tuple[object, ...]]:
    with ledger.transaction() as transaction:
        rows = [row for status in FailureStatus for row in transaction.read_failures(STREAM, status)]
    return sorted((str(row.partition), row.from_offset, row.until_offset, str(row.status), row.replay) for row in rows)


def test_a_range_lands_in_parts_and_each_part_has_its_own_end(ledger: Ledger) -> None:
    keys = [RangeKey.of(row) for row in in_quarantine(ledger)]
    claimed = claim_ranges(ledger, MINE, [*keys, RangeKey(BatchNumber(9), P0, 0)])
    assert claimed.refused == ("The range 9/orders-0/0 is not in quarantine.",)
    first, second = claimed.rows
    assert (first.fingerprint, first.origin_id) == (LAST, "id-1")

    give_up(ledger, MINE, Piece(first, 12), "retention took it")
    rest = replace(first, from_offset=12)
    assert land_pieces(ledger, MINE, [Piece(rest, 15), Piece(second, 20)], lambda _: 8) == 8
    rest = replace(first, from_offset=15)
    put_back(ledger, MINE, Piece(rest, 16), "it failed again")
    assert kept(ledger) == [
        ("orders-0", 10, 12, "Lost", "mine"),
        ("orders-0", 12, 15, "Replayed", "mine"),
        ("orders-0", 15, 16, "Quarantined", ""),
        ("orders-0", 16, 20, "Replaying", "mine"),
        ("orders-1", 10, 20, "Replayed", "mine"),
    ]
    view = ledger.view(STREAM)
    assert view is not None
    assert dict(view.landed.positions) == {P0: 0, P1: 0}, "the stream stands where it stood"


def test_of_two_replays_the_later_one_lands_a_range_and_the_earlier_one_writes_nothing(ledger: Ledger) -> None:
    keys = [RangeKey.of(row) for row in in_quarantine(ledger)]
    mine = claim_ranges(ledger, MINE, keys).rows
    others = claim_ranges(ledger, OTHER, keys).rows
    written: list[str] = []

    def write(name: str) -> int:
        written.append(name)
        return 1

    with pytest.raises(RangeNotHeld, match="another replay has taken it"):
        land_pieces(ledger, MINE, [Piece(mine[0], 20)], lambda _: write("mine"))
    assert land_pieces(ledger, OTHER, [Piece(others[0], 20)], lambda _: write("another")) == 1
    with pytest.raises(RangeNotHeld):
        land_pieces(ledger, OTHER, [Piece(others[0], 20)], lambda _: write("another, again"))
    assert written == ["another"]


def test_a_stream_that_has_started_over_takes_no_replay_of_what_was_quarantined_before(ledger: Ledger) -> None:
    rows = in_quarantine(ledger)
    claimed = claim_ranges(ledger, MINE, [RangeKey.of(rows[0])]).rows
    stream = new_stream(ledger)
    raise_epoch(ledger, stream, Epoch(2))
    adopt(ledger, STREAM, Epoch(2), Adoption(stream.owner, stream.database, "token-2"))
    with pytest.raises(RangeNotHeld):
        land_pieces(ledger, MINE, [Piece(claimed[0], 20)], lambda _: 1)
    refused = claim_ranges(ledger, OTHER, [RangeKey.of(row) for row in rows]).refused
    assert [words for words in refused if "before the stream started over" in words] == list(refused)
    assert len(refused) == 2


def test_rows_of_an_older_version_do_not_replace_newer_ones_and_nothing_is_left_of_the_staging(
    postgres_18: Postgres, name: str
) -> None:
    ledger = ledger_on(postgres_18, name)
    postgres_18.execute("create table kept (id bigint primary key, amount bigint, at bigint)", name)
    postgres_18.execute("insert into kept values (1, 100, 7), (2, 200, 2)", name)
    rows = in_quarantine(ledger)
    (claimed,) = claim_ranges(ledger, MINE, [RangeKey.of(rows[0])]).rows
    target = upserting(ledger)
    old = pa.RecordBatch.from_pydict({"c0": ["1", "2", "3"], "c1": ["1", "2", "3"], "c2": ["5", "5", "5"]})

    def write(transaction: Any) -> int:
        return target.write(transaction, [old])

    land_pieces(ledger, MINE, [Piece(claimed, 20)], write)

    found = postgres_18.execute("select id, amount, at from kept order by id", name)
    assert found == [(1, 100, 7), (2, 2, 5), (3, 3, 5)]
    assert postgres_18.execute("select relname from pg_class where relname like '%replay%'", name) == []


def upserting(ledger: PostgresLedger) -> ReplayTarget:
    sink = PostgresSink.model_validate(
        {"secretRef": {"name": "warehouse"}, "table": "kept", "write": "Upsert", "keys": ["id"], "version": "at"}
    )
    prepared = PreparedTableOfReplay(sink, ledger, STREAM, read_table(ledger, sink))
    return prepared.target([FittedColumn(column, column) for column in ("id", "amount", "at")])
