"""FirstStart: no batch ever landed, or a person asked to start over or to adopt what is there."""

from __future__ import annotations

from dataclasses import replace

from exactlyonce.checkpoint.generation import Generation, Marker
from exactlyonce.checkpoint.state import Absent
from exactlyonce.ledger.publish import Adoption
from exactlyonce.ledger.rows import LandedPositions
from exactlyonce.positions.ranges import BatchNumber, Epoch, Partition, Positions
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import LocationView
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Decision,
    Evidence,
    FirstStart,
    Launch,
    RecordIdentity,
    WriteMarker,
)
from tests.unit.decide.facts import (
    DATABASE,
    EMPTY,
    FIRST,
    LOCATION,
    ME,
    NEW_TOKEN,
    NOT_STARTED,
    SINK,
    STREAM,
    TAKEN_4,
    TAKEN_4_EVIDENCE,
    TOKEN,
    Case,
    asked,
    at,
    damaged,
    halt,
    ledger,
    location,
    logs,
    seed,
    seen,
    source,
    table,
)

OLD_TOKEN = "token-0"
UNKNOWN = Evidence("the ledger holds no batch of shop/orders", {"streamId": STREAM, "landed": None})
START_ZERO = Evidence("the start is orders-0@0, orders-1@0", {"positions": '{"orders":{"0":0,"1":0}}'})
STARTS = "No batch ever landed; the stream starts at orders-0@0, orders-1@0."
NEW_MARKER = WriteMarker(Marker(STREAM, NEW_TOKEN), replaces=Marker(STREAM, TOKEN))
NEW_IDENTITY = RecordIdentity(Adoption(ME, DATABASE, NEW_TOKEN))
STARTED_OVER = RecordIdentity(Adoption(ME, DATABASE, NEW_TOKEN, starts_over=True))
HALF_A_SEED = LocationView(Marker(STREAM, TOKEN), (FIRST,), {FIRST: BatchNumber(0)})
NO_LEDGER = (
    "/checkpoints/orders holds a checkpoint of shop/orders, and the ledger at system 7000000000000000001 database 5 "
)
NO_LEDGER += "knows nothing of it: the ledger was lost or is another one; restore it, or name the former one again"
CONTINUES_OUTPUT = f"{STARTS.removesuffix('.')}, and continues the output of another query behind batch 20."
SIDES = {"location": f"{STREAM}, with a token that this ledger does not hold", "ledger": STREAM}
OLD_CHECKPOINT = location(Marker(STREAM, OLD_TOKEN))
ADOPTED_TOKEN = f"{TOKEN}.{NEW_TOKEN}"
ADOPTED_IDENTITY = RecordIdentity(Adoption(ME, DATABASE, ADOPTED_TOKEN))
ADOPTED_MARKER = WriteMarker(Marker(STREAM, ADOPTED_TOKEN), replaces=Marker(STREAM, OLD_TOKEN))
MARKER_OF_OLD = WriteMarker(Marker(STREAM, NEW_TOKEN), replaces=Marker(STREAM, OLD_TOKEN))
SALES = Marker("shop/sales", OLD_TOKEN)


def first(start: Positions, note: str) -> FirstStart:
    """Return the plain verdict."""
    return FirstStart(note, (UNKNOWN, Evidence(f"the start is {start}", {"positions": start.to_json()})))


