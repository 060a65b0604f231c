"""Loads until they are prepared, and the target of two phases, over the stand-in: ids are counted in its tables."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pytest

from exactlyonce.connectors.doris.answers import LabelState
from exactlyonce.errors import BatchTooLarge, Refused
from exactlyonce.ledger.decided import Committable
from exactlyonce.positions.ranges import BatchNumber, Epoch, Ranges
from exactlyonce_spark import tasks
from exactlyonce_spark.connectors.doris.client import DorisRefused, DorisUnreachable, Operation
from exactlyonce_spark.connectors.doris.fit import DorisFit
from exactlyonce_spark.connectors.doris.loads import FEW_ROWS, CommittedAtOnce, Loads, RowsUnfit
from exactlyonce_spark.connectors.doris.target import DorisTarget
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.target import LoadState, OpenLoad, PreparedLoad
from testbed.doris.cluster import Fault, TwoPhases
from testbed.doris.cluster import Login as LoginThere
from testbed.doris.servers import StandIn
from testbed.doris.transactions import LabelUsed as LabelUsedThere
from tests.doris import DATABASE, client, doris, ids, lines, load, operate

ROWS = lines({"id": 1, "note": "a"}, {"id": 2, "note": None})
COLUMNS = (DorisFit("id", "`id`"), DorisFit("note", "`note`"))


@pytest.fixture
def server() -> Iterator[StandIn]:
    with doris() as stand_in:
        yield stand_in


@dataclass
class Waits:
    """Waits that take no time; `then` is what happens in each."""

    seconds: list[float] = field(default_factory=list)

    def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def loads_of(server: StandIn, waits: Waits | None = None) -> Loads:
    return Loads(client(server.frontend), pause=waits or Waits())


def prepared(loads: Loads, label: str = "mine", body: bytes = ROWS, rows: int = 2) -> PreparedLoad:
    return loads.prepare(label, ("id", "note"), lambda: [body], rows)


def commit(loads: Loads, load: PreparedLoad) -> None:
    loads.client.settle(Operation.COMMIT, int(load.transaction_id))


@pytest.mark.parametrize("fault", [Fault.PREPARE_ANSWER_LOST, Fault.BACKEND_DIES, Fault.TOO_MANY_VERSIONS])
@pytest.mark.parametrize("times", [1, 4])
def test_a_load_that_goes_wrong_is_prepared_once_under_the_same_label(
    server: StandIn, fault: Fault, times: int
) -> None:
    server.cluster.faults += [fault] * times
    loads = loads_of(server)
    load = prepared(loads)
    assert ids(server) == []
    commit(loads, load)
    assert (load.label, load.rows, ids(server)) == ("mine", 2, [1, 2])
    server.cluster.pass_time(3601)
    assert ids(server) == [1, 2]


def test_tries_are_few_and_wait_longer_each_time(server: StandIn) -> None:
    server.cluster.faults += [Fault.TOO_MANY_VERSIONS] * 9
    waits = Waits()
    with pytest.raises(
        DorisUnreachable, match=r"did not take a load of 2 rows in 5 tries: it takes no load at present \(\[E-235\]"
    ):
        prepared(loads_of(server, waits))
    assert waits.seconds == sorted(set(waits.seconds))
    assert len(waits.seconds) == 4


GIVEN_UP = "[MEM_LIMIT_EXCEEDED]query memory limit exceeded"
MANY = [{"id": number, "note": ""} for number in range(FEW_ROWS + 1)]


def given_up(server: StandIn, messages: Sequence[str], rows: Sequence[Any], *, shrinks: bool) -> Exception:
    server.cluster.fails_with += messages
    with pytest.raises((BatchTooLarge, DorisUnreachable)) as told:
        prepared(replace(loads_of(server), shrinks=shrinks), body=lines(*rows), rows=len(rows))
    assert ids(server) == []
    return told.value


@pytest.mark.parametrize(
    "said", [GIVEN_UP, "[TIMEOUT]timeout by txn manager", "Memory limit exceeded, backend 10.0.0.1"]
)
def test_rows_that_doris_gives_up_in_each_try_are_too_many(server: StandIn, said: str) -> None:
    assert isinstance(given_up(server, [said] * 5, MANY, shrinks=True), BatchTooLarge)


@pytest.mark.parametrize(
    ("messages", "rows", "shrinks"),
    [
        ([GIVEN_UP] * 5, MANY, False),
        ([GIVEN_UP] * 5, MANY[:FEW_ROWS], True),
        ([GIVEN_UP] * 4 + ["[E-235]too many versions"], MANY, True),
        (["[PROCESS_MEMORY_EXCEEDED]other loads"] * 5, MANY, True),
    ],
    ids=["the stream does not shrink", "few rows", "another reason in one try", "memory that others use"],
)
def test_rows_are_waited_for_where_fewer_of_them_would_be_no_way_out(
    server: StandIn, messages: Sequence[str], rows: Sequence[Any], shrinks: bool
) -> None:
    assert isinstance(given_up(server, messages, rows, shrinks=shrinks), DorisUnreachable)


def test_rows_of_a_decided_batch_are_waited_for_however_many_they_are(server: StandIn) -> None:
    """They cannot be made fewer."""
    server.cluster.fails_with += [GIVEN_UP] * 10
    target = target_of(server)
    target = replace(target, loads=replace(target.loads, shrinks=True))
    many = batches(*({"id": str(row["id"]), "note": ""} for row in MANY))
    with pytest.raises(BatchTooLarge):
        target.prepare(BatchNumber(4), "0-ab", many)
    with pytest.raises(DorisUnreachable):
        target.prepare(BatchNumber(4), "again-ab", many)


def test_a_backend_that_takes_longer_than_a_load_may_take_has_too_many_rows(server: StandIn) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        server.redirects_to = f"http://127.0.0.1:{silent.getsockname()[1]}/api/{DATABASE}/orders/_stream_load"
        quick = replace(client(server.frontend), load_seconds=0.2)
        with pytest.raises(BatchTooLarge, match=r"no whole answer within 0\.2 seconds"):
            prepared(Loads(quick, tries=2, pause=Waits(), shrinks=True), body=lines(*MANY), rows=len(MANY))


def test_what_is_left_under_a_label_when_tries_are_used_up_is_never_seen(server: StandIn) -> None:
    server.cluster.faults += [Fault.PREPARE_ANSWER_LOST] * 9
    with pytest.raises(DorisUnreachable):
        prepared(loads_of(server))
    server.cluster.pass_time(3601)
    assert ids(server) == []


def test_rows_that_do_not_fit_are_refused_and_none_is_loaded(server: StandIn) -> None:
    with pytest.raises(RowsUnfit, match=r"refuses 1 of 2 rows, so none is loaded.*label mine.*file=error_log_1"):
        prepared(loads_of(server), body=lines({"id": 1, "note": "x" * 21}, {"id": 2, "note": ""}))
    assert ids(server) == []


def test_another_number_of_rows_than_was_sent_is_refused_and_aborted(server: StandIn) -> None:
    loads = loads_of(server)
    with pytest.raises(RowsUnfit, match="took 2 of 3 rows"):
        prepared(loads, rows=3)
    assert loads.client.state_of("mine") is LabelState.ABORTED


def test_a_server_that_commits_at_once_is_refused_with_the_rows_that_count(server: StandIn) -> None:
    with (
        server.cluster.settings(two_phases=TwoPhases.UNKNOWN),
        pytest.raises(CommittedAtOnce, match="Remove these rows"),
    ):
        prepared(loads_of(server))
    assert ids(server) == [1, 2]


def test_two_phases_that_are_switched_off_are_named_with_the_setting(server: StandIn) -> None:
    with (
        server.cluster.settings(two_phases=TwoPhases.DISABLED),
        pytest.raises(DorisRefused, match="disable_stream_load_2pc"),
    ):
        prepared(loads_of(server))
    assert ids(server) == []


def test_a_label_that_a_stranger_committed_is_not_taken_for_ours(server: StandIn) -> None:
    operate(server, "commit", txn_id=str(load(server, "mine", lines({"id": 9}))["TxnId"]))
    with pytest.raises(DorisRefused, match=r"a load that this stream did not commit \(transaction \d+\)"):
        prepared(loads_of(server))
    assert ids(server) == [9]


def test_a_label_in_use_by_a_transaction_that_is_not_named_is_told_as_such(
    server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(server, "mine", lines({"id": 9}))
    monkeypatch.setattr(LabelUsedThere, "__str__", lambda self: "Label [mine] has already been used.")
    with pytest.raises(DorisRefused, match="label mine has a load that is PRECOMMITTED, and Doris does not name its"):
        prepared(loads_of(server))


def test_a_load_without_the_right_is_refused_at_once(server: StandIn) -> None:
    server.cluster.logins["loader"] = LoginThere("secret", frozenset({"SELECT"}))
    waits = Waits()
    with pytest.raises(DorisRefused, match="LOAD privilege"):
        prepared(loads_of(server, waits))
    assert waits.seconds == []


def target_of(server: StandIn, epoch: int = 3, published_for: str | None = None) -> DorisTarget:
    return DorisTarget(loads_of(server), COLUMNS, LoadLabels("shop/orders", "token"), Epoch(epoch), published_for)


def batches(*rows: dict[str, Any]) -> list[Any]:
    return [pa.RecordBatch.from_pylist([row]) for row in rows]


def committable(load: PreparedLoad | None) -> Committable:
    assert load is not None
    return Committable(load.label, load.transaction_id, load.rows, Ranges({}))


def test_a_task_prepares_rows_of_arrow_and_the_driver_commits_them(server: StandIn) -> None:
    target = target_of(server)
    one = committable(
        target.prepare(BatchNumber(4), "0-ab", batches({"id": "1", "note": "é"}, {"id": "2", "note": None}))
    )
    assert (one.rows, target.labels.epoch_of(one.label), ids(server)) == (2, 3, [])
    assert target.commit(one)
    assert target.commit(one)
    assert target.state_of(one) is LoadState.COMMITTED
    assert server.cluster.select(f'select id, note from "{DATABASE}.orders" order by id') == [(1, "é"), (2, None)]


def test_a_task_without_rows_prepares_nothing(server: StandIn) -> None:
    assert target_of(server).prepare(BatchNumber(4), "0-ab", iter([])) is None
    assert server.seen == []


def test_a_load_that_doris_has_aborted_is_told_as_such(server: StandIn) -> None:
    target = target_of(server)
    one = committable(target.prepare(BatchNumber(4), "0-ab", batches({"id": "1", "note": ""})))
    server.cluster.pass_time(3601)
    assert not target.commit(one)
    assert (target.state_of(one), ids(server)) == (LoadState.ABORTED, [])


@pytest.mark.parametrize("committed", [True, False])
def test_a_load_that_doris_has_forgotten_is_unknown_whatever_became_of_it(server: StandIn, committed: bool) -> None:
    target = target_of(server)
    one = committable(target.prepare(BatchNumber(4), "0-ab", batches({"id": "1", "note": ""})))
    if committed:
        target.commit(one)
    server.cluster.pass_time(14 * 3600)
    assert not target.commit(one)
    assert target.state_of(one) is LoadState.UNKNOWN


def test_a_person_is_told_statements_whose_names_are_quoted(server: StandIn) -> None:
    target = target_of(server)
    odd = replace(target.loads.client, database="a`b", table="select")
    told = replace(target, loads=Loads(odd)).how_to_find_out([Committable("mine", "7", 1, Ranges({}))])
    assert "SHOW TRANSACTION FROM `a``b` WHERE id = 7" in told
    assert "FROM `a``b`.`select` WHERE" in told
    assert odd.login.password not in told


def test_streams_into_one_database_count_their_loads_together(server: StandIn) -> None:
    target = target_of(server)
    assert target.loads_into == f"{DATABASE} at {server.frontend}"
    assert replace(target, loads=Loads(client("b:2", "a:1"))).loads_into == f"{DATABASE} at a:1, b:2"


def test_a_label_whose_load_is_another_one_by_now_says_nothing_of_ours(server: StandIn) -> None:
    target = target_of(server)
    one = committable(target.prepare(BatchNumber(4), "0-ab", batches({"id": "1", "note": ""})))
    server.cluster.pass_time(3601)
    operate(server, "commit", txn_id=str(load(server, one.label, lines({"id": 9}))["TxnId"]))
    assert target.loads.client.state_of(one.label) is LabelState.VISIBLE
    assert not target.commit(one)
    assert target.state_of(one) is LoadState.ABORTED


def test_a_load_that_is_over_is_left_as_it_is_by_an_abort(server: StandIn) -> None:
    target = target_of(server)
    one = committable(target.prepare(BatchNumber(4), "0-ab", batches({"id": "1", "note": ""})))
    target.commit(one)
    target.abort(OpenLoad(one.label, one.transaction_id, Epoch(3)))
    assert ids(server) == [1]


@pytest.mark.parametrize("fault", [Fault.COMMIT_ANSWER_LOST, Fault.COMMIT_LOST])
def test_a_lost_commit_is_no_refusal_and_is_done_by_asking_again(server: StandIn, fault: Fault) -> None:
    target = target_of(server)
    one = committable(target.prepare(BatchNumber(4), "0-ab", batches({"id": "1", "note": ""})))
    server.cluster.faults.append(fault)
    with pytest.raises(DorisUnreachable) as told:
        target.commit(one)
    assert not isinstance(told.value, Refused)
    assert target.commit(one)
    assert ids(server) == [1]


LOCATION = "s3a://bucket/check-points/orders"


@pytest.mark.parametrize(
    ("part", "label"),
    [("2-ab", "s3a_bucket_check_points_orders_4_2"), ("driver-ab", "s3a_bucket_check_points_orders_4_0")],
)
def test_a_label_of_the_published_rule_is_told_with_its_transaction(server: StandIn, part: str, label: str) -> None:
    load = target_of(server, published_for=LOCATION).prepare(BatchNumber(4), part, batches({"id": "1", "note": ""}))
    assert load is not None
    assert load == PreparedLoad(label, load.transaction_id, 1, shares_label=True)
    assert tasks.committable_of(load, Ranges({})).answered_as == f"{label}#{load.transaction_id}"


def test_rows_that_are_made_again_have_a_label_of_the_streams_own(server: StandIn) -> None:
    target = target_of(server, published_for=LOCATION)
    load = target.prepare(BatchNumber(4), "again-ab", batches({"id": "1", "note": ""}))
    assert load is not None
    assert (target.labels.epoch_of(load.label), load.shares_label) == (3, False)


def test_what_an_earlier_driver_prepared_under_a_shared_label_is_never_taken_for_ones_own(server: StandIn) -> None:
    zombie, successor = (target_of(server, epoch, LOCATION) for epoch in (3, 4))
    before = committable(zombie.prepare(BatchNumber(4), "0-a", batches({"id": "1", "note": "of the zombie"})))
    after = committable(successor.prepare(BatchNumber(4), "0-b", batches({"id": "2", "note": "of the successor"})))
    assert (before.label, before.transaction_id != after.transaction_id) == (after.label, True)
    assert successor.commit(after)
    assert (zombie.state_of(before), ids(server)) == (LoadState.ABORTED, [2])


def test_a_shared_label_that_a_stranger_has_committed_is_refused_and_nothing_is_loaded(server: StandIn) -> None:
    label = "s3a_bucket_check_points_orders_4_0"
    operate(server, "commit", txn_id=str(load(server, label, lines({"id": 9}))["TxnId"]))
    with pytest.raises(DorisRefused, match="a stream whose checkpoint location gives the same label"):
        target_of(server, published_for=LOCATION).prepare(BatchNumber(4), "0-a", batches({"id": "1", "note": ""}))
    assert ids(server) == [9]
