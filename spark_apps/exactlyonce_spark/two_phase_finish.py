"""A sink of two phases before a driver's first batch: what was decided is finished, the rest aborted. No pyspark here.

First the decided batch, then the rest: a sink keeps only so many labels, and each load that is aborted may push out one that is
still to be asked about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from exactlyonce.api.resource import SETTLE_LOADS
from exactlyonce.errors import Refused
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.two_phase import land_decided, read_all_decided, read_decided, replace_decided
from exactlyonce.positions.ranges import BatchNumber, Ranges
from exactlyonce.source.connector import SourceCheck
from exactlyonce_spark import loads_told, tasks
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.latest_loads import require_all_known
from exactlyonce_spark.load_outcome import NotCommitted, outcome
from exactlyonce_spark.log_watch import LogWatch
from exactlyonce_spark.planned import OriginReplaced
from exactlyonce_spark.replay_loads import finish_beside
from exactlyonce_spark.source_check import RecordsLost, RecordsReplaced
from exactlyonce_spark.target import LoadState, OpenLoad, TwoPhaseTarget
from exactlyonce_spark.two_phase_submit import (
    RowsPartlyLoaded,
    remove_files,
    remove_undecided_files,
    settled,
    submit_decided,
    under_another_label,
    why_cancelled,
)

ROUNDS = 3
"""How often rows that the sink aborts again are written again by one driver."""

MOST_TOLD = 5
"""So many loads are told of those in doubt; the ledger has all of them."""

RunAgain = Callable[[Ranges, tasks.PrepareJob], list[tasks.TaskReport]]
"""Runs a job as one task over the rows of exactly these ranges, as the query makes them."""

WriteAgain = Callable[[DecidedBatch, Committable], tuple[Committable, ...]]


class LoadsInDoubt(Refused):
    """The sink has forgotten loads that were decided: whether they were committed or aborted, only a person can find out."""


class RowsNotThere(Refused):
    """The sink has aborted rows that were decided, and the source no longer holds the records that they were made of."""


class DecidedElsewhere(Refused):
    """A batch is decided in a sink that commits by itself, and the resource no longer names that sink."""


def require_nothing_decided(ledger: Ledger, permit: Permit) -> None:
    """Require that no batch waits for the sink that the stream had before; the one that it has now has no two phases.

    Nothing may land before such a batch has: its positions have moved, and its rows are nowhere until that sink commits them.

    Raises:
        Fenced: if this process may not land any more.
        DecidedElsewhere: naming the batch and its loads.
    """
    decided = read_decided(ledger, permit)
    if decided is not None:
        raise _decided_elsewhere(decided)


def _decided_elsewhere(decided: DecidedBatch, way_back: str = "") -> DecidedElsewhere:
    labels = [committable.answered_as for committable in decided.committables]
    told = ", ".join(labels[:MOST_TOLD]) + (" …" if len(labels) > MOST_TOLD else "")
    where = f" ({decided.sink})" if decided.sink else ""
    return DecidedElsewhere(
        f"Batch {decided.batch} is decided, and its loads ({told}) are to be committed by the sink that the resource named "
        f"before{where}; name that sink again until the batch has landed, then suspend the stream and change the sink."
        f"{way_back and ' '}{way_back}"
    )


def finish_decided(ledger: Ledger, permit: Permit, target: TwoPhaseTarget, write_again: WriteAgain) -> None:
    """Commit and land the batch that an earlier driver decided; then abort what earlier drivers prepared and nobody decided.

    What replays have decided is finished last, as far as the sink says what became of it: no batch waits for that.

    Raises:
        Fenced: if this process may not land any more.
        LedgerBehindSink: if the sink has committed what the ledger does not know; nothing was committed.
        DecidedElsewhere: if the batch was decided in another place; nothing was asked of this one.
        LoadsInDoubt, RowsPartlyLoaded, RowsNotThere: naming the labels and ranges for which a person has to look.
        NotCommitted, Unreachable, CommitOutcomeUnknown: to be tried again by the next driver.
    """
    require_all_known(ledger, permit, target)
    decided, by_replays = read_all_decided(ledger, permit)
    if decided is not None:
        reached("finish.read", decided.batch)
        if not target.is_at(decided.sink):
            raise _decided_elsewhere(decided, target.how_to_come_back(decided.sink))
        in_doubt = _committed(ledger, permit, target, decided, write_again)
        if in_doubt:
            raise _doubt(decided.batch, in_doubt, target.how_to_find_out(in_doubt[:MOST_TOLD]))
    remove_undecided_files(target, permit)
    if decided is not None:
        land_decided(ledger, permit, decided.batch)
        reached("finish.landed", decided.batch)
    named = () if decided is None else decided.committables
    for load in target.open_loads():
        if is_undecided(load, named, permit):
            target.abort(load)
            reached("finish.aborted")
    finish_beside(ledger, permit.stream_id, target, by_replays)


def is_undecided(load: OpenLoad, named: Collection[Committable], permit: Permit) -> bool:
    """Whether no decision names a load, or ever will: it is of an earlier epoch, and none of those decides any more.

    What this epoch or a later one prepares may be decided at this moment, by a successor that this process has not heard of.
    """
    is_named = any((one.label, one.transaction_id) == (load.label, load.transaction_id) for one in named)
    return load.epoch < permit.epoch and not is_named


def _committed(
    ledger: Ledger, permit: Permit, target: TwoPhaseTarget, decided: DecidedBatch, write_again: WriteAgain
) -> tuple[Committable, ...]:
    """Commit what is decided, write again what the sink has aborted, and return what nobody can tell of.

    What is known to be committed is left out of the record before anything else is tried, so that a label that expires later
    leaves no doubt.
    """
    why = ""
    for number in range(ROUNDS):
        decided = submit_decided(ledger, permit, target, decided)
        states, partly_loaded = _states(target, decided)
        in_doubt = tuple(one for one, state in states if state is LoadState.UNKNOWN)
        aborted = [one for one, state in states if state is LoadState.ABORTED]
        decided = _left(ledger, permit, decided, [one for one, state in states if state is not LoadState.COMMITTED])
        remove_files(target, [one for one, state in states if state is LoadState.COMMITTED])
        if partly_loaded is not None:
            raise partly_loaded
        if not aborted:
            return in_doubt
        again = [new for one in aborted for new in _again(target, decided, one, write_again)]
        reached("finish.written-again", decided.batch)
        decided = _left(ledger, permit, decided, [*in_doubt, *again])
        if not again:
            return in_doubt
        # From the second round on this driver has submitted them itself: what a person could mend before it started was mended.
        if number > 0:
            why = next(filter(None, [why_cancelled(target, one) for one in aborted]), "")
    raise NotCommitted(
        f"The sink has aborted rows of the decided batch {decided.batch} each of the {ROUNDS} times that this driver committed "
        f"them{f' ({why})' if why else ''}. They are written once more, and the next driver commits them."
    )


def _states(
    target: TwoPhaseTarget, decided: DecidedBatch
) -> tuple[list[tuple[Committable, LoadState]], RowsPartlyLoaded | None]:
    """Return what became of each load, and what is to be raised where one was loaded in part, once the others are recorded."""
    states: list[tuple[Committable, LoadState]] = []
    partly_loaded: RowsPartlyLoaded | None = None
    loads_told.decided(len(decided.committables))
    for committable in decided.committables:
        try:
            found = loads_told.answered(settled(target, committable, outcome(target, committable)))
            state = _with_answer(committable, found)
        except RowsPartlyLoaded as problem:
            state, partly_loaded = loads_told.answered(LoadState.UNKNOWN), problem.after(partly_loaded)
        states.append((committable, state))
        reached("commit.answered", decided.batch)
    return states, partly_loaded


def _again(
    target: TwoPhaseTarget, decided: DecidedBatch, aborted: Committable, write_again: WriteAgain
) -> tuple[Committable, ...]:
    relabelled = under_another_label(target, decided, aborted)
    return write_again(decided, aborted) if relabelled is None else (relabelled,)


def _left(ledger: Ledger, permit: Permit, decided: DecidedBatch, committables: Sequence[Committable]) -> DecidedBatch:
    """Record what is left to be committed, and return it.

    Where nothing is, the batch lands, which takes the record away; but files are removed only once no record names them.
    """
    left = replace(decided, committables=tuple(committables))
    has_files = any(one.staged is not None for one in decided.committables)
    if (committables or has_files) and left != decided:
        replace_decided(ledger, permit, decided, left)
        reached("finish.recorded", decided.batch)
    return left


def _with_answer(committable: Committable, state: LoadState) -> LoadState:
    """Return what became of a load: a person's answer counts only where the sink does not know."""
    if state is not LoadState.UNKNOWN or committable.answer is None:
        return state
    return LoadState.COMMITTED if committable.answer.says_rows_are_there else LoadState.ABORTED


