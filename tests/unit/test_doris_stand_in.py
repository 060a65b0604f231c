"""The stand-in for Doris answers raw HTTP as Doris' documentation and source say that Doris does."""

from __future__ import annotations

import http.client
import re
from collections.abc import Iterator

import pytest

from testbed.doris.cluster import Fault, Login, TwoPhases
from testbed.doris.servers import StandIn
from tests.doris import DATABASE, authorization, doris, ids, lines, load, operate, request, state

LABEL_EXISTS = re.compile(r"Label \[(.*)\] has already been used, relate to txn \[(\d+)\]")
COMMITTED = re.compile(
    r"transaction \[(\d+)\] is already \b(COMMITTED|committed|VISIBLE|visible)\b, not pre-committed."
)
OVER = re.compile(r"transaction \[(\d+)\] is already|transaction \[(\d+)\] not found")
"""Source of the three: apache/doris, regression-test/suites/flink_connector_p0/flink_connector_response.groovy."""


@pytest.fixture
def server() -> Iterator[StandIn]:
    with doris() as stand_in:
        yield stand_in


def test_rows_that_are_prepared_are_seen_once_they_are_committed(server: StandIn) -> None:
    answer = load(server, "a", lines({"id": 1}, {"id": 2}))
    assert (answer["Status"], answer["TwoPhaseCommit"], answer["NumberLoadedRows"]) == ("Success", "true", 2)
    assert (ids(server), state(server, "a")) == ([], "PRECOMMITTED")
    committed = operate(server, "commit", txn_id=str(answer["TxnId"]))
    assert committed == {"status": "Success", "msg": f"transaction [{answer['TxnId']}] commit successfully."}
    assert (ids(server), state(server, "a")) == ([1, 2], "VISIBLE")


def test_an_answer_has_every_field_that_the_manual_lists(server: StandIn) -> None:
    answer = load(server, "a", lines({"id": 1}))
    assert set(answer) >= {
        "TxnId", "Label", "Status", "Message", "NumberTotalRows", "NumberLoadedRows", "NumberFilteredRows",
        "NumberUnselectedRows", "LoadBytes", "LoadTimeMs", "BeginTxnTimeMs",
        "StreamLoadPutTimeMs", "ReadDataTimeMs", "WriteDataTimeMs",
        "CommitAndPublishTimeMs",
    }  # fmt: skip


def test_a_label_is_used_once_in_a_database_until_its_load_is_aborted(server: StandIn) -> None:
    first = load(server, "a", lines({"id": 1}))
    again = load(server, "a", lines({"id": 1}), table="accounts")
    assert (again["Status"], again["ExistingJobStatus"]) == ("Label Already Exists", "PRECOMMITTED")
    found = LABEL_EXISTS.search(again["Message"])
    assert found is not None
    assert found.groups() == ("a", str(first["TxnId"]))
    operate(server, "abort", txn_id=str(first["TxnId"]))
    assert load(server, "a", lines({"id": 1}))["Status"] == "Success"
    operate(server, "commit", label="a")
    assert load(server, "a", lines({"id": 1}))["ExistingJobStatus"] == "FINISHED"
    assert ids(server) == [1]


def test_what_is_over_is_told_by_its_message(server: StandIn) -> None:
    first, second = (str(load(server, label, lines({"id": 1}))["TxnId"]) for label in "ab")
    operate(server, "commit", txn_id=first)
    operate(server, "abort", txn_id=second)
    asked = [(operation, number) for number in (first, second, "9") for operation in ("commit", "abort")]
    told = [operate(server, operation, txn_id=number) for operation, number in asked]
    assert all(answer["status"] != "Success" for answer in told)
    assert COMMITTED.search(told[0]["msg"])
    assert all(OVER.search(answer["msg"]) for answer in told)
    assert ids(server) == [1]


def test_the_frontend_takes_no_body_and_sends_a_load_to_the_backend_with_the_login(server: StandIn) -> None:
    status, _, location = request(
        server.frontend, "PUT", f"/api/{DATABASE}/orders/_stream_load", {"Expect": "100-continue"}, b""
    )
    assert status == 307
    assert location == f"http://loader:secret@{server.backend}/api/{DATABASE}/orders/_stream_load?"


def test_a_load_without_the_expect_header_is_refused(server: StandIn) -> None:
    _, answer, _ = request(server.frontend, "PUT", f"/api/{DATABASE}/orders/_stream_load", {"label": "a"})
    assert answer == {"status": "FAILED", "msg": "There is no 100-continue header"}


