"""A pass over a stream may die between any two of its effects; the next one comes to the same end."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from exactlyonce.api.status import Phase
from exactlyonce.checkpoint import files
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.launch.port import Running
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Positions, Ranges
from exactlyonce.reconcile.loop import Halted, Waiting
from tests.unit.launch_situations import (
    LAUNCHES,
    REFUNDS,
    checkpoint_lost,
    positions_reset,
    started_over,
    topic_deleted,
    topic_left_out,
)
from tests.unit.passes import KEYS, Died, Machine, ended
from tests.unit.stateful_passes import database_went_back, state_of

GENERATION = "generation-000001-a1"


def test_a_pass_records_raises_decides_acts_and_starts_in_this_order() -> None:
    machine = Machine()
    machine.run_pass()
    assert machine.effects == [
        "record Reconciling", "commit", "committed",  # the attempt, then the raise
        "record Launching", "create stream.json",  # the verdict with what is started, then its actions
        f"create {GENERATION}/metadata", f"create {GENERATION}/sources/0/0", f"create {GENERATION}/offsets/0",
        "commit", "committed",  # the generation is published
        "start driver 1",
    ]  # fmt: skip
    assert [kind for kind, _ in machine.reports] == ["FirstStart"]
    machine.assert_launched_as_published()


def test_what_is_known_of_the_driver_before_is_kept_until_a_rebuilt_checkpoint_is_published() -> None:
    machine = checkpoint_lost()
    before = machine.statuses.status.driver
    assert before is not None
    assert before.proof is not None
    machine.dies_before = 4
    with pytest.raises(Died, match="create generation-"):
        machine.run_pass()
    assert machine.effects == ["record Reconciling", "commit", "committed", "record Launching"]
    assert machine.statuses.status.driver == before
    machine.run_until_a_driver_runs()
    machine.assert_launched_as_published()


@pytest.mark.parametrize(
    ("prepare", "stands"), [pytest.param(*launch, id=launch[0].__name__.replace("_", " ")) for launch in LAUNCHES]
)
def test_an_operator_that_dies_between_any_two_effects_leaves_one_that_comes_to_the_same_end(
    prepare: Callable[[], Machine], stands: tuple[int, int]
) -> None:
    whole = prepare()
    whole.run_until_a_driver_runs()
    whole.assert_launched_as_published()
    assert whole.stands() == stands
    for place, effect in enumerate(whole.effects):
        machine = prepare()
        machine.dies_before = place
        with pytest.raises(Died):
            machine.run_until_a_driver_runs()
        machine.run_until_a_driver_runs()
        machine.assert_launched_as_published()
        assert machine.stands() == stands, f"it died before {effect!r}, effect {place} of {whole.effects}"
        assert sum(isinstance(state, Running) for state in machine.drivers.states.values()) == 1


def test_a_reset_that_died_between_any_two_effects_has_recorded_what_it_skips_once_and_is_done_once() -> None:
    whole = positions_reset()
    whole.run_until_a_driver_runs()
    for place, _ in enumerate(whole.effects):
        machine = positions_reset()
        machine.dies_before = place
        with pytest.raises(Died):
            machine.run_until_a_driver_runs()
        attempt = machine.run_until_a_driver_runs()
        skipped = [(row.partition, row.from_offset, row.until_offset, row.status) for row in machine.failures()]
        assert skipped == [(KEYS[0], 40, 60, FailureStatus.QUARANTINED)]
        seed = machine.view().batch(machine.view().stream.landed_batch or BatchNumber(0))
        assert seed is not None
        assert "jane asked for it at 2026-01-01T" in seed.note
        assert seed.note.endswith(": a wrong join.")
        machine.land(attempt, 70, 20)
        machine.end(attempt)
        machine.run_until_a_driver_runs()
        assert machine.stands() == (70, 20), "the annotation is still there and asks for nothing any more"
        assert machine.reports[-1][0] == "Resume"


def test_a_query_with_state_whose_database_went_back_goes_on_with_the_state_of_what_landed() -> None:
    machine = database_went_back()
    before = dict(machine.store.files)
    attempt = machine.run_until_a_driver_runs()
    assert state_of(machine) == {"2.snapshot": b"the state of version 2"}, "batch 1 made it; what followed is forgotten"
    assert {path: machine.store.files[path] for path in before} == before, "the old generation is left alone"
    assert machine.view().stream.landed_batch == 1, "its numbers continue, and batch 2 is planned again"
    assert [kind for kind, _ in machine.reports if kind != "Died"] == ["RewindToSink"]
    copies = [effect for effect in machine.effects if effect.startswith("copy ")]
    assert copies[-1].endswith("/offsets/1"), "the offset log comes last"
    machine.land(attempt, 55, 35)
    machine.end(attempt)
    machine.run_until_a_driver_runs()
    assert machine.reports[-1][0] == "Resume"


def test_a_query_with_state_whose_state_is_not_retained_halts_and_says_where_to_go_back_to() -> None:
    machine = database_went_back(whole=False)
    for _ in range(3):
        result = machine.run_pass()
        if isinstance(result, Halted):
            break
    assert isinstance(result, Halted)
    assert f"{GENERATION}/state/0/0 has no version 2, which batch 1 made" in result.message
    assert "restore the database to a moment when batch 2 or a later one had landed" in result.message
    assert "starts at the offsets orders-0@40, orders-1@30" in result.message


def test_a_topic_that_is_left_out_and_comes_back_goes_on_where_it_stood() -> None:
    machine = topic_left_out()
    machine.keys = (Partition("refunds", 0),)
    attempt = machine.run_until_a_driver_runs()
    machine.land(attempt, 12)
    machine.end(attempt)
    machine.reads("orders", "refunds")
    machine.keys = (*KEYS, Partition("refunds", 0))
    attempt = machine.run_until_a_driver_runs()
    assert machine.stands() == (40, 30, 12)
    machine.land(attempt, 41, 31, 13)
    machine.end(attempt)
    machine.run_until_a_driver_runs()
    assert [kind for kind, _ in machine.reports if kind != "Died"] == ["RebuildFromSink", "RebuildFromSink", "Resume"]


def test_what_is_lost_with_a_deleted_topic_is_recorded_once_whenever_the_operator_dies() -> None:
    whole = topic_deleted()
    whole.run_until_a_driver_runs()
    told = whole.reports[0][1]
    assert "records from refunds-0@7 on, if there were any, are lost; refunds-0 [7, 12) were planned" in told
    for place, effect in enumerate(whole.effects):
        machine = topic_deleted()
        machine.dies_before = place
        with pytest.raises(Died):
            machine.run_until_a_driver_runs()
        machine.run_until_a_driver_runs()
        lost = [row for row in machine.failures() if row.status is FailureStatus.LOST]
        found = [(row.partition, row.from_offset, row.until_offset) for row in lost]
        assert found == [(REFUNDS, 7, 12)], f"it died before {effect!r}"
        assert machine.view().retired.positions == Positions({REFUNDS: 7})
        row = machine.view().batch(lost[0].batch)
        assert row is not None
        assert row.note in told, "the ledger keeps what was told, also if nobody lived to tell it"


@pytest.mark.parametrize(("is_same", "stands"), [(False, 0), (True, 7)], ids=["recreated", "missing for a moment"])
def test_a_topic_that_is_gone_again_and_again_is_forgotten_each_time(is_same: bool, stands: int) -> None:
    """What is lost each time has the same offsets, and no record of one loss stands in the way of the next."""
    machine = topic_deleted()
    for life in range(2, 5):
        attempt = machine.run_until_a_driver_runs()
        machine.end(attempt)
        machine.run_pass()
        machine.topic.ends[REFUNDS] = 20
        machine.topic.replaced["refunds"] = "id-1" if is_same else f"id-{life}"
        attempt = machine.run_until_a_driver_runs()
        assert machine.stands() == (41, 31, stands)
        row = machine.view().stream
        assert row.checkpoint_path is not None
        assert row.landed_batch is not None
        folder = row.checkpoint_path.rsplit("/", 1)[-1]
        planned = Positions(dict(zip(machine.keys, (41, 31, 9), strict=True)))
        machine.store.files[f"{folder}/commits/{row.landed_batch}"] = files.render_commit()
        machine.store.files[f"{folder}/offsets/{row.landed_batch + 1}"] = files.render_offsets(
            CODEC.render_entry(planned), 8
        )
        machine.end(attempt)
        machine.run_pass()
        del machine.topic.ends[REFUNDS]
    machine.run_until_a_driver_runs()
    lost = [(row.from_offset, row.until_offset) for row in machine.failures() if row.status is FailureStatus.LOST]
    assert lost == [(7, 12), *[(stands, 9)] * 3]


def test_nothing_lands_in_a_partition_that_is_left_out() -> None:
    machine = topic_left_out()
    attempt = machine.run_until_a_driver_runs()
    with machine.ledger.transaction() as transaction:
        ranges = Ranges({KEYS[0]: OffsetRange(40, 50)})
        assert transaction.advance_positions("shop/orders", ranges, {"orders": "id-1"}) == 0
    assert machine.view().retired.positions == Positions({KEYS[0]: 40, KEYS[1]: 30})
    assert attempt == machine.view().stream.epoch


def test_a_changed_transform_is_written_down_before_its_driver_starts() -> None:
    machine = ended()
    before = machine.view().query
    machine.spec = {"transform": {"sql": "SELECT id + 1 AS id FROM source"}}
    machine.run_until_a_driver_runs()
    assert [kind for kind, _ in machine.reports] == ["Resume"]
    assert before is not None
    assert machine.view().query not in (None, before)
    assert machine.effects.index("committed") < machine.effects.index("start driver 2")


@pytest.mark.parametrize("fate", ["applied", "lost"])
def test_a_commit_whose_outcome_is_unknown_is_looked_at_again_by_the_next_pass(fate: str) -> None:
    fates = [fate, "answered", fate]
    machine = Machine()
    machine.database.hooks.commit_fate = lambda: fates.pop(0) if fates else "answered"
    first = machine.run_pass()
    assert isinstance(first, Waiting)
    assert first.message == "the connection was lost during COMMIT"
    assert machine.statuses.status.phase is Phase.BACKING_OFF
    machine.run_until_a_driver_runs()
    machine.assert_launched_as_published()
    assert fates == []


def test_a_stream_starts_over_once_and_an_annotation_left_behind_asks_nothing() -> None:
    machine = started_over()
    attempt = machine.run_until_a_driver_runs()
    machine.land(attempt, 7, 8)
    machine.end(attempt)
    resolved = machine.topic.start
    machine.topic.start = lambda view, only=None: pytest.fail(f"the start was resolved again: {resolved(view)}")  # type: ignore[method-assign]
    machine.run_until_a_driver_runs()
    assert machine.stands() == (7, 8)
    assert [kind for kind, _ in machine.reports] == ["FirstStart", "Died", "Resume"]
