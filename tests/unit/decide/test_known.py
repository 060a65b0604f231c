"""What the resource's status remembers of the ledger is evidence: a ledger that was lost is no first start."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from exactlyonce.checkpoint.state import Absent
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import Known
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Evidence,
    FirstStart,
    ReplayBatch,
    Resume,
    RewindToSink,
    SourceTruncated,
)
from tests.unit.decide.facts import (
    BEGUN_5,
    EMPTY,
    NOT_STARTED,
    TOKEN,
    Case,
    asked,
    at,
    ledger,
    location,
    logs,
    seen,
    source,
    table,
)

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
KNOWN = Known(BatchNumber(7), AT)
REMEMBERED = "the resource's status knows that batch 7 landed at 2026-01-02T03:04:05+00:00"
KNOWN_7 = Evidence(REMEMBERED, {"knownBatch": 7, "knownAt": "2026-01-02T03:04:05+00:00"})
HERE = "system 7000000000000000001 database 5"
NO_BATCH = Evidence(f"the ledger at {HERE} holds no batch of shop/orders", {"streamId": "shop/orders", "landed": None})
WENT_BACK = Evidence(
    f"{REMEMBERED}, and the ledger holds batch 4 as the latest: the database went back, and the records of the batches since "
    "then land again",
    {"knownBatch": 7, "landed": 4},
)
CAME_BACK = f" {WENT_BACK.words[0].upper()}{WENT_BACK.words[1:]}."
NEVER_RAN = seen(Absent(), ledger=NOT_STARTED, location=EMPTY, start=at(0, 0))


def lost(token: str = TOKEN) -> Contradiction:
    """Return the verdict on a ledger that holds no batch although the status knows of one."""
    return Contradiction(
        ContradictionReason.LEDGER_LOST,
        f"The ledger at {HERE} holds no batch of shop/orders, and {REMEMBERED}: the ledger was lost, was restored to a moment "
        f"before the first batch, or is another one. Restore it; or annotate exactlyonce.dev/fresh={token} to start over at "
        "the start position: what is still in the table stays, and what is read again lands again.",
        (NO_BATCH, KNOWN_7),
    )


@table(
    Case(
        "the ledger's row was recreated by the raise",
        replace(NEVER_RAN, known=KNOWN),
        replace(decide(NEVER_RAN), verdict=lost(), actions=()),
    ),
    Case(
        "there is no row at all, as explain sees it",
        replace(NEVER_RAN, ledger=None, known=KNOWN),
        replace(decide(NEVER_RAN), verdict=lost("the token that the next attempt names"), actions=()),
    ),
)
def test_a_ledger_without_the_batch_that_the_status_knows_is_a_contradiction_when(case: Case) -> None:
    decision = decide(case.seen)
    assert decision == case.decision
    assert decision.halts


def test_the_empty_batch_that_a_stream_started_with_is_evidence_too() -> None:
    decision = decide(replace(NEVER_RAN, known=Known(BatchNumber(0))))
    assert isinstance(decision.verdict, Contradiction)
    assert "knows that batch 0 landed: the ledger was lost" in decision.verdict.message


def test_a_resource_that_was_recreated_knows_nothing_and_starts() -> None:
    assert isinstance(decide(NEVER_RAN).verdict, FirstStart)


def test_a_person_who_asks_for_a_new_start_gets_it_whatever_the_status_knows() -> None:
    observation = replace(NEVER_RAN, known=KNOWN, request=asked(fresh=TOKEN))
    decision = decide(observation)
    assert isinstance(decision.verdict, FirstStart)
    assert not decision.halts


def test_a_ledger_restored_to_before_the_first_batch_tells_what_the_status_knows() -> None:
    decision = decide(seen(ledger=NOT_STARTED, known=KNOWN, start=at(0, 0)))
    assert isinstance(decision.verdict, Contradiction)
    assert decision.verdict.reason is ContradictionReason.CHECKPOINT_WITHOUT_LEDGER
    assert KNOWN_7 in decision.verdict.evidence


def test_a_checkpoint_older_than_what_the_status_knows_is_not_adopted() -> None:
    another = replace(location().marker, token="token-0")  # type: ignore[type-var]
    asks = seen(ledger=NOT_STARTED, location=location(another), request=asked(adopt="token-0"), start=at(0, 0))
    assert isinstance(decide(asks).verdict, FirstStart)
    assert isinstance(decide(replace(asks, known=Known(BatchNumber(4)))).verdict, FirstStart)
    refused = decide(replace(asks, known=KNOWN)).verdict
    assert isinstance(refused, Contradiction)
    assert refused.reason is ContradictionReason.LEDGER_LOST
    assert f"ends with batch 4, and {REMEMBERED}, so it is an older one" in refused.message


AGREES = seen()
REPLAYS = seen(logs(5, 4, at(40, 30), at(50, 45)), ledger=ledger(batches=(*ledger().batches, BEGUN_5)))
REWINDS = seen(logs(5, 5, at(40, 30), at(50, 45)))
TRUNCATED = seen(source=source(dict.fromkeys(source().bounds, (90, 100))))


def test_a_database_that_went_back_is_told_with_whatever_is_decided() -> None:
    for observation, kind in (
        (AGREES, Resume),
        (REPLAYS, ReplayBatch),
        (REWINDS, RewindToSink),
        (TRUNCATED, SourceTruncated),
    ):
        plain, told = decide(observation), decide(replace(observation, known=KNOWN))
        assert isinstance(plain.verdict, kind)
        assert told.verdict == replace(
            plain.verdict, message=plain.verdict.message + CAME_BACK, evidence=(*plain.verdict.evidence, WENT_BACK)
        )
        assert told.actions == plain.actions, "what is done is the same: rows and ledger are in one database"


def test_a_ledger_that_holds_what_the_status_knows_or_more_is_no_evidence() -> None:
    for batch in (0, 3, 4):
        assert decide(replace(AGREES, known=Known(BatchNumber(batch), AT))) == decide(AGREES)
