"""A sink of two phases, broken on purpose: searched for over worlds whose sink takes loads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.ledger import publish, two_phase
from exactlyonce.ledger.decided import Answer, Committable, DecidedBatch
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce.reconcile import act, reset_offsets
from exactlyonce.reconcile.asked_reset import AskedReset
from exactlyonce_spark import landing_elsewhere, load_outcome, two_phase_finish, two_phase_landing
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.log_watch import LogWatch
from exactlyonce_spark.planned import PlannedBatch
from exactlyonce_spark.target import LoadState, TwoPhaseTarget
from tests.simulation import driver
from tests.simulation.two_phase_store import SinkSilent


@contextmanager
def committed_before_the_decision() -> Iterator[None]:
    """Two phases: loads are committed once they are prepared, and then the ledger records them."""
    land = two_phase_landing.land_two_phase

    def commit_first(
        ledger: Ledger,
        permit: Permit,
        target: TwoPhaseTarget,
        planned: PlannedBatch,
        prepare: Callable[[], tuple[Committable, ...]],
        check: Any,
    ) -> int:
        committables = prepare()
        two_phase_landing.commit_all(target, DecidedBatch(planned.number, committables))
        return land(ledger, permit, target, planned, lambda: committables, check)

    with mock.patch.object(landing_elsewhere, "land_two_phase", commit_first):
        yield


@contextmanager
def labels_without_the_epoch() -> Iterator[None]:
    """Two phases: a label names no epoch, so a driver takes the loads of its successor for those of a predecessor."""
    label = LoadLabels.label

    def of_nobody(self: LoadLabels, epoch: Epoch, batch: BatchNumber, part: str) -> str:
        return label(self, Epoch(0), batch, part)

    with mock.patch.object(LoadLabels, "label", of_nobody):
        yield


@contextmanager
def not_found_taken_for_aborted() -> Iterator[None]:
    """Two phases: a load that the sink does not know any more counts as aborted, and its rows are written again."""
    outcome = load_outcome.outcome

    def certain(target: TwoPhaseTarget, committable: Committable) -> LoadState:
        state = outcome(target, committable)
        return LoadState.ABORTED if state is LoadState.UNKNOWN else state

    with mock.patch.object(two_phase_finish, "outcome", certain):
        yield


@contextmanager
def the_next_batch_is_decided_before_this_one_landed() -> Iterator[None]:
    """Two phases: where the sink does not answer, a driver continues, and the next batch is decided in place of this one."""
    land = two_phase_landing.land_two_phase

    def goes_on(ledger: Ledger, *rest: Any) -> int:
        try:
            return land(ledger, *rest)
        except SinkSilent:
            return 0

    with (
        mock.patch.object(landing_elsewhere, "land_two_phase", goes_on),
        mock.patch.object(two_phase, "require_none_decided", lambda transaction, stream_id: None),
    ):
        yield


@contextmanager
def a_decided_load_is_aborted() -> Iterator[None]:
    """Two phases: a driver aborts all that its predecessors prepared, what a decision names included."""
    finish = two_phase_finish.finish_decided

    def abort_first(ledger: Ledger, permit: Permit, target: TwoPhaseTarget, write_again: Any) -> None:
        for load in list(target.open_loads()):
            if load.epoch < permit.epoch:
                target.abort(load)
        finish(ledger, permit, target, write_again)

    with mock.patch.object(driver, "finish_decided", abort_first):
        yield


@contextmanager
def rows_written_again_are_committed_unrecorded() -> Iterator[None]:
    """Two phases: rows that the sink aborted are written again and committed before the ledger names their new load."""
    committed = two_phase_finish._committed

    def commit_at_once(
        ledger: Ledger, permit: Permit, target: TwoPhaseTarget, decided: DecidedBatch, write_again: Any
    ) -> tuple[Committable, ...]:
        def write_and_commit(decided: DecidedBatch, aborted: Committable) -> tuple[Committable, ...]:
            again: tuple[Committable, ...] = write_again(decided, aborted)
            two_phase_landing.commit_all(target, DecidedBatch(decided.batch, again))
            return again

        return committed(ledger, permit, target, decided, write_and_commit)

    with mock.patch.object(two_phase_finish, "_committed", commit_at_once):
        yield


@contextmanager
def loads_of_a_successor_are_aborted() -> Iterator[None]:
    """Two phases: a driver aborts what a successor has just prepared, since its own look at the ledger does not name it."""

    def unnamed(load: Any, named: Any, permit: Permit) -> bool:
        return not any((one.label, one.transaction_id) == (load.label, load.transaction_id) for one in named)

    with mock.patch.object(two_phase_finish, "is_undecided", unnamed):
        yield


@contextmanager
def rows_are_made_again_of_other_records() -> Iterator[None]:
    """Two phases: what the sink aborted is read again without asking whether the records are those that were decided."""
    begin = LogWatch.begin

    def of_nothing(self: LogWatch, ranges: Any, origin_ids: Any, landed: Any, epochs: Any) -> None:
        begin(self, ranges, origin_ids, {}, epochs)

    with mock.patch.object(two_phase_finish, "LogWatch", type("Watch", (LogWatch,), {"begin": of_nothing})):
        yield


@contextmanager
def an_answer_counts_for_every_load_of_the_batch() -> Iterator[None]:
    """Two phases: what a person has found of one load is taken for what became of all that the sink has forgotten."""
    record = publish.record_answers

    def of_any(ledger: Ledger, stream_id: str, epoch: Epoch, batch: BatchNumber, answers: Mapping[str, Answer]) -> None:
        view = ledger.view(stream_id)
        decided = None if view is None else view.decided
        labels = [] if decided is None else [one.label for one in decided.committables]
        record(ledger, stream_id, epoch, batch, dict.fromkeys(labels, next(iter(answers.values()))))

    with mock.patch.object(act, "record_answers", of_any):
        yield


@contextmanager
def a_reset_runs_over_a_decided_batch() -> Iterator[None]:
    """Two phases: positions are set back to before a batch that is decided, and whose rows are yet to be committed."""
    problem = reset_offsets.reset_problem

    def over_it(asked: AskedReset, ledger: LedgerView, *given: Any, **named: Any) -> str | None:
        return problem(asked, replace(ledger, decided=None), *given, **named)

    with mock.patch.object(reset_offsets, "reset_problem", over_it):
        yield


@contextmanager
def rows_are_made_again_of_what_was_left_out() -> Iterator[None]:
    """Rows that the sink has aborted are made again of all records of their range, also of those the batch landed without."""
    with mock.patch.object(driver, "left_out_of_decided", lambda *_: ()):
        yield
