"""Replays ranges that are in quarantine, chunk after chunk: look at the source, read, look again, land. No pyspark here.

Each chunk is one transaction of the ledger, which lands its rows and marks its ranges. Whoever dies in between has landed what
is marked, and nothing else; the next replay takes the rest. docs/adr/0041.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, assert_never

from exactlyonce.errors import ExactlyOnceError, OriginMissing, TransactionTooLong, Unreachable
from exactlyonce.launch.replay_source import facts_of
from exactlyonce.ledger.port import Ledger, LedgerTransaction
from exactlyonce.ledger.replay import RangeNotHeld, ReplayClaim, claim_ranges, give_up, land_pieces, put_back
from exactlyonce.ledger.replay_rules import (
    Finding,
    Gone,
    Held,
    OfAnother,
    Piece,
    RangeKey,
    finding_of,
    ranges_of,
    rest_of,
)
from exactlyonce.ledger.rows import FailureRow
from exactlyonce.positions.ranges import OffsetRange
from exactlyonce.source.connector import SourceCheck
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.log_watch import LogWatch
from exactlyonce_spark.planned import OriginReplaced
from exactlyonce_spark.replay_loads import LoadsOfReplay, aborted_where_it_fails
from exactlyonce_spark.replay_outcome import ReplayOutcome, ReplayPace
from exactlyonce_spark.replay_parts import Chunk, Chunks, Expired, PartUnfit, RangeDivider, Unfit
from exactlyonce_spark.replay_records import (
    PartMoved,
    RecordReader,
    RecordsFailed,
    failing_records,
    looked_at_before,
)
from exactlyonce_spark.source_check import RecordsLost, RecordsReplaced
from exactlyonce_spark.target import DeadLetter, PreparedLoad, ReplayTarget

MOST_FAILURES = 10
"""After so many records in a row that fail and none that lands, each range is left at its first record that fails.

