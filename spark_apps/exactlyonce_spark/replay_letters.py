"""Replays dead letters: make rows of the bytes that were kept, and land them with what became of each letter. No pyspark here.

The source is not asked for anything: which record a letter is of was settled when the stream landed it, and its bytes are in
the ledger, so retention or a topic that was recreated is no obstacle. Whoever dies in between has landed what is marked, and
nothing else; the next replay takes the rest. docs/adr/0041.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from exactlyonce.errors import ExactlyOnceError, TransactionTooLong, Unreachable
from exactlyonce.ledger.history import RecordedLetter
from exactlyonce.ledger.letters import LetterKey, LetterRow, kept_on, next_letters, replayed
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce.ledger.replay_letters import LettersNotHeld, claim_letters, settle_letters
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.replay import MOST_FAILURES
from exactlyonce_spark.replay_outcome import ReplayOutcome, ReplayPace
from exactlyonce_spark.replay_records import RecordsFailed, failing_records
from exactlyonce_spark.target import ReplayTarget

_MOST_BYTES = 8 << 20
"""Of keys and values in one transaction: a record may be of megabytes."""

_MOST_TOLD = 100
"""So many sentences about letters are told; the rest is in the log."""
_MORE = "More letters were not landed, for such reasons; the replay's log names each."

_TRIES = 5
"""How often a chunk is begun again because the ledger's session was ended, as a landing of the stream does that waits."""

log = logging.getLogger("exactlyonce.replay")


class LetterLedger(Ledger, Protocol):
    """A ledger that keeps dead letters."""

    def letters_of(
        self, stream_id: str, keys: Collection[LetterKey], most_bytes: int | None
    ) -> tuple[RecordedLetter, ...]:
        """As `FailureHistory.letters_of`."""
        ...


@dataclass(frozen=True, slots=True)
class LettersRead:
    """What became of some letters: the rows of the well-formed ones, as the target takes them, and why the others are not."""

    rows: Any
    malformed: Mapping[LetterKey, str]


class LetterReader(Protocol):
    """Makes rows of dead letters as the stream makes them of records, by the format and the transform that it has now."""

    def read(self, letters: Sequence[RecordedLetter]) -> LettersRead:
        """Parse and transform letters, of which no two are of one place.

        Raises:
            RecordsFailed: if the transform fails for one of them, or they are too many at once.
        """
        ...


