"""What keeps a replay from landing where the stream does not land, and a backfill from landing twice, taken away."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from exactlyonce.ledger import planned_backfills, replay
from exactlyonce.ledger.backfills import Backfill
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce_spark import replay as run
from tests.simulation import beside_world
from tests.simulation.mutations import replays


@contextmanager
def a_replay_lands_into_a_sink_that_the_stream_has_left() -> Iterator[None]:
    """Nobody compares what the stream lands into with what a replay was decided for."""
    require = replay.require_sink

    def of_backfills_alone(transaction: Any, claim: Any) -> None:
        if claim.backfill:
            require(transaction, claim)

    with mock.patch.object(replay, "require_sink", of_backfills_alone):
        yield


@contextmanager
def a_backfill_lands_where_the_stream_does() -> Iterator[None]:
    """Nobody asks whether the table of a backfill is the stream's own by another name."""
    with (
        mock.patch.object(replay, "require_other_table", lambda *_: None),
        mock.patch.object(planned_backfills, "require_other_table", lambda *_: None),
    ):
        yield


@contextmanager
def a_backfill_forgets_what_is_behind_a_chunk() -> Iterator[None]:
    """The record of a backfill has the part that has landed, and no more what was behind it."""
    change = Backfill.changed

    def only_first(backfill: Backfill, rows: Any) -> Backfill:
        rows = [*rows]
        ended = [row for row in rows if row.status is not FailureStatus.REPLAYING]
        return change(backfill, ended or rows)

    with mock.patch.object(Backfill, "changed", only_first):
        yield


@contextmanager
def a_backfill_takes_one_part_alone() -> Iterator[None]:
    """A backfill of several parts claims the first of them, and ends without a word about the others."""
    claim = replay._claimed_of_backfill

    def first_alone(*asked: Any) -> Any:
        taken = claim(*asked)
        return dataclasses.replace(taken, rows=taken.rows[:1])

    with mock.patch.object(replay, "_claimed_of_backfill", first_alone):
        yield


@contextmanager
def a_backfill_lands_what_it_has_not_claimed() -> Iterator[None]:
    """A backfill lands parts without asking whether they are still as it has claimed them."""
    require = replay.require_held

    def never_of_backfills(stream: Any, found: Any, pieces: Any, of_backfill: bool = False) -> None:
        if not of_backfill:
            require(stream, found, pieces)

    with mock.patch.object(replay, "require_held", never_of_backfills):
        yield


@contextmanager
def two_backfills_of_one_name_look_without_a_lock() -> Iterator[None]:
    """Two backfills of one name look at the same part without the stream's lock, and both find that they may land it."""
    with replays.a_replay_looks_without_a_lock():
        yield


@contextmanager
def a_backfill_moves_on_without_its_rows() -> Iterator[None]:
    """A backfill marks its parts in one transaction and writes their rows in the next one."""
    land = replay.land_pieces

    def apart(ledger: Any, claim: Any, pieces: Any, write: Callable[[Any], int]) -> int | None:
        if not claim.backfill:
            return land(ledger, claim, pieces, write)
        land(ledger, claim, pieces, lambda _: 0)
        with ledger.transaction() as transaction:
            return write(transaction)

    with mock.patch.object(run, "land_pieces", apart):
        yield


@contextmanager
def a_backfill_that_is_there_is_planned_again() -> Iterator[None]:
    """A backfill is recorded although one of its name is there, and forgets what that one has landed."""

    def again(ledger: Any, stream_id: str, wanted: Backfill, own: str = "") -> Backfill:
        with ledger.transaction() as transaction:
            transaction.lock_stream(stream_id, Lock.UPDATE)
            transaction.write_backfill(stream_id, wanted)
        return wanted

    with mock.patch.object(beside_world, "plan_backfill", again):
        yield
