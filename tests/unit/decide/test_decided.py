"""A batch that is decided in a sink of two phases: whatever is decided for the stream, it is told and never taken back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exactlyonce.api.resource import FRESH, SETTLE_LOADS
from exactlyonce.checkpoint.state import Absent
from exactlyonce.ledger.decided import Answer, Committable, DecidedBatch
from exactlyonce.ledger.rows import BatchStatus, LedgerView
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.decide import decide
from exactlyonce.reconcile.observation import Known, Observation
from exactlyonce.reconcile.verdicts import (
    Contradiction,
    ContradictionReason,
    Evidence,
    FinishCommit,
    Launch,
    RebuildFromSink,
    RebuildReason,
    RecordAnswers,
    Resume,
    RewindToSink,
    SeedAndPublish,
    batch_of,
)
from tests.unit.decide.facts import (
    BATCH_4,
    MAY_LIVE,
    SINK,
    Case,
    asked,
    at,
    batch,
    committed,
    launch,
    ledger,
    logs,
    planned,
    ranges,
    seen,
    table,
)

FOUR = BatchNumber(4)
LOADS = (
    Committable("label-a", "71", 10, ranges((30, 40))),
    Committable("label-b", "72", 9, ranges((30, 30), (20, 30))),
)
DECIDED_4 = DecidedBatch(FOUR, LOADS, {"orders": "id-1"})
ROW_4 = batch(4, BATCH_4.ranges, BatchStatus.DECIDED)
TOLD = Evidence(
    "batch 4 is decided: 19 rows are to be committed in the sink, as label-a, label-b",
    {"batch": 4, "rows": 19, "labels": ["label-a", "label-b"], "loads": 2},
)
FINISHES = (
    "Batch 4 is decided and 2 of its loads are not known to be committed; the next driver commits what the sink has of them, "
    "before its first batch."
)


def decided_ledger(decided: DecidedBatch | None = DECIDED_4, status: BatchStatus = BatchStatus.DECIDED) -> LedgerView:
    return replace(ledger(batches=(replace(ROW_4, status=status),)), decided=decided)


@table(
    Case(
        "Spark does not know that the batch was decided",
        seen(logs(checkpointed=3), ledger=decided_ledger()),
        launch(FinishCommit(FOUR, FINISHES, (planned(4, at(40, 30)), committed(3), SINK, TOLD))),
    ),
    Case(
        "Spark has committed the batch, and the ledger lost that it landed",
        seen(ledger=decided_ledger()),
        launch(FinishCommit(FOUR, FINISHES, (planned(4, at(40, 30)), committed(4), SINK, TOLD))),
    ),
)
def test_a_decided_batch_is_finished_when(case: Case) -> None:
    assert decide(case.seen) == case.decision
    assert batch_of(case.decision.verdict) == 4


def test_a_generation_that_was_seeded_behind_a_decided_batch_finishes_it() -> None:
    seeded = batch(5, ranges((40, 40), (30, 30)), BatchStatus.SEEDED)
    behind = replace(ledger(landed=5, batches=(seeded,)), decided=DECIDED_4)
    verdict = decide(seen(logs(5, 5, at(40, 30), at(40, 30)), ledger=behind)).verdict
    assert isinstance(verdict, FinishCommit)
    assert verdict.batch == 4


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        pytest.param(
            seen(Absent(), ledger=decided_ledger()), RebuildReason.CHECKPOINT_LOST, id="the checkpoint is lost"
        ),
        pytest.param(
            seen(logs(checkpointed=3), ledger=decided_ledger(), predecessor=MAY_LIVE),
            RebuildReason.PREDECESSOR_MAY_LIVE,
            id="its driver may live",
        ),
    ],
)
def test_a_new_generation_begins_behind_the_decided_batch_which_is_told(facts: Observation, why: RebuildReason) -> None:
    decision = decide(facts)
    assert isinstance(decision.verdict, RebuildFromSink)
    assert decision.verdict.reason is why
    assert TOLD in decision.verdict.evidence
    made, started = decision.actions
    assert isinstance(made, SeedAndPublish)
    assert (made.after.positions, started) == (at(40, 30), Launch())


@pytest.mark.parametrize(
    ("annotation", "recorded"),
    [
        pytest.param(
            "label-a=Committed label-b=Aborted", {"label-a": "Committed", "label-b": "Aborted"}, id="each load"
        ),
        pytest.param(
            "label-b=Aborted,\n label-c=Committed", {"label-b": "Aborted"}, id="a load that is not of this batch"
        ),
        pytest.param("label-a=committed label-b Aborted label-a=Lost =Aborted", {}, id="words that are no answer"),
        pytest.param(
            "label-a=Committed label-b=Aborted label-a=Aborted", {"label-b": "Aborted"}, id="a load with both answers"
        ),
        pytest.param("", {}, id="nothing"),
    ],
)
def test_what_a_person_has_found_of_loads_is_recorded_by_their_labels_before_the_driver_starts(
    annotation: str, recorded: dict[str, str]
) -> None:
    decision = decide(seen(logs(checkpointed=3), ledger=decided_ledger(), request=asked(settle_loads=annotation)))
    assert isinstance(decision.verdict, FinishCommit)
    answers = {label: Answer(answer) for label, answer in recorded.items()}
    assert decision.actions == (*([RecordAnswers(FOUR, answers)] if answers else []), Launch())
    told = [one.words for one in decision.verdict.evidence if SETTLE_LOADS in one.words]
    assert len(told) == bool(recorded)
    assert all(f"{label}={answer}" in words for words in told for label, answer in recorded.items())


def test_an_annotation_that_was_left_behind_is_recorded_once_and_of_no_other_batch() -> None:
    answered = replace(DECIDED_4, committables=tuple(replace(one, answer=Answer.COMMITTED) for one in LOADS))
    left_behind = asked(settle_loads="label-a=Committed label-b=Committed")
    for view in (decided_ledger(answered), ledger()):
        assert decide(seen(ledger=view, request=left_behind)).actions == (Launch(),)


def test_an_answer_for_a_label_that_other_loads_may_have_counts_for_its_transaction_alone() -> None:
    shared = replace(DECIDED_4, committables=(replace(LOADS[0], shares_label=True), LOADS[1]))
    for annotation, answers in (
        ("label-a=Aborted label-a#70=Aborted", {}),
        ("label-a#71=Aborted label-b=Committed", {"label-a": Answer.ABORTED, "label-b": Answer.COMMITTED}),
    ):
        actions = decide(seen(ledger=decided_ledger(shared), request=asked(settle_loads=annotation))).actions
        assert actions == (*([RecordAnswers(FOUR, answers)] if answers else []), Launch())
    assert DecidedBatch.from_json(shared.to_json()) == shared


def test_of_many_loads_some_labels_are_told() -> None:
    many = replace(DECIDED_4, committables=tuple(replace(LOADS[0], label=f"label-{number}") for number in range(30)))
    told = decide(seen(ledger=decided_ledger(many))).verdict.evidence[-1]
    assert told.data["loads"] == 30
    assert told.data["labels"] == [f"label-{number}" for number in range(20)]
    assert told.words.endswith("label-18, label-19 …")


def test_a_decided_batch_of_which_everything_was_committed_names_no_label() -> None:
    """Its driver died before it removed the files of its loads, or before it landed the batch."""
    verdict = decide(seen(logs(checkpointed=3), ledger=decided_ledger(replace(DECIDED_4, committables=())))).verdict
    assert verdict.evidence[-1].words == "batch 4 is decided: all of its rows are committed"
    assert verdict.message == "Batch 4 is decided and all of its loads are committed; the next driver lands it."


@pytest.mark.parametrize(
    ("facts", "told"),
    [
        pytest.param(
            seen(logs(5, 5, at(40, 30), at(50, 45)), request=asked(two_phases=True)),
            "Spark has committed batch 5, the sink holds up to batch 4",
            id="the checkpoint",
        ),
        pytest.param(
            seen(request=asked(two_phases=True), known=Known(BatchNumber(6))),
            "The resource's status knows that batch 6 landed, and the ledger holds batch 4 as the latest",
            id="the status",
        ),
        pytest.param(
            seen(Absent(), request=asked(two_phases=True), known=Known(BatchNumber(5))),
            "The resource's status knows that batch 5 landed, and the ledger holds batch 4 as the latest",
            id="the status, where the checkpoint is lost",
        ),
    ],
)
def test_a_ledger_that_holds_less_than_its_sink_halts_the_stream_by_what_knows_more(
    facts: Observation, told: str
) -> None:
    decision = decide(facts)
    assert isinstance(decision.verdict, Contradiction)
    assert decision.verdict.reason is ContradictionReason.LEDGER_BEHIND_SINK
    assert decision.verdict.message.startswith(told)
    assert f"{FRESH}=token-1" in decision.verdict.message
    assert all(isinstance(found, Evidence) for found in decision.verdict.evidence)
    by_the_status = facts.known is not None
    assert any("knownBatch" in found.data for found in decision.verdict.evidence) == by_the_status
    assert decision.halts


def test_a_ledger_of_such_a_sink_that_holds_what_is_known_goes_on() -> None:
    facts = seen(request=asked(two_phases=True), known=Known(BatchNumber(4)))
    assert isinstance(decide(facts).verdict, Resume)


def test_of_a_sink_in_the_database_of_the_ledger_the_rows_went_back_as_well() -> None:
    assert isinstance(decide(seen(logs(5, 5, at(40, 30), at(50, 45)))).verdict, RewindToSink)


@pytest.mark.parametrize(
    ("view", "words"),
    [
        pytest.param(
            decided_ledger(status=BatchStatus.LANDED),
            "it names batch 4 as decided and its table of batches says Landed",
            id="the batch has landed",
        ),
        pytest.param(
            decided_ledger(None),
            "batch 4 is Decided and nothing says what is to be committed of it",
            id="nothing says what is to be committed",
        ),
        pytest.param(
            replace(
                ledger(batches=(ROW_4, replace(ROW_4, batch=BatchNumber(5)))),
                decided=DECIDED_4,
            ),
            "batch 5 is Decided and nothing says what is to be committed of it",
            id="two batches are decided",
        ),
    ],
)
def test_a_ledger_contradicts_itself_about_a_decided_batch_when(view: LedgerView, words: str) -> None:
    decision = decide(seen(ledger=view))
    assert isinstance(decision.verdict, Contradiction)
    assert decision.verdict.reason is ContradictionReason.LEDGER_INCONSISTENT
    assert words in decision.verdict.message
    assert decision.halts
