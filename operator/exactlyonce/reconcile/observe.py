"""Gather once what a decision depends on. Observing changes nothing anywhere."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from exactlyonce.api.format import OnTombstone
from exactlyonce.api.output_mode import OutputMode
from exactlyonce.api.recovery import OnPoisonBatch
from exactlyonce.api.refused_conf import ROCKSDB, STATE_STORE, WATERMARK_POLICY
from exactlyonce.api.resource import ADOPT, FRESH, RESET_OFFSETS, SETTLE_LOADS, Stream
from exactlyonce.api.spec import StreamSpec, limit_words
from exactlyonce.checkpoint.files import DEFAULT_WATERMARK_POLICY
from exactlyonce.checkpoint.generation import (
    Generation,
    contents_of,
    parse_generation,
    read_marker,
)
from exactlyonce.checkpoint.retained import find_retained
from exactlyonce.checkpoint.state import Absent, CheckpointState, Readable, read_generation
from exactlyonce.checkpoint.store import LogStore
from exactlyonce.connectors.specs import ContinuesOutput
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.room import Room, counted_failures
from exactlyonce.ledger.rows import BatchRow, FailureRow, LedgerView, Owner
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition
from exactlyonce.reconcile.asked_reset import last_offsets, looked_for
from exactlyonce.reconcile.kept_state import state_to_look_for
from exactlyonce.reconcile.observation import (
    Known,
    LocationView,
    Observation,
    Predecessor,
    Request,
)
from exactlyonce.reconcile.source_change import added_partitions, is_assigned_differently
from exactlyonce.reconcile.source_checks import first_missing
from exactlyonce.source.port import Source

_MOST_EARLIER_BATCHES = 100
"""How many rows of batches are read, only where records are gone, to tell when a partition last held them."""


@dataclass(frozen=True)
class Stores:
    """The three places one stream's truth is in."""

    ledger: Ledger
    checkpoints: LogStore
    source: Source


def new_token() -> str:
    """Return a random token for the identity of a stream."""
    return str(uuid.uuid4())


def request_of(
    stream: Stream,
    owner: Owner,
    shrunk: int | None = None,
    too_large: int | None = None,
    poison: int | None = None,
    *,
    bisects: bool | None = None,
    finished_by: int | None = None,
) -> Request:
    """Return what a stream's resource asks for, as far as a decision depends on it. Performs no I/O.

    `shrunk` is how many offsets a batch may have while the loop holds it smaller than the resource does, and `too_large` the
    number of the batch because of which it does so; `poison` is the number of a batch that the next driver quarantines, by its
    failing records alone where it `bisects`; None leaves that to the resource. `finished_by` is as `Request` has it.
    """
    spec, annotations = stream.spec, stream.metadata.annotations
    return Request(
        stream_id=stream.stream_id,
        owner=owner,
        location=spec.checkpoint.location,
        source=spec.source.spec.selection(),
        query=_hash_of_query(spec),
        origin_noun=spec.source.spec.origin_noun,
        position_text=spec.source.spec.position_text,
        positions_count_records=spec.source.spec.positions_count_records,
        two_phases=spec.sink.spec.two_phases,
        tells_latest_load=spec.sink.spec.tells_latest_load,
        shows_landed=not spec.sink.spec.holds_ledger and not spec.sink.spec.two_phases,
        former_batch=spec.sink.spec.continue_after_batch if isinstance(spec.sink.spec, ContinuesOutput) else None,
        limit=limit_words(spec),
        shrunk=shrunk,
        too_large=too_large,
        poison=poison,
        bisects=spec.recovery.on_poison_batch is OnPoisonBatch.BISECT if bisects is None else bisects,
        finished_by=finished_by,
        delivery=spec.delivery,
        commit=spec.sink.spec.commit,
        on_checkpoint_lost=spec.recovery.on_checkpoint_lost,
        on_source_truncated=spec.recovery.on_source_truncated,
        on_topic_deleted=spec.recovery.on_topic_deleted,
        shuffle_partitions=spec.shuffle_partitions,
        watermark_policy=spec.spark_conf.get(WATERMARK_POLICY, DEFAULT_WATERMARK_POLICY),
        adopt=annotations.get(ADOPT),
        fresh=annotations.get(FRESH),
        settle_loads=annotations.get(SETTLE_LOADS),
        reset_offsets=annotations.get(RESET_OFFSETS),
        most_quarantined=spec.recovery.max_quarantined,
    )


