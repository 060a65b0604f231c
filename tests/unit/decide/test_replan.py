"""ReplanBatch: a batch that was planned and landed nothing is a proposal, given up where something asks for another plan."""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.api.recovery import OnCheckpointLost
from exactlyonce.checkpoint.generation import Generation
from exactlyonce.connectors.specs import Commit
from exactlyonce.ledger.rows import BatchStatus, LandedPositions, LedgerView, QueryMark
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    Decision,
    Evidence,
    FinishBatch,
    Launch,
    RebuildFromSink,
    RecordQuery,
    ReplanBatch,
    ReplayBatch,
    Resume,
    SeedAndPublish,
    SkipLanded,
)
from tests.unit.decide.facts import (
    BATCH_4,
    BEGUN_5,
    MAY_LIVE,
    ORDERS,
    SINK,
    Case,
    asked,
    at,
    committed,
    fingerprints_at,
    ledger,
    location,
    logs,
    planned,
    seen,
    table,
)

FAILED_5 = replace(BEGUN_5, status=BatchStatus.FAILED)
TEN, FORTY = QueryMark(ORDERS, "query-1", "400 offsets"), asked(limit="40 offsets")
PLANNED_5 = logs(5, 4, at(40, 30), at(50, 45))
FOUND = (planned(5, at(50, 45)), committed(4), SINK)
LOWERED = Evidence(
    "the limit of a batch was changed since the last driver was started: from 400 offsets to 40 offsets",
    {"limitBefore": "400 offsets", "limit": "40 offsets"},
)
SHRUNK = Evidence("it was too large, so a batch may have 12 offsets for now", {"shrunkBefore": None, "shrunk": 12})
SHRUNK_AGAIN = Evidence("it was too large, so a batch may have 6 offsets for now", {"shrunkBefore": 12, "shrunk": 6})
SHRUNK_LATER = Evidence("it was too large, so a batch may have 12 offsets for now", {"shrunkBefore": 6, "shrunk": 12})
MENDED = Evidence(
    "it failed, and the format or the transform was changed since", {"before": "query-1", "now": "query-2"}
)


def ledger_with(mark: QueryMark | None, *batches: object, **row: object) -> LedgerView:
    return ledger(batches=(BATCH_4, *batches), query=mark, **row)  # type: ignore[arg-type]


def waiting(mark: QueryMark | None, *batches: object, **changes: object) -> Observation:
    """Return a stream that has planned batch 5 and landed nothing of it."""
    changes = {"location": location(highest_planned={Generation(1, Epoch(1)): BatchNumber(5)}), **changes}
    return seen(PLANNED_5, ledger=ledger_with(mark, *batches), **changes)


def proposal(why: Evidence, mark: QueryMark, status: BatchStatus | None = BatchStatus.IN_PROGRESS) -> Decision:
    """Return the decision to plan batch 5 again."""
    reason = (
        f"Batch 5 was planned and nothing of it has landed, and {why.words}; a new generation plans its records again from "
        "orders-0@40, orders-1@30."
    )
    given_up = Evidence(
        "batch 5 is given up as a proposal: it was to read orders-0 [40, 50), orders-1 [30, 45)",
        {"batch": 5, "ranges": '{"orders":{"0":[40,50],"1":[30,45]}}', "status": str(status)},
    )
    kept = () if status is None else (given_up,)
    standing = LandedPositions(at(40, 30), {"orders": "id-1"}, fingerprints_at(at(40, 30)))
    seed = SeedAndPublish(
        Generation(2, Epoch(7)), BatchNumber(6), at(40, 30), standing, reason, 8, query=replace(mark, left_out=at())
    )
    return Decision(ReplanBatch(BatchNumber(5), reason, (*FOUND, why, *kept)), (seed, Launch()))


