"""What the answers of Doris mean: each status, each message, and nothing that is neither taken for a success."""

from __future__ import annotations

import json
from typing import Any

import pytest

from exactlyonce.connectors.doris.answers import (
    Denied,
    JobStatus,
    LabelState,
    LabelUsed,
    LoadAnswer,
    NotSettled,
    Settled,
    SettledAnswer,
    Taken,
    TakenAtOnce,
    Unreadable,
    data_of,
    label_state,
    load_answer,
    settled_answer,
)
from exactlyonce.connectors.doris.load_failures import (
    LoadRefused,
    NotAllowed,
    NotLoaded,
    NotNow,
    RowsRefused,
    TwoPhasesOff,
)

_COUNTS = {"NumberTotalRows": 3, "NumberLoadedRows": 2, "NumberFilteredRows": 1, "NumberUnselectedRows": 0}
_SUCCESS = {"TxnId": 7, "Label": "a", "Status": "Success", "TwoPhaseCommit": "true", "Message": "OK", **_COUNTS}
_FAIL = {"TxnId": 7, "Label": "a", "Status": "Fail", "NumberFilteredRows": 0}
_USED = {
    "TxnId": -1,
    "Label": "a",
    "Status": "Label Already Exists",
    "ExistingJobStatus": "PRECOMMITTED",
    "Message": "Label [a] has already been used, relate to txn [19650]",
}


def _said(document: Any) -> bytes:
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    ("document", "meaning"),
    [
        (_SUCCESS, Taken(7, 2, 1, 0)),
        ({**_SUCCESS, "TwoPhaseCommit": "false"}, TakenAtOnce(7)),
        ({name: value for name, value in _SUCCESS.items() if name != "TwoPhaseCommit"}, TakenAtOnce(7)),
        ({**_SUCCESS, "Status": "Publish Timeout"}, TakenAtOnce(7)),
        (_USED, LabelUsed(JobStatus.PRECOMMITTED, 19650)),
        ({**_USED, "ExistingJobStatus": "RUNNING"}, LabelUsed(JobStatus.RUNNING, 19650)),
        ({**_USED, "ExistingJobStatus": "FINISHED", "Message": ""}, LabelUsed(JobStatus.FINISHED, None)),
        (
            {**_USED, "Message": "Label [b] has already been used, relate to txn [19650]"},
            LabelUsed(JobStatus.PRECOMMITTED, None),
        ),
        (
            {**_USED, "Message": "Label [a] has already been used, relate to txn [0]"},
            LabelUsed(JobStatus.PRECOMMITTED, None),
        ),
        (
            {**_FAIL, "Message": "too many filtered rows", "NumberFilteredRows": 3},
            RowsRefused(3, "too many filtered rows"),
        ),
        (
            {**_FAIL, "Message": "too many", "NumberFilteredRows": 3, "ErrorURL": "http://be:8040/x\n\x1b[31m"},
            RowsRefused(3, "too many", "http://be:8040/x [31m"),
        ),
        (
            {**_FAIL, "Message": "[E-235]failed to init rowset builder"},
            NotNow("[E-235]failed to init rowset builder"),
        ),
        ({**_FAIL, "Message": "failed to write: -235"}, NotNow("failed to write: -235")),
        (
            {**_FAIL, "Message": "current running txns on db 10006 is 100, larger than limit 100"},
            NotNow("current running txns on db 10006 is 100, larger than limit 100"),
        ),
        ({**_FAIL, "Message": "Two phase commit (2PC) for stream load was disabled"}, TwoPhasesOff()),
        ({**_FAIL, "Message": "tablet 1-2351 is away"}, NotLoaded("tablet 1-2351 is away")),
        ({"status": "FAILED", "msg": "Access denied; you need LOAD"}, NotAllowed("Access denied; you need LOAD")),
        ({**_FAIL, "Message": "unknown table, tableName=x"}, NotAllowed("unknown table, tableName=x")),
        (
            {"status": "FAILED", "msg": "There is no 100-continue header"},
            LoadRefused("There is no 100-continue header"),
        ),
    ],
)
def test_the_answer_to_a_load_has_one_meaning(document: Any, meaning: LoadAnswer) -> None:
    assert load_answer(_said(document), "a") == meaning


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>",
        b"[]",
        b"\xff",
        b"[" * 20_000,
        _said({}),
        _said({**_SUCCESS, "Status": "success"}),
        _said({**_SUCCESS, "Label": "b"}),
        _said({**_SUCCESS, "TxnId": "7"}),
        _said({**_SUCCESS, "TxnId": -1}),
        _said({**_SUCCESS, "TxnId": 0}),
        _said({**_SUCCESS, "TxnId": float("nan")}),
        _said({**_SUCCESS, "NumberLoadedRows": -2}),
        _said({**_SUCCESS, "NumberLoadedRows": None}),
        _said({**_USED, "ExistingJobStatus": "CANCELLED"}),
        _said({"status": "OK", "msg": "Success"}),
    ],
)
def test_what_doris_never_answers_is_no_meaning(content: bytes) -> None:
    with pytest.raises(Unreadable):
        load_answer(content, "a")


