"""Can a query that keeps state continue in a new generation? With the state that the old one retains: docs/adr/0014.

Performs no I/O.
"""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.checkpoint.generation import Generation, parse_generation
from exactlyonce.checkpoint.retained import NotRetained, Retained
from exactlyonce.checkpoint.state import Readable
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.compare import compare_logs
from exactlyonce.reconcile.ledger_checks import ledger_contradiction
from exactlyonce.reconcile.observation import MayLive, Observation
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Decision,
    Evidence,
    Launch,
    RebuildFromSink,
    RewindToSink,
    SeedAndPublish,
    Verdict,
)


def keeps_state(seen: Observation) -> bool:
    """Whether the query keeps state in its checkpoint, as far as ledger or checkpoint tell."""
    in_ledger = seen.ledger is not None and seen.ledger.stream.stateful
    return in_ledger or (isinstance(seen.checkpoint, Readable) and seen.checkpoint.stateful)


def state_to_look_for(seen: Observation) -> tuple[Generation, BatchNumber] | None:
    """Return the generation and the batch whose state a decision may need; None where it continues with the generation.

    The generation is the published one: by it the landed batch landed, so what it holds of that batch is what landed.
    Looking costs a listing of all state, so it is looked for only where the checkpoint is about to be left.
    """
    ledger = seen.ledger
    if ledger is None or not ledger.stream.landed_batch or not keeps_state(seen):
        return None
    if ledger_contradiction(ledger) is not None:
        return None
    leaves = isinstance(compare_logs(seen, ledger), RebuildFromSink | RewindToSink)
    if not leaves and not isinstance(seen.predecessor, MayLive):
        return None
    path = ledger.stream.checkpoint_path or ""
    generation = parse_generation(path.rsplit("/", 1)[-1])
    if generation is None or generation.path(seen.request.location) != path:
        return None
    return generation, ledger.stream.landed_batch


def unless_state_is_lost(seen: Observation, ledger: LedgerView, verdict: Verdict, seed: SeedAndPublish) -> Decision:
    """Offsets alone rebuild no state: a stateful query continues with what is retained of it, or halts.

    One that has not read a record yet starts with batch 0 again. Retained state is that of the landed batch, so it is of no use
    where the positions move.
    """
    if seed.seed_batch == 0 or not keeps_state(seen):
        return Decision(verdict, (seed, Launch()))
    kept = _usable_state(seen, ledger)
    if isinstance(kept, Retained) and seed.after.positions == ledger.landed.positions:
        words = f"{kept.generation.folder} retains the state of batch {kept.batch}, which landed last"
        found = Evidence(words, {"checkpoint": kept.generation.folder, "retained": kept.batch})
        message = (
            f"{verdict.message} It is made of the state that {kept.generation.folder} retains of batch {kept.batch}."
        )
        goes_on = replace(seed, seed_batch=kept.batch, after=ledger.landed, note=message, state_of=kept.generation)
        return Decision(replace(verdict, message=message, evidence=(*verdict.evidence, found)), (goes_on, Launch()))
    stands = seen.request.shown(ledger.landed.positions)
    return Decision(state_would_be_lost(verdict.message, stands, verdict.evidence, kept))


def state_would_be_lost(
    message: str, goes_on: str, evidence: tuple[Evidence, ...], kept: Retained | NotRetained | None = None
) -> Contradiction:
    """Spark makes state with batch 0 only, and a stream's numbers never go back: another stream has to start empty.

    Source: STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY, Spark 4.2.0.
    """
    missing = ""
    database = ""
    if isinstance(kept, NotRetained):
        missing = f" ({kept.message})"
        evidence = (*evidence, Evidence(f"no usable state: {kept.message}", {"oldestRetained": kept.oldest}))
        if kept.oldest is not None:
            database = f"or restore the database to a moment when batch {kept.oldest} or a later one had landed; "
    return Contradiction(
        ContradictionReason.STATE_WOULD_BE_LOST,
        f"{message} The query keeps state in its checkpoint, which offsets alone cannot rebuild{missing}: restore the "
        f"checkpoint; {database}or, to continue with empty state, make a stream with another streamId that starts at the "
        f"offsets {goes_on}.",
        evidence,
    )


def _usable_state(seen: Observation, ledger: LedgerView) -> Retained | NotRetained | None:
    """Return the retained state if it is of what landed, and else why it is not; None where there was nowhere to look."""
    found = seen.retained
    if found is None or isinstance(found, NotRetained):
        return found
    row = ledger.batch(found.batch)
    assert row is not None, "ledger_contradiction has looked"
    where = f"{found.generation.folder} planned batch {found.batch}"
    shown = seen.request.shown
    if found.end != ledger.landed.positions:
        return NotRetained(f"{where} up to {shown(found.end)}, and the sink stands at {shown(ledger.landed.positions)}")
    start = found.start
    if start is not None and any(start.get(key, 0) != offsets.from_offset for key, offsets in row.ranges.items()):
        return NotRetained(f"{where} from {shown(start)}, and it landed with {shown(row.ranges)}")
    return found
