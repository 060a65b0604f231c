"""What a decision may see: a healthy stream in the middle of its life, and how it differs in each case.

The stream has landed batch 4 and stands at orders-0@40, orders-1@30; its checkpoint is generation 1, made by attempt 1;
attempt 7 decides. Nothing here asks the code under test anything.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from exactlyonce.checkpoint.generation import Generation, Marker
from exactlyonce.checkpoint.state import CheckpointState, Damage, Damaged, Readable
from exactlyonce.ledger.rows import (
    NO_POSITIONS,
    BatchRow,
    BatchStatus,
    DatabaseIdentity,
    LandedPositions,
    LedgerView,
    Owner,
    QueryMark,
    StreamRow,
)
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Partition, Positions, Ranges
from exactlyonce.positions.selection import Selection
from exactlyonce.reconcile.observation import LocationView, MayLive, Observation, ProvenDead, Request
from exactlyonce.reconcile.verdicts import Decision, Evidence, Launch, SeedAndPublish, Verdict
from exactlyonce.source.port import Bounds, SourceView

STREAM, LOCATION, TOKEN, NEW_TOKEN = "shop/orders", "/checkpoints/orders", "token-1", "token-new"
ME, DATABASE = Owner("cluster-1", "uid-1"), DatabaseIdentity("7000000000000000001", 5)
FIRST = Generation(1, Epoch(1))
PATH = "/checkpoints/orders/generation-000001-a1"
MAY_LIVE = MayLive("its node does not answer")
ZERO, ONE = Partition("orders", 0), Partition("orders", 1)
ORDERS = Selection(origins=frozenset({"orders"}))
QUERY = QueryMark(ORDERS, "query-1", "")


def at(*offsets: int) -> Positions:
    """Return positions of orders-0, orders-1, … in this order."""
    return Positions({Partition("orders", number): offset for number, offset in enumerate(offsets)})


def ranges(*pairs: tuple[int, int]) -> Ranges:
    """Return ranges of orders-0, orders-1, … in this order."""
    return Ranges({Partition("orders", number): OffsetRange(*pair) for number, pair in enumerate(pairs)})


def batch(number: int, read: Ranges, status: BatchStatus = BatchStatus.LANDED) -> BatchRow:
    """Return the ledger's row of a batch."""
    return BatchRow(BatchNumber(number), Epoch(6), status, read)


BATCH_4 = batch(4, ranges((30, 40), (20, 30)))
BEGUN_5 = batch(5, ranges((40, 50), (30, 45)), BatchStatus.IN_PROGRESS)


def fingerprints_at(positions: Positions) -> dict[Partition, Fingerprint]:
    """Return the fingerprint of the last record before each position."""
    return {
        key: Fingerprint(offset - 1, f"digest of {offset - 1}", 0, 0) for key, offset in positions.items() if offset
    }


def ledger(
    landed: int | None = 4,
    stands: Positions = at(40, 30),  # noqa: B008 - immutable
    batches: tuple[BatchRow, ...] = (BATCH_4,),
    origin_ids: dict[str, str] | None = None,
    retired: LandedPositions = NO_POSITIONS,
    query: QueryMark | None = QUERY,
    fingerprints: dict[Partition, Fingerprint] | None = None,
    **row: Any,
) -> LedgerView:
    """Return what the ledger holds; `row` changes columns of the stream's row."""
    if landed is None:
        stream = StreamRow(STREAM, TOKEN, ME, DATABASE, Epoch(7), "ticket")
    else:
        number = BatchNumber(landed)
        stream = StreamRow(
            STREAM, TOKEN, ME, DATABASE, Epoch(7), "ticket", None, Epoch(6), False, number, FIRST.number, PATH
        )  # fmt: skip
    known = {"orders": "id-1"} if origin_ids is None else origin_ids
    kept = fingerprints_at(stands) if fingerprints is None else fingerprints
    mark = replace(QUERY, left_out=retired.positions) if query is QUERY else query
    return LedgerView(replace(stream, **row), LandedPositions(stands, known, kept), batches, retired, mark)


NOT_STARTED = ledger(None, at(), (), {}, query=None)


def logs(
    planned: int = 4,
    checkpointed: int | None = 4,
    start: Positions | None = at(30, 20),  # noqa: B008 - immutable
    end: Positions = at(40, 30),  # noqa: B008 - immutable
    conf: dict[str, str] | None = None,
) -> Readable:
    """Return Spark's two logs."""
    committed = None if checkpointed is None else BatchNumber(checkpointed)
    return Readable(BatchNumber(planned), start, end, committed, BatchNumber(0), conf=conf or {})


def damaged(highest_planned: int = 4, *, has_run: bool = True) -> Damaged:
    """Return a checkpoint with a torn file."""
    words = f"offsets/{highest_planned}: its first line is '', not a version"
    return Damaged(Damage.FILE_TORN, words, BatchNumber(highest_planned), has_run)


