"""The positions of a stream are set elsewhere, as a person asked: docs/adr/0040. Performs no I/O.

It is a decision like any other: of one observation, under an epoch that was raised before, and carried out by the transaction
that publishes a generation. So the transaction that moves the positions also records what is skipped and what is read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from exactlyonce.api.resource import FRESH, RESET_OFFSETS
from exactlyonce.bounded_text import some_of
from exactlyonce.ledger.read_again import decided_of, read_again
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.room import why_no_room
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LandedPositions, LedgerView
from exactlyonce.positions.ranges import PARTITION_END, BatchNumber, Ranges
from exactlyonce.reconcile import new_generation
from exactlyonce.reconcile.asked_reset import AskedReset, ResetMalformed, to_be_reset
from exactlyonce.reconcile.behind_sink import settled_by_reset
from exactlyonce.reconcile.case import Case
from exactlyonce.reconcile.kept_state import keeps_state
from exactlyonce.reconcile.observation import Observation, Request
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Decision,
    Evidence,
    Launch,
    OffsetsReset,
    SeedAndPublish,
)
from exactlyonce.source.port import SourceView


def offsets_are_reset(case: Case) -> Decision | None:
    """A person asked for other positions when this very batch had landed last."""
    try:
        asked = to_be_reset(case.seen.request.reset_offsets, case.ledger)
    except ResetMalformed as malformed:
        what = f"the annotation {RESET_OFFSETS} is not what `exactlyonce offsets reset` writes: {malformed}"
        return _refused(case.seen.request, what, ())
    if asked is None:
        return None
    evidence = _evidence(case.seen.request, asked)
    problem = _changed_since(case) or reset_problem(
        asked, case.ledger, case.seen.source, case.seen.request, stateful=keeps_state(case.seen)
    )
    if problem is not None:
        return _refused(case.seen.request, problem, evidence)
    message = message_of(case.seen.request, asked)
    seed = _seed(case.seen, case.ledger, asked, message)
    problem = _decided_by_replay(case.seen, case.ledger, seed) or _too_much_in_quarantine(case.seen, case.ledger, seed)
    if problem is not None:
        return _refused(case.seen.request, problem, evidence)
    return Decision(OffsetsReset(asked.batch, message, evidence), (seed, Launch()))


def left_behind(request: Request, ledger: LedgerView) -> tuple[Evidence, ...]:
    """Return what is told of a request without effect: it was carried out, or something else has landed since."""
    text, landed = request.reset_offsets, ledger.stream.landed_batch
    if not text or landed is None:
        return ()
    try:
        asked = AskedReset.from_json(text)
    except ResetMalformed:
        return ()  # which has halted the stream
    if asked.stands_in(ledger):
        return ()
    since = (
        f"batch {landed} has landed since: its own, or another one"
        if asked.life == ledger.stream.life
        else "the stream has started over since"
    )
    words = (
        f"the reset that {asked.by} asked for when batch {asked.batch} had landed has no effect any more, and {since}"
    )
    return (Evidence(words, {"resetBatch": asked.batch, "landed": landed}),)


def reset_problem(
    asked: AskedReset, ledger: LedgerView, source: SourceView, request: Request, *, stateful: bool
) -> str | None:
    """Return why a stream cannot be set to positions without losing or doubling what nobody asked for; None if it can.

    The words are a clause without a full stop.
    """
    if ledger.landed.positions != asked.before:
        return (
            "positions have moved since the reset was asked for, so what it would skip and repeat is not what was shown"
        )
    if asked.batch == 0 and not asked.load:
        return (
            "nothing has landed since the stream started, so nothing can be taken back; set its start in spec.source, and "
            f"annotate {FRESH}={ledger.stream.token} to start over there"
        )
    if stateful:
        return (
            "the query keeps state of the records that it has read, which no reset takes back; to read from other offsets, "
            "make a stream with another streamId that starts there"
        )
    # A load that was found keeps drivers from finishing the decided batch, so a reset that repeats nothing goes first.
    if ledger.decided is not None and not (asked.load and not asked.repeated):
        return (
            f"batch {ledger.decided.batch} is decided, and its rows will be committed; let the stream run until it has landed, "
            "then suspend it and ask again"
        )
    return next(_out_of_bounds(asked, source, request), None)


def _out_of_bounds(asked: AskedReset, source: SourceView, request: Request) -> Iterator[str]:
    shown = request.position_text
    for key, position in asked.after.items():
        before = asked.before[key]
        if position == before == PARTITION_END:
            continue
        if PARTITION_END in (position, before):
            yield f"{key} would be set from {shown(before)} to {shown(position)}; what has been read to its end stays there"
            continue
        held = source.bounds.get(key)
        if held is None:
            yield f"the source does not have {key}"
        elif position < held.earliest:
            yield f"the source holds {key} from {shown(held.earliest)} on, and the stream would stand at {shown(position)}"
        elif position > held.latest:
            yield f"the source holds {key} up to {shown(held.latest)}, and the stream would stand at {shown(position)}"


def message_of(request: Request, asked: AskedReset) -> str:
    """Return what a reset does, who asked for it and why."""
    moved = [f"{key} from {request.position_text(asked.before[key])} to {request.position_text(position)}"
             for key, position in asked.moved.items()]  # fmt: skip
    told = "; ".join(part for part in (_skips(request, asked), _repeats(request, asked)) if part)
    what = (
        f"The positions are reset: {some_of(moved, 20)}; {told}."
        if moved
        else "A new generation begins where the sink stands."
    )
    return f"{what} {asked.words}."


def _skips(request: Request, asked: AskedReset) -> str:
    if not asked.skipped:
        return ""
    kept = "kept in quarantine" if asked.keeps_skipped else "given up"
    return f"{counted(request, asked.skipped)} skipped and {kept}"


def _repeats(request: Request, asked: AskedReset) -> str:
    return f"{counted(request, asked.repeated)} read again" if asked.repeated else ""


def counted(request: Request, ranges: Ranges) -> str:
    """Return how many records ranges have, as far as positions tell, with the verb."""
    if not request.positions_count_records:
        return f"records of {len(ranges)} partitions are"
    return "1 record is" if ranges.record_count == 1 else f"{ranges.record_count} records are"


def _changed_since(case: Case) -> str | None:
    """A generation for other partitions has positions of its own, which nobody was shown."""
    if case.change is None:
        return None
    words = case.change.named_words or case.change.sentences
    return f"the resource reads other partitions than the stream has read ({words}); let it run once with them, then ask again"


def _refused(request: Request, problem: str, evidence: tuple[Evidence, ...]) -> Decision:
    message = (
        f"The positions of {request.stream_id} are not reset: {problem}. Ask again with `exactlyonce offsets reset`, or "
        "withdraw the request with `exactlyonce offsets reset --withdraw`, and the stream continues where it stands."
    )
    return Decision(Contradiction(ContradictionReason.RESET_REFUSED, message, evidence))


def _evidence(request: Request, asked: AskedReset) -> tuple[Evidence, ...]:
    data = {
        "by": asked.by,
        "at": asked.at.isoformat(),
        "message": asked.message,
        "batch": asked.batch,
        "kept": asked.keeps_skipped,
    }
    found = [Evidence(f"a reset was asked for when batch {asked.batch} had landed: {asked.words}", data)]
    for words, ranges in (("skipped", asked.skipped), ("read again", asked.repeated)):
        if ranges:
            found.append(Evidence(f"{words}: {request.shown(ranges)}", {words.replace(" ", "_"): ranges.to_json()}))
    return tuple(found)


def _decided_by_replay(seen: Observation, ledger: LedgerView, seed: SeedAndPublish) -> str | None:
    """As with a batch that is decided; the transaction that publishes the seed compares once more."""
    decided = decided_of(seen.kept, seed.after, ledger.landed.origin_ids)
    if not decided:
        return None
    return (
        f"the range {RangeKey.of(decided[0])} is decided by a replay, and its rows will be committed, so what is read again of "
        "it would land twice; run a replay, which asks the sink what became of it, then ask again"
    )


def _too_much_in_quarantine(seen: Observation, ledger: LedgerView, seed: SeedAndPublish) -> str | None:
    """Say so before anything is told to be done; the transaction that publishes the seed counts once more."""
    changed = read_again([row for row in seen.kept if row.passed_over], seed.after, ledger.landed.origin_ids)
    after = {RangeKey.of(row): row for row in (*seen.kept, *changed, *seed.given_up)}
    why = why_no_room(seen.kept, after.values(), seed.most_quarantined, seen.room)
    return None if why is None else f"with the records that it skips, {why}; or skip fewer"


def _seed(seen: Observation, ledger: LedgerView, asked: AskedReset, message: str) -> SeedAndPublish:
    batch = new_generation.seed_batch(seen)
    seed = new_generation.seed_at(seen, asked.before, asked.after, batch, message, ledger)
    # By the last record before each new position it is noticed, as after a landing, when the source is replaced.
    marks = {key: mark for key, mark in seen.last_before_reset.items() if mark is not None and key in asked.moved}
    after = replace(seed.after, fingerprints={**seed.after.fingerprints, **marks})
    skipped = tuple(_skipped(seen, ledger, asked, batch, after))
    most = seen.request.most_quarantined if asked.keeps_skipped else None
    settled = settled_by_reset(seen, asked.by)
    return replace(
        seed, after=after, given_up=skipped, resets=True, most_quarantined=most, settlement=settled
    )  # fmt: skip


def _skipped(
    seen: Observation, ledger: LedgerView, asked: AskedReset, batch: BatchNumber, after: LandedPositions
) -> Iterator[FailureRow]:
    """Yield a row for each range that is skipped, so that no record goes without a trace."""
    for key, offsets in asked.skipped.items():
        # What is lost says which records it is of as well: a person may change their mind and give the range to a replay.
        yield FailureRow(
            batch,
            key,
            offsets.from_offset,
            offsets.until_offset,
            FailureStatus.QUARANTINED if asked.keeps_skipped else FailureStatus.LOST,
            seen.source_address,
            f"skipped by a reset of the positions. {asked.words}",
            origin_id=after.origin_ids.get(key.origin, ""),
            fingerprint=after.fingerprints.get(key),
            life=ledger.stream.life,
        )
