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
FOREIGN = LocationView(foreign=("a", "b", "c", "d", "e", "f"))
NOT_EMPTY = seen(Absent(), ledger=NOT_STARTED, location=FOREIGN)

NEW_IDENTITY = RecordIdentity(Adoption(ME, DATABASE, NEW_TOKEN))
NEW_MARKER = WriteMarker(Marker(STREAM, NEW_TOKEN), replace=True)


@pytest.mark.parametrize(
    ("facts", "before_the_launch"),
    [
        pytest.param(seen(), (), id="all agree"),
        pytest.param(
            MADE_AGAIN, (RecordIdentity(Adoption(ME, DATABASE, TOKEN)),), id="the resource was made again under its name"
        ),
        pytest.param(
            seen(location=location(None)), (WriteMarker(Marker(STREAM, TOKEN)),), id="stream.json was deleted"
        ),
        pytest.param(
            replace(MADE_AGAIN, location=location(None)),
            (RecordIdentity(Adoption(ME, DATABASE, TOKEN)), WriteMarker(Marker(STREAM, TOKEN))),
            id="the resource was made again and stream.json deleted",
        ),
        pytest.param(seen(location=location(foreign=("notes.txt",))), (), id="someone left a file beside stream.json"),
        pytest.param(
            seen(location=location(None, foreign=("notes.txt",))), (WriteMarker(Marker(STREAM, TOKEN)),),
            id="someone left a file and deleted stream.json",
        ),
        pytest.param(seen(request=asked(adopt=TOKEN)), (), id="an annotation to adopt was left behind"),
        pytest.param(seen(request=asked(fresh=OTHER_TOKEN)), (), id="an annotation to start anew was left behind"),
    ],
)  # fmt: skip
def test_a_stream_goes_on_where_its_ledger_stands_when(
    facts: Observation, before_the_launch: tuple[Action, ...]
) -> None:
    decision = decide(facts)
    assert isinstance(decision.verdict, Resume), "never from the start"
    assert decision.actions == (*before_the_launch, Launch())


def contradiction(why: ContradictionReason, words: str, data: dict[str, Any], token: str | None) -> Decision:
    """Return the halt that names both sides and, where there is one, the token that settles it."""
    advice = ""
    if token is not None:
        advice = f"; if this resource is to go on as that stream, annotate it exactlyonce.dev/adopt={token}, "
        advice += f"or exactlyonce.dev/fresh={token} to start anew"
    return halt(Contradiction(why, f"{words}{advice}.", (Evidence(words, data),)))


OWNERS = {"ledger": "uid-0 in cluster-1", "resource": "uid-1 in cluster-1"}
LEDGER_SIDE = f"{STREAM} ({TOKEN})"
TABLE = (
    Case(
        "the resource that owns the stream still exists",
        STILL_THERE,
        contradiction(
            ContradictionReason.OTHER_OWNER,
            "The ledger's shop/orders belongs to the resource uid-0 in cluster-1, and this is uid-1 in cluster-1",
            OWNERS,
            TOKEN,
        ),
    ),
    Case(
        "the owner lives in another cluster, where no one can see whether it is gone",
        OWNED_ELSEWHERE,
        contradiction(
            ContradictionReason.OTHER_OWNER,
            "The ledger's shop/orders belongs to the resource uid-0 in cluster-2, and this is uid-1 in cluster-1",
            {**OWNERS, "ledger": "uid-0 in cluster-2"},
            TOKEN,
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
            TOKEN,
        ),
    ),
    Case(
        "two streams name one location",
        TAKEN,
        contradiction(
            ContradictionReason.LOCATION_TAKEN,
            "/checkpoints/orders belongs to stream shop/sales, and shop/orders names it too",
            {"location": f"shop/sales ({OTHER_TOKEN})", "ledger": LEDGER_SIDE},
            OTHER_TOKEN,
        ),
    ),
    Case(
        "two streams name one location and this one never started",
        TAKEN_AT_THE_START,
        contradiction(
            ContradictionReason.LOCATION_TAKEN,
            "/checkpoints/orders belongs to stream shop/sales, and shop/orders names it too",
            {"location": f"shop/sales ({OTHER_TOKEN})", "ledger": LEDGER_SIDE},
            OTHER_TOKEN,
        ),
    ),
    Case(
        "two databases hold a ledger of the same stream id",
        seen(location=location(Marker(STREAM, OTHER_TOKEN))),
        contradiction(
            ContradictionReason.LOCATION_TAKEN,
            "/checkpoints/orders belongs to another ledger's shop/orders, and the one at system 7000000000000000001 "
            "database 5 names it too",
            {"location": f"{STREAM} ({OTHER_TOKEN})", "ledger": LEDGER_SIDE},
            OTHER_TOKEN,
        ),
    ),
    Case(
        "the checkpoint's ledger has no row of it",
        UNKNOWN_CHECKPOINT,
        contradiction(
            ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
            "/checkpoints/orders holds a checkpoint of shop/orders, and the ledger at system 7000000000000000001 "
            "database 5 knows nothing of it: the database was lost or is another one",
            {"location": f"{STREAM} ({OTHER_TOKEN})", "ledger": LEDGER_SIDE},
            OTHER_TOKEN,
        ),
    ),
    Case(
        "the checkpoint's ledger has no row of it and stream.json is gone",
        UNMARKED_CHECKPOINT,
        contradiction(
            ContradictionReason.CHECKPOINT_WITHOUT_LEDGER,
            "/checkpoints/orders holds generations that ran and no stream.json, and the ledger knows nothing of them",
            {"location": "generation-000001-a1"},
            TOKEN,
        ),
    ),
    Case(
        "the location of a stream that never started holds something else",
        NOT_EMPTY,
        contradiction(
            ContradictionReason.LOCATION_NOT_EMPTY,
            "/checkpoints/orders holds a, b, c, d, e, which no stream of this project made; name an empty folder",
            {"location": "a, b, c, d, e"},
            None,
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
    recorded = RecordIdentity(Adoption(ME, facts.database, NEW_TOKEN))
    assert decision.actions == (recorded, NEW_MARKER, Launch()), "the token is used up, so the annotation acts once"
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
        pytest.param(UNMARKED_CHECKPOINT, TOKEN, id="with a checkpoint that has lost its stream.json"),
    ],
)
@pytest.mark.parametrize("also", [{}, {"adopt": TOKEN}, {"adopt": OTHER_TOKEN}])
def test_fresh_starts_anew_and_replaces_the_token_last(facts: Observation, token: str, also: dict[str, str]) -> None:
    decision = decide(replace(facts, request=asked(fresh=token, **also), start=at(0, 0)))
    assert isinstance(decision.verdict, FirstStart)
    # A crash before the last of them finds the old token, so the annotation still holds and the start is made again.
    assert isinstance(decision.actions[0], SeedAndPublish)
    assert decision.actions[1:] == (NEW_IDENTITY, NEW_MARKER, Launch())


def test_each_of_several_contradictions_needs_its_own_token() -> None:
    both = replace(TAKEN, ledger=ledger(owner=ELSEWHERE))
    one = decide(replace(both, request=asked(adopt=OTHER_TOKEN))).verdict
    assert isinstance(one, Contradiction)
    assert one.why is ContradictionReason.OTHER_OWNER
    other = decide(replace(both, request=asked(adopt=TOKEN))).verdict
    assert isinstance(other, Contradiction)
    assert other.why is ContradictionReason.LOCATION_TAKEN


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
