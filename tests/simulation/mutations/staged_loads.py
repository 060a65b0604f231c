"""Loads that commit once they are submitted, broken on purpose: searched for where rows wait in files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.fence import Permit
from exactlyonce.ledger.port import Ledger
from exactlyonce.ledger.two_phase import land_decided
from exactlyonce_spark import landing_elsewhere, two_phase_finish, two_phase_landing, two_phase_submit
from exactlyonce_spark.staged_loads import Cancelled, Finished, Outcome
from exactlyonce_spark.target import LoadState, TwoPhaseTarget
from exactlyonce_spark.two_phase_submit import staged_loads_of, submitted_state
from tests.simulation.staged_store import StoreLoads


@contextmanager
def submitted_before_the_decision() -> Iterator[None]:
    """Staged loads: a load is submitted once its file is written, and then the ledger decides the batch."""
    land = two_phase_landing.land_two_phase

    def submit_first(
        ledger: Ledger,
        permit: Permit,
        target: TwoPhaseTarget,
        planned: Any,
        prepare: Callable[[], tuple[Committable, ...]],
        check: Any,
    ) -> int:
        committables = prepare()
        for one in committables:
            if one.staged is not None:
                staged_loads_of(target).submit(one)
        return land(ledger, permit, target, planned, lambda: committables, check)

    with mock.patch.object(landing_elsewhere, "land_two_phase", submit_first):
        yield


@contextmanager
def submitted_before_the_record() -> Iterator[None]:
    """Staged loads: the statement of a load is sent, and then the ledger records that it is."""

    def send_first(ledger: Ledger, permit: Permit, target: TwoPhaseTarget, decided: DecidedBatch) -> DecidedBatch:
        for one in decided.committables:
            if one.staged is not None and one.staged.submitted_at_milliseconds is None:
                loads = staged_loads_of(target)
                loads.submit(one)
                submitted = replace(one.staged, submitted_at_milliseconds=loads.now_milliseconds())
                after = replace(one, staged=submitted)
                decided, _ = two_phase_submit._replaced(ledger, permit, decided, one, after)
        return decided

    with (
        mock.patch.object(two_phase_landing, "submit_decided", send_first),
        mock.patch.object(two_phase_finish, "submit_decided", send_first),
    ):
        yield


@contextmanager
def a_load_that_is_not_found_is_submitted_again() -> Iterator[None]:
    """Staged loads: a load that the sink does not know counts as one whose statement was never sent, and is submitted."""

    def sent_again(target: TwoPhaseTarget, committable: Committable, state: LoadState) -> LoadState:
        if state is LoadState.UNKNOWN and committable.staged is not None:
            staged_loads_of(target).submit(committable)
            return submitted_state(target, committable)
        return state

    with mock.patch.object(two_phase_finish, "settled", sent_again):
        yield


@contextmanager
def a_forgotten_load_counts_as_never_submitted() -> Iterator[None]:
    """Staged loads: a load that the sink does not know has come to nothing, however long ago it was submitted."""
    with mock.patch.object(two_phase_submit, "REMEMBERED_MILLISECONDS", 1 << 62):
        yield


@contextmanager
def rows_are_made_again_while_their_file_is_there() -> Iterator[None]:
    """Staged loads: a load that the sink does not know is made again, and its file stays for a statement that comes late."""

    def unfenced(target: TwoPhaseTarget, committable: Committable, state: LoadState) -> LoadState:
        staged = committable.staged
        if state is not LoadState.UNKNOWN or staged is None:
            return state
        now = staged_loads_of(target).now_milliseconds()
        return LoadState.ABORTED if two_phase_submit._is_remembered(staged, now) else state

    with (
        mock.patch.object(two_phase_finish, "settled", unfenced),
        mock.patch.object(two_phase_finish, "under_another_label", lambda target, decided, aborted: None),
    ):
        yield


@contextmanager
def a_load_that_finished_is_not_counted() -> Iterator[None]:
    """Staged loads: a load that has finished counts as committed, whether or not the sink has read a row of its file."""
    outcome_of = StoreLoads.outcome_of

    def uncounted(self: StoreLoads, committable: Committable) -> Outcome:
        outcome = outcome_of(self, committable)
        return Finished(committable.rows) if isinstance(outcome, Finished) else outcome

    with mock.patch.object(StoreLoads, "outcome_of", uncounted):
        yield


@contextmanager
def a_load_in_part_counts_as_cancelled() -> Iterator[None]:
    """Staged loads: a load that has finished with some of its rows has come to nothing, and all of them are made again."""
    outcome_of = StoreLoads.outcome_of

    def cancelled(self: StoreLoads, committable: Committable) -> Outcome:
        outcome = outcome_of(self, committable)
        is_part = isinstance(outcome, Finished) and outcome.rows != committable.rows
        return Cancelled() if is_part else outcome

    with mock.patch.object(StoreLoads, "outcome_of", cancelled):
        yield


@contextmanager
def files_are_removed_once_the_batch_has_landed() -> Iterator[None]:
    """Staged loads: the files of a batch are removed behind its landing, so a driver that dies in between leaves them there."""

    def land_first(ledger: Ledger, permit: Permit, target: TwoPhaseTarget, decided: DecidedBatch) -> None:
        land_decided(ledger, permit, decided.batch)
        two_phase_submit.remove_files(target, decided.committables)

    with mock.patch.object(two_phase_landing, "leave_out_files", land_first):
        yield
