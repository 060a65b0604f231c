"""What Doris says of a broker load, as closed unions: of its statement, and of its jobs. Performs no I/O.

Whatever is none of them is an answer that cannot be read: neither that a statement was refused nor how a load has ended.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias, assert_never

from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.doris.answers import Unreadable
from exactlyonce.connectors.doris.load_failures import (
    LoadRefused,
    NotAllowed,
    NotLoaded,
    NotNow,
    RowsRefused,
    TwoPhasesOff,
    failure_of_backend,
)

_MOST = 10_000
_LOADED = re.compile(r"(?:^|; )dpp\.norm\.ALL=(\d{1,19})(?:;|$)")
_ERROR = re.compile(r"type:([A-Z_]{1,40}); msg:(.*)", re.DOTALL)
_QUALITY = "ETL_QUALITY_UNSATISFIED"
_UNKNOWN_TRANSACTION = "TXN_UNKNOWN"
"""Source: fe/fe-core/…/load/FailMsg.java: what became of the job's transaction is not known."""

_REFUSED_STATEMENT = re.compile(
    r"access denied|privilege\(s\)|unknown (?:table|database)|table not found|mismatched input|syntax error"
    r"|no viable alternative|extraneous input|label format error|unknown column|invalid property|sequence column",
    re.IGNORECASE,
)
"""A frontend that is not the master sends a statement there, and answers with an error of its own where it hears nothing,
though the master may have taken it (MasterOpExecutor.java). So only these words, which come before a job is made, refuse."""
_TOO_MANY_JOBS = re.compile(r"more than \d+ unfinished load jobs", re.IGNORECASE)
"""LoadManager.java, createLoadJobFromStmt, by `desired_max_waiting_jobs`, 100 by default: no job is made."""
_ACCESS_DENIED_CODES = (1044, 1045, 1049, 1142, 1227)
"""fe/fe-core/…/common/ErrorCode.java: ERR_DBACCESS_DENIED_ERROR, ERR_ACCESS_DENIED_ERROR, ERR_BAD_DB_ERROR,
ERR_TABLEACCESS_DENIED_ERROR, ERR_SPECIFIC_ACCESS_DENIED_ERROR."""


class JobState(Enum):
    """What SHOW LOAD says of a job.

    Source: fe/fe-core/…/load/loadv2/JobState.java, whose isFinalState knows FINISHED and CANCELLED alone; QUORUM_FINISHED is
    of load/LoadJob.java: the rows are committed, and not each replica has them.
    """

    UNKNOWN = "UNKNOWN"
    PENDING = "PENDING"
    ETL = "ETL"
    LOADING = "LOADING"
    COMMITTED = "COMMITTED"
    QUORUM_FINISHED = "QUORUM_FINISHED"
    RETRY = "RETRY"
    FINISHED = "FINISHED"
    CANCELLED = "CANCELLED"

    @property
    def is_final(self) -> bool:
        """Whether nothing changes it any more."""
        return self in (JobState.FINISHED, JobState.CANCELLED)


@dataclass(frozen=True, slots=True)
class Runs:
    """A load has not ended."""

    state: JobState


@dataclass(frozen=True, slots=True)
class Loaded:
    """A load has ended, and so many rows of it count."""

    rows: int


@dataclass(frozen=True, slots=True)
class LoadCancelled:
    """A load has ended, and no row of it counts. `is_refused`: so would be the next one of the same rows."""

    reason: str
    is_refused: bool


class NoJob(Enum):
    """Why nobody can tell from its jobs how a load has ended."""

    NONE = "there is none"
    TRANSACTION_UNKNOWN = "Doris does not know what became of its transaction"


Job: TypeAlias = Runs | Loaded | LoadCancelled | NoJob


def job_of(rows: Sequence[Mapping[str, object]], label: str) -> Job:
    """Return what has become of a label, by the rows that SHOW LOAD gives for it: each is a job that has, or had, the label.

    Raises:
        Unreadable: if they are no such rows.
    """
    jobs = [_job(row, label) for row in rows]
    running = [job for job in jobs if isinstance(job, Runs)]
    if running:
        return running[-1]
    if NoJob.TRANSACTION_UNKNOWN in jobs:
        return NoJob.TRANSACTION_UNKNOWN
    # A statement that a frontend sent twice has two jobs at most, of which one was cancelled: whatever counts is told.
    loaded = [job.rows for job in jobs if isinstance(job, Loaded)]
    if loaded:
        return Loaded(sum(loaded))
    return jobs[-1] if jobs else NoJob.NONE


def is_statement_for_later(message: str) -> bool:
    """Whether an error says that no job was made of a statement because too many others wait."""
    return _TOO_MANY_JOBS.search(message[:_MOST]) is not None


def is_refused_statement(code: int, message: str) -> bool:
    """Whether an error says that no job was made of a statement, and none will be."""
    return code in _ACCESS_DENIED_CODES or _REFUSED_STATEMENT.search(message[:_MOST]) is not None


def _job(row: Mapping[str, object], label: str) -> Job:
    if row.get("Label") != label:
        raise Unreadable("another label")
    try:
        state = JobState(row.get("State"))
    except ValueError:
        raise Unreadable("no State that Doris gives a load") from None
    if not state.is_final:
        return Runs(state)
    if state is JobState.CANCELLED:
        return _cancelled(str(row.get("ErrorMsg") or "")[:_MOST])
    found = _LOADED.search(str(row.get("EtlInfo") or "")[:_MOST])
    if found is None:
        raise Unreadable("a load that is FINISHED without a number of rows")
    return Loaded(int(found[1]))


def _cancelled(said: str) -> LoadCancelled | NoJob:
    """Tell by the kind of a cancellation, and then by its words, as of a stream load, whether the next try would end alike."""
    found = _ERROR.fullmatch(said)
    kind, message = (found[1], found[2]) if found is not None else ("", said)
    if kind == _UNKNOWN_TRANSACTION:
        return NoJob.TRANSACTION_UNKNOWN
    reason = one_line(said or "no reason")
    if kind == _QUALITY or _STORAGE.search(message):
        return LoadCancelled(reason, is_refused=True)
    failure = failure_of_backend({"Message": _from_its_kind(message)})
    match failure:
        case RowsRefused() | NotAllowed() | LoadRefused():
            return LoadCancelled(reason, is_refused=kind != "USER_CANCEL" and not _MISSING_FILE.search(message))
        case NotNow() | NotLoaded() | TwoPhasesOff():
            return LoadCancelled(reason, is_refused=False)
        case _:
            assert_never(failure)


_STORAGE = re.compile(r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|NoSuchBucket|Forbidden|\b403\b")
"""What an S3 service says of a login or a bucket."""

_MISSING_FILE = re.compile(r"no source files? |\[NOT_FOUND\]", re.IGNORECASE)
"""BrokerLoadPendingTask.java and FileGroupInfo.java: the file is gone."""


def _from_its_kind(message: str) -> str:
    """A frontend puts `errCode = 2, detailMessage = (host)` before what a backend said, whose kind is what tells."""
    return re.sub(r"^errCode = \d+, detailMessage = (?:\([^)]{0,100}\))?", "", message)