def observe(
    stores: Stores,
    request: Request,
    epoch: Epoch,
    predecessor: Predecessor,
    owner_is_gone: Callable[[Owner], bool],
    known: Known | None = None,
) -> Observation:
    """Look at ledger, location, checkpoint and source, in this order, and return what was seen.

    The ledger is looked at first: after the raise nothing lands any more, so what the logs then show cannot be behind
    a landing that the ledger look missed.

    Raises:
        Unreachable: if a store does not answer; then nothing is known and nothing may be decided.
        Refused: if a store refuses, or a start position cannot be resolved.
    """
    ledger = stores.ledger.view(request.stream_id)
    location, states = _observe_location(stores, ledger)
    checkpoint = _checkpoint(stores.checkpoints, ledger, location, states, known)
    read_before = frozenset(ledger.landed.positions) if ledger is not None else frozenset()
    if isinstance(checkpoint, Readable):
        read_before |= checkpoint.planned_end.keys()
    reset = looked_for(request.reset_offsets, ledger)
    stands = {**_stands(request, ledger), **({} if reset is None else reset.moved)}
    source = stores.source.view(read_before, _offsets_to_verify(request, ledger), stands)
    seen = Observation(
        epoch=epoch,
        request=request,
        new_token=new_token(),
        database=stores.ledger.database_identity(),
        ledger=ledger,
        location=location,
        checkpoint=checkpoint,
        predecessor=predecessor,
        source=source,
        owner_is_gone=ledger is not None
        and ledger.stream.owner != request.owner
        and owner_is_gone(ledger.stream.owner),
        known=known,
        source_address=stores.source.address,
    )
    if reset is not None:
        kept, room = _kept(stores.ledger, request.stream_id)
        seen = replace(seen, kept=kept, room=room)
    if reset is not None and request.positions_count_records:
        before = stores.source.view(frozenset(reset.moved), last_offsets(reset))
        seen = replace(seen, last_before_reset=before.records)
    if ledger is not None and (missing := first_missing(seen, ledger)):
        seen = replace(seen, ledger=replace(ledger, earlier=_rows_before(stores.ledger, ledger, missing)))
    wanted = state_to_look_for(seen)
    if wanted is not None:
        seen = replace(seen, retained=find_retained(stores.checkpoints, stores.source.codec, *wanted))
    if _may_start_over(seen):
        return replace(seen, start=stores.source.start(source))
    if ledger is not None and is_assigned_differently(request, ledger):
        return replace(seen, start=stores.source.start(source, added_partitions(request, source, ledger)))
    return seen


def _kept(store: Ledger, stream_id: str) -> tuple[tuple[FailureRow, ...], Room | None]:
    with store.transaction(dispensable=True) as transaction:
        return counted_failures(transaction, stream_id), transaction.room


def _rows_before(store: Ledger, ledger: LedgerView, missing: Collection[Partition]) -> tuple[BatchRow, ...]:
    """The rows that may tell when partitions last held what is gone, where the latest landed batch has not read all of them."""
    landed = ledger.stream.landed_batch
    row = None if landed is None else ledger.batch(landed)
    if landed is None or (row is not None and all(key in row.ranges.non_empty() for key in missing)):
        return ()
    with store.transaction(dispensable=True) as transaction:
        rows = transaction.read_batches_after(
            ledger.stream.stream_id, BatchNumber(max(0, landed - _MOST_EARLIER_BATCHES))
        )
    return tuple(row for row in rows if row.batch < landed)


