"""What ended a driver, as its last message, and the record of the batch that failed."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from exactlyonce.api.source import Source
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.ledger.fence import Fenced, Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.failures import case_of, ending_of, is_too_large, refused_rows_of
from exactlyonce_spark.landing import record_failure

log = logging.getLogger("exactlyonce.driver")


@dataclass(frozen=True)
class Claimed:
    """What a driver has once it has claimed its epoch."""

    ledger: Ledger
    permit: Permit
    address: str
    source: Source


def failed(problem: BaseException, claimed: Claimed | None, loop: BatchLoop | None, *, asks_again: bool) -> LastMessage:
    """Turn what ended the driver into a last message, and record the batch's failure where that is still possible."""
    planned = None if loop is None else loop.in_hand
    ending, message = ending_of(problem, in_batch=planned is not None, asks_again=asks_again)
    if claimed is not None and ending is not Ending.FENCED:
        ending, message = _fenced_meanwhile(claimed, ending, message)
    too_large = ending is Ending.BATCH_FAILED and is_too_large(problem)
    advice = ""
    if claimed is not None and too_large:
        advice = f"What limits a batch: {', '.join(claimed.source.limit_fields)}."
    if claimed is not None and planned is not None and ending is Ending.BATCH_FAILED:
        try:
            told = LastMessage(ending, message, advice=advice).whole_message
            record_failure(claimed.ledger, claimed.permit, planned, claimed.address, told)
        except ExactlyOnceError as second:
            log.warning("The failure could not be recorded: %s", second)
    case = "" if ending is Ending.FENCED else case_of(problem)
    if planned is None:
        return LastMessage(ending, message, case=case)
    refused_rows = refused_rows_of(message) if ending is Ending.BATCH_FAILED else None
    ranges = planned.ranges.to_json()
    return LastMessage(ending, message, planned.number, ranges, too_large, advice, refused_rows, case)


def _fenced_meanwhile(claimed: Claimed, ending: Ending, message: str) -> tuple[Ending, str]:
    """A successor ends this driver's sessions, which then look like a lost connection: say what it was."""
    try:
        view = claimed.ledger.view(claimed.permit.stream_id)
    except ExactlyOnceError:
        return ending, message
    if view is None or (view.stream.epoch, view.stream.claim) == (claimed.permit.epoch, claimed.permit.claim):
        return ending, message
    fenced = Fenced(
        f"Epoch {claimed.permit.epoch} was superseded by {view.stream.epoch}, so nothing more may land ({message})"
    )
    return Ending.FENCED, str(fenced)
