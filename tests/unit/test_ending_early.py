"""A driver that is asked to end waits only for a batch that can land."""

from __future__ import annotations

import pytest

from exactlyonce.api.spec import Delivery
from exactlyonce_spark.ending_early import SETTLING_SECONDS, ends_at_once


@pytest.mark.parametrize("executors", [None, 1, 7])
def test_a_batch_that_can_run_is_waited_for_however_long_it_takes(executors: int | None) -> None:
    for delivery in Delivery:
        assert not ends_at_once(
            delivery, has_batch=True, in_trigger=True, executors=executors, asked_seconds=10 * SETTLING_SECONDS
        )


@pytest.mark.parametrize(
    ("delivery", "ends"),
    [(Delivery.EXACTLY_ONCE, True), (Delivery.AT_LEAST_ONCE, True), (Delivery.AT_MOST_ONCE, False)],
)
def test_a_batch_that_no_executor_runs_is_not_waited_for_unless_it_would_be_lost(
    delivery: Delivery, ends: bool
) -> None:
    assert ends is ends_at_once(delivery, has_batch=True, in_trigger=True, executors=0, asked_seconds=0.0)


@pytest.mark.parametrize("executors", [None, 0, 3])
def test_a_query_between_two_batches_ends_at_once(executors: int | None) -> None:
    assert ends_at_once(
        Delivery.EXACTLY_ONCE, has_batch=False, in_trigger=False, executors=executors, asked_seconds=0.0
    )


def test_a_query_that_has_planned_nothing_has_seconds_to_write_its_commit_log_and_no_more() -> None:
    """Its source may not answer, and then no batch is planned for as long as that lasts."""
    for asked_seconds, ends in ((0.0, False), (SETTLING_SECONDS, True)):
        assert ends is ends_at_once(
            Delivery.EXACTLY_ONCE, has_batch=False, in_trigger=True, executors=2, asked_seconds=asked_seconds
        )