@table(
    Case(
        "there is no row and the location is empty, as a mere look shows it",
        seen(Absent(), ledger=None, location=EMPTY, start=at(0, 0)),
        Decision(
            first(at(0, 0), STARTS),
            (WriteMarker(Marker(STREAM, NEW_TOKEN)), seed(STARTS, 0, at(0, 0), at(), 1), Launch()),
        ),
    ),
    Case(
        "the raise has just made the row",
        seen(Absent(), ledger=NOT_STARTED, location=EMPTY, start=at(0, 0)),
        Decision(
            first(at(0, 0), STARTS),
            (WriteMarker(Marker(STREAM, TOKEN)), seed(STARTS, 0, at(0, 0), at(), 1), Launch()),
        ),
    ),
    Case(
        "an earlier pass died after it had written a part of its seed",
        seen(Absent(), ledger=NOT_STARTED, location=HALF_A_SEED, start=at(0, 0)),
        Decision(first(at(0, 0), STARTS), (seed(STARTS, 0, at(0, 0), at(), 2), Launch())),
    ),
    Case(
        "it continues the output of a query that has ended with batch 20",
        seen(Absent(), ledger=NOT_STARTED, location=EMPTY, start=at(0, 0), request=asked(former_batch=20)),
        Decision(
            first(at(0, 0), CONTINUES_OUTPUT),
            (WriteMarker(Marker(STREAM, TOKEN)), seed(CONTINUES_OUTPUT, 21, at(0, 0), at(), 1), Launch()),
        ),
    ),
    Case(
        "the topic has no partition yet",
        seen(Absent(), ledger=NOT_STARTED, location=EMPTY, start=Positions(), source=source({}, {"orders": "id-1"})),
        Decision(
            first(Positions(), "No batch ever landed; the stream starts at nothing."),
            (
                WriteMarker(Marker(STREAM, TOKEN)),
                seed("No batch ever landed; the stream starts at nothing.", 0, at(), at(), 1),
                Launch(),
            ),
        ),
    ),
)
def test_first_start_seeds_the_start_position_as_an_empty_batch_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


STARTS_OVER = "The stream starts over at orders-0@0, orders-1@0, as the annotation asks."
ASKED_TO_START_OVER = Evidence("the stream starts over, as the annotation asks", {"exactlyonce.dev/fresh": TOKEN})
LOST_LEDGER_STARTS_OVER = Evidence(f"{NO_LEDGER}; the stream starts over, as the annotation asks", SIDES)


@table(
    Case(
        "it has landed batches",
        seen(request=asked(fresh=TOKEN), start=at(0, 0)),
        Decision(
            FirstStart(STARTS_OVER, (SINK, START_ZERO, ASKED_TO_START_OVER)),
            (seed(STARTS_OVER, 5, at(0, 0), at(40, 30)), STARTED_OVER, NEW_MARKER, Launch()),
        ),
    ),
    Case(
        "the source was replaced",
        seen(request=asked(fresh=TOKEN), start=at(0, 0), ledger=ledger(origin_ids={"orders": "id-0"})),
        Decision(
            FirstStart(STARTS_OVER, (SINK, START_ZERO, ASKED_TO_START_OVER)),
            (seed(STARTS_OVER, 5, at(0, 0), at(40, 30)), STARTED_OVER, NEW_MARKER, Launch()),
        ),
    ),
    Case(
        "its ledger was restored to before the first batch",
        seen(request=asked(fresh=TOKEN), start=at(0, 0), ledger=NOT_STARTED),
        Decision(
            FirstStart(STARTS_OVER, (UNKNOWN, START_ZERO, ASKED_TO_START_OVER)),
            (seed(STARTS_OVER, 5, at(0, 0), at()), STARTED_OVER, NEW_MARKER, Launch()),
        ),
    ),
    Case(
        "its checkpoint has lost its ledger",
        seen(request=asked(fresh=OLD_TOKEN), start=at(0, 0), ledger=NOT_STARTED, location=OLD_CHECKPOINT),
        Decision(
            FirstStart(STARTS_OVER, (UNKNOWN, START_ZERO, LOST_LEDGER_STARTS_OVER)),
            (seed(STARTS_OVER, 5, at(0, 0), at()), STARTED_OVER, MARKER_OF_OLD, Launch()),
        ),
    ),
)
def test_first_start_starts_over_where_the_annotation_names_the_token_and(case: Case) -> None:
    assert decide(case.seen) == case.decision


ADOPTS = "The stream is adopted from its checkpoint and continues at orders-0@40, orders-1@30."
ADOPTED = (UNKNOWN, Evidence("the start is orders-0@40, orders-1@30", {"positions": at(40, 30).to_json()}))


