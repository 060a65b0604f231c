"""Doris as a stream names it: its fields, its login, the table that is looked at before Spark starts, what tasks are sent."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from exactlyonce.api.resource import read_streams
from exactlyonce.assembly import ledger_address
from exactlyonce.connectors.doris.spec import DorisSink, Write
from exactlyonce.errors import SecretMissing
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.schema.model import SecretRef
from exactlyonce_spark.connectors.doris.client import DorisRefused, DorisUnreachable, Operation
from exactlyonce_spark.connectors.doris.connector import NOBODYS_TRANSACTION, PreparedDoris, client_of, prepared_doris
from exactlyonce_spark.connectors.doris.fit import TableUnfit
from exactlyonce_spark.connectors.ports import YieldedColumn
from exactlyonce_spark.load_labels import LoadLabels
from testbed.doris.cluster import Login, TwoPhases
from testbed.doris.servers import StandIn
from testbed.doris.transactions import Refused
from tests.doris import DATABASE, doris, ids

LABELS = LoadLabels("shop/orders", "token-1")
PASSWORD = "open sesame"
SECRET = {"user": "loader", "password": PASSWORD}


@pytest.fixture
def server() -> Iterator[StandIn]:
    with doris() as stand_in:
        stand_in.cluster.logins["loader"] = Login(PASSWORD)
        yield stand_in


def secrets(reference: SecretRef | None) -> Mapping[str, str]:
    assert reference is not None
    return SECRET


def sink(server: StandIn | None = None, **changed: Any) -> DorisSink:
    frontend = "fe-1.doris:8030" if server is None else server.frontend
    given = {
        "frontends": [frontend],
        "database": DATABASE,
        "table": "orders",
        "secretRef": {"name": "doris"},
        **changed,
    }
    return DorisSink.model_validate(given)


def prepared(server: StandIn, **changed: Any) -> PreparedDoris:
    return prepared_doris(sink(server, **changed), secrets, LABELS, Epoch(3))


def test_a_sink_says_no_more_than_where_its_table_is() -> None:
    found = sink()
    assert (found.write, found.retries, found.load_timeout) == (Write.APPEND, 4, timedelta(minutes=10))
    assert found.nodes == (("fe-1.doris", 8030),)
    assert sink(frontends=["[fd00::1]:8030", "10.0.0.1:80"]).nodes == (("fd00::1", 8030), ("10.0.0.1", 80))


@pytest.mark.parametrize("lacking", ["user", "password"])
def test_a_secret_without_a_key_is_named_with_the_key(lacking: str) -> None:
    given = {key: value for key, value in SECRET.items() if key != lacking}
    with pytest.raises(SecretMissing, match=f"The secret doris that sink.doris.secretRef names has no {lacking}"):
        client_of(sink(), lambda reference: given)


def test_a_key_ends_where_its_text_does_and_the_password_may_be_empty() -> None:
    one = client_of(sink(), lambda reference: {"user": "loader\n", "password": f"{PASSWORD}\n"})
    assert (one.login.user, one.login.password) == ("loader", PASSWORD)
    assert client_of(sink(), lambda reference: {**SECRET, "password": ""}).login.password == ""
    with pytest.raises(SecretMissing, match="has no user; give it both user and password"):
        client_of(sink(), lambda reference: {**SECRET, "user": " \n"})


def test_a_table_is_looked_at_and_nothing_is_loaded(server: StandIn) -> None:
    prepared(server)
    assert [(one.method, one.headers.get("txn_operation")) for one in server.seen] == [
        ("GET", None),
        ("PUT", "abort"),
        ("PUT", "abort"),
    ]


def test_servers_that_know_no_two_phases_are_refused_before_a_row_is_sent(server: StandIn) -> None:
    with (
        server.cluster.settings(two_phases=TwoPhases.UNKNOWN),
        pytest.raises(DorisRefused, match=r"Doris 1\.0 or later"),
    ):
        prepared(server)
    assert ids(server) == []


def test_servers_that_do_not_show_that_they_know_two_phases_are_refused(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for answer, told in ((Refused("no master"), "no master"), (None, "a transaction of nobody is done now")):

        def operate(*_: object, answer: Refused | None = answer) -> str:
            if answer is not None:
                raise answer
            return f"transaction [{NOBODYS_TRANSACTION}] abort successfully."

        monkeypatch.setattr(server.cluster, "operate", operate)
        with pytest.raises(DorisRefused, match=f"does not show that it knows loads in two phases, .*{told}"):
            prepared(server)


def test_what_the_query_yields_is_held_against_the_table_and_the_way_of_writing(server: StandIn) -> None:
    one = prepared(server, write="Upsert")
    with pytest.raises(
        TableUnfit, match=r"table shop\.orders of Doris: its model is DUP_KEYS.*; the table has no column other"
    ):
        one.fit([YieldedColumn("other", "int")], {}, deletes=False)


def test_headers_that_a_stream_adds_go_with_each_load_and_replace_none_of_those_that_decide(server: StandIn) -> None:
    one = prepared(server, properties={"comment": "of us", "send_batch_parallelism": "4"})
    target, _ = one.target(one.fit([YieldedColumn("id", "int")], {}, deletes=False), deletes=False)
    target.prepare(BatchNumber(1), "0-a", [pa.RecordBatch.from_pydict({"c0": ["7"]})])
    loads = [request.headers for request in server.seen if request.path.endswith("_stream_load")]
    assert [(sent["comment"], sent["send_batch_parallelism"], sent["two_phase_commit"]) for sent in loads] == 2 * [
        ("of us", "4", "true")
    ], "the frontend and the backend are asked alike"


def test_tasks_are_sent_no_login_and_load_what_the_driver_commits(server: StandIn) -> None:
    one = prepared(server)
    columns = one.fit([YieldedColumn("note", "string"), YieldedColumn("ID", "int")], {}, deletes=False)
    assert [(column.name, column.expression) for column in columns] == [
        ("note", "`note`"),
        ("id", "cast(`ID` as string)"),
    ]
    driver, tasks = one.target(columns, deletes=False)
    sent = pickle.dumps(tasks)
    assert PASSWORD.encode() not in sent
    _, task = pickle.loads(sent).open(secrets)
    # As Spark hands them over: by their places, under names of its own.
    load = task.prepare(BatchNumber(1), "0-a", [pa.RecordBatch.from_pydict({"c0": ["x", None], "c1": ["7", "8"]})])
    assert (load.rows, LABELS.epoch_of(load.label)) == (2, 3)
    driver.loads.client.settle(Operation.COMMIT, int(load.transaction_id))
    assert server.cluster.select(f'select id, note from "{DATABASE}.orders" order by id') == [(7, "x"), (8, None)]


def test_doris_computes_the_columns_that_the_stream_says_and_no_row_is_lost_by_it(server: StandIn) -> None:
    one = prepared(server, columns=["amount", "id", "note=coalesce(amount, 'none, yet')"])
    columns = one.fit([YieldedColumn("id", "int"), YieldedColumn("amount", "int")], {}, deletes=False)
    driver, _ = one.target(columns, deletes=False)
    load = driver.prepare(BatchNumber(1), "0-a", [pa.RecordBatch.from_pydict({"c0": ["1", "2"], "c1": ["7", None]})])
    assert load is not None
    driver.loads.client.settle(Operation.COMMIT, int(load.transaction_id))
    assert server.cluster.select(f'select id, note from "{DATABASE}.orders" order by id') == [
        (1, "7"),
        (2, "none, yet"),
    ]


def test_nothing_that_is_shown_has_the_password(server: StandIn) -> None:
    one = prepared(server)
    driver, tasks = one.target(one.fit([YieldedColumn("id", "int")], {}, deletes=False), deletes=False)
    assert PASSWORD not in repr((driver, tasks))


def test_the_example_is_a_stream_whose_ledger_is_beside_its_checkpoint() -> None:
    (stream,) = read_streams(Path(__file__).parents[2] / "examples" / "orders-into-doris.yaml")
    assert isinstance(stream.spec.sink.spec, DorisSink)
    assert ledger_address(stream.spec, lambda reference: {}).shown == "/var/lib/exactlyonce/orders/checkpoint/ledger"


STAGING = {
    "location": "s3a://lake/staging",
    "endpoint": "http://127.0.0.1:1",
    "pathStyle": True,
    "secretRef": {"name": "writer"},
    "readerSecretRef": {"name": "reader"},
}
LOGIN_TO_FILES = {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret of files"}


@pytest.mark.parametrize(
    ("changed", "from_bytes"),
    [
        ({}, None),
        ({"load": "StreamLoad", "stagingLocation": STAGING}, None),
        ({"load": "BrokerLoad", "stagingLocation": STAGING}, 0),
        ({"load": "Auto", "stagingLocation": STAGING}, (1 << 30) + 1),
        ({"load": "Auto", "brokerLoadAbove": "5Mi", "stagingLocation": STAGING}, (5 << 20) + 1),
    ],
)
def test_a_task_stages_its_rows_by_their_size(changed: dict[str, Any], from_bytes: int | None) -> None:
    assert sink(**changed).stages_from_bytes == from_bytes


def test_the_logins_to_the_files_are_secrets_of_the_stream() -> None:
    assert [one.name for one in sink(load="Auto", stagingLocation=STAGING).further_secrets] == ["writer", "reader"]
    own = {key: value for key, value in STAGING.items() if key != "readerSecretRef"}
    assert {one.name for one in sink(load="Auto", stagingLocation=own).further_secrets} == {"writer"}
    assert sink().further_secrets == ()


@pytest.mark.parametrize(("field", "name"), [("secretRef", "writer"), ("readerSecretRef", "reader")])
def test_a_login_to_files_is_one_of_its_secret_and_never_that_of_the_machine(
    server: StandIn, field: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "machine")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "machine")

    def given(reference: SecretRef | None) -> Mapping[str, str]:
        assert reference is not None
        return SECRET if reference.name == "doris" else {} if reference.name == name else LOGIN_TO_FILES

    with pytest.raises(
        SecretMissing, match=rf"secret {name} that sink\.doris\.stagingLocation\.{field} names has no AWS_"
    ):
        prepared_doris(sink(server, load="Auto", stagingLocation=STAGING), given, LABELS, Epoch(3))


def test_a_query_port_that_does_not_answer_is_told_before_spark_starts(server: StandIn) -> None:
    def given(reference: SecretRef | None) -> Mapping[str, str]:
        return SECRET if reference is not None and reference.name == "doris" else LOGIN_TO_FILES

    closed = sink(server, load="Auto", stagingLocation=STAGING, queryPort=1)
    with pytest.raises(DorisUnreachable, match="No frontend of Doris answers at its query port") as told:
        prepared_doris(closed, given, LABELS, Epoch(3))
    assert PASSWORD not in str(told.value)


def test_what_tasks_are_sent_has_no_login_of_the_files(server: StandIn) -> None:
    def given(reference: SecretRef | None) -> Mapping[str, str]:
        return SECRET if reference is not None and reference.name == "doris" else LOGIN_TO_FILES

    plain = prepared(server)
    stages = PreparedDoris(
        sink(server, load="BrokerLoad", stagingLocation=STAGING), given, plain.table, LABELS, Epoch(3)
    )
    columns = stages.fit([YieldedColumn("id", "bigint")], {}, deletes=False)
    target, tasks = stages.target(columns, deletes=False)
    assert target.staged_loads is not None
    assert b"secret of files" not in pickle.dumps(tasks)
    on_an_executor = pickle.loads(pickle.dumps(tasks)).open(given)[1]
    assert (on_an_executor.staged_loads, on_an_executor.stages_from_bytes) == (None, 0)
    assert "secret of files" not in repr(target)
