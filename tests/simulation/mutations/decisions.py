"""What is observed, decided and seeded, broken on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.api.recovery import Recovery
from exactlyonce.api.spec import Delivery
from exactlyonce.api.status import BatchLimit
from exactlyonce.checkpoint import files
from exactlyonce.checkpoint.codec import PositionCodec
from exactlyonce.checkpoint.generation import Generation
from exactlyonce.checkpoint.retained import Retained, copy_retained, find_retained
from exactlyonce.checkpoint.state import Readable
from exactlyonce.checkpoint.store import LogStore
from exactlyonce.ledger import publish
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import BatchNumber, Positions
from exactlyonce.reconcile import (
    act,
    case,
    compare,
    decide,
    ending,
    first_start,
    kept_state,
    launching,
    ledger_checks,
    new_generation,
    replan,
    source_change,
)
from exactlyonce.reconcile.observation import Observation, ProvenDead, Request
from exactlyonce.reconcile.source_checks import first_missing
from exactlyonce.reconcile.verdicts import Contradiction, Decision, Launch, SeedAndPublish, Verdict
from exactlyonce_spark import landing
from tests.simulation.mutations.landings import retention_not_checked


@contextmanager
def seed_without_its_commit() -> Iterator[None]:
    """A seed lacks its commit log, so Spark runs the seeded batch itself, from the earliest offset."""

    def without_commit(
        store: LogStore,
        codec: PositionCodec,
        made: Generation,
        number: BatchNumber,
        positions: Positions,
        partitions: int,
        watermark_policy: str,
    ) -> None:
        store.create(f"{made.folder}/metadata", files.render_metadata("x"))
        store.create(f"{made.folder}/offsets/{number}", files.render_offsets(codec.render_entry(positions), partitions))

    with mock.patch.object(act, "write_seed", without_commit):
        yield


@contextmanager
def truncation_not_noticed() -> Iterator[None]:
    """The decision does not look at the source's earliest offsets, and neither does the batch."""
    with mock.patch.object(decide, "first_missing", lambda seen, ledger: {}), retention_not_checked():
        yield


@contextmanager
def given_up_although_it_is_there() -> Iterator[None]:
    """What a stream continues without is one record more than retention took."""

    def one_more(seen: Any, ledger: Any) -> dict[Any, tuple[int, int]]:
        missing = first_missing(seen, ledger)
        return {
            key: (wanted, min(earliest + 1, seen.source.bounds[key].latest))
            for key, (wanted, earliest) in missing.items()
        }

    with mock.patch.object(decide, "first_missing", one_more):
        yield


@contextmanager
def state_known_after_the_first_records_only() -> Iterator[None]:
    """That the query keeps state is known once a batch with records has landed; until then a seed without state is made,
    which Spark refuses for ever.
    """

    def in_ledger(seen: Any) -> bool:
        return seen.ledger is not None and bool(seen.ledger.stream.stateful)

    with (
        mock.patch.object(case, "keeps_state", in_ledger),
        mock.patch.object(decide, "keeps_state", in_ledger),
        mock.patch.object(first_start, "keeps_state", in_ledger),
        mock.patch.object(new_generation, "keeps_state", in_ledger),
        mock.patch.object(kept_state, "keeps_state", in_ledger),
        mock.patch.object(landing, "_record_state", lambda ledger, permit: None),
    ):
        yield


@contextmanager
def a_topic_that_is_named_again_starts_over() -> Iterator[None]:
    """Where the stream stood in a topic that was left out is forgotten: it is read from its first record again."""

    def from_the_first(seen: Observation, ledger: LedgerView) -> Positions:
        returned = returned_positions(seen, ledger)
        return Positions({key: seen.source.bounds[key].earliest for key in returned})

    returned_positions = source_change.returned_positions
    with mock.patch.object(source_change, "returned_positions", from_the_first):
        yield


@contextmanager
def state_of_the_latest_batch() -> Iterator[None]:
    """A query with state continues with the latest state that its checkpoint holds, not with that of the landed batch."""

    def with_latest(
        store: LogStore, codec: PositionCodec, source: Generation, target: Generation, batch: BatchNumber
    ) -> None:
        copy_retained(store, codec, source, target, batch)
        commits = [int(entry.name) for entry in store.list(f"{source.folder}/commits") if entry.name.isdigit()]
        latest = find_retained(store, codec, source, BatchNumber(max(commits)))
        if isinstance(latest, Retained):
            (newest,) = [path for path in latest.files if path.endswith(".snapshot")]
            (landed,) = [path for path in store.tree(target.folder) if path.endswith(".snapshot")]
            store.copy(f"{source.folder}/{newest}", f"{target.folder}/{landed}")

    with mock.patch.object(act, "copy_retained", with_latest):
        yield


@contextmanager
def batches_in_doubt_are_adopted() -> Iterator[None]:
    """A checkpoint without its ledger is adopted where it ends, although nobody knows whether its last batch has landed."""

    def as_planned(seen: Observation) -> Positions | Contradiction:
        state = seen.checkpoint
        return state.planned_end if isinstance(state, Readable) else end_of_adopted_checkpoint(seen)

    end_of_adopted_checkpoint = first_start._end_of_adopted_checkpoint
    with mock.patch.object(first_start, "_end_of_adopted_checkpoint", as_planned):
        yield


@contextmanager
def state_begins_empty() -> Iterator[None]:
    """A new generation of a query with state is seeded with offsets alone, as if there were no state to carry over."""

    def without_state(seen: Observation, ledger: LedgerView, verdict: Verdict, seed: SeedAndPublish) -> Decision:
        return Decision(verdict, (seed, Launch()))

    with mock.patch.object(decide, "unless_state_is_lost", without_state):
        yield