@table(
    Case(
        "its ledger was lost and its last batch is checkpointed",
        seen(request=asked(adopt=OLD_TOKEN), ledger=NOT_STARTED, location=OLD_CHECKPOINT),
        Decision(
            FirstStart(
                ADOPTS, (*ADOPTED, Evidence(f"{NO_LEDGER}; the stream is adopted, as the annotation asks", SIDES))
            ),
            (seed(ADOPTS, before=at()), ADOPTED_IDENTITY, ADOPTED_MARKER, Launch()),
        ),
    ),
    Case(
        "its ledger was lost and there is no row yet, as a mere look shows it",
        seen(request=asked(adopt=OLD_TOKEN), ledger=None, location=OLD_CHECKPOINT),
        Decision(
            FirstStart(
                ADOPTS,
                (
                    *ADOPTED,
                    Evidence(f"{NO_LEDGER}; the stream is adopted, as the annotation asks", SIDES),
                ),
            ),
            (seed(ADOPTS, before=at()), MARKER_OF_OLD, Launch()),
        ),
    ),
    Case(
        "it was made under another stream id",
        seen(request=asked(adopt=OLD_TOKEN), ledger=NOT_STARTED, location=location(SALES)),
        Decision(
            FirstStart(
                ADOPTS,
                (
                    *ADOPTED,
                    Evidence(
                        "/checkpoints/orders belongs to stream shop/sales, and shop/orders names it too; "
                        "the stream is adopted, as the annotation asks",
                        {**SIDES, "location": "shop/sales, with a token that this ledger does not hold"},
                    ),
                ),
            ),
            (
                seed(ADOPTS, before=at()),
                ADOPTED_IDENTITY,
                WriteMarker(Marker(STREAM, ADOPTED_TOKEN), replaces=SALES),
                Launch(),
            ),
        ),
    ),
)
def test_first_start_goes_on_where_an_adopted_checkpoint_ends_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


def not_to_be_adopted(doubt: str, found: Evidence) -> Decision:
    """Return the halt of an adoption whose last batch is in doubt."""
    reason = (
        f"/checkpoints/orders cannot be adopted: without its ledger no one knows whether {doubt} landed. Compare the sink "
        "by hand, then annotate exactlyonce.dev/fresh in place of exactlyonce.dev/adopt, with a start position that fits."
    )
    return halt(Contradiction(ContradictionReason.CHECKPOINT_WITHOUT_LEDGER, reason, (found,)))


ADOPTING = seen(request=asked(adopt=OLD_TOKEN), ledger=NOT_STARTED, location=OLD_CHECKPOINT)


@table(
    Case(
        "its last batch is planned and not checkpointed",
        replace(ADOPTING, checkpoint=logs(5, 4, at(40, 30), at(50, 45))),
        not_to_be_adopted(
            "batch 5",
            Evidence(
                "the checkpoint at /checkpoints/orders has planned batch 5 and committed batch 4",
                {"checkpoint": LOCATION, "planned": 5, "checkpointed": 4},
            ),
        ),
    ),
    Case(
        "no batch of it is checkpointed",
        replace(ADOPTING, checkpoint=logs(0, None, None, at(10, 10))),
        not_to_be_adopted(
            "batch 0",
            Evidence(
                "the checkpoint at /checkpoints/orders has planned batch 0 and committed no batch",
                {"checkpoint": LOCATION, "planned": 0, "checkpointed": None},
            ),
        ),
    ),
    Case(
        "it is damaged",
        replace(ADOPTING, checkpoint=damaged()),
        not_to_be_adopted(
            "its last batch",
            Evidence(
                "the checkpoint at /checkpoints/orders is damaged (FileTorn: offsets/4: its first line is '', not a version)",
                {"checkpoint": LOCATION, "damage": "FileTorn", "highestPlanned": 4},
            ),
        ),
    ),
)
def test_an_adopted_checkpoint_is_refused_when_without_a_ledger(case: Case) -> None:
    assert decide(case.seen) == case.decision


