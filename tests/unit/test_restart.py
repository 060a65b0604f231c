"""What follows the end of a driver: the next one at once or later, a halt, or the end of the stream."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from exactlyonce.api.recovery import Backoff, Recovery
from exactlyonce.api.status import ConsecutiveFailures
from exactlyonce.launch.last_message import Ending, LastMessage
from exactlyonce.launch.port import Ended, Gone
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.reconcile.restart import (
    Finished,
    HaltStream,
    NextStep,
    Restart,
    after_ending,
    after_failure,
    with_another_batch,
)

NOW = datetime(2026, 1, 1, tzinfo=UTC)
RECOVERY = Recovery(max_failures_per_batch=3, backoff=Backoff(initial=timedelta(seconds=5), max=timedelta(seconds=60)))
DIED = Ended("the process is gone", None, "it was killed")
LOST = Gone("its node does not answer")


def said(ending: Ending, batch: int | None = None, message: str = "it said so.") -> Ended:
    """Return the end of a driver that left words."""
    return Ended("the process is gone", LastMessage(ending, message, batch), "")


def failed(batch: int) -> Ended:
    """Return the end of a driver whose batch failed."""
    return said(Ending.BATCH_FAILED, batch, f"batch {batch} broke.")


def follows(
    ending: Ended | Gone,
    consecutive_failures: ConsecutiveFailures,
    landed: tuple[int | None, int | None],
    in_hand: int | None,
) -> NextStep:
    """Return the next step; `landed` is the landed batch when the driver was started and now."""
    at_start, now = (None if number is None else BatchNumber(number) for number in landed)
    in_progress = None if in_hand is None else BatchNumber(in_hand)
    return after_ending(ending, at_start, now, in_progress, consecutive_failures, RECOVERY, NOW)


def waits(endings: list[tuple[Ended | Gone, bool]], recovery: Recovery = RECOVERY) -> list[float]:
    """Return the seconds waited after each of these endings; each tells whether its driver had landed a batch."""
    consecutive_failures, seconds, landed = ConsecutiveFailures(), [], 0
    for ending, lands in endings:
        before, landed = landed, landed + lands
        step = after_ending(ending, BatchNumber(before), BatchNumber(landed), None, consecutive_failures, recovery, NOW)
        assert isinstance(step, Restart)
        consecutive_failures = step.consecutive_failures
        assert consecutive_failures.retry_at == step.at
        seconds.append((step.at - NOW).total_seconds())
    return seconds


@pytest.mark.parametrize(
    ("endings", "seconds"),
    [
        pytest.param([(DIED, True)] * 5, [0, 0, 0, 0, 0], id="each one landed a batch before it died"),
        pytest.param([(DIED, False)] * 7, [0, 5, 10, 20, 40, 60, 60], id="none landed a batch"),
        pytest.param([(LOST, False)] * 3, [0, 5, 10], id="none landed a batch and none is proven dead"),
        pytest.param(
            [(DIED, False), (DIED, False), (DIED, True), (DIED, False)], [0, 5, 0, 5], id="one of them landed a batch"
        ),
        pytest.param([(said(Ending.FENCED), False)] * 3, [0, 5, 10], id="each one was fenced"),
        pytest.param([(said(Ending.FAILED), True)] * 2, [0, 0], id="each one failed outside of a batch after landing"),
        pytest.param(
            [(said(Ending.UNREACHABLE), True)] * 2 + [(said(Ending.UNREACHABLE), False)] * 3, [5, 5, 5, 10, 20],
            id="a store did not answer, so there is a wait even after a landed batch",
        ),
    ],
)  # fmt: skip
def test_the_first_restart_after_a_landed_batch_is_immediate_and_waits_grow_only_while_nothing_lands(
    endings: list[tuple[Ended | Gone, bool]], seconds: list[float]
) -> None:
    assert waits(endings) == seconds


def test_a_wait_is_never_longer_than_the_longest_however_often_nothing_lands() -> None:
    longest = Recovery(backoff=Backoff(initial=timedelta(hours=24), max=timedelta(hours=24)))
    assert set(waits([(LOST, False)] * 200, longest)[1:]) == {86400.0}


def test_the_first_batch_that_ever_lands_counts_as_landed() -> None:
    step = follows(DIED, ConsecutiveFailures(endings=4), (None, 0), None)
    assert step == Restart(NOW, ConsecutiveFailures(endings=1, retry_at=NOW))


@pytest.mark.parametrize(
    ("endings", "blamed"),
    [
        pytest.param([failed(7)] * 3, 7, id="its driver said so each time"),
        pytest.param([DIED, failed(7), DIED], 7, id="two of three drivers were killed while it ran"),
    ],
)
def test_a_batch_that_fails_as_often_as_allowed_halts_the_stream(endings: list[Ended], blamed: int) -> None:
    consecutive_failures = ConsecutiveFailures()
    for ending in endings[:-1]:
        step = follows(ending, consecutive_failures, (6, 6), blamed)
        assert isinstance(step, Restart)
        consecutive_failures = step.consecutive_failures
    last = endings[-1].words
    message = "the driver ended without a word" if last is None else last.message
    assert follows(endings[-1], consecutive_failures, (6, 6), blamed) == HaltStream(
        f"Batch 7 has failed 3 times; the last error: {message} Fix the cause, then start the stream again.",
        ConsecutiveFailures(endings=3, batch=7, batch_failures=3),
        BatchNumber(7),
    )


@pytest.mark.parametrize(
    "between",
    [
        pytest.param((failed(8), (6, 7), None), id="another batch fails"),
        pytest.param((DIED, (6, 7), None), id="a batch lands"),
    ],
)
def test_failures_are_counted_of_one_batch_in_a_row(between: tuple[Ended, tuple[int, int], int | None]) -> None:
    consecutive_failures = ConsecutiveFailures(endings=2, batch=7, batch_failures=2)
    step = follows(between[0], consecutive_failures, between[1], between[2])
    assert isinstance(step, Restart)
    again = follows(failed(7), step.consecutive_failures, (7, 7), None)
    assert isinstance(again, Restart)
    assert (again.consecutive_failures.batch, again.consecutive_failures.batch_failures) == (7, 1)


def test_refused_rows_are_those_of_the_latest_failure_and_go_with_their_batch() -> None:
    refused = replace(failed(7), words=LastMessage(Ending.BATCH_FAILED, "told", 7, refused_rows=3))
    counted: list[int | None] = []
    consecutive_failures = ConsecutiveFailures()
    for ending, landed in ((refused, (6, 6)), (DIED, (6, 6)), (failed(7), (6, 6)), (refused, (6, 6)), (DIED, (6, 7))):
        step = follows(ending, consecutive_failures.model_copy(update={"batch_failures": 0}), landed, None)
        assert isinstance(step, Restart)
        consecutive_failures = step.consecutive_failures
        counted.append(consecutive_failures.refused_rows)
    assert counted == [3, 3, None, 3, None]
    step = follows(refused, ConsecutiveFailures(), (6, 6), None)
    assert isinstance(step, Restart)
    assert with_another_batch(step.consecutive_failures, NOW).consecutive_failures.refused_rows is None


@pytest.mark.parametrize(
    ("ending", "in_hand"),
    [
        pytest.param(LOST, 7, id="its node is lost"),
        pytest.param(said(Ending.FENCED, 7), 7, id="a successor fenced it"),
        pytest.param(said(Ending.UNREACHABLE, 7), 7, id="a store did not answer"),
        pytest.param(said(Ending.FAILED), None, id="it failed outside of any batch"),
        pytest.param(DIED, None, id="it was killed without a running batch"),
        pytest.param(said(Ending.BATCH_FAILED), None, id="it does not know which batch failed"),
        pytest.param(replace(DIED, blames_batch=False), 7, id="its node took it away"),
    ],
)
def test_a_batch_is_not_blamed_for_and_not_cleared_by_a_driver_that(ending: Ended | Gone, in_hand: int | None) -> None:
    step = follows(ending, ConsecutiveFailures(endings=3, batch=7, batch_failures=2), (6, 6), in_hand)
    assert isinstance(step, Restart)
    assert (
        step.consecutive_failures.endings,
        step.consecutive_failures.batch,
        step.consecutive_failures.batch_failures,
    ) == (4, 7, 2)


@pytest.mark.parametrize(
    ("ending", "step"),
    [
        (said(Ending.DRAINED), Finished(completed=False)),
        (said(Ending.COMPLETED), Finished(completed=True)),
        (
            said(Ending.REFUSED, 7, "There is no table orders."),
            HaltStream("There is no table orders.", ConsecutiveFailures(endings=3, batch=7, batch_failures=2)),
        ),
    ],
)
def test_a_driver_that_says_it_is_done_or_refused_is_not_followed_by_another(ending: Ended, step: NextStep) -> None:
    assert follows(ending, ConsecutiveFailures(endings=2, batch=7, batch_failures=2), (6, 6), None) == step


def test_a_pass_that_could_not_do_its_work_waits_longer_each_time_and_blames_no_batch() -> None:
    consecutive_failures, seconds = ConsecutiveFailures(batch=7, batch_failures=2), []
    for _ in range(6):
        step = after_failure(consecutive_failures, RECOVERY, NOW)
        consecutive_failures = step.consecutive_failures
        seconds.append((step.at - NOW).total_seconds())
    assert seconds == [5, 10, 20, 40, 60, 60]
    assert consecutive_failures == ConsecutiveFailures(
        endings=6, batch=7, batch_failures=2, retry_at=NOW + timedelta(seconds=60)
    )