@contextmanager
def the_status_is_no_evidence() -> Iterator[None]:
    """A ledger without a batch is a first start, whatever the resource's status knows."""
    with mock.patch.object(first_start, "ledger_lost", lambda seen: None):
        yield


@contextmanager
def a_proposal_counts_as_landed() -> Iterator[None]:
    """A batch that is given up as a proposal is passed over: the new generation continues where that batch was to end."""
    at_the_sink = new_generation.seed_at

    def beyond(
        seen: Observation,
        before: Positions,
        after: Positions,
        batch: BatchNumber,
        note: str,
        goes_on: LedgerView | None,
    ) -> SeedAndPublish:
        proposed = "plans its records again" in note and isinstance(seen.checkpoint, Readable)
        end = seen.checkpoint.planned_end if proposed and isinstance(seen.checkpoint, Readable) else after
        return at_the_sink(seen, before, end, batch, note, goes_on)

    with mock.patch.object(new_generation, "seed_at", beyond):
        yield


@contextmanager
def the_predecessor_is_always_dead() -> Iterator[None]:
    """A directory stays in use although the driver that wrote it may live."""
    with mock.patch.object(launching, "predecessor_of", lambda *given: ProvenDead("a mutation does not look")):
        yield


@contextmanager
def a_later_generation_is_not_looked_for() -> Iterator[None]:
    """That a generation ran which the ledger has never heard of is not seen, so that nobody hears of a restore."""
    with mock.patch.object(compare, "_later_generation_that_ran", lambda seen, ledger: None):
        yield


@contextmanager
def the_start_of_a_landed_batch_is_not_compared() -> Iterator[None]:
    """A batch that landed and was not committed is run again wherever the log says that it starts."""
    with mock.patch.object(compare, "_same_ranges", lambda logs, landed: True):
        yield


@contextmanager
def the_ledger_is_not_compared_with_itself() -> Iterator[None]:
    """Positions that no landed batch explains are believed."""
    with mock.patch.object(decide, "ledger_contradiction", lambda ledger: None):
        yield


@contextmanager
def positions_that_were_left_out_are_not_compared() -> Iterator[None]:
    """A topic that is taken back is read from wherever the ledger says that it was left, whoever wrote that."""
    with mock.patch.object(ledger_checks, "_retired_contradiction", lambda ledger: None):
        yield


@contextmanager
def taken_batches_are_not_told() -> Iterator[None]:
    """AtMostOnce: what a driver took and never wrote is not recorded as lost."""
    with (
        mock.patch.object(decide, "records_lost", lambda ledger: ()),
        mock.patch.object(first_start, "records_lost", lambda ledger: ()),
    ):
        yield


@contextmanager
def taken_batches_are_told_by_at_most_once_alone() -> Iterator[None]:
    """What a driver took and never wrote is not recorded as lost once the resource asks for another delivery."""
    complete = decide._complete

    def of_the_delivery_asked_for(case: Any, decision: Decision) -> Decision:
        if case.seen.request.delivery is Delivery.AT_MOST_ONCE:
            return complete(case, decision)
        with mock.patch.object(decide, "records_lost", lambda ledger: ()):
            return complete(case, decision)

    with mock.patch.object(decide, "_complete", of_the_delivery_asked_for):
        yield


@contextmanager
def a_batch_that_landed_in_part_is_finished_by_any_delivery() -> Iterator[None]:
    """A batch of which some partitions have landed runs again although the stream now lands whole batches."""
    with mock.patch.object(Request, "lands_by_partition", property(lambda request: True)):
        yield


@contextmanager
def a_generation_is_published_over_a_taken_batch() -> Iterator[None]:
    """AtMostOnce: a failover that loses the record of a lost batch is not noticed when the new generation is published."""
    with mock.patch.object(publish, "_require_none_taken", lambda *given: None):
        yield


@contextmanager
def numbers_start_over_with_a_generation() -> Iterator[None]:
    """A rebuilt generation begins with the number after the landed one, though a later one may have been planned before."""

    def after_the_landed(seen: Observation) -> BatchNumber:
        landed = None if seen.ledger is None else seen.ledger.stream.landed_batch
        return BatchNumber(0 if landed is None else landed + 1)

    with mock.patch.object(new_generation, "seed_batch", after_the_landed):
        yield


@contextmanager
def a_batch_that_was_too_large_runs_again() -> Iterator[None]:
    """A batch that needed more memory than there is is not made smaller: it is run again as it was planned."""
    with mock.patch.object(ending, "after_too_large", lambda *given: None):
        yield


@contextmanager
def a_smaller_limit_stays() -> Iterator[None]:
    """A limit that was made smaller holds for good, although what was too large has landed."""

    def held(limit: BatchLimit | None, view: LedgerView | None, recovery: Recovery) -> BatchLimit | None:
        return limit

    with mock.patch.object(ending, "still_needed", held), mock.patch.object(launching, "still_needed", held):
        yield


@contextmanager
def a_batch_too_large_after_growth_runs_again() -> Iterator[None]:
    """Only a limit smaller than the one the driver was started with gives a batch up, though that driver's had grown back."""
    replanned = replan.replanned

    def by_the_mark(seen: Observation, *rest: Any, **how: Any) -> Any:
        return replanned(replace(seen, request=replace(seen.request, too_large=None)), *rest, **how)

    with mock.patch.object(case, "replanned", by_the_mark):
        yield
