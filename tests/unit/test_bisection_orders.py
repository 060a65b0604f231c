"""With Bisect the loop first has the failing records of a batch quarantined, and the whole batch where that was of no use."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from exactlyonce.launch.driver_document import DriverDocument
from exactlyonce.launch.port import Orders, Quarantine
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Halted
from tests.unit.passes import Machine
from tests.unit.test_batch_limit import fail, plan, status
from tests.unit.test_quarantine import ORDER, poisoned
from tests.unit.test_reconcile_in_pod import in_pods, run_init_container

BISECT: dict[str, Any] = {"recovery": {"maxFailuresPerBatch": 2, "onPoisonBatch": "Bisect"}}
TIMES = 2


def order_of(machine: Machine, attempt: Epoch) -> Quarantine:
    order = machine.drivers.orders[attempt].quarantine
    assert order is not None
    return order


def fails_again(machine: Machine) -> Epoch:
    attempt = machine.run_until_a_driver_runs()
    fail(machine, attempt, plan(machine, attempt, 60, 50), too_large=False)
    return attempt


def told(machine: Machine) -> list[str]:
    return [kind for kind, _ in machine.reports if kind in ("BatchBisected", "BatchQuarantined")]


def test_the_next_driver_looks_for_the_records_that_fail_by_themselves() -> None:
    machine = poisoned(BISECT)
    attempt = machine.run_until_a_driver_runs()
    assert order_of(machine, attempt) == Quarantine(2, '{"orders":{"0":60,"1":50}}', "It took too long.", bisect=True)
    verdict = status(machine).verdict
    assert verdict is not None
    assert verdict.message.endswith(
        "it failed too often, so the driver leaves out the records that fail by themselves, or the whole batch if none does, "
        "and quarantines what it leaves out."
    )
    assert told(machine) == ["BatchBisected"]


def test_where_that_was_of_no_use_the_whole_batch_is_quarantined_and_then_the_stream_halts() -> None:
    machine = poisoned(BISECT)
    for _ in range(TIMES):
        assert order_of(machine, fails_again(machine)).bisect
    for _ in range(TIMES):
        assert not order_of(machine, fails_again(machine)).bisect
        verdict = status(machine).verdict
        assert verdict is not None
        assert "leaves out the whole batch, and quarantines" in verdict.message
    result = machine.run_pass()
    assert isinstance(result, Halted)
    assert result.message.endswith("It was to be quarantined, and that has failed as well.")
    assert told(machine) == ["BatchBisected", "BatchQuarantined"]


def test_a_record_that_kills_whoever_reads_it_costs_its_batch_and_no_driver_after_driver() -> None:
    machine = poisoned(BISECT)
    for _ in range(TIMES):
        attempt = machine.run_until_a_driver_runs()
        assert order_of(machine, attempt).bisect
        machine.end(attempt)  # without a word
    assert not order_of(machine, machine.run_until_a_driver_runs()).bisect


def test_the_order_ends_when_the_batch_has_landed_without_them() -> None:
    machine = poisoned(BISECT)
    attempt = machine.run_until_a_driver_runs()
    machine.land(attempt, 60, 50)
    machine.end(attempt)
    attempt = machine.run_until_a_driver_runs()
    assert machine.drivers.orders[attempt].quarantine is None
    assert status(machine).poison_batch is None


@pytest.mark.parametrize(("asked", "bisect"), [("Quarantine", False), ("Halt", None)])
def test_a_resource_that_asks_for_something_else_meanwhile_gets_that(asked: str, bisect: bool | None) -> None:
    machine = poisoned(BISECT)
    machine.run_pass()
    machine.spec = {"recovery": {**BISECT["recovery"], "onPoisonBatch": asked}}
    order = machine.drivers.orders[machine.run_until_a_driver_runs()].quarantine
    assert (None if order is None else order.bisect) == bisect


def test_a_reconciliation_in_the_pod_says_the_same() -> None:
    machine = in_pods(poisoned(BISECT))
    attempt = machine.run_until_a_driver_runs()
    assert order_of(machine, attempt).bisect
    assert "leaves out the records that fail by themselves" in run_init_container(machine, attempt).message


def test_a_pod_that_is_to_quarantine_the_whole_batch_says_so() -> None:
    machine = in_pods(poisoned(BISECT))
    for _ in range(TIMES):
        attempt = machine.run_until_a_driver_runs()
        run_init_container(machine, attempt)
        machine.end(attempt)  # without a word: a record kills whoever reads it
    attempt = machine.run_until_a_driver_runs()
    assert not order_of(machine, attempt).bisect
    assert "leaves out the whole batch, and quarantines" in run_init_container(machine, attempt).message


def test_a_driver_reads_the_order_that_its_launcher_wrote() -> None:
    order = replace(ORDER, bisect=True)
    written = DriverDocument("shop/orders", {}, "local[2]").ordered(Orders("ticket", quarantine=order)).render()
    assert DriverDocument.parse(written).quarantine == order
