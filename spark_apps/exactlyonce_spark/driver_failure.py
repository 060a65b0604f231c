"""What ended a driver, as its last message, and the record of the batch that failed."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from exactlyonce.api.source import Source
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.launch.last_words import Ending, LastWords
from exactlyonce.ledger.fence import Fenced, Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.failures import ending_of, is_too_large
from exactlyonce_spark.landing import record_failure

log = logging.getLogger("exactlyonce.driver")


@dataclass(frozen=True)
class Claimed:
    """What a driver has once it has claimed its epoch."""

    ledger: Ledger
    permit: Permit
    address: str
    source: Source


def failed(problem: BaseException, parts: Claimed | None, loop: BatchLoop | None, *, asks_again: bool) -> LastWords:
    """Turn what ended the driver into a last message, and record the batch's failure where that is still possible."""
    planned = None if loop is None else loop.in_hand
    ending, message = ending_of(problem, in_batch=planned is not None, asks_again=asks_again)
    if parts is not None and ending is not Ending.FENCED:
        ending, message = _fenced_meanwhile(parts, ending, message)
    too_large = ending is Ending.BATCH_FAILED and is_too_large(problem)
    advice = ""
    if parts is not None and too_large:
        advice = f"What limits a batch: {', '.join(parts.source.limit_fields)}."
    if parts is not None and planned is not None and ending is Ending.BATCH_FAILED:
        try:
            told = LastWords(ending, message, advice=advice).whole_message
            record_failure(parts.ledger, parts.permit, planned, parts.address, told)
        except ExactlyOnceError as second:
            log.warning("The failure could not be recorded: %s", second)
    if planned is None:
        return LastWords(ending, message)
    return LastWords(ending, message, planned.number, planned.ranges.to_json(), too_large, advice)


def _fenced_meanwhile(parts: Claimed, ending: Ending, message: str) -> tuple[Ending, str]:
    """A successor ends this driver's sessions, which then look like a lost connection: say what it was."""
    try:
        view = parts.ledger.view(parts.permit.stream_id)
    except ExactlyOnceError:
        return ending, message
    if view is None or (view.stream.epoch, view.stream.claim) == (parts.permit.epoch, parts.permit.claim):
        return ending, message
    fenced = Fenced(
        f"Epoch {parts.permit.epoch} was superseded by {view.stream.epoch}, so nothing more may land ({message})"
    )
    return Ending.FENCED, str(fenced)
