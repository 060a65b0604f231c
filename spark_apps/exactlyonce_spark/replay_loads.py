"""Loads that replays have decided: committed by whoever comes first, settled by what the sink says of them. No pyspark here.

A replay has no epoch, so nothing says who may commit: everybody may what is decided, as often as they like, and what is
recorded of it is what the sink says for good. docs/adr/0053.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from exactlyonce.errors import ExactlyOnceError, TransactionTooLong
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.replay import RangeNotHeld, ReplayClaim, SinkChanged, decide_pieces
from exactlyonce.ledger.replay_decisions import (
    AnotherDecided,
    ReplayDecision,
    read_decisions,
    read_standing,
    settle_decision,
)
from exactlyonce.ledger.replay_rules import Piece, RangeKey, ranges_of
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.load_outcome import outcome
from exactlyonce_spark.replay_load_target import DecidesLoads, NotYet, NumberCommitted, ReplayNotInLedger
from exactlyonce_spark.replay_outcome import ReplayOutcome
from exactlyonce_spark.target import LoadState, PreparedLoad, TwoPhaseTarget, WritesAhead
from exactlyonce_spark.tasks import committable_of

log = logging.getLogger("exactlyonce.replay")


@dataclass
class FinishedLoads:
    """What became of decided loads, with a sentence for each whose ranges are in quarantine again, or that nobody knows."""

    landed: list[ReplayDecision] = field(default_factory=list)
    aborted: list[tuple[ReplayDecision, str]] = field(default_factory=list)
    waiting: list[tuple[ReplayDecision, str]] = field(default_factory=list)

    @property
    def told(self) -> list[str]:
        """The sentences."""
        return [words for _, words in (*self.aborted, *self.waiting)]


@contextmanager
def aborted_where_it_fails(target: object, load: object) -> Iterator[None]:
    """Abort the load of a chunk that is not going to be decided, so that the sink need not keep it."""
    try:
        yield
    except Exception:
        if isinstance(target, DecidesLoads) and isinstance(load, PreparedLoad):
            target.abort_load(load)
        raise


class LoadsOfReplay:
    """What a replay prepares, and has decided and not finished; its target need not decide loads."""

    def __init__(self, ledger: Ledger, claim: ReplayClaim, target: object) -> None:
        self._ledger = ledger
        self._claim = claim
        self._writes_ahead = target if isinstance(target, WritesAhead) else None
        self._target = target if isinstance(target, DecidesLoads) else None
        self._decided: list[ReplayDecision] = []
        self._waiting: set[str] = set()
        self._number = 0

    def not_finished(self, wanted: Collection[RangeKey], outcome: ReplayOutcome) -> Collection[RangeKey]:
        """Finish what earlier replays have decided, and return the ranges that this one is to take.

        Of a load that the sink has aborted it takes the ranges itself, so nothing is told. What is told of a replay is taken
        for its failure: of ranges that it was not asked for, its log alone tells.
        """
        if self._target is None:
            return wanted
        finished = finish_decisions(self._ledger, self._claim.stream_id, self._target.loads)
        outcome.landed += sum(it.records for it in finished.landed if _is_asked(it, wanted))
        for decision, words in finished.waiting:
            if _is_asked(decision, wanted):
                outcome.told.append(words)
            else:
                log.warning("%s", words)
        for _, words in finished.aborted:
            log.info("%s", words)
        settled = (*finished.landed, *(decision for decision, _ in finished.waiting))
        keys = {key for decision in settled for key in decision.keys}
        return [key for key in wanted if key not in keys]

    def prepared(self, batch: BatchNumber, rows: Any) -> Any:
        """Return what is landed of the rows of a chunk: a load, or what was written ahead, where the target has such a thing.

        Raises:
            ReplayNotInLedger: if the sink has committed a load that the ledger does not know.
            AnotherDecided: if another replay has decided a load meanwhile.
        """
        if self._target is None:
            return rows if self._writes_ahead is None else self._writes_ahead.prepare(batch, rows)
        self._number = self._next_number(self._target.loads)
        try:
            return self._target.prepare_load(self._number, batch, rows)
        except NumberCommitted as problem:
            raise self._not_in_ledger(problem) from problem

    def _next_number(self, loads: TwoPhaseTarget) -> int:
        """Return the number of the next load, once no other replay can commit what it has decided."""
        while True:
            standing = read_standing(self._ledger, self._claim.stream_id)
            others = [it for it in standing.decisions if it.name not in self._waiting]
            if not others:
                return standing.count + 1
            finished = finish_decisions(self._ledger, self._claim.stream_id, loads, others)
            self._waiting |= {decision.name for decision, _ in finished.waiting}

    def _not_in_ledger(self, problem: NumberCommitted) -> ExactlyOnceError:
        """Return what follows from a number that the sink knows: the ledger counts it as well by now, or went back."""
        count, stream_id = read_standing(self._ledger, self._claim.stream_id).count, self._claim.stream_id
        if count >= self._number:
            return AnotherDecided(f"Another replay of {stream_id} has decided load {self._number} meanwhile.")
        return ReplayNotInLedger(
            f"{problem}, and the ledger counts {count} loads of replays of {stream_id}: it was restored to an earlier state, "
            "or a failover took its latest transactions. The sink may have records of ranges that the ledger has in "
            "quarantine (`exactlyonce failures` lists them), so nothing is replayed. Look for these records in the sink, name "
            "what it has by `exactlyonce failures settle` with --ledger-restored and --found, and replay the rest"
        )

    def decide(self, pieces: Sequence[Piece], load: PreparedLoad, records: int) -> None:
        """Decide that the load of a chunk of so many records is committed: the one load, bound to its ranges.

        What is decided is this replay's no more, whatever becomes of it.

        Raises:
            RangeNotHeld, SinkChanged, AnotherDecided, TransactionTooLong: nothing was decided; the load is aborted.
            CommitOutcomeUnknown: it may be decided.
        """
        target = self._target
        assert target is not None, "no other target prepares loads"
        ids = {piece.row.partition.origin: piece.row.origin_id for piece in pieces}
        one = committable_of(load, ranges_of(pieces))
        decided = DecidedBatch(pieces[0].row.batch, (one,), ids, sink=target.loads.place)
        decision = ReplayDecision(self._claim.token, decided, records, self._number)
        try:
            decide_pieces(self._ledger, self._claim, pieces, decision, self._waiting)
        except (RangeNotHeld, SinkChanged, AnotherDecided, TransactionTooLong):
            target.abort_load(load)
            raise
        self._decided.append(decision)

    def finish(self, outcome: ReplayOutcome) -> None:
        """Finish what this replay has decided, in its order; what the sink does not answer for now is asked about again."""
        while self._target is not None and self._decided:
            finished = finish_decisions(self._ledger, self._claim.stream_id, self._target.loads, self._decided[:1])
            decision = self._decided.pop(0)
            outcome.told += finished.told
            if finished.landed:
                outcome.landed += decision.records
                outcome.rows += decision.load.rows
                log.info("Batch %s: landed %s.", decision.decided.batch, decision.ranges)


def _is_asked(decision: ReplayDecision, wanted: Collection[RangeKey]) -> bool:
    return not set(decision.keys).isdisjoint(wanted)


def finish_decisions(
    ledger: Ledger, stream_id: str, target: TwoPhaseTarget, decisions: Sequence[ReplayDecision] | None = None
) -> FinishedLoads:
    """Commit what replays have decided, and record what became of it; all there is where none is given. Safe to repeat.

    Raises:
        Unreachable: if the sink, or the ledger, does not answer; whoever comes next asks again.
        CommitOutcomeUnknown: likewise.
    """
    finished = FinishedLoads()
    for decision in read_decisions(ledger, stream_id) if decisions is None else decisions:
        _finish(ledger, stream_id, target, decision, finished)
    return finished


def finish_beside(ledger: Ledger, stream_id: str, target: TwoPhaseTarget, decisions: Sequence[ReplayDecision]) -> None:
    """Finish them in a driver of the stream, which a problem of a replay is not to end; what is left is tried again later."""
    if not decisions:
        return
    try:
        told = finish_decisions(ledger, stream_id, target, decisions).told
    except NotYet as problem:
        log.debug("%s", problem)
        return
    except ExactlyOnceError as problem:
        log.warning("What a replay has decided could not be finished now: %s", problem)
        return
    for sentence in told:
        log.warning("%s", sentence)


def _finish(
    ledger: Ledger, stream_id: str, target: TwoPhaseTarget, decision: ReplayDecision, finished: FinishedLoads
) -> None:
    load, batch, named = decision.load, decision.decided.batch, ", ".join(map(str, decision.keys))
    if not target.is_at(decision.decided.sink):
        words = (
            f"A replay has decided the ranges {named}, and their load {load.answered_as} is to be committed by the sink that "
            f"the resource named before ({decision.decided.sink}); name that sink again and run a replay."
        )
        finished.waiting.append((decision, words))
        return
    state = outcome(target, load)
    reached("replay.commit-answered", batch)
    match _settled_state(load, state):
        case LoadState.COMMITTED:
            settle_decision(ledger, stream_id, decision, is_committed=True)
            finished.landed.append(decision)
        case LoadState.ABORTED:
            settle_decision(ledger, stream_id, decision, is_committed=False)
            words = (
                f"The sink has aborted the load {load.answered_as} of the ranges {named}, as it does with what waits too long: "
                "they are in quarantine again, and another replay lands them."
            )
            finished.aborted.append((decision, words))
        case _:
            finished.waiting.append((decision, _doubt(decision, named, target.how_to_find_out((load,)))))
            return
    reached("replay.settled", batch)


def _settled_state(load: Committable, state: LoadState) -> LoadState:
    """Return what became of a load: a person's answer counts only where the sink does not know."""
    if state is not LoadState.UNKNOWN or load.answer is None:
        return state
    return LoadState.COMMITTED if load.answer.says_rows_are_there else LoadState.ABORTED


def _doubt(decision: ReplayDecision, named: str, where: str) -> str:
    return (
        f"A replay has decided the ranges {named}, and the sink no longer knows whether it has committed their load "
        f"{decision.load}. Nothing of them is landed before that is known. {f'{where} ' if where else ''}Then run "
        f"`exactlyonce failures settle` with --committed {decision.load.answered_as} where the table has all of these rows, or "
        "with --aborted where it has none, and replay again."
    )
