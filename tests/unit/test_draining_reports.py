"""Why a driver ends after the current batch is reported once, in the status and as an event."""

from __future__ import annotations

import pytest

from exactlyonce.api.status import Phase
from exactlyonce.reconcile.loop import Wanted, Watching
from tests.unit.passes import FIRST, Machine


def of_a_plan() -> Machine:
    """Return a world whose first driver runs and was made of a plan."""
    machine = Machine()
    for _ in ("it is started", "it is seen to run"):
        machine.run_pass(plan="a plan")
    machine.reports.clear()
    return machine


@pytest.mark.parametrize(
    ("wanted", "plan", "words"),
    [
        (Wanted.REST, None, "Attempt 1 ends after the current batch: the stream is to be suspended."),
        (Wanted.RUN, "another plan", "Attempt 1 ends after the current batch: its resource has changed."),
        (Wanted.REST, "another plan", "Attempt 1 ends after the current batch: the stream is to be suspended."),
    ],
)
def test_a_driver_that_is_drained_is_reported_once_with_the_reason(
    wanted: Wanted, plan: str | None, words: str
) -> None:
    machine = of_a_plan()
    for _ in range(2):
        assert isinstance(machine.run_pass(wanted, plan), Watching)
        status = machine.statuses.status
        assert (status.phase, status.message) == (Phase.DRAINING, words)
    assert machine.reports == [("Draining", words)]
    assert FIRST in machine.drivers.drained