class LetterReplay:
    """One replay of dead letters of one stream, under a claim of its own."""

    def __init__(
        self, ledger: LetterLedger, claim: ReplayClaim, target: ReplayTarget, reader: LetterReader, pace: ReplayPace
    ) -> None:
        self._ledger = ledger
        self._claim = claim
        self._target = target
        self._reader = reader
        self._pace = pace
        self._most = pace.most_records
        self._failures = 0
        self._held: dict[LetterKey, LetterRow] = {}
        self.outcome = ReplayOutcome()

    def run(self, wanted: Sequence[LetterKey]) -> ReplayOutcome:
        """Land the letters in their order; what cannot be landed is told in the outcome.

        Raises:
            Unreachable, Refused, OutcomeUnknown: by situation; what has landed is marked, and the next replay takes the rest.
        """
        try:
            self._replay_all(list(dict.fromkeys(wanted)))
        finally:
            with suppress(ExactlyOnceError):  # what is not put back now is taken by the next replay
                self._put_back_rest()
        if self._failures >= MOST_FAILURES:
            self.outcome.told.append(f"The transform failed for {MOST_FAILURES} letters, so the replay ended.")
        return self.outcome

    def _replay_all(self, left: list[LetterKey]) -> None:
        tries = 0
        while left and not self._pace.is_to_end() and self._failures < MOST_FAILURES:
            try:
                done = self._replay_some(left[: self._most])
                tries = 0
            except Unreachable:
                tries += 1
                if tries >= _TRIES:
                    raise
                continue
            left = [key for key in left if key not in done]

    def _replay_some(self, keys: Sequence[LetterKey]) -> frozenset[LetterKey]:
        """Replay the first of some letters, and return the keys of those that nothing is left to do for."""
        found = {it.row.key: it for it in self._ledger.letters_of(self._claim.stream_id, keys, _MOST_BYTES)}
        chosen = tuple(next_letters((found[key].row for key in keys if key in found), self._most))
        if not chosen:
            self._tell([f"{len(keys)} dead letters that were asked for are not there any more."])
            return frozenset(keys)
        taken = claim_letters(self._ledger, self._claim, chosen)
        reached("letters.claimed")
        self._tell(taken.refused)
        self._held |= {row.key: row for row in taken.rows}
        done = self._land(taken.rows, [found[row.key] for row in taken.rows]) if taken.rows else frozenset()
        self._held = {key: row for key, row in self._held.items() if key not in done}
        claimed = {row.key for row in taken.rows}
        return done | {row.key for row in chosen if row.key not in claimed}

    def _land(self, held: tuple[LetterRow, ...], letters: Sequence[RecordedLetter]) -> frozenset[LetterKey]:
        try:
            with failing_records():
                read = self._reader.read(letters)
            reached("letters.read")
            return self._settle(held, read)
        except LettersNotHeld as problem:
            self._tell(problem.told)
            return problem.keys
        except (RecordsFailed, TransactionTooLong) as problem:
            if len(held) > 1:
                self._most = len(held) // 2
                return frozenset()
            self._failures += 1
            self._keep(held, {held[0].key: str(problem)})
            return frozenset({held[0].key})

    def _settle(self, held: tuple[LetterRow, ...], read: LettersRead) -> frozenset[LetterKey]:
        def write(transaction: LedgerTransaction) -> int:
            with failing_records():
                written = self._target.write(transaction, read.rows)
            reached("letters.rows-written")
            return written

        changed = [
            kept_on(row, read.malformed[row.key]) if row.key in read.malformed else replayed(row) for row in held
        ]
        written = settle_letters(self._ledger, self._claim, held, changed, write)
        reached("letters.landed")
        landed = len(held) - len(read.malformed)
        self.outcome.landed += landed
        self.outcome.rows += written or 0
        self._tell_kept(held, read.malformed)
        log.info("Landed %s dead letters; %s are malformed as before.", landed, len(read.malformed))
        self._most = min(self._pace.most_records, 2 * self._most)
        self._pace.landed(len(held))
        return frozenset(row.key for row in held)

    def _keep(self, held: Sequence[LetterRow], errors: Mapping[LetterKey, str]) -> None:
        """Keep letters that failed again, with what was wrong this time."""
        try:
            settle_letters(self._ledger, self._claim, held, [kept_on(row, errors[row.key]) for row in held])
        except LettersNotHeld as problem:
            self._tell(problem.told)
            return
        reached("letters.kept")
        self._tell_kept(held, errors)

    def _tell_kept(self, held: Sequence[LetterRow], errors: Mapping[LetterKey, str]) -> None:
        self.outcome.failed += len(errors)
        self._tell(
            [f"The dead letter {row.identifier} failed again: {errors[row.key]}" for row in held if row.key in errors]
        )

    def _tell(self, sentences: Sequence[str]) -> None:
        """Tell what was not landed; beyond the first sentences the log has them."""
        room = max(0, _MOST_TOLD - len(self.outcome.told))
        self.outcome.told += sentences[:room]
        for sentence in sentences[room:]:
            log.info("%s", sentence)
            if self.outcome.told[-1] != _MORE:
                self.outcome.told.append(_MORE)

    def _put_back_rest(self) -> None:
        """Put back what was claimed in a chunk that was too large and is not landed."""
        while self._held:
            rows = tuple(self._held.values())
            try:
                settle_letters(self._ledger, self._claim, rows, [kept_on(row) for row in rows])
            except LettersNotHeld as problem:
                self._held = {key: row for key, row in self._held.items() if key not in problem.keys}
            else:
                self._held = {}
