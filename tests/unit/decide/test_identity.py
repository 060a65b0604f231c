"""Whose is this? Stream, ledger, database and location agree, or a person settles it with a token."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exactlyonce.checkpoint.generation import Marker
from exactlyonce.checkpoint.state import Absent
from exactlyonce.ledger.publish import Adoption
from exactlyonce.ledger.rows import DatabaseIdentity, Owner
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.identity import before_the_raise
from exactlyonce.reconcile.observation import LocationView, Observation
from exactlyonce.reconcile.verdicts import (
    Action,
    Contradiction,
    ContradictionReason,
    Decision,
    Evidence,
    FirstStart,
    Launch,
    RecordIdentity,
    Resume,
    SeedAndPublish,
    WriteMarker,
    kind_of,
)
from tests.unit.decide.facts import (
    DATABASE,
    EMPTY,
    ME,
    NEW_TOKEN,
    NOT_STARTED,
    STREAM,
    TOKEN,
    Case,
    asked,
    at,
    halt,
    ledger,
    location,
    seen,
    table,
)

MADE_BEFORE = Owner("cluster-1", "uid-0")
ELSEWHERE = Owner("cluster-2", "uid-0")
ORIGINAL = DatabaseIdentity("6999999999999999999", 5)
OTHER_TOKEN = "token-0"
MADE_AGAIN = seen(ledger=ledger(owner=MADE_BEFORE), owner_is_gone=True)
STILL_THERE = seen(ledger=ledger(owner=MADE_BEFORE), owner_is_gone=False)
OWNED_ELSEWHERE = seen(ledger=ledger(owner=ELSEWHERE), owner_is_gone=True)
COPIED = seen(ledger=ledger(database=ORIGINAL))
TAKEN = seen(location=location(Marker("shop/sales", OTHER_TOKEN)))
TAKEN_AT_THE_START = seen(Absent(), ledger=NOT_STARTED, location=LocationView(Marker("shop/sales", OTHER_TOKEN)))
UNKNOWN_CHECKPOINT = seen(ledger=NOT_STARTED, location=location(Marker(STREAM, OTHER_TOKEN)))
UNMARKED_CHECKPOINT = seen(ledger=NOT_STARTED, location=location(None))
CAME_TO_UNMARKED = seen(ledger=ledger(checkpoint_path="/elsewhere/generation-000001-a1"), location=location(None))
FOREIGN = LocationView(foreign=("a", "b", "c", "d", "e", "f"))
NOT_EMPTY = seen(Absent(), ledger=NOT_STARTED, location=FOREIGN)

ADOPTED_TOKEN = f"{TOKEN}.{NEW_TOKEN}"
NEW_IDENTITY = RecordIdentity(Adoption(ME, DATABASE, ADOPTED_TOKEN))
STARTED_OVER = RecordIdentity(Adoption(ME, DATABASE, NEW_TOKEN, starts_over=True))


def new_marker(facts: Observation) -> WriteMarker:
    """Return the action that marks the location with the token that an adoption drew."""
    return WriteMarker(Marker(STREAM, ADOPTED_TOKEN), replaces=facts.location.marker)


@pytest.mark.parametrize(
    ("facts", "before_the_launch"),
    [
        pytest.param(seen(), (), id="all agree"),
        pytest.param(
            MADE_AGAIN, (RecordIdentity(Adoption(ME, DATABASE, TOKEN)),), id="the resource was recreated under its name"
        ),
        pytest.param(
            seen(location=location(None)), (WriteMarker(Marker(STREAM, TOKEN)),), id="stream.json was deleted"
        ),
        pytest.param(
            replace(MADE_AGAIN, location=location(None)),
            (RecordIdentity(Adoption(ME, DATABASE, TOKEN)), WriteMarker(Marker(STREAM, TOKEN))),
            id="the resource was recreated and stream.json deleted",
        ),
        pytest.param(seen(location=location(foreign=("notes.txt",))), (), id="someone left a file beside stream.json"),
        pytest.param(
            seen(location=location(None, foreign=("notes.txt",))), (WriteMarker(Marker(STREAM, TOKEN)),),
            id="someone left a file and deleted stream.json",
        ),
        pytest.param(seen(request=asked(adopt=TOKEN)), (), id="an annotation to adopt was left behind"),
        pytest.param(seen(request=asked(fresh=OTHER_TOKEN)), (), id="an annotation to start over was left behind"),
    ],
)  # fmt: skip
def test_a_stream_goes_on_where_its_ledger_stands_when(
    facts: Observation, before_the_launch: tuple[Action, ...]
) -> None:
    decision = decide(facts)
    assert isinstance(decision.verdict, Resume), "never from the start"
    assert decision.actions == (*before_the_launch, Launch())


WITH_THE_LEDGERS_TOKEN = (
    f"; if this resource is to continue as that stream, annotate it exactlyonce.dev/adopt={TOKEN}, "
    f"or exactlyonce.dev/fresh={TOKEN} to start over"
)
WITH_THE_LOCATIONS_TOKEN = (
    "; if that checkpoint is yours and this resource is to continue as that stream, read the token in "
    "/checkpoints/orders/stream.json with access of your own and annotate this resource exactlyonce.dev/adopt=<token>, or "
    "exactlyonce.dev/fresh=<token> to start over; otherwise name another location"
)
WITH_A_TOKEN_WRITTEN_THERE = (
    '; if they are yours, write {"streamId": "shop/orders", "token": "<a long random text>"} to '
    "/checkpoints/orders/stream.json with access of your own and annotate this resource exactlyonce.dev/adopt=<that text>, "
    "or exactlyonce.dev/fresh=<that text> to start over; otherwise name another location"
)


def contradiction(why: ContradictionReason, words: str, data: dict[str, Any], advice: str = "") -> Decision:
    """Return the halt that names both sides and says how a person settles it, where one can."""
    return halt(Contradiction(why, f"{words}{advice}.", (Evidence(words, data),)))


OWNERS = {"ledger": "uid-0 in cluster-1", "resource": "uid-1 in cluster-1"}
ANOTHER_TOKEN = "with a token that this ledger does not hold"
TABLE = (
    Case(
        "the resource that owns the stream still exists",
        STILL_THERE,
        contradiction(
            ContradictionReason.OTHER_OWNER,
            "The ledger's shop/orders belongs to the resource uid-0 in cluster-1, and this is uid-1 in cluster-1",
            OWNERS,
            WITH_THE_LEDGERS_TOKEN,
        ),
    ),
    Case(
        "the owner lives in another cluster, where no one can see whether it is gone",
        OWNED_ELSEWHERE,
        contradiction(
            ContradictionReason.OTHER_OWNER,
            "The ledger's shop/orders belongs to the resource uid-0 in cluster-2, and this is uid-1 in cluster-1",
            {**OWNERS, "ledger": "uid-0 in cluster-2"},
            WITH_THE_LEDGERS_TOKEN,
        ),
    ),
    Case(
        "the database is a copy of the one that the ledger was made in",
        COPIED,
        contradiction(
            ContradictionReason.OTHER_DATABASE,
            "The ledger's shop/orders was made in system 6999999999999999999 database 5, and this is system "
            "7000000000000000001 database 5: a copied database",
            {
                "ledger": "system 6999999999999999999 database 5",
                "database": "system 7000000000000000001 database 5",
            },
            WITH_THE_LEDGERS_TOKEN,
        ),
    ),
    Case(
        "two streams name one location",
        TAKEN,
        contradiction(
            ContradictionReason.LOCATION_TAKEN,
            "/checkpoints/orders belongs to stream shop/sales, and shop/orders names it too",
            {"location": f"shop/sales, {ANOTHER_TOKEN}", "ledger": STREAM},
            WITH_THE_LOCATIONS_TOKEN,
        ),
    ),
    Case(
        "two streams name one location and this one never started",
        TAKEN_AT_THE_START,
        contradiction(
            ContradictionReason.LOCATION_TAKEN,
            "/checkpoints/orders belongs to stream shop/sales, and shop/orders names it too",
            {"location": f"shop/sales, {ANOTHER_TOKEN}", "ledger": STREAM},
            WITH_THE_LOCATIONS_TOKEN,
        ),
    ),
    Case(
        "two databases hold a ledger of the same stream id",
        seen(location=location(Marker(STREAM, OTHER_TOKEN))),
        contradiction(
            ContradictionReason.LOCATION_TAKEN,
            "/checkpoints/orders belongs to another ledger's shop/orders, and the one at system 7000000000000000001 "
            "database 5 names it too",
            {"location": f"{STREAM}, {ANOTHER_TOKEN}", "ledger": STREAM},
            WITH_THE_LOCATIONS_TOKEN,
        ),
    ),
    Case(
        "the checkpoint's ledger has no row of it",
        UNKNOWN_CHECKPOINT,
        contradiction(
            ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
            "/checkpoints/orders holds a checkpoint of shop/orders, and the ledger at system 7000000000000000001 "
            "database 5 knows nothing of it: the ledger was lost or is another one; restore it, or name the former one again",
            {"location": f"{STREAM}, {ANOTHER_TOKEN}", "ledger": STREAM},
            WITH_THE_LOCATIONS_TOKEN,
        ),
    ),
    Case(
        "the checkpoint's ledger has no row of it and stream.json is gone",
        UNMARKED_CHECKPOINT,
        contradiction(
            ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
            "/checkpoints/orders holds generations that ran and no stream.json, and the ledger knows nothing of them",
            {"location": "generation-000001-a1"},
            WITH_A_TOKEN_WRITTEN_THERE,
        ),
    ),
    Case(
        "the stream came from another location to one that has lost its stream.json",
        CAME_TO_UNMARKED,
        contradiction(
            ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
            "/checkpoints/orders holds generations that ran and no stream.json, and the ledger knows nothing of them",
            {"location": "generation-000001-a1"},
            WITH_A_TOKEN_WRITTEN_THERE,
        ),
    ),
    Case(
        "the location of a stream that never started holds something else",
        NOT_EMPTY,
        contradiction(
            ContradictionReason.LOCATION_NOT_EMPTY,
            "/checkpoints/orders holds a, b, c, d, e, which no stream of this project made; name an empty folder",
            {"location": "a, b, c, d, e"},
        ),
    ),
)


@table(*TABLE)
def test_nothing_is_written_and_both_sides_are_named_when(case: Case) -> None:
    assert decide(case.seen) == case.decision


@pytest.mark.parametrize("annotation", ["adopt", "fresh"])
@pytest.mark.parametrize("case", [pytest.param(case, id=case.when) for case in TABLE])
def test_an_annotation_with_another_token_settles_nothing(case: Case, annotation: str) -> None:
    assert decide(replace(case.seen, request=asked(**{annotation: "some-token"}))) == case.decision


@pytest.mark.parametrize(
    ("facts", "token"),
    [
        pytest.param(STILL_THERE, TOKEN, id="from an owner that still exists"),
        pytest.param(OWNED_ELSEWHERE, TOKEN, id="from another cluster"),
        pytest.param(COPIED, TOKEN, id="in a copied database"),
        pytest.param(TAKEN, OTHER_TOKEN, id="with a location that another stream had"),
        pytest.param(replace(STILL_THERE, database=ORIGINAL), TOKEN, id="from an owner and a database at once"),
    ],
)
def test_an_adopted_stream_goes_on_where_its_ledger_stands_under_a_new_token(facts: Observation, token: str) -> None:
    decision = decide(replace(facts, request=asked(adopt=token)))
    assert isinstance(decision.verdict, Resume)
    recorded = RecordIdentity(Adoption(ME, facts.database, ADOPTED_TOKEN))
    assert decision.actions == (recorded, new_marker(facts), Launch()), (
        "the token is used up, so the annotation acts once"
    )
    contradicted = decide(facts).verdict
    assert isinstance(contradicted, Contradiction)
    settled = contradicted.evidence[0]
    assert decision.verdict.evidence[3] == Evidence(
        f"{settled.words}; the stream is adopted, as the annotation asks", settled.data
    ), "what was contradicted stays in the evidence"


@pytest.mark.parametrize(
    ("facts", "token"),
    [
        pytest.param(STILL_THERE, TOKEN, id="from an owner that still exists"),
        pytest.param(COPIED, TOKEN, id="in a copied database"),
        pytest.param(TAKEN, OTHER_TOKEN, id="with a location that another stream had"),
        pytest.param(UNKNOWN_CHECKPOINT, OTHER_TOKEN, id="with a checkpoint whose ledger is lost"),
    ],
)
@pytest.mark.parametrize("also", [{}, {"adopt": TOKEN}, {"adopt": OTHER_TOKEN}])
def test_fresh_starts_over_and_replaces_the_token_last(facts: Observation, token: str, also: dict[str, str]) -> None:
    decision = decide(replace(facts, request=asked(fresh=token, **also), start=at(0, 0)))
    assert isinstance(decision.verdict, FirstStart)
    # A crash before the last of them finds the old token, so the annotation still holds and the start is recreated.
    assert isinstance(decision.actions[0], SeedAndPublish)
    assert decision.actions[1:] == (
        STARTED_OVER,
        replace(new_marker(facts), marker=Marker(STREAM, NEW_TOKEN)),
        Launch(),
    )


@pytest.mark.parametrize("annotation", ["adopt", "fresh"])
@pytest.mark.parametrize(
    "facts", [TAKEN, TAKEN_AT_THE_START, UNKNOWN_CHECKPOINT, UNMARKED_CHECKPOINT, CAME_TO_UNMARKED]
)
def test_no_token_that_is_told_takes_over_a_location_that_the_ledger_does_not_know(
    facts: Observation, annotation: str
) -> None:
    """The ledger's own token is told in many places; that of another stream's location is in nothing that is told."""
    halted = decide(facts)
    assert OTHER_TOKEN not in str(halted)
    for known in (TOKEN, NEW_TOKEN):
        assert decide(replace(facts, request=asked(**{annotation: known}))) == halted


@pytest.mark.parametrize("moved", [False, True])
def test_a_checkpoint_without_stream_json_is_adopted_by_whoever_can_write_one_there(moved: bool) -> None:
    facts = CAME_TO_UNMARKED if moved else UNMARKED_CHECKPOINT
    written = replace(facts, location=location(Marker(STREAM, "a long random text")))
    decision = decide(replace(written, request=asked(adopt="a long random text")))
    assert not decision.halts, decision.verdict.message
    assert new_marker(written) in decision.actions


def test_on_s3_the_halt_prints_the_command_that_reads_the_token_and_not_the_token() -> None:
    on_s3 = replace(TAKEN, request=asked(location="s3a://lake/checkpoints/orders"))
    reason = decide(on_s3).verdict.message
    assert "(aws s3 cp s3://lake/checkpoints/orders/stream.json -)" in reason
    unmarked = replace(UNMARKED_CHECKPOINT, request=asked(location="s3a://lake/checkpoints/orders"))
    assert "(aws s3 cp - s3://lake/checkpoints/orders/stream.json)" in decide(unmarked).verdict.message


def test_each_of_several_contradictions_needs_its_own_token() -> None:
    both = replace(TAKEN, ledger=ledger(owner=ELSEWHERE))
    one = decide(replace(both, request=asked(adopt=OTHER_TOKEN))).verdict
    assert isinstance(one, Contradiction)
    assert one.reason is ContradictionReason.OTHER_OWNER
    other = decide(replace(both, request=asked(adopt=TOKEN))).verdict
    assert isinstance(other, Contradiction)
    assert other.reason is ContradictionReason.LOCATION_TAKEN


@pytest.mark.parametrize("attempt", [1, 8, 40])
def test_a_lost_status_changes_nothing_because_only_the_attempts_number_comes_from_it(attempt: int) -> None:
    assert decide(seen(epoch=attempt)) == decide(seen())


def test_a_location_that_holds_a_foreign_file_cannot_be_adopted() -> None:
    for annotation in ("adopt", "fresh"):
        verdict = decide(replace(NOT_EMPTY, request=asked(**{annotation: TOKEN}), start=at(0))).verdict
        assert kind_of(verdict) == "Contradiction"


def test_an_empty_location_is_one_where_nothing_was_ever_put() -> None:
    assert EMPTY.empty
    for view in (location(), location(None), FOREIGN, LocationView(Marker(STREAM, TOKEN))):
        assert not view.empty


@pytest.mark.parametrize(
    ("facts", "halts"),
    [
        pytest.param(seen(ledger=ledger()), False, id="its own"),
        pytest.param(MADE_AGAIN, False, id="of one that is gone from this cluster"),
        pytest.param(STILL_THERE, True, id="of one that is still there"),
        pytest.param(OWNED_ELSEWHERE, True, id="of one in another cluster"),
    ],
)
def test_before_the_raise_the_row_alone_tells_whether_the_stream_is_anothers(facts: Observation, halts: bool) -> None:
    assert facts.ledger is not None
    row, gone = facts.ledger.stream, facts.owner_is_gone
    verdict = before_the_raise(facts.request, row, gone)
    assert (verdict is not None) is halts
    if verdict is not None:
        assert verdict == decide(facts).verdict, "in the very words of the decision"
    for asks in (replace(facts.request, adopt=row.token), replace(facts.request, fresh=row.token)):
        assert before_the_raise(asks, row, gone) is None, "a person has settled it"
