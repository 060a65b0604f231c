"""A sink of two phases has more than its ledger, which went back; a person says what is there. Performs no I/O.

A driver finds the load (`exactlyonce_spark.latest_loads`) and records it in the stream's row. From then on nothing starts until
it is settled: by an answer for its label, or by a reset of the positions that names it. docs/adr/0060.
"""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.api.resource import FRESH
from exactlyonce.checkpoint.state import Readable
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.known_loads import FoundLoad, told_spans
from exactlyonce.ledger.rows import BatchRow, BatchStatus, FailureRow, FailureStatus, LedgerView
from exactlyonce.ledger.settlement import Settlement, how_to_answer
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Positions, Ranges
from exactlyonce.reconcile import new_generation
from exactlyonce.reconcile.asked_reset import looked_for
from exactlyonce.reconcile.case import Case
from exactlyonce.reconcile.compare import planned_ranges
from exactlyonce.reconcile.decided import answered_by, answers_in, behind_its_sink
from exactlyonce.reconcile.known_checks import went_back
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import (
    Action,
    Contradiction,
    ContradictionReason,
    Decision,
    Evidence,
    Launch,
    OffsetsReset,
    RecordLoads,
    RewindToSink,
)


def sink_has_unknown_load(case: Case) -> Decision | None:
    """The sink has committed a load that the ledger does not know, and nobody has said what is to follow."""
    seen = case.seen
    found = found_load(seen)
    if found is None or not found.label or case.identity.fresh:
        return None
    landed = case.ledger.stream.landed_batch
    if landed is not None and looked_for(seen.request.reset_offsets, case.ledger) is not None:
        return None
    answer = _answer(seen, found)
    if landed is not None and answer is Answer.ABORTED:
        return None
    if landed is not None and answer is Answer.COMMITTED and found.spans is not None and case.change is None:
        return None
    return Decision(_halted(case, found, answer))


def ledger_is_behind_its_sink(case: Case) -> Decision | None:
    """Spark's logs or the status know more than the ledger, and the sink cannot say which load it has committed last.

    Where the sink can, the next driver compares; until it has, the doubt stays recorded.
    """
    seen, ledger = case.seen, case.ledger
    doubt = ledger.stream.loads.found or _doubt(case)
    if not seen.request.two_phases or doubt is None or doubt.label or seen.request.tells_latest_load:
        return None
    is_recorded = ledger.stream.loads.found is not None
    if is_recorded and looked_for(seen.request.reset_offsets, ledger) is not None:
        return None
    back = went_back(seen, ledger)
    refused = behind_its_sink(ledger.stream.token, case.by_the_logs, back, doubt)
    return Decision(refused, () if is_recorded else (RecordLoads(doubt),))


def found_load_is_in_the_sink(case: Case) -> Decision | None:
    """A person has found the rows of the load: its records count as landed, and the stream continues after them."""
    seen, ledger, found = case.seen, case.ledger, found_load(case.seen)
    landed = ledger.stream.landed_batch
    if found is None or landed is None or _answer(seen, found) is not Answer.COMMITTED or found.spans is None:
        return None
    if looked_for(seen.request.reset_offsets, ledger) is not None:
        return None
    stands = Positions({**ledger.retired.positions, **ledger.landed.positions})
    ends = {key: max(end, stands.get(key, 0)) for key, end in found.ends.items()}
    batch = BatchNumber(max(new_generation.seed_batch(seen), found.batch + 1))
    by = answered_by(seen.request.settle_loads)
    gaps = found.missing(stands)
    shown = seen.request.position_text
    message = (
        f"Batch {found.batch} of this stream is in the sink ({found.rows} rows under {found.label}), as {by} says: its records "
        f"{told_spans(found.spans, shown)} count as landed, and the stream continues after them."
    )
    if gaps:
        message += (
            f" The ledger has lost what became of {told_spans(gaps, shown)}, which the stream had passed before: these "
            "records are kept in quarantine. Look for them in the sink, too; `exactlyonce failures` lists them."
        )
    after = Positions({**ledger.landed.positions, **ends})
    seed = new_generation.seed_at(seen, ledger.landed.positions, after, batch, message, ledger)
    row = BatchRow(
        found.batch, seen.epoch, BatchStatus.LANDED, _ranges(found), rows_written=found.rows,
        note=f"in the sink under {found.label}, as {by} says; the ledger had lost it",
    )  # fmt: skip
    seed = replace(
        seed,
        given_up=tuple(_kept(seen, ledger, batch, gap, found) for gap in gaps),
        settlement=Settlement(found, Answer.COMMITTED, by, row),
    )
    return Decision(OffsetsReset(landed, message, (_evidence(seen, found),)), (seed, Launch()))