def _offsets_to_verify(request: Request, ledger: LedgerView | None) -> dict[Partition, int]:
    """The offsets of the fingerprints of what the resource reads, retired partitions that it may read again included."""
    if ledger is None:
        return {}
    kept = {**ledger.retired.fingerprints, **ledger.landed.fingerprints}
    return {key: fingerprint.offset for key, fingerprint in kept.items() if request.source.reads(key)}


def _stands(request: Request, ledger: LedgerView | None) -> dict[Partition, int]:
    """Where the stream continues in what the resource reads, in retired partitions that it may read again as well."""
    if ledger is None:
        return {}
    known = {**ledger.retired.positions, **ledger.landed.positions}
    return {key: position for key, position in known.items() if request.source.reads(key)}


def _hash_of_query(spec: StreamSpec) -> str:
    """Return a hash of what turns records into rows, and of what else the state of a stateful query depends on."""
    transform = None if spec.transform is None else spec.transform.to_document()
    # Skip does not count: no state holds anything of a tombstone that failed its batch, so it is a way out where state is kept.
    given = spec.source.format.to_document()
    if spec.source.format.on_tombstone is not OnTombstone.DELETE:
        del given["onTombstone"]
    defaults = {"outputMode": OutputMode.APPEND, WATERMARK_POLICY: DEFAULT_WATERMARK_POLICY, STATE_STORE: ROCKSDB}
    asked = {**defaults, **spec.spark_conf, "outputMode": spec.output_mode}
    text = json.dumps([given, transform, {key: asked[key] for key in defaults}], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _may_start_over(seen: Observation) -> bool:
    """Whether a start is needed; an annotation that was left behind must not make an old start be resolved again."""
    if seen.ledger is None or seen.ledger.stream.landed_batch is None:
        return True
    marker = seen.location.marker
    return seen.request.fresh in {seen.ledger.stream.token, None if marker is None else marker.token} - {None}


def _observe_location(
    stores: Stores, ledger: LedgerView | None
) -> tuple[LocationView, dict[Generation, CheckpointState]]:
    """Read the published generation and all later ones; the numbers of earlier ones are below its seed's."""
    published = 0 if ledger is None else ledger.stream.generation or 0
    store, codec = stores.checkpoints, stores.source.codec
    seen = contents_of(store)
    states = {
        generation: read_generation(store, codec, generation.folder)
        for generation in seen.generations
        if generation.number >= published
    }
    highest: dict[Generation, BatchNumber] = {
        generation: state.highest_planned for generation, state in states.items() if state.highest_planned is not None
    }
    ran = frozenset(generation for generation, state in states.items() if state.has_run)
    marker = read_marker(store) if seen.has_marker else None
    return LocationView(marker, seen.generations, highest, ran, seen.foreign), states


def _checkpoint(
    store: LogStore,
    ledger: LedgerView | None,
    location: LocationView,
    states: dict[Generation, CheckpointState],
    known: Known | None,
) -> CheckpointState:
    """Return the state of the published generation; where none is published, of the latest that was.

    What has run was published, and so was the seed that the status names with its batch: it does so once a seed is published. A
    seed that nobody published may have the number of a batch that another generation has landed since.
    """
    path = None if ledger is None else ledger.stream.checkpoint_path
    if path is None:
        ran = set(location.ran)
        if known is not None:
            ran |= {
                generation
                for generation, state in states.items()
                if generation.path(store.location) == known.checkpoint_path and _is_seed(state, known.batch)
            }
        latest = max(ran, default=None)
        return Absent() if latest is None else states[latest]
    generation = parse_generation(path.rsplit("/", 1)[-1])
    if generation is None or generation.path(store.location) != path:
        return Absent()
    return states.get(generation, Absent())


def _is_seed(state: CheckpointState, batch: BatchNumber | None) -> bool:
    is_seed = isinstance(state, Readable) and not state.has_run and state.planned == state.checkpointed
    return is_seed and state.highest_planned == batch
