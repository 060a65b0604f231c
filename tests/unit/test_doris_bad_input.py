"""What is wrong with a table, its login or its servers: each told by one sentence, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from exactlyonce.connectors.doris.spec import DorisSink
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.doris.connector import prepared_doris
from exactlyonce_spark.connectors.ports import YieldedColumn
from exactlyonce_spark.load_labels import LoadLabels
from testbed.doris.cluster import Login, TwoPhases
from testbed.doris.servers import StandIn
from testbed.doris.transactions import Status
from testbed.processes import free_port
from tests.doris import DATABASE, PASSWORD, doris, ids, lines, load, operate

LOCATION = "/checkpoints/orders"
LABEL = "_checkpoints_orders_1_0"
AWAY = f"127.0.0.1:{free_port()}"


@pytest.fixture(scope="module")
def shared() -> Iterator[StandIn]:
    with doris() as stand_in:
        yield stand_in


@pytest.fixture
def server(shared: StandIn) -> Iterator[StandIn]:
    """The one of all tests, as it was before each of them."""
    with shared.cluster.settings(logins={"loader": Login(PASSWORD)}, two_phases=TwoPhases.ENABLED):
        yield shared
    shared.redirects_to = None


def write(server: StandIn, note: str = "a", **changed: Any) -> None:
    """Do what a driver and one of its tasks do with a row, until it is prepared."""
    given = {
        "frontends": [server.frontend],
        "database": DATABASE,
        "table": "orders",
        "secretRef": {"name": "doris"},
        "retries": 0,
        **changed,
    }
    sink = DorisSink.model_validate(given)
    secret = {"user": "loader", "password": PASSWORD}
    one = prepared_doris(sink, lambda reference: secret, LoadLabels("shop/orders", "token-1"), Epoch(1))
    columns = one.fit([YieldedColumn("id", "bigint"), YieldedColumn("note", "string")], {}, deletes=False)
    driver = one.target(columns, deletes=False)[0]
    target = (
        driver
        if not changed.get("labelFormat")
        else type(driver)(driver.loads, driver.columns, driver.labels, driver.epoch, LOCATION)
    )
    target.prepare(BatchNumber(1), "0-a", [pa.RecordBatch.from_pydict({"c0": ["1"], "c1": [note]})])


def without_the_right(server: StandIn) -> None:
    server.cluster.logins["loader"] = Login(PASSWORD, frozenset({"SELECT"}))


def switched_off(server: StandIn) -> None:
    server.cluster.two_phases = TwoPhases.DISABLED


def sent_away(server: StandIn) -> None:
    server.redirects_to = f"http://{AWAY}/api/{DATABASE}/_stream_load_2pc"


def used_by_a_stranger(server: StandIn) -> None:
    answer = load(server, LABEL, lines({"id": 9}), "accounts")
    operate(server, "commit", txn_id=str(answer["TxnId"]))


def nothing(server: StandIn) -> None:
    """All is well with the server."""


BAD: dict[str, tuple[Callable[[StandIn], None], dict[str, Any], str]] = {
    "another database": (nothing, {"database": "none"}, "Doris refuses loader at none.orders: .*unknown database"),
    "another table": (nothing, {"table": "none"}, "Doris refuses loader at shop.none: .*unknown table"),
    "no right to load": (without_the_right, {}, r"Doris refuses a load of 1 rows: .*the LOAD privilege"),
    "a backend that executors do not reach": (
        sent_away,
        {},
        f"sends loads to its backend {AWAY}, which cannot be reached from here",
    ),
    "two phases that are switched off": (switched_off, {}, r"set disable_stream_load_2pc=false in its be\.conf"),
    "a label that a stranger has used": (
        used_by_a_stranger,
        {"labelFormat": "Compatible"},
        f"The label {LABEL} has a load that this stream did not commit",
    ),
    "a model of another way of writing": (nothing, {"write": "Upsert"}, "its model is DUP_KEYS.*use write: Append"),
    "a column that does not exist": (nothing, {"columns": ["id", "note", "x=id+1"]}, "columns computes x"),
    "a value that is too long": (nothing, {"note": "x" * 21}, "Doris refuses 1 of 1 rows, so none is loaded"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_wrong_is_told_by_one_sentence_and_nothing_is_loaded(server: StandIn, name: str) -> None:
    strike, changed, told = BAD[name]
    strike(server)
    with pytest.raises(ExactlyOnceError, match=told) as problem:
        write(server, **changed)
    words = str(problem.value)
    assert "\n" not in words
    assert words.endswith(".")
    assert PASSWORD not in words
    open_states = (Status.PREPARE, Status.PRECOMMITTED)
    assert not [one for one in server.cluster.transactions[DATABASE].known.values() if one.status in open_states]
    assert ids(server) == []


def test_a_share_of_rows_that_may_be_left_out_is_refused_in_the_resource() -> None:
    """The sentence of `max_filter_ratio` and its like: tests/refused_doris.py."""
    with pytest.raises(ValueError, match="a row that is left out would be silently lost"):
        DorisSink.model_validate(
            {
                "frontends": ["fe:8030"],
                "database": "a",
                "table": "b",
                "secretRef": {"name": "c"},
                "properties": {"max_filter_ratio": "0.1"},
            }
        )
