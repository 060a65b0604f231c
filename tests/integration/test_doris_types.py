"""A real stream from Kafka into the stand-in for Doris: each value arrives as it was, once, though a task is run again.

What the table has to hold is written here beside what is sent, and neither is read from what the stream says of itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.reconcile.loop import Done
from testbed.doris.tables import Column, Table
from testbed.doris.transactions import Status
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import only_in_full
from tests.doris import DATABASE
from tests.doris_rig import HOUR_SECONDS, ORDERS, DorisRig, EventfulCluster, eventful

pytestmark = only_in_full  # without Spark: tests/unit/test_doris_fit.py, test_doris_batches.py, test_doris_failures.py

ROWS = 2_400
"""More than a driver loads by itself, so each of two tasks prepares a load."""

SCHEMA = (
    "id BIGINT, price DECIMAL(38,10), whole DECIMAL(20,0), tiny TINYINT, born DATE, at TIMESTAMP, flag BOOLEAN, ratio DOUBLE, "
    "named STRING, document STRING, tags ARRAY<STRING>, place STRUCT<x: INT, y: STRING>"
)
QUERY = "select place, tags, document, named, ratio, flag, at, born, tiny, whole, price, id from source"
TYPES = Table(
    "types",
    (
        Column("id", "BIGINT", is_key=True, nullable=False),
        Column("named", "VARCHAR", length=200),
        Column("born", "DATEV2"),
        Column("price", "DECIMAL128I", precision=38, scale=10),
        Column("whole", "LARGEINT"),
        Column("tiny", "SMALLINT"),
        Column("place", "VARIANT"),
        Column("at", "DATETIMEV2"),
        Column("flag", "BOOLEAN"),
        Column("ratio", "DOUBLE"),
        Column("document", "JSON"),
        Column("tags", "STRING"),
        Column("absent", "INT"),
    ),
)
NAMES = [column.name for column in TYPES.columns if column.name != "id"]

NULLS: dict[str, Any] = dict.fromkeys(NAMES)
SENT_AND_FOUND: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({}, NULLS),
    (
        {"price": "-9999999999999999999999999999.9999999999", "whole": "99999999999999999999", "tiny": -128},
        {"price": "-9999999999999999999999999999.9999999999", "whole": "99999999999999999999", "tiny": -128},
    ),
    ({"price": "0.0000000001", "whole": "0"}, {"price": "0.0000000001", "whole": "0"}),
    (
        {"born": "1969-12-31", "at": "1969-12-31T23:59:59Z"},
        {"born": "1969-12-31", "at": "1969-12-31 23:59:59.000000"},
    ),
    (
        {"born": "0001-01-01", "at": "1582-10-15T00:00:00Z"},
        {"born": "0001-01-01", "at": "1582-10-15 00:00:00.000000"},
    ),
    (
        {"born": "9999-12-31", "at": "2026-01-02T03:04:05+02:00"},
        {"born": "9999-12-31", "at": "2026-01-02 01:04:05.000000"},
    ),
    ({"flag": True, "ratio": 0.1}, {"flag": 1, "ratio": 0.1}),
    ({"flag": False, "ratio": -1.7976931348623157e308}, {"flag": 0, "ratio": -1.7976931348623157e308}),
    ({"ratio": 5e-324, "named": ""}, {"ratio": 5e-324, "named": ""}),
    ({"named": 'Größe 🐎 "\\\n\r\t\u2028'}, {"named": 'Größe 🐎 "\\\n\r\t\u2028'}),
    ({"named": "\\N"}, {"named": "\\N"}),
    ({"named": "null"}, {"named": "null"}),
    ({"document": '{"ü": ["a\\nb", null, 1]}'}, {"document": {"ü": ["a\nb", None, 1]}}),
    ({"tags": ["a,b", 'q"', "🐎"]}, {"tags": ["a,b", 'q"', "🐎"]}),
    ({"tags": []}, {"tags": []}),
    ({"place": {"x": -1, "y": "ü"}}, {"place": {"x": -1, "y": "ü"}}),
]
"""Fields of a record, and what the table has of them; a field that is not sent is NULL."""
DOCUMENTS = ("document", "tags", "place")


class TypesRig(DorisRig):
    """The stream into the table of types."""

    def __init__(self, *given: Any, **overrides: Any) -> None:
        super().__init__(*given, **overrides)
        self.overrides |= {
            "spec.source.format": {"schema": SCHEMA},
            "spec.transform": {"sql": QUERY},
            "spec.sink.doris.table": TYPES.name,
            "spec.recovery.maxFailuresPerBatch": 1,
        }

    def found(self) -> dict[int, dict[str, Any]]:
        """Return what a reader of the table sees, by id; what is JSON there is parsed."""
        rows = self.server.cluster.select(f'select id, {", ".join(NAMES)} from "{DATABASE}.{TYPES.name}"')
        return {id_: {name: _parsed(name, value) for name, value in zip(NAMES, row, strict=True)} for id_, *row in rows}


def _parsed(name: str, value: Any) -> Any:
    return json.loads(value) if name in DOCUMENTS and value is not None else value


@pytest.fixture(scope="module")
def life(kafka: Kafka, postgres_18: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TypesRig]:
    """One driver's life, in which a task fails once after Doris has taken its load."""
    with eventful() as server:
        server.cluster.create(DATABASE, TYPES)
        rig = TypesRig(kafka, postgres_18, tmp_path_factory.mktemp("types"), "doris-types", server)
        records = [
            (number % 2, json.dumps({"id": number, **SENT_AND_FOUND[number // 2 % len(SENT_AND_FOUND)][0]}).encode())
            for number in range(ROWS)
        ]
        rig.send(records)
        rig.produced += range(ROWS)
        assert isinstance(rig.run(crash="task.prepared=raise"), Done), rig.story()
        yield rig


def test_each_value_arrives_as_it_was_whatever_its_type_and_its_place(life: TypesRig) -> None:
    found = life.found()
    assert set(found) == set(range(ROWS))
    for number, row in found.items():
        expected = {**NULLS, **SENT_AND_FOUND[number // 2 % len(SENT_AND_FOUND)][1]}
        assert row == expected, f"id {number}"


def test_a_task_that_spark_runs_again_after_its_load_was_taken_loads_each_row_once(life: TypesRig) -> None:
    assert any(life.folder.glob("fired-0-*")), "the task has failed behind its load"
    assert [kind for kind, _ in life.events if kind in ("BatchFailed", "Unreachable", "FirstStart")] == ["FirstStart"]
    cluster = life.server.cluster
    states = [one.status for one in cluster.transactions_of(DATABASE).known.values()]
    assert sorted(state.value for state in states) == ["PRECOMMITTED", "VISIBLE", "VISIBLE"]
    assert set(life.counts(TYPES.name).values()) == {1}
    cluster.pass_time(2 * HOUR_SECONDS)
    states = [one.status for one in cluster.transactions_of(DATABASE).known.values()]
    assert Status.PRECOMMITTED not in states, "Doris has aborted the load that nobody decided"
    assert life.counts(TYPES.name).total() == ROWS


def test_a_row_that_does_not_fit_puts_its_batch_into_quarantine_and_the_stream_continues(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    """tests/unit/test_doris_failures.py says what follows of each answer; here one comes out of a task of Spark."""
    with eventful() as server:
        assert isinstance(server.cluster, EventfulCluster)
        recovery = {
            "backoff": {"initial": "0s", "max": "1s"},
            "maxFailuresPerBatch": 2,
            "onPoisonBatch": "Quarantine",
            "maxQuarantined": 5_000,
        }
        changes = {"spec.source.kafka.maxOffsetsPerTrigger": ROWS, "spec.recovery": recovery}
        rig = DorisRig(kafka, postgres_18, tmp_path, name, server, **changes)
        rig.produce(ROWS)
        rig.send([(1, b'{"id": -1, "customer": "%s", "amount": "1.00"}' % (b"x" * 51))])
        poisoned = rig.produce(ROWS - 1)
        rig.produce(500)
        assert isinstance(rig.run(), Done), rig.story()
        left_out = set(rig.produced) - set(rig.counts(ORDERS))
        assert left_out, "the batch with the row that does not fit"
        assert left_out <= set(poisoned) | set(range(2 * ROWS - 1, len(rig.produced)))
        assert set(rig.counts(ORDERS).values()) == {1}
        assert -1 not in rig.counts(ORDERS)
        kinds = [kind for kind, _ in rig.events]
        assert (kinds.count("BatchFailed"), kinds.count("BatchQuarantined"), "Unreachable" in kinds) == (2, 1, False)
        (told,) = {words for kind, words in rig.events if kind == "BatchQuarantined"}
        assert "refuses 1 of" in told