@table(
    Case(
        "the limit was lowered",
        waiting(TEN, BEGUN_5, request=FORTY),
        proposal(LOWERED, QueryMark(ORDERS, "query-1", "40 offsets")),
    ),
    Case(
        "the limit was lowered after it failed",
        waiting(TEN, FAILED_5, request=FORTY),
        proposal(LOWERED, QueryMark(ORDERS, "query-1", "40 offsets"), BatchStatus.FAILED),
    ),
    Case(
        "the limit was lowered before the driver had begun it",
        waiting(TEN, request=FORTY),
        proposal(LOWERED, QueryMark(ORDERS, "query-1", "40 offsets"), None),
    ),
    Case(
        "it was too large",
        waiting(TEN, BEGUN_5, request=asked(limit="400 offsets", shrunk=12)),
        proposal(SHRUNK, QueryMark(ORDERS, "query-1", "400 offsets", 12)),
    ),
    Case(
        "it was too large again",
        waiting(replace(TEN, shrunk=12), BEGUN_5, request=asked(limit="400 offsets", shrunk=6)),
        proposal(SHRUNK_AGAIN, QueryMark(ORDERS, "query-1", "400 offsets", 6)),
    ),
    Case(
        "it was too large after the smaller limit that its driver was started with had grown back",
        waiting(replace(TEN, shrunk=6), BEGUN_5, request=asked(limit="400 offsets", shrunk=12, too_large=5)),
        proposal(SHRUNK_LATER, QueryMark(ORDERS, "query-1", "400 offsets", 12)),
    ),
    Case(
        "it failed and the transform was changed",
        waiting(TEN, FAILED_5, request=asked(query="query-2", limit="400 offsets")),
        proposal(MENDED, QueryMark(ORDERS, "query-2", "400 offsets"), BatchStatus.FAILED),
    ),
    Case(
        "the stream halts when its checkpoint is lost, which has no say here",
        waiting(TEN, BEGUN_5, request=replace(FORTY, on_checkpoint_lost=OnCheckpointLost.HALT)),
        proposal(LOWERED, QueryMark(ORDERS, "query-1", "40 offsets")),
    ),
    Case(
        "the last driver may live, whose checkpoint is left to it either way",
        waiting(TEN, BEGUN_5, request=FORTY, predecessor=MAY_LIVE),
        proposal(LOWERED, QueryMark(ORDERS, "query-1", "40 offsets")),
    ),
)
def test_a_batch_of_which_nothing_landed_is_planned_again_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


@table(
    Case("its driver was killed", waiting(TEN, BEGUN_5, request=asked(limit="400 offsets")), Decision(None)),  # type: ignore[arg-type]
    Case("it failed", waiting(TEN, FAILED_5, request=asked(limit="400 offsets")), Decision(None)),  # type: ignore[arg-type]
    Case(
        "its driver was killed and the transform was changed",
        waiting(TEN, BEGUN_5, request=asked(query="query-2", limit="400 offsets")),
        Decision(None),  # type: ignore[arg-type]
    ),
    Case(
        "another one was too large, and it has been planned smaller since",
        waiting(replace(TEN, shrunk=12), BEGUN_5, request=asked(limit="400 offsets", shrunk=12, too_large=4)),
        Decision(None),  # type: ignore[arg-type]
    ),
    Case(
        "what was too large has landed, and the limit has grown back",
        waiting(replace(TEN, shrunk=12), BEGUN_5, request=asked(limit="400 offsets")),
        Decision(None),  # type: ignore[arg-type]
    ),
)
def test_a_batch_is_replayed_with_the_same_ranges_when(case: Case) -> None:
    decision = decide(case.seen)
    assert isinstance(decision.verdict, ReplayBatch)
    assert decision.actions[-1] == Launch()
    assert not any(isinstance(action, SeedAndPublish) for action in decision.actions)


def test_a_lower_limit_is_written_down_where_it_asks_for_no_other_plan() -> None:
    decision = decide(seen(ledger=ledger_with(TEN), request=FORTY))
    assert isinstance(decision.verdict, Resume)
    assert decision.actions == (RecordQuery(QueryMark(ORDERS, "query-1", "40 offsets")), Launch())


def test_what_has_landed_in_part_or_whole_is_never_planned_again() -> None:
    in_part = ledger_with(TEN, BEGUN_5)
    in_part = replace(in_part, landed=replace(in_part.landed, positions=at(50, 30)))
    half = seen(PLANNED_5, ledger=in_part, request=replace(FORTY, commit=Commit.PARTITION))
    assert isinstance(decide(half).verdict, FinishBatch)
    whole = seen(logs(4, 3, at(30, 20), at(40, 30)), ledger=ledger_with(TEN), request=FORTY)
    assert isinstance(decide(whole).verdict, SkipLanded)


def test_a_query_with_state_replays_its_batch_and_says_why() -> None:
    stateful = replace(waiting(TEN, BEGUN_5, request=FORTY), ledger=ledger_with(TEN, BEGUN_5, stateful=True))
    decision = decide(stateful)
    assert isinstance(decision.verdict, ReplayBatch)
    assert decision.verdict.message.endswith(
        f"It cannot be planned again, although {LOWERED.words}: the query keeps state."
    )
    assert LOWERED in decision.verdict.evidence
    assert decision.actions == (RecordQuery(QueryMark(ORDERS, "query-1", "40 offsets")), Launch())


def test_other_topics_ask_for_a_new_generation_first() -> None:
    decision = decide(waiting(TEN, BEGUN_5, request=replace(FORTY, source=replace(ORDERS, origins=frozenset({"x"})))))
    assert isinstance(decision.verdict, RebuildFromSink | Contradiction)