def location(marker: Marker | None = Marker(STREAM, TOKEN), **changes: Any) -> LocationView:  # noqa: B008 - immutable
    """Return what stands at the location: stream.json and generation 1, which ran up to batch 4."""
    healthy = LocationView(marker, (FIRST,), {FIRST: BatchNumber(4)}, frozenset({FIRST}))
    return replace(healthy, **changes)


EMPTY = LocationView()


def source(
    bounds: dict[Partition, tuple[int, int]] | None = None,
    origin_ids: dict[str, str] | None = None,
    selected: frozenset[Partition] | None = None,
) -> SourceView:
    """Return what the source holds: two partitions with offsets 0 to 100."""
    given = {ZERO: (0, 100), ONE: (0, 100)} if bounds is None else bounds
    held = {key: Bounds(*pair) for key, pair in given.items()}
    ids = {"orders": "id-1"} if origin_ids is None else origin_ids
    return SourceView(held, ids, frozenset(held) if selected is None else selected)


def asked(**changes: Any) -> Request:
    """Return what the resource asks for."""
    return replace(Request(STREAM, ME, LOCATION, ORDERS, "query-1"), **changes)


def seen(checkpoint: CheckpointState = logs(), **changes: Any) -> Observation:  # noqa: B008 - immutable
    """Return an observation of the healthy stream, with changes."""
    healthy = Observation(
        epoch=Epoch(7),
        request=asked(),
        new_token=NEW_TOKEN,
        database=DATABASE,
        ledger=ledger(),
        location=location(),
        checkpoint=checkpoint,
        predecessor=ProvenDead("the process is gone"),
        source=source(),
    )
    changed = replace(healthy, **changes)
    return changed if changed.source.records else replace(changed, source=_holding_what_landed(changed))


def _holding_what_landed(facts: Observation) -> SourceView:
    """The source with the very records of which the ledger has fingerprints, as far as its bounds go."""
    view = facts.source
    if facts.ledger is None:
        return view
    kept = {**facts.ledger.retired.fingerprints, **facts.ledger.landed.fingerprints}
    held = {
        key: known
        for key, known in kept.items()
        if key in view.bounds and view.bounds[key].earliest <= known.offset < view.bounds[key].latest
    }
    return replace(view, records=held)


SINK = Evidence(
    "the sink holds batch 4 and stands at orders-0@40, orders-1@30",
    {"landed": 4, "positions": '{"orders":{"0":40,"1":30}}'},
)


SINK_AT_50_30 = Evidence(
    "the sink holds batch 4 and stands at orders-0@50, orders-1@30",
    {"landed": 4, "positions": '{"orders":{"0":50,"1":30}}'},
)
TAKEN_4 = batch(4, BATCH_4.ranges, BatchStatus.TAKEN)
TAKEN_4_EVIDENCE = Evidence(
    "batch 4 was taken and may not have been written: orders-0 [30, 40), orders-1 [20, 30) may be lost",
    {"batch": 4, "ranges": '{"orders":{"0":[30,40],"1":[20,30]}}'},
)


def planned(number: int, end: Positions) -> Evidence:
    """Return what is said of the offset log."""
    data = {"planned": number, "end": end.to_json()}
    return Evidence(f"the offset log ends with batch {number} at {end}", data)


def committed(number: int | None) -> Evidence:
    """Return what is said of the commit log."""
    words = "no batch" if number is None else f"batch {number}"
    return Evidence(f"the commit log ends with {words}", {"checkpointed": number})


def launch(verdict: Verdict) -> Decision:
    """Return the decision to continue with the checkpoint that is there."""
    return Decision(verdict, (Launch(),))


def halt(verdict: Verdict) -> Decision:
    """Return the decision to do nothing at all."""
    return Decision(verdict, ())


def fingerprints_of(after: Positions, stands: Positions) -> dict[Partition, Fingerprint]:
    """Return the fingerprints that a generation at `after` continues with: those of positions that have not moved."""
    return {key: kept for key, kept in fingerprints_at(stands).items() if after.get(key) == stands.get(key)}


def seed(
    note: str,
    number: int = 5,
    after: Positions = at(40, 30),  # noqa: B008 - immutable
    before: Positions = at(40, 30),  # noqa: B008 - immutable
    generation: int = 2,
) -> SeedAndPublish:
    """Return the action that makes attempt 7's generation after the empty batch `number`."""
    origin_ids = {key.origin: "id-1" for key in after}
    landed = LandedPositions(after, origin_ids, fingerprints_of(after, before))
    made = Generation(generation, Epoch(7))
    return SeedAndPublish(made, BatchNumber(number), before, landed, note, 8, query=QUERY)


def rebuild(verdict: Verdict, number: int = 5) -> Decision:
    """Return the decision to continue in a new generation where the sink stands."""
    return Decision(verdict, (seed(verdict.message, number), Launch()))


@dataclass(frozen=True)
class Case:
    """One line of a verdict's table: when this is seen, this is decided."""

    when: str
    seen: Observation
    decision: Decision


def table(*cases: Case) -> Callable[[Callable[[Case], None]], Callable[[Case], None]]:
    """Run a test once for each line of a table."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=case.when) for case in cases])
