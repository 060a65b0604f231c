"""A batch that failed too often: the loop tells the next driver to continue after it, which keeps its ranges as failures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from exactlyonce.api.spec import Delivery
from exactlyonce.launch.driver_document import DriverDocument
from exactlyonce.launch.port import Orders, Quarantine
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import BatchStatus, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch, Positions
from exactlyonce.reconcile.in_pod import Brief
from exactlyonce.reconcile.loop import Halted, Waiting, Watching
from exactlyonce_spark.batch import BatchLoop
from exactlyonce_spark.batch_settings import BatchSettings
from exactlyonce_spark.left_out import NotToBeQuarantined
from exactlyonce_spark.planned import LandingRefused, OriginReplaced, PositionsDiffer
from exactlyonce_spark.source_check import RecordsLost
from tests.ledgers import P0, P1
from tests.simulation.source import MemoryTopic
from tests.unit.passes import STREAM, Machine, ended
from tests.unit.test_batch_limit import fail, failures, plan, status
from tests.unit.test_batch_loop import SOURCE, Scenario
from tests.unit.test_reconcile_in_pod import in_pods, run_init_container

ASKED = {"recovery": {"maxFailuresPerBatch": 2, "onPoisonBatch": "Quarantine"}}
ORDER = Quarantine(1, '{"orders":{"0":5,"1":0}}', "division by zero")


def poisoned(spec: dict[str, Any] | None = None, *, times: int = 2) -> Machine:
    """A stream whose batch up to 60 and 50, after the landed 40 and 30, failed so many times; the last end is not yet seen."""
    machine = ended()
    machine.spec = ASKED if spec is None else spec
    for _ in range(times):
        attempt = machine.run_until_a_driver_runs()
        fail(machine, attempt, plan(machine, attempt, 60, 50), too_large=False)
    return machine


def test_a_batch_that_failed_as_often_as_the_resource_allows_is_quarantined_by_the_next_driver_at_once() -> None:
    machine = poisoned()
    assert isinstance(machine.run_pass(), Waiting)
    attempt = Epoch(4)
    assert machine.run_pass() == Watching(attempt), "no wait is due"
    order = machine.drivers.orders[attempt].quarantine
    assert order == Quarantine(2, '{"orders":{"0":60,"1":50}}', "It took too long.")
    verdict = status(machine).verdict
    assert verdict is not None
    assert (verdict.kind, verdict.batch) == ("ReplayBatch", 2)
    assert "it failed too often, so the driver leaves out the whole batch, and quarantines" in verdict.message
    (told,) = [words for kind, words in machine.reports if kind == "BatchQuarantined"]
    assert told == "Batch 2 has failed 2 times and is quarantined; the last error: It took too long."


def test_a_batch_that_may_still_fail_is_only_run_again() -> None:
    machine = poisoned(times=1)
    attempt = machine.run_until_a_driver_runs()
    assert machine.drivers.orders[attempt].quarantine is None


def test_without_a_quarantine_the_stream_halts() -> None:
    machine = poisoned({"recovery": {"maxFailuresPerBatch": 2}})
    assert isinstance(machine.run_pass(), Halted)
    assert status(machine).poison_batch is None


def test_the_order_holds_through_the_death_of_its_driver_and_ends_when_the_positions_have_moved() -> None:
    machine = poisoned()
    for _ in range(5):
        attempt = machine.run_until_a_driver_runs()
        assert machine.drivers.orders[attempt].quarantine is not None
        machine.end(attempt)  # without a word: it read nothing of the batch, so that is not to blame
    attempt = machine.run_until_a_driver_runs()
    machine.land(attempt, 60, 50)
    machine.end(attempt)
    attempt = machine.run_until_a_driver_runs()
    assert machine.drivers.orders[attempt].quarantine is None
    assert status(machine).poison_batch is None


def test_a_quarantine_that_fails_as_often_as_the_batch_did_halts_the_stream() -> None:
    machine = poisoned()
    for _ in range(2):
        attempt = machine.run_until_a_driver_runs()
        fail(machine, attempt, plan(machine, attempt, 60, 50), too_large=False)
    result = machine.run_pass()
    assert isinstance(result, Halted)
    assert result.message.endswith("It was to be quarantined, and that has failed as well.")


def test_a_batch_whose_plan_somebody_wrote_over_is_quarantined_as_it_is_planned_now() -> None:
    machine = poisoned()
    for _ in range(2):
        attempt = machine.run_until_a_driver_runs()
        fail(machine, attempt, plan(machine, attempt, 60, 49), too_large=False)
    attempt = machine.run_until_a_driver_runs()
    order = machine.drivers.orders[attempt].quarantine
    assert order == Quarantine(2, '{"orders":{"0":60,"1":49}}', "It took too long.")
    machine.land(attempt, 60, 49)
    machine.end(attempt)
    machine.run_until_a_driver_runs()
    assert status(machine).poison_batch is None


def test_a_batch_of_a_query_that_keeps_state_halts_the_stream() -> None:
    machine = ended()
    machine.spec = ASKED
    machine.database.tables.rows[("stream", STREAM)] = replace(machine.view().stream, stateful=True)
    for _ in range(2):
        attempt = machine.run_until_a_driver_runs()
        fail(machine, attempt, plan(machine, attempt, 60, 50), too_large=False)
    result = machine.run_pass()
    assert isinstance(result, Halted)
    assert "cannot be quarantined: the query keeps state" in result.message


def test_a_batch_that_the_ledger_no_longer_knows_is_left_to_reconciliation() -> None:
    machine = poisoned()
    del machine.database.tables.rows[("batch", STREAM, BatchNumber(2))]
    attempt = machine.run_until_a_driver_runs()
    assert machine.drivers.orders[attempt].quarantine is None


def test_a_reconciliation_in_the_pod_knows_of_the_quarantine() -> None:
    machine = in_pods(poisoned())
    attempt = machine.run_until_a_driver_runs()
    orders = machine.drivers.orders[attempt]
    assert orders.quarantine is not None
    assert orders.brief is not None
    assert Brief.parse(orders.brief).poison == 2
    assert "it failed too often" in run_init_container(machine, attempt).message


def test_a_new_start_forgets_the_quarantine_of_the_life_before() -> None:
    machine = poisoned()
    machine.run_pass()
    assert status(machine).poison_batch is not None
    machine.annotations = {"exactlyonce.dev/fresh": machine.view().stream.token}
    attempt = machine.run_until_a_driver_runs()
    assert machine.drivers.orders[attempt].quarantine is None


def test_a_driver_reads_the_order_that_its_launcher_wrote() -> None:
    written = DriverDocument("shop/orders", {}, "local[2]").ordered(Orders("ticket", quarantine=ORDER)).render()
    assert DriverDocument.parse(written).quarantine == ORDER


# What the driver does.

QUARANTINED = FailureStatus.QUARANTINED


def quarantining(
    scenario: Scenario, order: Quarantine = ORDER, most: int = 1000, source: MemoryTopic = SOURCE
) -> BatchLoop:
    settings = BatchSettings(small_batch_records=0, quarantine=order, most_quarantined=most)
    return BatchLoop(scenario.ledger, scenario.permit, scenario.target, source, settings)


def ranges_of(scenario: Scenario) -> list[tuple[int, int, int, str]]:
    rows = failures(scenario)  # type: ignore[arg-type]  # all of it that is asked is its database
    return [(row.batch, row.from_offset, row.until_offset, row.error) for row in rows if row.status is QUARANTINED]


def test_the_positions_move_past_the_batch_its_ranges_are_kept_and_the_next_batch_lands() -> None:
    scenario = Scenario()
    loop = quarantining(scenario)
    assert loop.run(scenario.batch(1)) is None
    assert scenario.counts("row") == []
    assert ranges_of(scenario) == [(1, 0, 5, "division by zero")]
    view = scenario.ledger.view("shop/orders")
    assert view is not None
    assert (view.landed.positions, view.stream.landed_batch) == (Positions({P0: 5, P1: 0}), 1)
    batch = view.batch(BatchNumber(1))
    assert batch is not None
    assert (batch.status, batch.rows_written, batch.note) == (BatchStatus.QUARANTINED, 0, "division by zero")
    loop.run(scenario.batch(2))
    assert scenario.counts("row") == [5, 6, 7, 8], "only the batch of the order is passed over"


def test_what_is_quarantined_says_which_records_they_were() -> None:
    scenario = Scenario()
    quarantining(scenario).run(scenario.batch(1))
    view = scenario.ledger.view("shop/orders")
    assert view is not None
    (row,) = failures(scenario)  # type: ignore[arg-type]  # all of it that is asked is its database
    assert (row.origin_id, row.life) == (view.landed.origin_ids["orders"], view.stream.life)
    assert row.fingerprint is not None
    assert row.fingerprint == view.landed.fingerprints[row.partition], "of the last record of the range"


def test_a_driver_that_finds_the_batch_quarantined_recognises_it() -> None:
    scenario = Scenario()
    quarantining(scenario).run(scenario.batch(1))
    assert scenario.loop().run(scenario.batch(1)) is None
    assert scenario.counts("row") == []
    assert len(ranges_of(scenario)) == 1


@pytest.mark.parametrize(
    "order",
    [replace(ORDER, batch=2), replace(ORDER, until='{"orders":{"0":6,"1":0}}')],
    ids=["another batch", "the same number with other ranges"],
)
def test_a_batch_that_is_not_the_one_of_the_order_lands(order: Quarantine) -> None:
    scenario = Scenario()
    quarantining(scenario, order).run(scenario.batch(1))
    assert scenario.counts("row") == [0, 1, 2, 3]
    assert ranges_of(scenario) == []


def test_more_than_the_resource_allows_is_not_quarantined_and_nothing_is_changed() -> None:
    scenario = Scenario()
    before = scenario.ledger.view("shop/orders")
    with pytest.raises(
        NotToBeQuarantined, match=r"5 records would be in quarantine, more than recovery.maxQuarantined \(4\)"
    ):
        quarantining(scenario, most=4).run(scenario.batch(1))
    after = scenario.ledger.view("shop/orders")
    assert before is not None
    assert after is not None
    assert before.landed == after.landed
    assert ranges_of(scenario) == []


def test_a_query_that_keeps_state_is_not_made_to_go_on_behind_a_batch() -> None:
    scenario = Scenario()
    batch = scenario.batch(1)
    batch.stateful = True
    with pytest.raises(NotToBeQuarantined, match="the query keeps state"):
        quarantining(scenario).run(batch)
    assert ranges_of(scenario) == []


def test_a_source_that_was_replaced_is_noticed_before_its_records_are_quarantined() -> None:
    scenario = Scenario()
    topic = MemoryTopic({P0: 100, P1: 0}, topic_id="id-1")
    loop = quarantining(scenario, source=topic)
    topic.recreate(P0.origin)
    with pytest.raises((OriginReplaced, RecordsLost)):
        loop.run(scenario.batch(1))
    assert ranges_of(scenario) == []


def meanwhile(scenario: Scenario, happens: Callable[[MemoryTopic], object]) -> BatchLoop:
    """Return a driver in whose batch something happens between its begin and its landing."""
    topic = MemoryTopic({P0: 100, P1: 0}, topic_id="id-1")
    loop = quarantining(scenario, source=topic)

    def step(label: str) -> None:
        rows = scenario.database.tables.rows
        if label.startswith("ask the source for earliest") and ("batch", "shop/orders", 1) in rows:
            topic.step = lambda label: None
            happens(topic)

    topic.step = step
    return loop


def test_records_that_retention_takes_while_their_batch_is_quarantined_are_told_as_lost() -> None:
    """Nobody could replay them from quarantine."""
    scenario = Scenario()
    loop = meanwhile(scenario, lambda topic: topic.starts.update({P0: 3}))
    with pytest.raises(RecordsLost):
        loop.run(scenario.batch(1))
    assert ranges_of(scenario) == []


def test_a_batch_that_does_not_follow_on_what_has_landed_is_not_quarantined() -> None:
    scenario = Scenario()
    rows = scenario.database.tables.rows
    key = ("stream", "shop/orders")
    loop = meanwhile(
        scenario, lambda topic: scenario.database.tables.rows.update({key: replace(rows[key], landed_batch=7)})
    )
    with pytest.raises(LandingRefused, match="does not follow on batch 7"):
        loop.run(scenario.batch(1))
    assert ranges_of(scenario) == []


def test_a_batch_whose_partition_has_moved_already_is_not_quarantined() -> None:
    scenario = Scenario()
    key = ("position", "shop/orders", P0)
    loop = meanwhile(scenario, lambda topic: scenario.database.tables.rows.update({key: (5, "id-1", None)}))
    with pytest.raises(PositionsDiffer, match="the sink stands at 5"):
        loop.run(scenario.batch(1))
    assert ranges_of(scenario) == []


def test_a_session_that_hangs_with_the_streams_lock_is_ended_and_not_waited_for() -> None:
    def until(label: str, may_go: Callable[[], bool]) -> None:
        while not may_go():
            pass

    scenario = Scenario()
    scenario.database.hooks.wait = until

    def hang(topic: MemoryTopic) -> None:
        scenario.ledger.transaction().__enter__().lock_stream("shop/orders", Lock.UPDATE)

    meanwhile(scenario, hang).run(scenario.batch(1))
    assert ranges_of(scenario) == [(1, 0, 5, "division by zero")]


def test_as_many_as_the_resource_allows_are_quarantined_and_the_stream_keeps_no_state_for_that() -> None:
    scenario = Scenario()
    quarantining(scenario, most=5).run(scenario.batch(1))
    assert ranges_of(scenario) == [(1, 0, 5, "division by zero")]
    view = scenario.ledger.view("shop/orders")
    assert view is not None
    assert not view.stream.stateful


def test_with_any_delivery_a_quarantined_batch_writes_nothing() -> None:
    for delivery in Delivery:
        scenario = Scenario()
        loop = quarantining(scenario)
        loop._settings = replace(loop._settings, delivery=delivery)
        loop.run(scenario.batch(1))
        assert scenario.counts("row") == []
        assert len(ranges_of(scenario)) == 1