A replay of dead letters ends after so many."""

MOST_FAILURES_IN_ALL = 200
"""After so many failing records each range is left in the same way: each costs some fifteen tries, and a replay ends."""

_LOOKS = 5
"""How often a chunk is read again because retention, a new leader or a moved file came between; each has another reason."""

log = logging.getLogger("exactlyonce.replay")


class Replay:
    """One replay of one stream, under a claim of its own."""

    def __init__(
        self,
        ledger: Ledger,
        claim: ReplayClaim,
        target: ReplayTarget,
        source: SourceCheck,
        reader: RecordReader,
        pace: ReplayPace,
        divider: RangeDivider | None = None,
    ) -> None:
        """`divider` is of a source whose positions count no records."""
        self._ledger = ledger
        self._claim = claim
        self._target = target
        self._source = source
        self._reader = reader
        self._pace = pace
        self._most = pace.most_records
        self._chunks = Chunks(divider)
        self._rows: list[FailureRow] = []
        self._failures = self._failed_in_a_row = 0
        self._loads = LoadsOfReplay(ledger, claim, target)
        self.outcome = ReplayOutcome()

    def run(self, wanted: Collection[RangeKey]) -> ReplayOutcome:
        """Claim the ranges and land them, earliest first; what cannot be landed is told in the outcome.

        Raises:
            Unreachable, Refused, OutcomeUnknown: by situation; what has landed is marked, and the next replay takes the rest.
        """
        taken = claim_ranges(self._ledger, self._claim, self._loads.not_finished(wanted, self.outcome))
        reached("replay.claimed")
        self._rows = list(taken.rows)
        self.outcome.told += taken.refused
        try:
            self._replay_all()
        except Exception:
            with suppress(ExactlyOnceError):  # what is not put back or finished now is by the next replay
                self._put_back_rest()
                self._loads.finish(self.outcome)
            raise
        self._put_back_rest()
        self._loads.finish(self.outcome)
        return self.outcome

    def _replay_all(self) -> None:
        looks = 0
        while not self._pace.is_to_end() and (chunk := self._chunks.next(self._rows, self._most)):
            self._tried = chunk
            try:
                self._replay(chunk)
                looks = 0
            except TransactionTooLong as problem:
                self._failed(self._tried, RecordsFailed(str(problem)))
            except (RecordsLost, RecordsReplaced, OriginReplaced, Unreachable):
                looks += (
                    1  # the next look says of which range that is; a landing of the stream may have ended our session
                )
                if looks >= _LOOKS:
                    raise
            except PartMoved as problem:
                looks += 1  # the divider says what became of it
                if looks >= _LOOKS and problem.__cause__ is not None:
                    raise problem.__cause__ from None
                self._chunks.forget()
            except OriginMissing as problem:
                self._put_aside(chunk.pieces, str(problem))
            except RangeNotHeld as problem:
                self.outcome.told.append(str(problem))
                self._forget(chunk.pieces)
            except (RecordsFailed, PartUnfit) as problem:
                self._failed(self._tried, problem)

    def _replay(self, whole: Chunk) -> None:
        batch = whole.pieces[0].row.batch
        reached("replay.begun", batch)
        if not self._all_held(whole.pieces):
            return
        chunk = self._divided(whole)
        if chunk is None:
            return
        pieces = chunk.pieces
        ranges = ranges_of(pieces)
        ids = {piece.row.partition.origin: piece.row.origin_id for piece in pieces}
        kept = {piece.row.partition: piece.row.fingerprint for piece in pieces}
        watch = LogWatch(self._source)
        epochs = watch.request_epochs(ranges)
        watch.begin(ranges, ids, {key: mark for key, mark in kept.items() if mark is not None}, epochs())
        with looked_at_before(self._chunks.is_divided), failing_records():
            rows = self._loads.prepared(batch, self._reader.rows(ranges))
            letters = self._reader.malformed(ranges)
        reached("replay.read", batch)
        with aborted_where_it_fails(self._target, rows):
            watch.require(batch, ranges, ids)
            reached("replay.source-checked", batch)
        if isinstance(rows, PreparedLoad):
            self._loads.decide(pieces, rows, chunk.records)
            reached("replay.decided", batch)
            self._advance(pieces)
            self._loads.finish(self.outcome)
        else:
            self._land(chunk, rows, letters, ids)
        self._failed_in_a_row = 0
        self._most = min(self._pace.most_records, 2 * self._most)
        self._pace.landed(chunk.records)

    def _land(self, chunk: Chunk, rows: Any, letters: Sequence[DeadLetter], ids: Mapping[str, str]) -> None:
        batch, pieces = chunk.pieces[0].row.batch, chunk.pieces

        def write(transaction: LedgerTransaction) -> int:
            with failing_records():
                written = self._target.write(transaction, rows)
                if letters:
                    self._target.write_dead_letters(transaction, batch, letters, ids)
            reached("replay.rows-written", batch)
            return written

        written = land_pieces(self._ledger, self._claim, pieces, write)
        reached("replay.landed", batch)
        self.outcome.landed += chunk.records
        self.outcome.rows += written or 0
        log.info("Batch %s: landed %s.", batch, ", ".join(map(self._chunks.text, pieces)))
        self._advance(pieces)

    def _divided(self, whole: Chunk) -> Chunk | None:
        """Return what of a chunk is read now; None where the first part of it has been dealt with.

        Raises:
            PartUnfit: if the first part cannot be read; it is what was tried last.
        """
        found = self._chunks.divided(whole, self._most)
        match found:
            case Chunk():
                self._tried = found
                return found
            case Unfit(until_offset=until, words=words, name=name):
                self._tried = Chunk((Piece(whole.pieces[0].row, until),), 0, 0, is_single=True, name=name)
                raise PartUnfit(words)
            case Expired(until_offset=until, words=words):
                # Another origin of this name lacks them as well: whether it is one was asked before they were looked for.
                if self._all_held(whole.pieces):
                    self._give_up(Piece(whole.pieces[0].row, until), words)
                return None
            case _:
                assert_never(found)

    def _all_held(self, pieces: Sequence[Piece]) -> bool:
        """Whether the source holds every record; what it does not is dealt with here, and the next chunk leaves it out."""
        facts = facts_of(self._source, [piece.row for piece in pieces])
        findings: list[tuple[Piece, Finding]] = [(piece, finding_of(piece.row, facts)) for piece in pieces]
        for piece, finding in findings:
            match finding:
                case Held():
                    pass
                case Gone(until_offset=until):
                    self._give_up(Piece(piece.row, until))
                case OfAnother(words=words):
                    self._put_aside([piece], words)
                case _:
                    assert_never(finding)
        return all(isinstance(finding, Held) for _, finding in findings)

    def _give_up(self, piece: Piece, why: str | None = None) -> None:
        """Record a piece as lost; `why` is a sentence where nobody knows how many records it has."""
        key, offsets, before = RangeKey.of(piece.row), piece.offsets, piece.row.error
        words = f"{offsets.record_count} records of the range {key} are lost: retention took {piece.row.partition} {offsets}."
        if why is not None:
            words = f"Records of the range {key} are lost, how many is not known, and it may be none. {why}"
        try:
            give_up(self._ledger, self._claim, piece, words + (before and f" They had failed: {before}"))
        except RangeNotHeld as problem:
            self.outcome.told.append(str(problem))
            self._forget([piece])
            return
        reached("replay.given-up", piece.row.batch)
        if why is None:
            self.outcome.lost += offsets.record_count
        else:
            self.outcome.uncounted += 1
        self.outcome.told.append(words)
        self._advance([piece])

    def _failed(self, chunk: Chunk, problem: RecordsFailed | PartUnfit) -> None:
        """Try fewer records; one that fails by itself is put back, and what follows it is replayed."""
        if not chunk.is_single:
            self._most = max(1, chunk.weight // 2)
            return
        piece = chunk.pieces[0]
        self._put_back(piece, str(problem))
        self.outcome.failed += chunk.records
        self.outcome.uncounted += chunk.records == 0
        self._failures += 1
        self._failed_in_a_row += 1
        again = " again" if piece.row.error else ""  # a part of a backfill may fail for the first time
        self.outcome.told.append(f"{chunk.name} {RangeKey.of(piece.row)} failed{again}: {problem}")
        self._advance([piece])
        if not piece.is_whole and self._has_failed_often:
            rest = rest_of(piece)
            count = self._chunks.count_text(OffsetRange(rest.from_offset, rest.until_offset))
            words = f"The range {RangeKey.of(rest)}{count} is left untried, since too many failed."
            # The next chunk has one record, too: finding one again in each range would take all the halvings of a chunk.
            self._put_aside([Piece(rest, rest.until_offset)], words)

    @property
    def _has_failed_often(self) -> bool:
        """Whether something else than a few records may be wrong: what is tried of each further range is bounded."""
        return self._failed_in_a_row >= MOST_FAILURES or self._failures >= MOST_FAILURES_IN_ALL

    def _put_aside(self, pieces: Sequence[Piece], words: str) -> None:
        """Put whole ranges back into quarantine that cannot be replayed as the source is."""
        for piece in pieces:
            self._put_back(Piece(piece.row, piece.row.until_offset), None)
        self.outcome.told.append(words)
        self._forget(pieces)

    def _put_back_rest(self) -> None:
        for row in self._rows:
            self._put_back(Piece(row, row.until_offset), None)
        self._rows = []

    def _put_back(self, piece: Piece, error: str | None) -> None:
        try:
            put_back(self._ledger, self._claim, piece, error)
        except RangeNotHeld as problem:
            self.outcome.told.append(str(problem))
            return
        reached("replay.put-back", piece.row.batch)

    def _advance(self, pieces: Sequence[Piece]) -> None:
        """Continue behind the pieces."""
        self._forget(pieces)
        self._rows += [rest_of(piece) for piece in pieces if not piece.is_whole]

    def _forget(self, pieces: Sequence[Piece]) -> None:
        done = {RangeKey.of(piece.row) for piece in pieces}
        self._rows = [row for row in self._rows if RangeKey.of(row) not in done]