def state_would_be_lost(reason: str, start: str, evidence: tuple[Evidence, ...]) -> Decision:
    """Return the halt of a query whose state Spark could not make again."""
    advice = (
        "The query keeps state in its checkpoint, which offsets alone cannot rebuild: restore the checkpoint; or, to continue "
        f"with empty state, make a stream with another streamId that starts at the offsets {start}."
    )
    return halt(Contradiction(ContradictionReason.STATE_WOULD_BE_LOST, f"{reason} {advice}", evidence))


@table(
    Case(
        "it is to start over",
        seen(request=asked(fresh=TOKEN), start=at(0, 0), ledger=ledger(stateful=True)),
        state_would_be_lost(STARTS_OVER, "orders-0@0, orders-1@0", (SINK, START_ZERO)),
    ),
    Case(
        "it is to be adopted from its checkpoint",
        replace(ADOPTING, checkpoint=replace(logs(), stateful=True)),
        state_would_be_lost(ADOPTS, "orders-0@40, orders-1@30", ADOPTED),
    ),
)
def test_a_query_with_state_does_not_start_under_numbers_that_go_on_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


def test_a_query_with_state_starts_with_batch_0_where_no_batch_was_ever_planned() -> None:
    facts = seen(
        Absent(), ledger=ledger(None, at(), (), {}, stateful=True), location=EMPTY, start=at(0, 0)
    )  # fmt: skip
    assert decide(facts).verdict == first(at(0, 0), STARTS)


RESTORED = Contradiction(
    ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
    "/checkpoints/orders has run and the ledger holds no batch of it: the database was restored to a moment before the "
    "first one. Restore a later backup, or annotate exactlyonce.dev/fresh=token-1 with a start position that fits the sink.",
    (
        Evidence(
            "the checkpoint at /checkpoints/orders has planned batch 4 and committed batch 4",
            {"checkpoint": LOCATION, "planned": 4, "checkpointed": 4},
        ),
    ),
)


@table(
    Case("all else agrees", seen(ledger=NOT_STARTED, start=at(0, 0)), halt(RESTORED)),
    Case(
        "a person adopts it into the database it was restored into, which tells nothing of what it landed",
        seen(
            ledger=replace(NOT_STARTED, stream=replace(NOT_STARTED.stream, database=replace(DATABASE, database_oid=9))),
            request=asked(adopt=TOKEN),
            start=at(0, 0),
        ),
        halt(RESTORED),
    ),
)
def test_a_ledger_restored_to_before_the_first_batch_is_a_contradiction_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


def test_a_seed_holds_the_id_of_each_topic_and_none_where_the_source_tells_none() -> None:
    other = Partition("refunds", 0)
    start = Positions({**at(3), other: 5})
    facts = seen(Absent(), ledger=NOT_STARTED, location=EMPTY, start=start, request=asked(shuffle_partitions=3))
    made = decide(facts).actions[1]
    expected = seed("No batch ever landed; the stream starts at orders-0@3, refunds-0@5.", 0, start, at(), 1)
    landed = LandedPositions(start, {"orders": "id-1", "refunds": ""})
    assert made == replace(expected, after=landed, shuffle_partitions=3)


def test_a_new_start_counts_on_from_the_generations_and_batches_that_are_there() -> None:
    ran = Generation(7, Epoch(3))
    facts = seen(
        request=asked(fresh=TOKEN),
        start=at(0, 0),
        ledger=ledger(generation=9),
        location=location(generations=(FIRST, ran), highest_planned={ran: BatchNumber(20)}, ran=frozenset({ran})),
    )
    assert decide(facts).actions[0] == seed(STARTS_OVER, 21, at(0, 0), at(40, 30), 10)


def test_a_new_start_tells_first_what_was_taken_at_most_once() -> None:
    decision = decide(seen(request=asked(fresh=TOKEN), start=at(0, 0), ledger=ledger(batches=(TAKEN_4,))))
    assert [type(action).__name__ for action in decision.actions[:2]] == ["RecordLost", "SeedAndPublish"]
    assert TAKEN_4_EVIDENCE in decision.verdict.evidence
