"""Where no batch has landed, or a person asked to start over or to adopt a checkpoint. Performs no I/O."""

from __future__ import annotations

from exactlyonce.api.resource import ADOPT, FRESH
from exactlyonce.checkpoint.state import Readable
from exactlyonce.positions.ranges import Positions
from exactlyonce.reconcile import new_generation
from exactlyonce.reconcile.compare import checkpoint_evidence, sink_evidence
from exactlyonce.reconcile.identity import Identity
from exactlyonce.reconcile.kept_state import keeps_state, state_would_be_lost
from exactlyonce.reconcile.known_checks import adopts_too_little, known_evidence, ledger_lost
from exactlyonce.reconcile.lost_batches import records_lost, with_evidence
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Decision,
    Evidence,
    FirstStart,
    Launch,
)


def first_start(seen: Observation, identity: Identity) -> Decision:
    """No batch ever landed, or a person asked to start over."""
    ledger = seen.ledger
    before = Positions() if ledger is None else ledger.landed.positions
    adopted: Positions | Contradiction | None = None
    if seen.location.ran and not identity.fresh:
        adopted = _end_of_adopted_checkpoint(seen) if identity.adopted else _restored_to_before_the_first_batch(seen)
    elif not identity.fresh:
        adopted = ledger_lost(seen)
    if isinstance(adopted, Contradiction):
        return Decision(adopted)
    start = adopted if adopted is not None else seen.start
    assert start is not None, "observe resolves the start of every stream that never started or starts over"
    number = new_generation.seed_batch(seen)
    at = seen.request.shown(start)
    former = seen.request.former_batch
    behind = "" if former is None else f", and continues the output of another query behind batch {former}"
    message = f"No batch ever landed; the stream starts at {at}{behind}."
    if identity.fresh:
        message = f"The stream starts over at {at}, as the annotation asks."
    elif adopted is not None:
        message = f"The stream is adopted from its checkpoint and continues at {at}."
    if number > 0 and keeps_state(seen):
        return Decision(state_would_be_lost(message, at, _start_evidence(seen, start)))
    seed = new_generation.seed_at(seen, before, start, number, message, goes_on=None)
    lost = () if ledger is None else records_lost(ledger)
    verdict = with_evidence(FirstStart(message, _start_evidence(seen, start)), identity.settled, lost, seen.request)
    if identity.settled:
        # An annotation holds for the token that stands: once that is replaced nobody asks for a new start any more.
        return Decision(verdict, (*lost, seed, *identity.actions, Launch()))
    return Decision(verdict, (*identity.actions, *lost, seed, Launch()))


def _start_evidence(seen: Observation, start: Positions) -> tuple[Evidence, ...]:
    ledger, stream_id = seen.ledger, seen.request.stream_id
    found = Evidence(f"the ledger holds no batch of {stream_id}", {"streamId": stream_id, "landed": None})
    if ledger is not None and ledger.stream.landed_batch is not None:
        found = sink_evidence(seen.request, ledger)
    return found, Evidence(f"the start is {seen.request.shown(start)}", {"positions": start.to_json()})


def _end_of_adopted_checkpoint(seen: Observation) -> Positions | Contradiction:
    """Where a checkpoint without a ledger ends, when a person asked to adopt it."""
    state = seen.checkpoint
    if isinstance(state, Readable) and state.planned == state.checkpointed:
        if not adopts_too_little(seen, state.planned):
            return state.planned_end
        assert seen.known is not None, "it knows more than the checkpoint"
        return Contradiction(
            ContradictionReason.LEDGER_LOST,
            f"{seen.request.location} cannot be adopted: it ends with batch {state.planned}, and {seen.known.words}, so it is "
            f"an older one. Restore the ledger; or annotate {FRESH} in place of {ADOPT}, with a start position that fits the "
            "sink.",
            (checkpoint_evidence(state, seen.request.location), *known_evidence(seen)),
        )
    doubt = f"batch {state.planned}" if isinstance(state, Readable) else "its last batch"
    return Contradiction(
        ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
        f"{seen.request.location} cannot be adopted: without its ledger no one knows whether {doubt} landed. Compare the "
        f"sink by hand, then annotate {FRESH} in place of {ADOPT}, with a start position that fits.",
        (checkpoint_evidence(state, seen.request.location),),
    )


def _restored_to_before_the_first_batch(seen: Observation) -> Contradiction:
    """The stream's own checkpoint ran, and its ledger holds no batch: where it started is known to no one."""
    assert seen.ledger is not None, "a location that ran without a ledger is not an agreed identity"
    token = seen.ledger.stream.token
    return Contradiction(
        ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
        f"{seen.request.location} has run and the ledger holds no batch of it: the database was restored to a moment before "
        f"the first one. Restore a later backup, or annotate {FRESH}={token} with a start position that fits the sink.",
        (checkpoint_evidence(seen.checkpoint, seen.request.location), *known_evidence(seen)),
    )
