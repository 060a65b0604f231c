"""A table of Doris as a replay writes to it, over the stand-in: which tables take one, and what its loads are called."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from exactlyonce.api.replay import why_not_replayable
from exactlyonce.api.resource import parse_stream
from exactlyonce.connectors.doris.spec import DorisSink
from exactlyonce.ledger.replay import NothingToReplayInto
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from exactlyonce_spark.connectors.doris.connector import DorisConnector
from exactlyonce_spark.connectors.doris.fit import TableUnfit
from exactlyonce_spark.connectors.doris.replaying import PreparedDorisReplay
from exactlyonce_spark.connectors.ports import ReplayConnector, YieldedColumn
from exactlyonce_spark.load_labels import LoadLabels, ReplayLabels
from exactlyonce_spark.replay_load_target import DecidesLoads, NumberCommitted
from exactlyonce_spark.target import LoadState, WritesAhead
from exactlyonce_spark.tasks import committable_of
from testbed.doris.servers import StandIn
from tests.doris import DATABASE, PASSWORD, doris, ids
from tests.ledgers import P0, STREAM, started
from tests.resource_documents import document
from tests.simulation.database import MemoryDatabase, MemoryLedger

SEQUENCE = {"properties": {"function_column.sequence_col": "balance"}}
SPANS = Ranges({P0: OffsetRange(0, 2)})


@pytest.fixture
def server() -> Iterator[StandIn]:
    with doris() as stand_in:
        yield stand_in


def stream_of(sink: str, given: dict[str, Any]) -> Any:
    return parse_stream(document({"spec.sink": {sink: given}, "spec.ledger": None}), "the test").spec


def doris_sink(server: StandIn | None = None, **changed: Any) -> dict[str, Any]:
    frontend = "fe-1.doris:8030" if server is None else server.frontend
    given = {"frontends": [frontend], "database": DATABASE, "table": "orders", "secretRef": {"name": "doris"}}
    return {**given, **changed}


def prepared(server: StandIn, **changed: Any) -> PreparedDorisReplay:
    ledger = MemoryLedger(MemoryDatabase())
    started(ledger)
    spec = stream_of("doris", doris_sink(server, **changed))
    login = {"user": "loader", "password": PASSWORD}
    return DorisConnector().prepare_replay(spec, ledger, STREAM, lambda reference: login)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({}, None),
        ({"write": "Aggregate"}, None),
        ({"write": "Upsert", **SEQUENCE}, None),
        (
            {"write": "Upsert"},
            "write: Upsert has no function_column.sequence_col in sink.doris.properties, so that older",
        ),
    ],
)
def test_rows_that_would_replace_newer_ones_are_refused_by_the_resource(
    changed: dict[str, Any], words: str | None
) -> None:
    reason = why_not_replayable(stream_of("doris", doris_sink(**changed)))
    assert reason is None if words is None else words in (reason or "")


def test_a_table_that_keeps_what_was_loaded_last_is_refused_with_its_columns(server: StandIn) -> None:
    yielded = tuple(YieldedColumn(name, kind) for name, kind in (("id", "bigint"), ("total", "bigint")))
    with pytest.raises(
        TableUnfit, match=r"of each key it keeps what was loaded last in latest \(REPLACE\), and a replay"
    ):
        prepared(server, table="sums", write="Aggregate").fit(yielded, {}, deletes=False)


def test_a_stream_that_the_ledger_does_not_know_takes_no_replay(server: StandIn) -> None:
    with pytest.raises(NothingToReplayInto, match="start the stream first"):
        DorisConnector().prepare_replay(
            stream_of("doris", doris_sink(server)), MemoryLedger(MemoryDatabase()), STREAM, lambda reference: {}
        )


def test_a_chunk_is_a_load_of_its_own_that_is_seen_once_it_is_committed(server: StandIn) -> None:
    assert isinstance(DorisConnector(), ReplayConnector)
    found = prepared(server, load="StreamLoad", labelFormat="Compatible")
    columns = found.fit((YieldedColumn("id", "bigint"), YieldedColumn("note", "string")), {}, deletes=False)
    target = found.target(columns, "mine")
    assert isinstance(target, DecidesLoads)
    assert not isinstance(target, WritesAhead), "it is given rows that were collected"
    rows = [pa.RecordBatch.from_pylist([{"id": 1, "note": "a"}, {"id": 2, "note": "b"}])]
    loads = [target.prepare_load(number, BatchNumber(7), rows) for number in (1, 2)]
    assert target.prepare_load(3, BatchNumber(7), []) is None
    first, second = (load for load in loads if load is not None)
    assert [first.label, second.label] == [f"{ReplayLabels(STREAM, 'token-1').name}:{number}" for number in (1, 2)]
    assert LoadLabels(STREAM, "token-1").epoch_of(first.label) is None, "no driver takes it for an earlier driver's"
    assert ids(server) == []
    target.abort_load(second)
    assert target.loads.state_of(committable_of(second, SPANS)) is LoadState.ABORTED
    assert target.loads.commit(committable_of(first, SPANS))
    target.abort_load(first)
    assert ids(server) == [1, 2]
    with pytest.raises(NumberCommitted, match=f"Doris has committed the load {first.label}"):
        target.prepare_load(1, BatchNumber(7), rows)
    third = target.prepare_load(2, BatchNumber(7), rows)
    assert third is not None, "the number of a load that nobody has decided is free"
    again = found.target(columns, "another").prepare_load(2, BatchNumber(7), rows)
    assert again is not None, "what another replay has prepared under it is aborted"
    assert target.loads.state_of(committable_of(third, SPANS)) is LoadState.ABORTED
    assert ids(server) == [1, 2]


def test_the_place_that_the_ledger_records_is_the_same_in_whatever_order_frontends_are_named() -> None:
    places = {
        DorisSink.model_validate(doris_sink(frontends=frontends)).landing_place
        for frontends in (["a:8030", "b:8030"], ["b:8030", "a:8030"])
    }
    assert places == {f"doris {DATABASE}.orders at a:8030, b:8030"}
