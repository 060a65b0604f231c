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
from exactlyonce.ledger.replay import (
    RangeNotHeld,
    ReplayClaim,
    claim_ranges,
    give_up,
    land_pieces,
    put_back,
)
from exactlyonce.ledger.replay_decisions import ReplayDecision
from exactlyonce.ledger.replay_rules import (
    Finding,
    Gone,
    Held,
    OfAnother,
    Piece,
    RangeKey,
    finding_of,
    next_chunk,
    ranges_of,
    rest_of,
)
from exactlyonce.ledger.rows import FailureRow
from exactlyonce.source.connector import SourceCheck
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.log_watch import LogWatch
from exactlyonce_spark.planned import OriginReplaced
from exactlyonce_spark.replay_loads import (
    DecidesLoads,
    aborted_where_it_fails,
    decide,
    finish_decisions,
    landed_keys,
    prepared_rows,
)
from exactlyonce_spark.replay_outcome import (
    MOST_FAILURES,
    MOST_FAILURES_IN_ALL,
    RecordReader,
    RecordsFailed,
    ReplayOutcome,
    ReplayPace,
    failing_records,
)
from exactlyonce_spark.source_check import RecordsLost, RecordsReplaced
from exactlyonce_spark.target import DeadLetter, PreparedLoad, ReplayTarget

