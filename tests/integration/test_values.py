"""Append: every value comes back as it was, whether the driver, staging or a partition's task wrote it."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from exactlyonce.reconcile.loop import Done, Halted
from testbed.kafka import Kafka
from tests.combinations import one_or_all
from tests.integration.odd_values import COLUMNS, ODD_ROWS, SCHEMA, TABLE, TABLE_DDL, OddRow, quoted
from tests.rig import Rig

LARGE = 2400
"""Records a batch that tasks write; the driver writes smaller ones itself."""


def fired(rig: Rig, point: str) -> bool:
    """Whether a crash point that the test named was passed."""
    return any(rig.folder.glob(f"fired-*-{point}*"))


@pytest.mark.parametrize(("server", "commit"), one_or_all([("postgres_16", "Partition"), ("postgres_18", "Batch")]))
def test_every_value_comes_back_as_it_was(
    request: pytest.FixtureRequest, kafka: Kafka, tmp_path: Path, name: str, server: str, commit: str
) -> None:
    """The sessions' settings are made as unhelpful as a database's owner can; names are as odd as Postgres lets them be."""
    rig = Rig(kafka, request.getfixturevalue(server), tmp_path, name, partitions=1)
    rig.sql(TABLE_DDL)
    for setting in ("timezone = 'Asia/Kolkata'", "datestyle = 'SQL, DMY'", "client_encoding = 'LATIN1'"):
        rig.sql(f"alter database {name} set {setting}")
    rig.overrides |= {
        "spec.source.format": {"schema": SCHEMA, "options": {"allowNonNumericNumbers": "true"}},
        "spec.source.kafka.maxOffsetsPerTrigger": LARGE,
        "spec.sink.postgres.table": TABLE,
        "spec.sink.postgres.commit": commit,
    }
    filler = [{"id": number} for number in range(1000, 1000 + LARGE - len(ODD_ROWS))]
    odd = [row.record(number) for number, row in enumerate(ODD_ROWS)]
    again = [row.record(number + len(ODD_ROWS)) for number, row in enumerate(ODD_ROWS)]
    rig.send([(0, json.dumps(record).encode()) for record in [*odd, *filler, *again]])
    assert rig.run(crash="task.started@1=raise task.started@2=raise") == Done(completed=True), rig.story()
    assert fired(rig, "task.started@1"), "tasks wrote the large batch"
    assert not fired(rig, "task.started@2"), "the driver wrote the tiny batch itself"
    assert_odd_rows_came_back(rig, [*ODD_ROWS, *ODD_ROWS])
    assert rig.sql(f"select count(*), count(distinct id), count(distinct row_id) from {TABLE}") == [
        (LARGE + len(ODD_ROWS),) * 3
    ]
    assert rig.sql(f"select distinct made, doubled = amount * 2 from {TABLE} where amount is not null") == [
        ("by default", True)
    ]


def assert_odd_rows_came_back(rig: Rig, rows: list[OddRow]) -> None:
    names = ", ".join(quoted(column) for column in COLUMNS)
    reader = psycopg2.connect(
        rig.postgres.dsn(rig.name), client_encoding="UTF8", options="-ctimezone=UTC -cdatestyle=ISO"
    )
    with closing(reader), reader.cursor() as cursor:
        cursor.execute(f"select id, {names} from {TABLE} where id < 1000 order by id")
        found = cursor.fetchall()
    assert [row[0] for row in found] == list(range(len(rows)))
    for got, expected in zip(found, rows, strict=True):
        values = dict(zip(COLUMNS, (as_bytes(value) for value in got[1:]), strict=True))
        assert {column: repr(value) for column, value in values.items()} == {
            column: repr(expected.stored.get(column)) for column in COLUMNS
        }, "repr tells -0.0 from 0.0 and '' from None"


def as_bytes(value: object) -> object:
    return bytes(value) if isinstance(value, memoryview) else value


def test_a_nul_in_text_fails_the_batch_with_a_sentence_and_lands_nothing_of_it(rig: Rig) -> None:
    rig.overrides["spec.recovery.maxFailuresPerBatch"] = 1
    rig.produce(20)
    rig.produce(1, partition=3, customer="nul \0 byte")
    result = rig.run()
    assert isinstance(result, Halted)
    assert 'invalid byte sequence for encoding "UTF8": 0x00' in result.message
    assert rig.landed() == 0
