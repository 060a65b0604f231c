"""What an attempt lands that finds that out by itself: dead letters, or ranges given by hand. No pyspark here.

Each attempt looks for it again. What an earlier one has landed is not among it, and what it has put into quarantine is.
"""

from __future__ import annotations

from collections.abc import Sequence

from exactlyonce.api.spec import StreamSpec
from exactlyonce.api.stream_replay import AskedLetters
from exactlyonce.launch.asked_letters import MOST_LETTERS, chosen_letters
from exactlyonce.launch.replay_document import ReplayDocument
from exactlyonce.ledger.connector import OpenLedger
from exactlyonce.ledger.given_ranges import in_rounds, take_up_all
from exactlyonce.ledger.letters import LetterKey, LetterStatus
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.replay_outcome import ReplayOutcome


def letters_to_land(document: ReplayDocument, ledger: OpenLedger, outcome: ReplayOutcome) -> Sequence[LetterKey]:
    """Return the dead letters that a replay lands: those that it was given, or those that fit what it was asked for.

    Raises:
        LettersUnknown: if one with an id is not there.
    """
    if document.find is None:
        return document.letters
    asked = AskedLetters.model_validate(document.find)
    # What is named by its id and was landed by this very replay is done; by another one, a sentence says so.
    found = [
        it.row
        for it in chosen_letters(ledger, document.stream_id, asked)
        if not (document.by and it.row.replay.startswith(document.by) and it.row.status is LetterStatus.REPLAYED)
    ]
    outcome.asked = len(found)
    if len(found) == MOST_LETTERS:
        outcome.told.append(f"One attempt takes {MOST_LETTERS} dead letters; another replay takes what is left.")
    return [row.key for row in found]


def ranges_to_land(
    document: ReplayDocument, spec: StreamSpec, ledger: OpenLedger, outcome: ReplayOutcome
) -> Sequence[RangeKey]:
    """Return the ranges that a replay lands; what it was given by hand is in quarantine then, before any of it is read.

    Raises:
        NothingToReplayInto, TooMuchInQuarantine, CommitOutcomeUnknown: as `take_up`.
    """
    recovery, found = spec.recovery, [*document.ranges]
    most = recovery.max_quarantined if recovery.on_poison_batch.continues else None
    if not document.take_up:
        return found
    taken = take_up_all(ledger, document.stream_id, in_rounds(it.span for it in document.take_up), most, document.by)
    reached("replay.taken-up")
    outcome.told += taken.refused if document.tells_refused else ()
    return [*found, *(RangeKey.of(row) for row in taken.rows)]