def _doubt(batch: BatchNumber, in_doubt: tuple[Committable, ...], where: str) -> LoadsInDoubt:
    """`where` is what the sink's connector says of where a person finds out."""
    more = f"; and {len(in_doubt) - MOST_TOLD} more, which the ledger names" if len(in_doubt) > MOST_TOLD else ""
    # A prepared transaction counts as a whole; of a file that waits a statement may have loaded a part.
    some = " (remove them where it has only some)" if any(one.staged is not None for one in in_doubt) else ""
    return LoadsInDoubt(
        f"Batch {batch} is decided, and the sink no longer knows whether it has committed {len(in_doubt)} of its loads: "
        "it remembers each for a time only, and what it tells by now is nothing, or of another load. Nothing more is written. "
        f"Find out whether it has the rows of {'these loads' if len(in_doubt) > 1 else 'this load'}: "
        f"{'; '.join(str(committable) for committable in in_doubt[:MOST_TOLD])}{more}. {f'{where} ' if where else ''}Then "
        f"annotate the stream {SETTLE_LOADS} with LABEL=Committed where it has all of them, and LABEL=Aborted where it has none"
        f"{some}: these are written again. Separate answers by spaces; `exactlyonce settle-loads` "
        "writes them."
    )


@dataclass(frozen=True)
class RowsAgain:
    """Writes the rows of a load again, from exactly its ranges, if the source still holds what was read."""

    source: SourceCheck
    run: RunAgain

    def __call__(self, decided: DecidedBatch, aborted: Committable) -> tuple[Committable, ...]:
        """Prepare the rows under new labels, and return what is to be recorded.

        Raises:
            RowsNotThere: if the source no longer holds the records.
        """
        ranges, log = aborted.ranges, LogWatch(self.source)
        epochs = log.request_epochs(ranges)
        try:
            log.begin(ranges, decided.origin_ids, decided.fingerprints, epochs())
            log.require(decided.batch, ranges, decided.origin_ids)
            reports = self.run(ranges, tasks.PrepareJob(decided.batch, (ranges,), again=True))
            log.require(decided.batch, ranges, decided.origin_ids)
        except (RecordsLost, RecordsReplaced, OriginReplaced) as problem:
            raise RowsNotThere(
                f"The sink has aborted {aborted} of the decided batch {decided.batch}, and its records cannot be read again: "
                f"{problem} Nothing more is written."
            ) from problem
        return tuple(report.committable for report in reports if report.committable is not None)