def test_the_backend_asks_for_the_body_when_it_has_taken_the_header(server: StandIn) -> None:
    connection = http.client.HTTPConnection(server.backend, timeout=10)
    connection.putrequest("PUT", f"/api/{DATABASE}/orders/_stream_load")
    for name, value in {
        "Expect": "100-continue",
        "Authorization": authorization(),
        "label": "a",
        "format": "json",
    }.items():
        connection.putheader(name, value)
    connection.putheader("Content-Length", "9")
    connection.endheaders()
    assert connection.sock.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
    connection.close()


def test_the_backend_wants_the_login_too(server: StandIn) -> None:
    headers = {"Expect": "100-continue", "Authorization": authorization(password="wrong")}
    _, answer, _ = request(server.backend, "PUT", f"/api/{DATABASE}/orders/_stream_load", headers)
    assert (answer["Status"], answer["TxnId"]) == ("Fail", -1)


def test_a_wrong_password_and_a_missing_right_are_told(server: StandIn) -> None:
    server.cluster.logins["reader"] = Login("secret", frozenset({"SELECT"}))
    wrong = {"Authorization": authorization(password="wrong")}
    assert request(server.frontend, "GET", f"/api/{DATABASE}/orders/_schema", wrong)[1]["code"] == 401
    reader = {"Authorization": authorization("reader"), "Expect": "100-continue"}
    answer = request(server.frontend, "PUT", f"/api/{DATABASE}/orders/_stream_load", reader)[1]
    assert "LOAD privilege" in answer["msg"]


def test_bad_rows_fail_a_load_unless_so_many_may_be_filtered(server: StandIn) -> None:
    rows = lines({"id": 1}, {"note": "no id"}, {"id": 3}, {"id": 4})
    failed = load(server, "a", rows)
    assert (failed["Status"], failed["NumberFilteredRows"], state(server, "a")) == ("Fail", 1, "ABORTED")
    assert "ErrorURL" in failed
    taken = load(server, "a", rows, max_filter_ratio="0.5")
    assert (taken["Status"], taken["NumberLoadedRows"], taken["NumberFilteredRows"]) == ("Success", 3, 1)


def test_what_cannot_be_converted_is_null_unless_the_mode_is_strict(server: StandIn) -> None:
    row = lines({"id": 1, "note": "x" * 21})
    assert load(server, "strict", row, strict_mode="true")["Status"] == "Fail"
    operate(server, "commit", txn_id=str(load(server, "loose", row)["TxnId"]))
    assert server.cluster.select(f'select note from "{DATABASE}.orders"') == [(None,)]


def test_csv_is_read_by_its_separator_and_columns(server: StandIn) -> None:
    answer = load(server, "a", b"x,1\n\\N,2\n", format="csv", column_separator=",", columns="note, `id`")
    operate(server, "commit", txn_id=str(answer["TxnId"]))
    assert server.cluster.select(f'select id, note from "{DATABASE}.orders" order by id') == [(1, "x"), (2, None)]


def test_each_model_has_its_own_rule_for_equal_keys(server: StandIn) -> None:
    for table, rows in (
        ("orders", lines({"id": 1}, {"id": 1})),
        ("accounts", lines({"id": 1, "balance": 5}, {"id": 1, "balance": 7})),
        ("sums", lines(*({"id": 1, "total": n, "latest": str(n), "most": n} for n in (2, 9, 4)))),
    ):
        operate(server, "commit", txn_id=str(load(server, table, rows, table=table)["TxnId"]))
    assert ids(server) == [1, 1]
    assert server.cluster.select(f'select * from "{DATABASE}.accounts"') == [(1, 7)]
    assert server.cluster.select(f'select * from "{DATABASE}.sums"') == [(1, 15, "4", 9)]


def test_a_prepared_load_is_aborted_after_an_hour(server: StandIn) -> None:
    number = str(load(server, "a", lines({"id": 1}))["TxnId"])
    server.cluster.pass_time(3600)
    assert state(server, "a") == "PRECOMMITTED"
    server.cluster.pass_time(1)
    assert state(server, "a") == "ABORTED"
    assert "timeout by txn manager" in operate(server, "commit", txn_id=number)["msg"]
    assert ids(server) == []


def test_a_label_is_forgotten_after_twelve_hours_and_may_be_used_again(server: StandIn) -> None:
    number = str(load(server, "a", lines({"id": 1}))["TxnId"])
    operate(server, "commit", txn_id=number)
    server.cluster.pass_time(13 * 3600)
    assert state(server, "a") == "UNKNOWN"
    assert f"transaction [{number}] not found" in operate(server, "commit", txn_id=number)["msg"]
    assert load(server, "a", lines({"id": 1}))["Status"] == "Success"