_LOOKS = 5
"""How often a chunk is read again because retention or a new leader came between; each has another reason."""

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
    ) -> None:
        self._ledger = ledger
        self._claim = claim
        self._target = target
        self._source = source
        self._reader = reader
        self._pace = pace
        self._most = pace.most_records
        self._rows: list[FailureRow] = []
        self._failed_in_a_row = 0
        self._decided: list[ReplayDecision] = []
        self.outcome = ReplayOutcome()

    def run(self, wanted: Collection[RangeKey]) -> ReplayOutcome:
        """Claim the ranges and land them, earliest first; what cannot be landed is told in the outcome.

        Raises:
            Unreachable, Refused, OutcomeUnknown: by situation; what has landed is marked, and the next replay takes the rest.
        """
        taken = claim_ranges(self._ledger, self._claim, self._not_finished(wanted))
        reached("replay.claimed")
        self._rows = list(taken.rows)
        self.outcome.told += taken.refused
        try:
            self._replay_all()
        except Exception:
            with suppress(ExactlyOnceError):  # what is not put back or finished now is by the next replay
                self._put_back_rest()
                self._finish_rest()
            raise
        self._put_back_rest()
        self._finish_rest()
        return self.outcome

    def _not_finished(self, wanted: Collection[RangeKey]) -> Collection[RangeKey]:
        """Finish what earlier replays have decided, and return the ranges that have not landed by that."""
        if not isinstance(self._target, DecidesLoads):
            return wanted
        finished = finish_decisions(self._ledger, self._claim.stream_id, self._target.loads)
        landed = landed_keys(finished)
        self.outcome.told += finished.told
        self.outcome.landed += sum(landed.get(key, 0) for key in wanted)
        return [key for key in wanted if key not in landed]

    def _replay_all(self) -> None:
        looks = 0
        while not self._pace.is_to_end() and (pieces := next_chunk(self._rows, self._most)):
            try:
                self._replay(pieces)
                looks = 0
            except TransactionTooLong as problem:
                self._failed(pieces, RecordsFailed(str(problem)))
            except (RecordsLost, RecordsReplaced, OriginReplaced, Unreachable):
                looks += (
                    1  # the next look says of which range that is; a landing of the stream may have ended our session
                )
                if looks >= _LOOKS:
                    raise
            except OriginMissing as problem:
                self._put_aside(pieces, str(problem))
            except RangeNotHeld as problem:
                self.outcome.told.append(str(problem))
                self._forget(pieces)
            except RecordsFailed as problem:
                self._failed(pieces, problem)

    def _replay(self, pieces: tuple[Piece, ...]) -> None:
        batch, ranges = pieces[0].row.batch, ranges_of(pieces)
        reached("replay.begun", batch)
        if not self._all_held(pieces):
            return
        ids = {piece.row.partition.origin: piece.row.origin_id for piece in pieces}
        kept = {piece.row.partition: piece.row.fingerprint for piece in pieces}
        watch = LogWatch(self._source)
        epochs = watch.request_epochs(ranges)
        watch.begin(ranges, ids, {key: mark for key, mark in kept.items() if mark is not None}, epochs())
        with failing_records():
            rows = prepared_rows(self._target, batch, self._reader.rows(ranges))
            letters = self._reader.malformed(ranges)
        reached("replay.read", batch)
        with aborted_where_it_fails(self._target, rows):
            watch.require(batch, ranges, ids)
            reached("replay.source-checked", batch)
        if isinstance(self._target, DecidesLoads) and isinstance(rows, PreparedLoad):
            self._decide(self._target, pieces, rows)
        else:
            self._land(pieces, rows, letters, ids)
        self._failed_in_a_row = 0
        self._most = min(self._pace.most_records, 2 * self._most)
        self._pace.landed(ranges.record_count)

    def _land(
        self, pieces: tuple[Piece, ...], rows: Any, letters: Sequence[DeadLetter], ids: Mapping[str, str]
    ) -> None:
        batch, ranges = pieces[0].row.batch, ranges_of(pieces)

        def write(transaction: LedgerTransaction) -> int:
            with failing_records():
                written = self._target.write(transaction, rows)
                if letters:
                    self._target.write_dead_letters(transaction, batch, letters, ids)
            reached("replay.rows-written", batch)
            return written

        written = land_pieces(self._ledger, self._claim, pieces, write)
        reached("replay.landed", batch)
        self.outcome.landed += ranges.record_count
        self.outcome.rows += written or 0
        log.info("Batch %s: landed %s.", batch, ranges)
        self._advance(pieces)

    def _decide(self, target: DecidesLoads, pieces: tuple[Piece, ...], load: PreparedLoad) -> None:
        """Decide the load of a chunk, and commit it; what is decided is this replay's no more, whatever becomes of it."""
        self._decided.append(decide(self._ledger, self._claim, target, pieces, load))
        reached("replay.decided", pieces[0].row.batch)
        self._advance(pieces)
        self._finish_some(target)

    def _finish_some(self, target: DecidesLoads) -> None:
        """Finish what this replay has decided, in its order; what the sink does not answer for now is asked about again."""
        while self._decided:
            finished = finish_decisions(self._ledger, self._claim.stream_id, target.loads, self._decided[:1])
            decision = self._decided.pop(0)
            self.outcome.told += finished.told
            if finished.landed:
                self.outcome.landed += decision.ranges.record_count
                self.outcome.rows += decision.load.rows
                log.info("Batch %s: landed %s.", decision.decided.batch, decision.ranges)

    def _finish_rest(self) -> None:
        if isinstance(self._target, DecidesLoads):
            self._finish_some(self._target)

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

    def _give_up(self, piece: Piece) -> None:
        key, offsets, before = RangeKey.of(piece.row), piece.offsets, piece.row.error
        words = f"{offsets.record_count} records of the range {key} are lost: retention took {piece.row.partition} {offsets}."
        try:
            give_up(self._ledger, self._claim, piece, words + (before and f" They had failed: {before}"))
        except RangeNotHeld as problem:
            self.outcome.told.append(str(problem))
            self._forget([piece])
            return
        reached("replay.given-up", piece.row.batch)
        self.outcome.lost += offsets.record_count
        self.outcome.told.append(words)
        self._advance([piece])

    def _failed(self, pieces: Sequence[Piece], problem: RecordsFailed) -> None:
        """Try fewer records; one that fails by itself is put back, and what follows it is replayed."""
        count = ranges_of(pieces).record_count
        if count > 1:
            self._most = count // 2
            return
        piece = pieces[0]
        self._put_back(piece, str(problem))
        self.outcome.failed += 1
        self._failed_in_a_row += 1
        again = " again" if piece.row.error else ""  # a part of a backfill may fail for the first time
        self.outcome.told.append(f"The record {RangeKey.of(piece.row)} failed{again}: {problem}")
        self._advance([piece])
        if not piece.is_whole and self._has_failed_often:
            rest = rest_of(piece)
            name = f"The range {RangeKey.of(rest)} of {rest.offset_count} records"
            words = f"{name} is left untried, since too many failed."
            # The next chunk has one record, too: finding one again in each range would take all the halvings of a chunk.
            self._put_aside([Piece(rest, rest.until_offset)], words)

    @property
    def _has_failed_often(self) -> bool:
        """Whether something else than a few records may be wrong: what is tried of each further range is bounded."""
        return self._failed_in_a_row >= MOST_FAILURES or self.outcome.failed >= MOST_FAILURES_IN_ALL

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
