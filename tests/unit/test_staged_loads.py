"""Loads that commit once they are submitted: each row counts once, whoever dies, is frozen or gets no answer."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import replace

import pytest

from exactlyonce.bounded_json import values_in
from exactlyonce.ledger import two_phase
from exactlyonce.ledger.decided import Answer, Committable, DecidedBatch, StagedFile
from exactlyonce.ledger.fence import Fenced
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.ledger.two_phase import DecisionTooLarge
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Ranges
from exactlyonce_spark.load_outcome import NotCommitted
from exactlyonce_spark.staged_loads import SubmissionRefused
from exactlyonce_spark.target import TwoPhaseTarget
from exactlyonce_spark.two_phase_finish import LoadsInDoubt
from exactlyonce_spark.two_phase_submit import NoStagedLoads, remove_undecided_files, submit_decided
from tests.ledgers import P0, P1
from tests.simulation.staged_store import MINUTE, JobState, StagingTarget, StoreLoads
from tests.simulation.two_phase_store import SinkSilent
from tests.staged_stream import OF_A_STAGED_BATCH, OF_A_STAGED_FINISH, StagedWorld
from tests.two_phase_stream import ALL, READS, Killed, Watch, killed_at

FIRST = BatchNumber(1)


def decided_and_dead(world: StagedWorld, watch: Watch, point: str = "batch.decided") -> None:
    killed_at(point, watch)
    with pytest.raises(Killed):
        world.land()


def test_a_load_is_submitted_once_the_ledger_says_so_and_its_file_is_gone_when_the_batch_lands(passed: Watch) -> None:
    world, seen = StagedWorld(), []

    def note(point: str) -> None:
        seen.append((point, len(world.files.jobs), len(world.files.files), str(world.status())))

    passed(note)
    world.land()
    steps = [step for step in seen if step[0].startswith(("batch.", "commit.", "submit."))][2:]
    assert steps == [
        ("batch.rows-written", 0, 2, "InProgress"),
        ("batch.source-checked", 0, 2, "InProgress"),
        ("batch.decided", 0, 2, "Decided"),
        ("submit.recorded", 0, 2, "Decided"),
        ("submit.sent", 1, 2, "Decided"),
        ("submit.recorded", 1, 2, "Decided"),
        ("submit.sent", 2, 2, "Decided"),
        ("commit.answered", 2, 2, "Decided"),
        ("commit.answered", 2, 2, "Decided"),
        ("submit.left-out", 2, 2, "Decided"),
        ("submit.file-removed", 2, 1, "Decided"),
        ("submit.file-removed", 2, 0, "Decided"),
        ("batch.committed", 2, 0, "Decided"),
        ("batch.landed", 2, 0, "Landed"),
    ]
    assert world.visible == ALL


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("point", OF_A_STAGED_BATCH)
def test_a_batch_of_files_whose_driver_dies_takes_effect_once(point: str, times: int, passed: Watch) -> None:
    world = StagedWorld()
    killed_at(point, passed, times)
    comes_twice = point in ("task.prepared", "commit.answered", "submit.recorded", "submit.sent", "submit.file-removed")
    with pytest.raises(Killed) if times == 1 or comes_twice else nullcontext():
        world.land()
    world.next_driver()
    world.land()
    assert world.landed_once()


@pytest.mark.parametrize("before", ["batch.decided", "submit.recorded", "submit.sent"])
@pytest.mark.parametrize("point", OF_A_STAGED_FINISH)
def test_a_driver_that_dies_while_it_finishes_files_is_followed_by_one_that_does(
    point: str, before: str, passed: Watch
) -> None:
    world = StagedWorld()
    decided_and_dead(world, passed, before)
    cancels = iter([True])
    world.files.cancels = lambda: next(cancels, False)
    killed_at(point, passed)
    with pytest.raises(Killed):
        world.next_driver()
    world.next_driver()
    world.land()
    assert world.landed_once()


@pytest.mark.parametrize("fate", ["applied", "lost", "late"])
@pytest.mark.parametrize("kind", ["put", "submit", "show", "remove", "ask", "list"])
def test_a_lost_answer_costs_no_record_and_doubles_none(kind: str, fate: str, passed: Watch) -> None:
    world = StagedWorld(fates={kind: [fate]})
    with nullcontext() if kind in ("put", "list") else pytest.raises(SinkSilent):
        world.land()
    with pytest.raises(SinkSilent) if kind == "list" else nullcontext():
        world.next_driver()
    world.next_driver()
    for act in world.files.under_way:
        act()
    world.files.progress()
    assert (world.visible, world.status()) == (ALL, BatchStatus.LANDED)


@pytest.mark.parametrize("skips_missing", [False, True])
def test_the_statement_of_a_driver_that_was_frozen_for_a_day_finds_no_file(skips_missing: bool, passed: Watch) -> None:
    world = StagedWorld()
    world.files.skips_missing = skips_missing
    frozen = world.target().staged_loads
    decided_and_dead(world, passed, "submit.recorded")
    load = world.decided().committables[0]
    world.next_driver()
    assert world.read_again == [Ranges({P0: READS[P0]})]
    world.forget()
    assert frozen is not None
    frozen.submit(load)
    for _ in range(3):
        world.files.progress()
    assert world.files.jobs[load.label].stage is (JobState.FINISHED if skips_missing else JobState.CANCELLED)
    assert world.landed_once()


def test_a_driver_that_is_fenced_submits_nothing(passed: Watch) -> None:
    world = StagedWorld()
    decided_and_dead(world, passed)
    fenced, decided = world.permit, world.decided()
    world.next_driver()
    submitted = len(world.files.jobs)
    with pytest.raises(Fenced):
        submit_decided(world.ledger, fenced, world.target(fenced), decided)
    assert len(world.files.jobs) == submitted


def test_a_statement_that_arrives_before_its_file_is_removed_is_waited_on(monkeypatch: pytest.MonkeyPatch) -> None:
    world = StagedWorld(fates={"submit": ["late"]})
    with pytest.raises(SinkSilent):
        world.land()
    remove = StoreLoads.remove

    def too_late(self: StoreLoads, file: StagedFile) -> None:
        for arrives in world.files.under_way:
            arrives()
        world.files.under_way.clear()
        world.files.progress()
        remove(self, file)

    monkeypatch.setattr(StoreLoads, "remove", too_late)
    world.next_driver()
    assert not world.read_again
    assert world.landed_once()


def test_a_load_that_is_cancelled_is_submitted_again_from_its_file_under_another_label(passed: Watch) -> None:
    world = StagedWorld()
    cancels = iter([True])
    world.files.cancels = lambda: next(cancels, False)
    with pytest.raises(NotCommitted, match="is aborted; the next driver finishes the batch"):
        world.land()
    before = {load.label: load.staged.name for load in world.decided().committables if load.staged is not None}
    seen: list[DecidedBatch] = []
    passed(lambda point: seen.append(world.decided()) if point == "submit.recorded" else None)
    world.next_driver()
    again = seen[-1].committables[0]
    assert again.staged is not None
    assert (again.label in before, again.staged.name in before.values()) == (False, True)
    assert not world.read_again
    assert world.landed_once()


@pytest.mark.parametrize("skips_missing", [False, True])
def test_rows_of_a_load_whose_file_is_gone_are_made_again(skips_missing: bool, passed: Watch) -> None:
    world = StagedWorld()
    world.files.skips_missing = skips_missing
    passed(lambda point: world.files.files.clear() if point == "batch.decided" else None)
    with pytest.raises(NotCommitted):
        world.land()
    passed(lambda point: None)
    world.next_driver()
    assert world.read_again == [Ranges({P0: READS[P0]}), Ranges({P1: READS[P1]})]
    assert world.landed_once()


def in_doubt(world: StagedWorld, watch: Watch) -> Committable:
    """A load is recorded as submitted, and nobody asks for ten minutes."""
    decided_and_dead(world, watch, "submit.recorded")
    load = world.decided().committables[0]
    world.files.now += 10 * MINUTE
    with pytest.raises(LoadsInDoubt, match=r"1 of its loads.*\(staged, 5 rows of orders-0 \[0, 5\)\)") as doubt:
        world.next_driver()
    assert load.label in str(doubt.value)
    assert "(remove them where it has only some)" in str(doubt.value)
    return load


def test_a_load_that_the_sink_may_have_forgotten_halts_the_stream_and_its_file_is_gone_when_a_person_looks(
    passed: Watch,
) -> None:
    world = StagedWorld()
    load = in_doubt(world, passed)
    assert load.staged is not None
    assert load.staged.name not in world.files.files
    world.answered({load.label: Answer.ABORTED})
    assert world.landed_once()


def test_a_load_that_a_person_has_found_is_not_made_again(passed: Watch) -> None:
    world = StagedWorld()
    decided_and_dead(world, passed, "commit.answered")
    world.forget()
    with pytest.raises(LoadsInDoubt, match="committed 1 of its loads"):
        world.next_driver()
    finished = {load.label: Answer.COMMITTED for load in world.decided().committables}
    world.answered({label: found for label, found in finished.items() if label in world.files.finished_labels})
    assert world.landed_once()


def test_an_answer_on_the_former_label_says_nothing_of_the_load_that_is_submitted_in_its_place(passed: Watch) -> None:
    """The first load of each file is cancelled, after a person has answered for it; then a second statement is lost."""
    world = StagedWorld(fates={"submit": ["answered", "answered", "lost"]})
    decided_and_dead(world, passed, "commit.answered")
    cancelled = {load.label: Answer.COMMITTED for load in world.decided().committables}
    for job in world.files.jobs.values():
        job.stage, job.rows = JobState.CANCELLED, ()
    world.visible.clear()
    with pytest.raises(SinkSilent):
        world.answered(cancelled)
    assert not {load.label for load in world.decided().committables if load.answer is not None} - set(cancelled)
    assert [load.answer for load in world.decided().committables if load.label not in cancelled] == [None] * 2
    world.forget()
    with pytest.raises(LoadsInDoubt):
        world.next_driver()


def test_a_clock_of_the_sink_that_went_back_proves_nothing(passed: Watch) -> None:
    world = StagedWorld()
    decided_and_dead(world, passed, "submit.recorded")
    world.files.now -= MINUTE
    with pytest.raises(LoadsInDoubt):
        world.next_driver()


def test_a_load_that_was_submitted_just_now_was_not_forgotten(passed: Watch) -> None:
    world = StagedWorld()
    decided_and_dead(world, passed, "submit.recorded")
    world.files.now += 10 * MINUTE - 1
    world.next_driver()
    assert world.landed_once()


def test_a_load_that_the_sink_does_not_take_is_recorded_as_not_submitted(
    passed: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = StagedWorld()

    def refused(self: StoreLoads, committable: Committable) -> None:
        raise SubmissionRefused("no right to load")

    with monkeypatch.context() as patched:
        patched.setattr(StoreLoads, "submit", refused)
        with pytest.raises(SubmissionRefused):
            world.land()
    world.files.now += 60 * MINUTE
    assert [load.staged and load.staged.submitted_at_milliseconds for load in world.decided().committables] == [
        None
    ] * 2
    world.next_driver()
    assert not world.read_again
    assert world.landed_once()


def test_files_that_cannot_be_removed_keep_the_batch_from_landing() -> None:
    world = StagedWorld(fates={"remove": ["lost"] * 2})
    with pytest.raises(SinkSilent):
        world.land()
    with pytest.raises(SinkSilent):
        world.next_driver()
    assert (world.visible, world.status()) == (ALL, BatchStatus.DECIDED)
    world.next_driver()
    assert world.landed_once()


def test_a_driver_removes_files_of_earlier_epochs_alone(passed: Watch) -> None:
    world = StagedWorld()
    decided_and_dead(world, passed, "batch.rows-written")
    of_the_first, first = dict(world.files.files), world.permit
    world.next_driver()
    assert not world.files.files
    decided_and_dead(world, passed, "batch.rows-written")
    of_the_second = dict(world.files.files)
    world.files.files.update(of_the_first)
    remove_undecided_files(world.target(first), first)
    assert world.files.files == {**of_the_second, **of_the_first}
    remove_undecided_files(world.target(), world.permit)
    assert world.files.files == of_the_second


def test_a_sink_that_submits_nothing_any_more_refuses_to_finish_a_batch_of_files(
    passed: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = StagedWorld()
    decided_and_dead(world, passed)
    monkeypatch.setattr(StagingTarget, "staged_loads", TwoPhaseTarget.staged_loads)
    with pytest.raises(NoStagedLoads, match="give it back the place of the files"):
        world.next_driver()
    assert (world.visible.total(), world.status()) == (0, BatchStatus.DECIDED)


def test_a_record_that_is_decided_can_be_read_once_its_loads_are_submitted_and_a_person_has_answered(
    passed: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in range(10, 60):
        monkeypatch.setattr(two_phase, "MOST_VALUES", most)
        world = StagedWorld()
        killed_at("batch.committed", passed)
        try:
            world.land()
        except DecisionTooLarge:
            continue
        except Killed:
            break
    world = StagedWorld()
    killed_at("commit.answered", passed)
    with pytest.raises(Killed):
        world.land()
    loads = tuple(replace(load, answer=Answer.COMMITTED) for load in world.decided().committables)
    assert len([load for load in loads if load.staged and load.staged.submitted_at_milliseconds]) == 2
    assert values_in(replace(world.decided(), committables=loads).to_json(), 1_000) == most


def test_what_is_recorded_of_a_file_is_read_as_it_was_written() -> None:
    prepared = Committable("label-a", "71", 5, Ranges({P0: OffsetRange(0, 5)}))
    staged = replace(prepared, transaction_id="", staged=StagedFile("s3://bucket/staging/label-a/0.parquet", "s3"))
    submitted = replace(staged, staged=StagedFile("s3://bucket/staging/label-a/0.parquet", "s3", 1_790_000_000_000))
    for committable in (prepared, staged, submitted):
        decided = DecidedBatch(FIRST, (committable,))
        assert DecidedBatch.from_json(decided.to_json()) == decided
    assert set(prepared.to_document()) == {"label", "transaction", "rows", "ranges"}


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"file": 3, "service": "s3"},
        {"file": "a"},
        {"file": "a", "service": "s3", "submittedAtMilliseconds": "now"},
        "a",
        ["a"],
    ],
)
def test_a_record_of_a_file_that_cannot_be_read_is_refused(document: object) -> None:
    staged = Committable("label-a", "", 5, Ranges({P0: OffsetRange(0, 5)}), staged=StagedFile("a", "s3"))
    broken = json.loads(DecidedBatch(FIRST, (staged,)).to_json())
    broken["committables"][0]["staged"] = document
    with pytest.raises(ValueError, match="no decided batch"):
        DecidedBatch.from_json(json.dumps(broken))
