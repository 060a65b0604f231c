"""What a stream has taken over from the previous consumer: the lease table that it started from, and no other one."""

from __future__ import annotations

import pytest

from tests.unit.passes import FIRST
from tests.unit.shown_streams import ShownTopic, reading, started_from
from tests.unit.test_reconcile_in_pod import in_pods, run_init_container


def test_a_stream_that_has_started_from_a_lease_table_has_taken_it_over_and_no_other_one() -> None:
    machine = started_from({"from": "LeaseTable"})
    machine.run_pass()
    assert isinstance(machine.topic, ShownTopic)
    assert [stream.took_over for stream in machine.topic.streams] == [True, True]
    machine.spec = reading({"from": "LeaseTable"}, "app-of-somebody-else")
    machine.run_pass()
    assert not machine.topic.streams[-1].took_over


def test_a_stream_that_has_started_elsewhere_takes_nothing_over_whatever_its_resource_says_later() -> None:
    machine = started_from({"from": "TrimHorizon"})
    machine.spec = reading({"from": "LeaseTable"})
    machine.run_pass()
    assert isinstance(machine.topic, ShownTopic)
    assert [stream.took_over for stream in machine.topic.streams] == [False, False]


@pytest.mark.parametrize(("start", "later"), [("TrimHorizon", "LeaseTable"), ("LeaseTable", "TrimHorizon")])
def test_what_a_pod_has_taken_over_is_what_the_resource_said_when_the_pod_was_made(start: str, later: str) -> None:
    machine = in_pods()
    machine.spec = reading({"from": start})
    machine.run_pass()
    assert run_init_container(machine, FIRST).kind == "FirstStart"
    machine.spec = reading({"from": later})
    machine.run_pass()
    taken = "table app in eu-central-1" if start == "LeaseTable" else None
    assert machine.statuses.status.took_over == taken
