"""The client of stream load against the stand-in: what is sent where, what comes back, and what is never sent or said."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest

from exactlyonce.connectors.doris.answers import (
    LabelState,
    LabelUsed,
    NotSettled,
    Settled,
    Taken,
)
from exactlyonce.connectors.doris.load_failures import NotAllowed, RowsRefused
from exactlyonce.connectors.doris.table import DorisColumn, KeysModel
from exactlyonce_spark.connectors.doris import exchange as exchanges
from exactlyonce_spark.connectors.doris.client import (
    DorisClient,
    DorisRefused,
    DorisUnreachable,
    LoadUnanswered,
    Login,
    Operation,
)
from exactlyonce_spark.connectors.doris.exchange import Node
from testbed.doris.cluster import Fault
from testbed.doris.cluster import Login as LoginThere
from testbed.doris.servers import StandIn
from testbed.processes import free_port
from tests.doris import DATABASE, PASSWORD, client, doris, ids, lines, listener

COLUMNS = ("id", "note")


@pytest.fixture
def server() -> Iterator[StandIn]:
    with doris() as stand_in:
        yield stand_in


def test_a_load_is_prepared_then_committed_by_its_id(server: StandIn) -> None:
    one = client(server.frontend)
    rows = lines({"id": 1, "note": "é\n"}, {"id": 2, "note": None})
    answer = one.load("a", COLUMNS, lambda: [rows[:7], b"", rows[7:]])
    assert isinstance(answer, Taken)
    assert (answer.loaded, one.state_of("a"), ids(server)) == (2, LabelState.PRECOMMITTED, [])
    assert one.settle(Operation.COMMIT, answer.transaction_id) is Settled.DONE_NOW
    assert one.settle(Operation.COMMIT, answer.transaction_id) is Settled.COMMITTED_BEFORE
    assert one.settle(Operation.ABORT, answer.transaction_id) is Settled.COMMITTED_BEFORE
    assert (one.state_of("a"), ids(server)) == (LabelState.VISIBLE, [1, 2])
    assert server.cluster.select(f'select note from "{DATABASE}.orders" order by id') == [("é\n",), (None,)]


def test_a_load_that_is_aborted_is_told_and_never_seen(server: StandIn) -> None:
    one = client(server.frontend)
    answer = one.load("a", COLUMNS, lambda: [lines({"id": 1})])
    assert isinstance(answer, Taken)
    assert one.settle(Operation.ABORT, answer.transaction_id) is Settled.DONE_NOW
    assert one.settle(Operation.COMMIT, answer.transaction_id) is Settled.ABORTED_BEFORE
    assert (one.state_of("a"), ids(server)) == (LabelState.ABORTED, [])


def test_what_is_forgotten_is_neither_committed_nor_aborted(server: StandIn) -> None:
    one = client(server.frontend)
    answer = one.load("a", COLUMNS, lambda: [lines({"id": 1})])
    assert isinstance(answer, Taken)
    one.settle(Operation.COMMIT, answer.transaction_id)
    server.cluster.pass_time(13 * 3600)
    assert one.settle(Operation.COMMIT, answer.transaction_id) is Settled.NOT_FOUND
    assert one.state_of("a") is LabelState.UNKNOWN


def test_rows_go_to_the_backend_alone_and_the_login_to_both(server: StandIn) -> None:
    client(server.frontend).load("a", COLUMNS, lambda: [lines({"id": 1})])
    assert [(one.server, bool(one.body)) for one in server.seen] == [("frontend", False), ("backend", True)]
    assert all(one.headers["authorization"].startswith("Basic ") for one in server.seen)
    assert all(one.headers["expect"] == "100-continue" for one in server.seen)


def test_no_row_may_be_filtered_and_no_value_become_null(server: StandIn) -> None:
    answer = client(server.frontend).load("a", COLUMNS, lambda: [lines({"id": 1, "note": "x" * 21}, {"id": 2})])
    assert isinstance(answer, RowsRefused)
    assert (answer.filtered, ids(server)) == (1, [])


def test_a_backend_that_refuses_the_header_is_sent_no_rows(server: StandIn) -> None:
    one = client(server.frontend)
    one.load("a", COLUMNS, lambda: [lines({"id": 1})])

    read: list[bytes] = []

    def rows() -> Iterator[bytes]:
        read.append(b"")
        yield lines({"id": 1})

    assert isinstance(one.load("a", COLUMNS, rows), LabelUsed)
    assert read == []


def test_rows_that_cannot_be_made_leave_no_load_behind(server: StandIn) -> None:
    def broken() -> Iterator[bytes]:
        yield lines({"id": 1})
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        client(server.frontend).load("a", COLUMNS, broken)
    assert client(server.frontend).state_of("a") is not LabelState.PRECOMMITTED


@pytest.mark.parametrize("fault", [Fault.PREPARE_ANSWER_LOST, Fault.BACKEND_DIES])
def test_a_load_without_an_answer_is_told_as_unknown(server: StandIn, fault: Fault) -> None:
    server.cluster.faults.append(fault)
    with pytest.raises(LoadUnanswered):
        client(server.frontend).load("a", COLUMNS, lambda: [lines({"id": 1})])


@pytest.mark.parametrize("fault", [Fault.COMMIT_ANSWER_LOST, Fault.COMMIT_LOST])
def test_a_commit_without_an_answer_is_done_by_another_one(server: StandIn, fault: Fault) -> None:
    one = client(server.frontend)
    answer = one.load("a", COLUMNS, lambda: [lines({"id": 1})])
    assert isinstance(answer, Taken)
    server.cluster.faults.append(fault)
    with pytest.raises(DorisUnreachable):
        one.settle(Operation.COMMIT, answer.transaction_id)
    one.settle(Operation.COMMIT, answer.transaction_id)
    assert ids(server) == [1]


def test_the_next_frontend_is_asked_when_one_is_gone(server: StandIn) -> None:
    one = client(f"127.0.0.1:{free_port()}", server.frontend)
    assert isinstance(one.load("a", COLUMNS, lambda: [lines({"id": 1})]), Taken)


def test_frontends_that_are_gone_are_named_with_the_reason() -> None:
    gone = f"127.0.0.1:{free_port()}"
    with pytest.raises(DorisUnreachable, match=f"{gone}: Connection refused"):
        client(gone).state_of("a")


def test_a_backend_that_is_not_reachable_is_named_as_such(server: StandIn) -> None:
    away = server.backend
    server.stop("backend")
    with pytest.raises(DorisUnreachable, match=f"its backend {away}, which cannot be reached from here"):
        client(server.frontend).load("a", COLUMNS, lambda: [lines({"id": 1})])


def test_a_wrong_password_is_a_refusal_that_does_not_show_it(server: StandIn) -> None:
    one = client(server.frontend, password="open sesame")
    for request in (one.schema, lambda: one.state_of("a"), lambda: one.load("a", COLUMNS, lambda: [b""])):
        with pytest.raises(DorisRefused, match=r"Doris refuses loader at shop\.orders") as told:
            request()
        assert "sesame" not in str(told.value)
    assert "sesame" not in repr(one)


def test_a_missing_right_is_told(server: StandIn) -> None:
    server.cluster.logins["loader"] = LoginThere(PASSWORD, frozenset({"SELECT"}))
    answer = client(server.frontend).load("a", COLUMNS, lambda: [lines({"id": 1})])
    assert isinstance(answer, NotAllowed)
    assert "LOAD privilege" in answer.message


def test_a_database_or_a_table_that_is_not_there_is_told(server: StandIn) -> None:
    for one in (client(server.frontend, database="none"), client(server.frontend, table="none")):
        with pytest.raises(DorisRefused, match="unknown"):
            one.schema()
        assert isinstance(one.load("a", COLUMNS, lambda: [lines({"id": 1})]), NotAllowed)


def test_a_name_cannot_leave_its_place_in_the_path(server: StandIn) -> None:
    one = client(server.frontend, table="orders/_stream_load?x=")
    with pytest.raises(DorisRefused):
        one.schema()
    assert server.seen[0].path == f"/api/{DATABASE}/orders%2F_stream_load%3Fx%3D/_schema"


def test_a_transaction_of_nobody_settles_nothing(server: StandIn) -> None:
    assert client(server.frontend).settle(Operation.ABORT, 5) is Settled.NOT_FOUND
    assert isinstance(client(server.frontend, database="none").settle(Operation.ABORT, 5), NotSettled)


def test_the_schema_is_read(server: StandIn) -> None:
    table = client(server.frontend, table="sums").schema()
    assert table.model is KeysModel.AGGREGATE
    assert table.columns[1] == DorisColumn("total", "BIGINT", aggregation="SUM")


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6 private text\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nprivate text",
        b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\nprivate text",
        b"HTTP/1.1 500 private text\r\nContent-Length: 12\r\n\r\nprivate text",
        b"",
    ],
)
def test_what_a_server_of_something_else_says_is_shown_to_nobody(answer: bytes) -> None:
    with listener(answer) as (there, _), pytest.raises(DorisUnreachable) as told:
        client(there).state_of("a")
    assert "private" not in str(told.value)


def test_an_answer_without_an_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanges, "MOST_ANSWER_BYTES", 1000)
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 2000
    with listener(endless) as (there, _), pytest.raises(DorisUnreachable, match="more than 1000 bytes"):
        client(there).state_of("a")


def test_a_server_that_never_answers_ends_with_the_time_of_a_request() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = DorisClient((Node("127.0.0.1", silent.getsockname()[1]),), Login("loader", PASSWORD), "a", "b", 0.2, 0.2)
        with pytest.raises(DorisUnreachable):
            one.state_of("a")


DRIPS = {
    "its body": (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
    "its body of a length": (b"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n", b" "),
    "its chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
    "its header": (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
    "what comes before it": (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "nothing": (b"", b""),
}


@pytest.mark.parametrize("drip", DRIPS)
def test_an_answer_that_comes_too_slowly_ends_with_the_time_of_a_request_and_says_so(drip: str) -> None:
    start, more = DRIPS[drip]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.recv(65536)
                connection.sendall(start)
                while not select.select([connection], [], [], 0.05)[0]:  # until the other side has ended it
                    connection.sendall(more)

        threading.Thread(target=answer, daemon=True).start()
        one = DorisClient((Node("127.0.0.1", server.getsockname()[1]),), Login("loader", PASSWORD), "a", "b", 0.4, 0.4)
        with pytest.raises(DorisUnreachable, match=r"no whole answer within 0\.4 seconds"):
            one.state_of("a")


def test_the_rows_of_a_load_are_json_that_the_stand_in_got_as_it_was(server: StandIn) -> None:
    rows = [{"id": number, "note": "x" * (number % 20)} for number in range(5000)]
    client(server.frontend).load("a", COLUMNS, lambda: [lines(row) for row in rows])
    assert [json.loads(line) for line in server.seen[-1].body.splitlines()] == rows


def test_a_status_line_that_comes_in_pieces_is_read_as_a_whole() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        ours = socket.create_connection(server.getsockname())
        theirs, _ = server.accept()
    with ours, theirs:
        theirs.sendall(b"HTTP/1.1 1")
        rest = threading.Timer(0.05, theirs.sendall, (b"00 Continue\r\n\r\n",))
        rest.start()
        assert exchanges._is_asked_for_body(ours)
        rest.join()