@pytest.mark.parametrize(
    ("message", "meaning"),
    [
        ("transaction [7] is already committed, not pre-committed.", Settled.COMMITTED_BEFORE),
        (
            "errCode = 2, detailMessage = transaction [7] is already VISIBLE, not pre-committed.",
            Settled.COMMITTED_BEFORE,
        ),
        ("transaction [7] is already COMMITTED, could not abort.", Settled.COMMITTED_BEFORE),
        ("transaction [7] is already aborted. abort reason: User Abort", Settled.ABORTED_BEFORE),
        (
            "transaction [7] is already aborted, abort reason: transaction [7] is already visible",
            Settled.ABORTED_BEFORE,
        ),
        ("transaction [7] is prepare, not pre-committed.", Settled.ONLY_BEGAN),
        ("errCode = 2, detailMessage = transaction [7] not found.", Settled.NOT_FOUND),
        ("transaction [77] is already committed", NotSettled("transaction [77] is already committed")),
        ("no backend is alive", NotSettled("no backend is alive")),
    ],
)
def test_what_became_of_a_transaction_is_told_by_a_message_that_names_it(message: str, meaning: SettledAnswer) -> None:
    assert settled_answer(_said({"status": "ANALYSIS_ERROR", "msg": message}), 7) == meaning


def test_a_transaction_that_is_settled_now_says_success() -> None:
    assert (
        settled_answer(_said({"status": "Success", "msg": "transaction [7] commit successfully."}), 7)
        is Settled.DONE_NOW
    )


@pytest.mark.parametrize(
    "content",
    [
        b"",
        _said({"status": "Success"}),
        _said({"status": "Success", "msg": "transaction [77] commit successfully."}),
        _said({"msg": "x"}),
        _said([]),
        _said({"status": 1, "msg": 2}),
    ],
)
def test_an_answer_without_its_fields_or_of_another_transaction_settles_nothing(content: bytes) -> None:
    with pytest.raises(Unreadable):
        settled_answer(content, 7)


@pytest.mark.parametrize("state", list(LabelState))
def test_each_state_of_a_label_is_read(state: LabelState) -> None:
    assert label_state(_said({"msg": "success", "code": 0, "data": state.value, "count": 0})) is state


def test_a_state_that_is_none_is_not_read() -> None:
    for content in (_said({"code": 0, "data": "DONE"}), _said({"data": "VISIBLE"}), _said({"code": 0, "data": []})):
        with pytest.raises(Unreadable):
            label_state(content)


def test_a_code_that_refuses_is_told_on_one_bounded_line() -> None:
    with pytest.raises(Denied) as told:
        data_of(_said({"code": 401, "msg": "Unauthorized", "data": "Access denied\nfor \x1b[31muser" + "x" * 5000}))
    assert str(told.value).isprintable()
    assert len(str(told.value)) <= 200
