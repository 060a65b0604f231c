"""What Doris' answers mean, as closed unions. Performs no I/O.

What decides is what Doris' own connectors go by: the fields of a load's answer, and the messages of `_stream_load_2pc`, which
has no field for them. Anything else is an answer that cannot be read, never a success.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from exactlyonce.bounded_json import JsonRefused, parse_json
from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.doris.load_failures import LoadFailure, NotNow, failure_of_backend, failure_of_frontend

_MOST_VALUES = 10_000
_USED = re.compile(r"Label \[([^\]]*)\] has already been used, relate to txn \[([1-9]\d{0,18})\]")
_MOST_NUMBER = (1 << 63) - 1


class Unreadable(ValueError):
    """An answer is not one that Doris gives; `str()` says what it lacks, and nothing of what it holds."""


class Denied(Exception):
    """The frontend refuses what was asked; `str()` is its reason, on one line."""


class JobStatus(Enum):
    """What `ExistingJobStatus` says of the load that has a label."""

    RUNNING = "RUNNING"
    PRECOMMITTED = "PRECOMMITTED"
    FINISHED = "FINISHED"


class LabelState(Enum):
    """What `get_load_state` says of the latest transaction of a label."""

    UNKNOWN = "UNKNOWN"
    PREPARE = "PREPARE"
    PRECOMMITTED = "PRECOMMITTED"
    COMMITTED = "COMMITTED"
    VISIBLE = "VISIBLE"
    ABORTED = "ABORTED"


@dataclass(frozen=True, slots=True)
class Taken:
    """The rows are prepared, and wait for a commit; each number is one of rows."""

    transaction_id: int
    loaded: int
    filtered: int
    unselected: int


@dataclass(frozen=True, slots=True)
class TakenAtOnce:
    """The rows are committed, though two phases were asked for: a server of an older release, which does not know them."""

    transaction_id: int


@dataclass(frozen=True, slots=True)
class LabelUsed:
    """Another load has the label; its transaction, where the server names it beside this very label."""

    status: JobStatus
    transaction_id: int | None


LoadAnswer: TypeAlias = Taken | TakenAtOnce | LabelUsed | LoadFailure


class Settled(Enum):
    """What became of a transaction that was to be committed or aborted."""

    DONE_NOW = "done now"
    COMMITTED_BEFORE = "committed before"
    ABORTED_BEFORE = "aborted before"
    NOT_FOUND = "not found"
    """It was committed or aborted, and the server has forgotten which; or it never was."""
    ONLY_BEGAN = "only began"


@dataclass(frozen=True, slots=True)
class NotSettled:
    """The server refuses, for the reason that it tells; nothing is known of the transaction."""

    message: str


SettledAnswer: TypeAlias = Settled | NotSettled


def load_answer(content: bytes, label: str) -> LoadAnswer:
    """Return what the answer to a load in two phases under this label means for its rows.

    Raises:
        Unreadable: if it is no such answer.
        Denied: if a frontend refuses.
    """
    found = _document(content)
    if "Status" in found and found.get("Label") != label:
        raise Unreadable("another label")
    match found.get("Status"):
        case "Success" if _said_true(found.get("TwoPhaseCommit")):
            return Taken(_transaction_id(found), *(_number(found, name) for name in _ROW_COUNTS))
        case "Success" | "Publish Timeout":
            return TakenAtOnce(_transaction_id(found))
        case "Label Already Exists":
            return _label_used(found, label)
        case "Fail":
            return failure_of_backend(found)
        case None if found.get("status") == "FAILED":  # the frontend's own words
            return failure_of_frontend(str(found.get("msg") or "")[:10_000])
        case _:
            raise Unreadable("no Status that Doris gives a load")


def settled_answer(content: bytes, transaction_id: int) -> SettledAnswer:
    """Return what the answer of `_stream_load_2pc` says of this transaction.

    Raises:
        Unreadable: if it is no such answer.
        Denied: if a frontend refuses.
    """
    found = _document(content)
    status, message = found.get("status"), found.get("msg")
    if not isinstance(status, str) or not isinstance(message, str):
        raise Unreadable("no status or no msg")
    told, named = " ".join(message[:10_000].lower().split()), f"transaction [{transaction_id}] "
    if status == "Success":
        if named not in told:
            raise Unreadable("a Success that does not name the transaction")
        return Settled.DONE_NOW
    for words, meaning in _MEANINGS:
        if named + words in told:
            return meaning
    return NotSettled(one_line(message))


def label_state(content: bytes) -> LabelState:
    """Return the state that `get_load_state` tells.

    Raises:
        Unreadable: if it is no such answer.
        Denied: if a frontend refuses.
    """
    state = data_of(content)
    try:
        return LabelState(state)
    except ValueError:
        raise Unreadable("no state that Doris gives a label") from None


def data_of(content: bytes) -> Any:
    """Return the data of a frontend's answer.

    Raises:
        Unreadable: if it is no such answer.
        Denied: if a frontend refuses.
    """
    found = _document(content)
    if "code" not in found:
        raise Unreadable("no code")
    return found.get("data")


def why_not_now(content: bytes) -> str | None:
    """Return why a frontend does not answer at present, where another one may: it is not ready, or knows no master.

    None if it answers, and where the answer cannot be read.
    """
    try:
        found = _document(content)
    except Denied as problem:
        said = str(problem)
    except Unreadable:
        return None
    else:
        if found.get("status") != "FAILED":
            return None
        said = str(found.get("msg") or "")[:10_000]
    failure = failure_of_frontend(said)
    return failure.message if isinstance(failure, NotNow) else None


_ROW_COUNTS = ("NumberLoadedRows", "NumberFilteredRows", "NumberUnselectedRows")
_MEANINGS = (
    ("is already aborted", Settled.ABORTED_BEFORE),
    ("is already committed", Settled.COMMITTED_BEFORE),
    ("is already visible", Settled.COMMITTED_BEFORE),
    ("is prepare, not pre-committed", Settled.ONLY_BEGAN),
    ("not found", Settled.NOT_FOUND),
)


def _label_used(found: Mapping[str, Any], label: str) -> LabelUsed:
    try:
        status = JobStatus(found.get("ExistingJobStatus"))
    except ValueError:
        raise Unreadable("no ExistingJobStatus that Doris gives") from None
    named = _USED.search(str(found.get("Message", ""))[:1000])
    return LabelUsed(status, int(named[2]) if named and named[1] == label else None)


def _said_true(value: object) -> bool:
    return value is True or (isinstance(value, str) and value.lower() == "true")


def _transaction_id(found: Mapping[str, Any]) -> int:
    """Doris counts them from 1, and writes -1 where there is none."""
    return _number(found, "TxnId", least=1)


def _number(found: Mapping[str, Any], name: str, least: int = 0) -> int:
    value = found.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _MOST_NUMBER:
        raise Unreadable(f"no number {name}")
    return value


def _document(content: bytes) -> dict[str, Any]:
    """Return an answer. A frontend that refuses gives HTTP 200 as well, with a code of its own, whatever was asked of it."""
    try:
        found = parse_json(content, _MOST_VALUES)
    except JsonRefused as problem:
        raise Unreadable(str(problem)) from None
    if not isinstance(found, dict):
        raise Unreadable("no JSON object")
    if found.get("code", 0) != 0:
        raise Denied(one_line(found.get("data") or found.get("msg") or "no reason"))
    return found
