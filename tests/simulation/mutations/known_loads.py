"""A ledger that goes back behind a sink of two phases, broken on purpose: searched for over a topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.ledger import publish
from exactlyonce.ledger.decided import DecidedBatch
from exactlyonce.ledger.fence import Permit, fence
from exactlyonce.ledger.known_loads import NO_LOADS, FoundLoad, LatestLoads, spans_without
from exactlyonce.ledger.port import Ledger, Lock
from exactlyonce.ledger.publish import Publication
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import Positions, Ranges
from exactlyonce.reconcile import act
from exactlyonce_spark import latest_loads, two_phase_finish, two_phase_landing
from exactlyonce_spark.landing import require_permit
from exactlyonce_spark.target import TwoPhaseTarget


@contextmanager
def the_number_of_the_sinks_latest_batch_is_compared() -> Iterator[None]:
    """Going back: what the sink has committed last is known where its batch is not after the landed one, whatever its label."""
    require = latest_loads.require_all_known

    def by_number(ledger: Ledger, permit: Permit, target: TwoPhaseTarget) -> None:
        landed = require_permit(ledger, permit).stream.landed_batch
        latest = target.latest(None)
        if latest is None or landed is None or latest.batch > landed:
            require(ledger, permit, target)

    with mock.patch.object(two_phase_finish, "require_all_known", by_number):
        yield


@contextmanager
def an_empty_seed_takes_the_place_of_the_latest_loads() -> Iterator[None]:
    """Going back: a generation is published as the latest decided batch, and it has no load."""
    published = publish.publish

    def seeded(ledger: Ledger, stream_id: str, publication: Publication) -> None:
        published(ledger, stream_id, publication)
        with ledger.transaction() as transaction:
            row = transaction.lock_stream(stream_id, Lock.UPDATE)
            if row is not None and row.loads.latest is not None:
                seed = LatestLoads(publication.seed_batch, (), None, row.loads.latest.place)
                transaction.update_stream(replace(row, loads=replace(row.loads, latest=seed)))

    with mock.patch.object(act, "publish", seeded):
        yield


@contextmanager
def the_latest_loads_are_those_of_a_batch_that_is_kept() -> Iterator[None]:
    """Going back: the ledger knows a load for as long as it has the row of its batch, which retention removes."""
    require = latest_loads.require_all_known

    def while_kept(ledger: Ledger, permit: Permit, target: TwoPhaseTarget) -> None:
        with ledger.transaction() as transaction:
            row: StreamRow = fence(transaction, permit, Lock.UPDATE)
            latest = row.loads.latest
            if latest is not None and transaction.read_batch(permit.stream_id, latest.batch) is None:
                transaction.update_stream(replace(row, loads=NO_LOADS))
        require(ledger, permit, target)

    with mock.patch.object(two_phase_finish, "require_all_known", while_kept):
        yield


@contextmanager
def what_the_sink_showed_before_a_decision_is_not_kept() -> Iterator[None]:
    """Going back: if a decided batch was never committed the sink shows the one before, whose label the ledger forgets."""
    latest_of = latest_loads.latest_of

    def alone(target: TwoPhaseTarget, decided: DecidedBatch) -> LatestLoads | None:
        latest = latest_of(target, decided)
        return None if latest is None else replace(latest, before=None)

    with mock.patch.object(two_phase_landing, "latest_of", alone):
        yield


@contextmanager
def rows_made_again_are_not_among_the_latest_loads() -> Iterator[None]:
    """Going back: rows that the sink has aborted are decided under a new label, and the stream's row keeps the former one."""
    with mock.patch.object(LatestLoads, "replaced", lambda latest, before, after: latest):
        yield


@contextmanager
def a_load_that_is_in_the_sink_moves_no_position() -> Iterator[None]:
    """Going back: a person says that the rows of a load are there, and the positions stay where the ledger went back to."""
    with mock.patch.object(FoundLoad, "ends", property(lambda load: Positions())):
        yield


@contextmanager
def what_a_found_load_does_not_hold_is_passed_over() -> Iterator[None]:
    """Going back: records before those of a found load count as landed, although the ledger has lost what became of them."""
    with mock.patch.object(FoundLoad, "missing", lambda load, positions: ()):
        yield


@contextmanager
def a_load_names_records_that_it_was_made_without() -> Iterator[None]:
    """Going back: the sink's marker names the ranges of a batch as a whole, also the records that the batch landed without."""

    def whole(ranges: Ranges, left_out: Any) -> Any:
        return spans_without(ranges, ())

    with mock.patch.object(two_phase_landing, "spans_without", whole):
        yield