def test_only_so_many_labels_are_kept_and_a_prepared_one_is_not_forgotten(server: StandIn) -> None:
    server.cluster.limits.label_number = 2
    for label in ("open", "a", "b", "c"):
        number = str(load(server, label, lines({"id": 1}))["TxnId"])
        if label != "open":
            operate(server, "commit", txn_id=number)
    assert [state(server, label) for label in ("open", "a", "b", "c")] == [
        "PRECOMMITTED",
        "UNKNOWN",
        "VISIBLE",
        "VISIBLE",
    ]


@pytest.mark.parametrize(
    ("fault", "state_after"), [(Fault.PREPARE_ANSWER_LOST, "PRECOMMITTED"), (Fault.BACKEND_DIES, "PREPARE")]
)
def test_a_load_without_an_answer_is_prepared_or_never_will_be(server: StandIn, fault: Fault, state_after: str) -> None:
    server.cluster.faults.append(fault)
    with pytest.raises((http.client.HTTPException, OSError)):
        load(server, "a", lines({"id": 1}))
    assert state(server, "a") == state_after
    server.cluster.pass_time(3601)
    assert (state(server, "a"), ids(server)) == ("ABORTED", [])


@pytest.mark.parametrize(("fault", "seen"), [(Fault.COMMIT_ANSWER_LOST, [1]), (Fault.COMMIT_LOST, [])])
def test_a_commit_without_an_answer_took_effect_or_not(server: StandIn, fault: Fault, seen: list[int]) -> None:
    number = str(load(server, "a", lines({"id": 1}))["TxnId"])
    server.cluster.faults.append(fault)
    with pytest.raises((http.client.HTTPException, OSError)):
        operate(server, "commit", txn_id=number)
    assert ids(server) == seen
    operate(server, "commit", txn_id=number)
    assert ids(server) == [1]


def test_a_load_that_only_began_is_aborted_by_its_label_and_not_committed(server: StandIn) -> None:
    server.cluster.faults.append(Fault.BACKEND_DIES)
    with pytest.raises((http.client.HTTPException, OSError)):
        load(server, "a", lines({"id": 1}))
    assert "not found" in operate(server, "commit", label="a")["msg"]
    assert operate(server, "abort", label="a")["status"] == "Success"


def test_what_is_committed_may_be_seen_later(server: StandIn) -> None:
    server.cluster.faults.append(Fault.PUBLISH_TIMEOUT)
    answer = load(server, "a", lines({"id": 1}), two_phase_commit="false")
    assert (answer["Status"], state(server, "a"), ids(server)) == ("Publish Timeout", "COMMITTED", [])
    server.cluster.publish()
    assert (state(server, "a"), ids(server)) == ("VISIBLE", [1])


def test_another_master_does_not_know_what_only_began_and_keeps_what_is_prepared(server: StandIn) -> None:
    server.cluster.faults.append(Fault.BACKEND_DIES)
    with pytest.raises((http.client.HTTPException, OSError)):
        load(server, "begun", lines({"id": 1}))
    load(server, "prepared", lines({"id": 1}))
    server.cluster.fail_over()
    assert (state(server, "begun"), state(server, "prepared")) == ("UNKNOWN", "PRECOMMITTED")


def test_a_tablet_with_too_many_versions_fails_a_load(server: StandIn) -> None:
    server.cluster.faults.append(Fault.TOO_MANY_VERSIONS)
    answer = load(server, "a", lines({"id": 1}))
    assert (answer["Status"], state(server, "a")) == ("Fail", "ABORTED")
    assert "-235" in answer["Message"]


def test_two_phases_may_be_switched_off_or_unknown(server: StandIn) -> None:
    with server.cluster.settings(two_phases=TwoPhases.DISABLED):
        assert "disabled" in load(server, "a", lines({"id": 1}))["Message"]
    with server.cluster.settings(two_phases=TwoPhases.UNKNOWN):
        answer = load(server, "a", lines({"id": 1}))
    assert answer["Status"] == "Success"
    assert "TwoPhaseCommit" not in answer
    assert ids(server) == [1]


def test_the_schema_tells_names_types_and_the_model(server: StandIn) -> None:
    answer = request(server.frontend, "GET", f"/api/{DATABASE}/sums/_schema", {})[1]
    assert (answer["code"], answer["data"]["keysType"]) == (0, "AGG_KEYS")
    assert [(one["name"], one["type"], one["aggregation_type"]) for one in answer["data"]["properties"]][:2] == [
        ("id", "BIGINT", ""),
        ("total", "BIGINT", "SUM"),
    ]


def test_a_label_of_other_characters_or_too_many_is_refused(server: StandIn) -> None:
    for label in ("a/b", "x" * 129):
        assert "Label format error" in load(server, label, lines({"id": 1}))["Message"]
