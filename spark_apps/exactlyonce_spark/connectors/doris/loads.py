"""A load until it is prepared, or sure not to be: the same label for the same rows, whatever answer is lost. No pyspark here.

The label is of one run of one task alone (`load_labels`), so what is found under it can be ours only: it is aborted, and the
rows are sent again, so that the number of loaded rows is always told by the server and never believed. A label of the published
rule is of another run as well, and one of a replay's number of each replay that has tried
it: aborting its load takes nothing from a decision, whose rows are then made again, and believing it would take other rows for
ours (`published_labels`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import assert_never

from exactlyonce.connectors.doris.answers import (
    JobStatus,
    LabelUsed,
    NotSettled,
    Settled,
    Taken,
    TakenAtOnce,
)
from exactlyonce.connectors.doris.load_failures import (
    LoadFailure,
    LoadRefused,
    NotAllowed,
    NotLoaded,
    NotNow,
    RowsRefused,
    TwoPhasesOff,
)
from exactlyonce.errors import BatchTooLarge, ExactlyOnceError, Refused, RowsNotTaken, Unreachable
from exactlyonce_spark.connectors.doris.client import (
    Body,
    DorisClient,
    DorisRefused,
    DorisUnreachable,
    LoadTooLong,
    LoadUnanswered,
    Operation,
)
from exactlyonce_spark.target import PreparedLoad

TRIES = 5
"""The first one and four more."""

FEW_ROWS = 100
"""So few rows are not too much for any server, whatever it says: the stream waits until they are taken."""


class RowsUnfit(RowsNotTaken):
    """Rows do not fit the table, or Doris took another number of rows than it was sent; none of them counts."""


class LoadFailed(ExactlyOnceError):
    """Doris answered each try with a reason that is neither of the rows nor one to wait for; no row is prepared."""


class LoadUnfit(Refused):
    """A frontend refused each try to load, whatever the rows are: what the resource says does not fit the table any more."""


class LabelCommitted(DorisRefused):
    """A label has a load that is committed, so that nothing can be loaded under it."""

    def __init__(self, message: str, label: str = "") -> None:
        super().__init__(message)
        self.label = label


class CommittedAtOnce(Refused):
    """Doris has committed rows that were to be prepared: they count, and nobody has decided them."""


class _Again(Exception):
    """To be tried again under the same label; `str()` says why, should it have been the last try."""


class _GivenUpByDoris(_Again):
    """Doris has given a load up for want of time or memory, which may be because of how much it was."""


class _AnsweredFailure(_Again):
    """Doris has answered that the load failed; it is believed if each try says so."""


class _AnsweredRefusal(_AnsweredFailure):
    """A frontend has refused the load itself."""


@dataclass(frozen=True)
class Loads:
    """Prepares loads. `pause` waits for so many seconds.

    `shrinks`: a batch that is too large for Doris may be made smaller (`recovery.onBatchTooLarge`); otherwise the stream waits.
    """

    client: DorisClient
    tries: int = TRIES
    pause: Callable[[float], None] = time.sleep
    shrinks: bool = False

    def prepare(self, label: str, columns: Sequence[str], body: Body, rows: int) -> PreparedLoad:
        """Have so many rows prepared under a label that no other run of a task uses.

        Raises:
            RowsUnfit, CommittedAtOnce, DorisRefused: if trying again would change nothing; none of the rows is prepared.
            LoadUnfit, LoadFailed: if each try was answered, with a refusal of the load itself or another failure.
            BatchTooLarge: if each try ended for want of time or memory, and fewer rows may fit.
            DorisUnreachable: if no try succeeded: a load may be left under the label, which nobody decides.
        """
        problems: list[Exception] = []
        for number in range(self.tries):
            if number:
                self.pause(float(1 << number))
            try:
                return self._tried(label, columns, body, rows)
            except (_Again, Unreachable, LoadUnanswered) as problem:
                problems.append(problem)
        raise _given_up(problems, rows, label, shrinks=self.shrinks)

    def abort(self, transaction_id: int) -> None:
        """Abort what is prepared; what is over stays as it is.

        Raises:
            DorisUnreachable: if no answer came.
        """
        answer = self.client.settle(Operation.ABORT, transaction_id)
        if isinstance(answer, NotSettled):
            raise DorisUnreachable(f"Doris does not abort the load of transaction {transaction_id}: {answer.message}.")

    def _tried(self, label: str, columns: Sequence[str], body: Body, rows: int) -> PreparedLoad:
        answer = self.client.load(label, columns, body)
        if isinstance(answer, LabelUsed):
            self._make_free(answer, label)
            answer = self.client.load(label, columns, body)
        match answer:
            case Taken():
                return self._counted(answer, label, rows)
            case TakenAtOnce(transaction_id):
                raise CommittedAtOnce(
                    f"Doris committed {rows} rows at once, as transaction {transaction_id} under the label {label}, though "
                    "they were to be prepared: its servers do not know two phases. Remove these rows, and use "
                    "Doris 1.0 or later."
                )
            case LabelUsed():
                raise _Again("its label stays in use, though the load that had it was aborted")
            case _:
                raise _problem(answer, label, rows)

    def _counted(self, taken: Taken, label: str, rows: int) -> PreparedLoad:
        if (taken.loaded, taken.filtered, taken.unselected) == (rows, 0, 0):
            return PreparedLoad(label, str(taken.transaction_id), rows)
        self.abort(taken.transaction_id)
        raise RowsUnfit(
            f"Doris took {taken.loaded} of {rows} rows ({taken.filtered} filtered, {taken.unselected} not selected); the load "
            f"{label} is aborted, and none of them counts."
        )

    def _make_free(self, used: LabelUsed, label: str) -> None:
        """Abort an earlier try of ours whose answer was lost; one that is running ends by that as well."""
        number = used.transaction_id
        if used.status is not JobStatus.FINISHED:
            if number is None:
                raise DorisRefused(
                    f"The label {label} has a load that is {used.status.value}, and Doris does not name its transaction, so it "
                    "cannot be aborted; another run of the batch has another label."
                )
            if self.client.settle(Operation.ABORT, number) is not Settled.COMMITTED_BEFORE:
                return
        named = "" if number is None else f" (transaction {number})"
        raise LabelCommitted(
            f"The label {label} has a load that this stream did not commit{named}, and nothing else should use such labels; "
            "find out what else writes to this database under it (with labelFormat: Compatible, a stream whose checkpoint "
            "location gives the same label, also one that was deleted).",
            label,
        )


def _given_up(problems: Sequence[Exception], rows: int, label: str, *, shrinks: bool) -> ExactlyOnceError:
    """Return what follows from tries that all went wrong. One that was not answered, or is to be waited for, blames nobody.

    Servers that are short of memory for other reasons make a batch smaller as well, which costs nothing, and never so small
    that it would halt the stream.
    """
    why = f"{str(problems[-1]).rstrip('.')} (label {label})"
    if all(isinstance(one, _AnsweredRefusal) for one in problems):
        return LoadUnfit(
            f"Doris refuses to load any rows: {why}. Compare the table with what the query yields and with sink.doris.columns "
            "and sink.doris.properties, mend either, and start the stream again."
        )
    if all(isinstance(one, _AnsweredFailure) for one in problems):
        return LoadFailed(f"Doris took none of {rows} rows in {len(problems)} tries: {why}.")
    if shrinks and rows > FEW_ROWS and all(isinstance(one, _GivenUpByDoris | LoadTooLong) for one in problems):
        return BatchTooLarge(
            f"Doris gave up a load of {rows} rows in each of {len(problems)} tries: {why}. None of them counts. If smaller "
            "batches are no way out, give Doris more memory, or the load more time (sink.doris.loadTimeout)."
        )
    return DorisUnreachable(
        f"Doris did not take a load of {rows} rows in {len(problems)} tries: {why}; the batch is tried again."
    )


def _problem(answer: LoadFailure, label: str, rows: int) -> Exception:
    """Return what is raised where Doris answers that it has loaded nothing. docs/adr/0037 has the table."""
    match answer:
        case RowsRefused(filtered, message, listed_at):
            listed = f"They are listed at {listed_at} for a while. " if listed_at else ""
            some = f"{filtered} of {rows}" if filtered else f"some of {rows}"
            return RowsUnfit(
                f"Doris refuses {some} rows, so none is loaded: {message} (label {label}). {listed}Cast them "
                "or leave them out in the transform, or alter the table."
            )
        case TwoPhasesOff():
            return DorisRefused(
                "Loads in two phases are switched off at a backend of Doris; set disable_stream_load_2pc=false in "
                "its be.conf."
            )
        case NotNow(message, may_be_too_much):
            kind = _GivenUpByDoris if may_be_too_much else _Again
            return kind(f"it takes no load at present ({message})")
        case NotAllowed(message):
            return DorisRefused(f"Doris refuses a load of {rows} rows: {message} (label {label}).")
        case LoadRefused(message):
            return _AnsweredRefusal(message)
        case NotLoaded(message):
            return _AnsweredFailure(message)
        case _:
            assert_never(answer)