def settled_beside(case: Case) -> tuple[tuple[Action, ...], tuple[Evidence, ...]]:
    """Return what is recorded of loads before a driver starts, whatever else was decided, and what is told of it.

    A person has found none of the load's rows; or the next driver is to ask the sink.
    """
    seen, ledger = case.seen, case.ledger
    found = ledger.stream.loads.found
    if found is not None and found.label and _answer(seen, found) is Answer.ABORTED:
        by = answered_by(seen.request.settle_loads)
        words = (
            f"the sink has no row of batch {found.batch} under {found.label}, as {by} says: its records are read again"
        )
        settlement = Settlement(found, Answer.ABORTED, by)
        return (RecordLoads(settlement),), (Evidence(words, {"label": found.label, "batch": found.batch}),)
    doubt = _doubt(case) if found is None and seen.request.tells_latest_load else None
    if doubt is None:
        return (), ()
    words = (
        f"batch {doubt.batch} had landed and the ledger does not have it; before its first batch the next driver compares the "
        "load that the sink has committed last with those that the ledger knows"
    )
    return (RecordLoads(doubt),), (Evidence(words, {"behind": doubt.batch}),)


def settled_by_reset(seen: Observation, by: str) -> Settlement | None:
    """Return what a reset settles, which was asked for by a person who knew of the load."""
    found = found_load(seen)
    return None if found is None else Settlement(found, None, by)


def found_load(seen: Observation) -> FoundLoad | None:
    """Return the load that was found.

    Where the sink has only a digest of its records, they are those that Spark has planned, or that the ledger has decided.
    """
    found = None if seen.ledger is None else seen.ledger.stream.loads.found
    if seen.ledger is None or found is None:
        return None
    logs, decided = seen.checkpoint, seen.ledger.decided
    if isinstance(logs, Readable) and logs.planned == found.batch:
        found = found.planned_as(planned_ranges(logs) or Ranges())
    if decided is not None and decided.batch == found.batch:
        found = found.planned_as(Ranges([span for load in decided.committables for span in load.ranges.items()]))
    return found


def _doubt(case: Case) -> FoundLoad | None:
    """Return what is recorded where something else than the sink says that the ledger went back."""
    seen, ledger = case.seen, case.ledger
    back = went_back(seen, ledger)
    if not seen.request.two_phases or (back is None and not isinstance(case.by_the_logs, RewindToSink)):
        return None
    known = [] if back is None or seen.known is None else [seen.known.batch]
    logs = seen.checkpoint
    if isinstance(logs, Readable):
        known += [logs.planned if logs.checkpointed is None else logs.checkpointed]
    landed = ledger.stream.landed_batch
    return FoundLoad("", BatchNumber(max([*known, 0 if landed is None else landed])))


def _answer(seen: Observation, found: FoundLoad) -> Answer | None:
    return answers_in(seen.request.settle_loads or "").get(found.label)


def _halted(case: Case, found: FoundLoad, answer: Answer | None) -> Contradiction:
    seen, token = case.seen, case.ledger.stream.token
    told = told_spans(found.spans, seen.request.position_text)
    what = (
        f"The sink has committed batch {found.batch} of this stream under {found.label} ({found.rows} rows of {told}), and the "
        "ledger does not know it: the ledger went back to an earlier state, and the stream would land these records again."
    )
    if case.ledger.stream.landed_batch is None:
        way_out = (
            f"Restore a later state of the ledger; or annotate {FRESH}={token} to start over, with a start position that fits "
            "the sink."
        )
    elif answer is Answer.COMMITTED and found.spans is None:
        way_out = (
            "The sink does not name its records, so nobody but you can say where the stream continues: set the positions with "
            "`exactlyonce offsets reset`, which settles this load."
        )
    elif answer is Answer.COMMITTED:
        assert case.change is not None, "else it is settled"
        words = case.change.named_words or case.change.sentences
        way_out = f"Its answer is taken up once the resource reads the same partitions again ({words})."
    else:
        way_out = how_to_answer(found.label)
    return Contradiction(ContradictionReason.LEDGER_BEHIND_SINK, f"{what} {way_out}", (_evidence(seen, found),))


def _evidence(seen: Observation, found: FoundLoad) -> Evidence:
    told = told_spans(found.spans, seen.request.position_text)
    data = {"batch": found.batch, "rows": found.rows, "labels": [found.label], "loads": 1}
    if found.spans is not None:
        data["ranges"] = _ranges(found).to_json()
    return Evidence(
        f"the sink has committed batch {found.batch} under {found.label}: {found.rows} rows of {told}", data
    )


def _ranges(found: FoundLoad) -> Ranges:
    ranges: dict[Partition, OffsetRange] = {}
    for key, offsets in found.spans or ():
        before = ranges.get(key, offsets)
        ranges[key] = OffsetRange(
            min(before.from_offset, offsets.from_offset), max(before.until_offset, offsets.until_offset)
        )
    return Ranges(ranges)


def _kept(
    seen: Observation, ledger: LedgerView, batch: BatchNumber, gap: tuple[Partition, OffsetRange], found: FoundLoad
) -> FailureRow:
    key, offsets = gap
    return FailureRow(
        batch,
        key,
        offsets.from_offset,
        offsets.until_offset,
        FailureStatus.QUARANTINED,
        seen.source_address,
        f"the ledger went back and has lost what became of these records; the stream had passed them before {found.label} was "
        "committed, so they are in the sink, or were passed over",
        origin_id=ledger.landed.origin_ids.get(key.origin, ""),
        life=ledger.stream.life,
    )
