"""Replays into a sink of two phases: one that dies at any point leaves each record to be loaded once, by whoever comes next."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection
from dataclasses import replace

import pytest

from exactlyonce.errors import Unreachable
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.giving_up import why_not_given_up
from exactlyonce.ledger.replay import ReplayClaim, claim_ranges
from exactlyonce.ledger.replay_decisions import NoSuchDecision, answer_decision, read_decisions
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.restored import LEAP, FoundPart, settle_restored
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import Epoch, Positions
from exactlyonce_spark.load_labels import ReplayLabels
from exactlyonce_spark.replay import Replay
from exactlyonce_spark.replay_load_target import ReplayNotInLedger
from exactlyonce_spark.replay_outcome import ReplayOutcome, ReplayPace
from exactlyonce_spark.replay_records import failing_records, looked_at_before
from exactlyonce_spark.target import LoadState
from tests.ledgers import P0, P1, STREAM
from tests.quarantined_batch import ENDS, Reader, held, pass_over_first_batch, with_status
from tests.simulation.loads_replay_world import StoreReplayTarget
from tests.simulation.numbered_loads import NumberedTarget
from tests.two_phase_stream import Killed, Watch, World, killed_at

QUARANTINED = Counter({("orders", key.key, offset): 1 for key, end in ENDS.items() for offset in range(end)})
LABELS = ReplayLabels(STREAM, "token-1")
OF_A_REPLAY = (
    "replay.claimed",
    "replay.read",
    "replay.source-checked",
    "replay.decided",
    "replay.commit-answered",
    "replay.settled",
)


@pytest.fixture
def world() -> World:
    """A stream that has continued after all records of its first batch."""
    made = World()
    pass_over_first_batch(made)
    return made


def replay(world: World, token: str, most: int = 4, wanted: Collection[RangeKey] | None = None) -> ReplayOutcome:
    """Run a replay of everything that is in quarantine, or of some ranges."""
    target = StoreReplayTarget(NumberedTarget(world.store, LABELS, Epoch(0)))
    run = Replay(world.ledger, ReplayClaim(STREAM, token), target, world.topic, Reader(world), ReplayPace(most))
    return run.run([RangeKey.of(row) for row in held(world)] if wanted is None else wanted)


def dies(world: World, point: str, passed: Watch, times: int = 1) -> None:
    killed_at(point, passed, times)
    with pytest.raises(Killed):
        replay(world, "mine")
    passed(lambda point: None)


@pytest.mark.parametrize("point", OF_A_REPLAY)
@pytest.mark.parametrize("times", [1, 2])
def test_a_replay_that_dies_is_followed_by_one_that_lands_each_record_once(
    world: World, passed: Watch, point: str, times: int
) -> None:
    dies(world, point, passed, times if point != "replay.claimed" else 1)
    outcome = replay(world, "next")
    assert world.visible == QUARANTINED
    assert not held(world)
    assert not outcome.told
    assert not read_decisions(world.ledger, STREAM)


@pytest.mark.parametrize("point", OF_A_REPLAY)
def test_what_a_replay_has_decided_is_finished_by_the_driver_that_starts_next_and_nothing_else_is(
    world: World, passed: Watch, point: str
) -> None:
    dies(world, point, passed)
    world.next_driver()
    is_decided = OF_A_REPLAY.index(point) >= OF_A_REPLAY.index("replay.decided")
    assert world.visible.total() == (4 if is_decided else 0)
    assert sum(row.offset_count for row in with_status(world, FailureStatus.REPLAYED)) == world.visible.total()
    replay(world, "next")
    assert world.visible == QUARANTINED


def test_a_driver_that_runs_finishes_behind_its_batch_what_a_replay_has_decided(world: World, passed: Watch) -> None:
    dies(world, "replay.decided", passed)
    with world.ledger.transaction() as transaction:  # so that the batch of this world follows
        transaction.set_positions(
            STREAM, replace(transaction.read_positions(STREAM), positions=Positions({P0: 0, P1: 0}))
        )
    world.land()
    assert not read_decisions(world.ledger, STREAM)
    assert sum(row.offset_count for row in with_status(world, FailureStatus.REPLAYED)) == 4


def test_ranges_that_are_decided_are_taken_given_up_and_put_back_by_nobody(world: World, passed: Watch) -> None:
    dies(world, "replay.decided", passed)
    (decided,) = [row for row in held(world) if row.is_decided]
    taken = claim_ranges(world.ledger, ReplayClaim(STREAM, "another"), [RangeKey.of(row) for row in held(world)])
    assert RangeKey.of(decided) not in {RangeKey.of(row) for row in taken.rows}
    assert any("is decided by a replay" in words for words in taken.refused)
    assert "is decided by a replay" in (why_not_given_up(decided) or "")


def test_a_load_that_the_sink_aborts_after_the_decision_leaves_its_ranges_in_quarantine(
    world: World, passed: Watch
) -> None:
    passed(lambda point: world.store._abort(1) if point == "replay.decided" else None)
    outcome = replay(world, "mine")
    passed(lambda point: None)
    assert outcome.landed == 4
    assert [words for words in outcome.told if "The sink has aborted the load" in words]
    assert sum(row.offset_count for row in with_status(world, FailureStatus.QUARANTINED)) == 4
    assert not replay(world, "next").told
    assert world.visible == QUARANTINED


def test_a_load_that_the_sink_has_aborted_since_is_landed_by_the_next_replay_which_tells_nothing_of_it(
    world: World, passed: Watch
) -> None:
    dies(world, "replay.decided", passed)
    world.store.abort_by_itself(lambda: True)
    outcome = replay(world, "next")
    assert world.visible == QUARANTINED
    assert (outcome.landed, outcome.told) == (QUARANTINED.total(), []), "its starter takes a sentence for a failure"


def test_a_replay_of_other_ranges_tells_nothing_of_a_load_in_doubt_and_one_of_its_ranges_tells_it_once(
    world: World, passed: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    dies(world, "replay.decided", passed)
    world.store.abort_by_itself(lambda: True)
    world.store.forget()
    decided = [RangeKey.of(row) for row in held(world) if row.is_decided]
    others = [RangeKey.of(row) for row in held(world) if not row.is_decided]
    with caplog.at_level(logging.WARNING):
        assert replay(world, "of-others", wanted=others).told == []
    assert "no longer knows whether it has committed" in caplog.text
    (words,) = replay(world, "of-it", wanted=decided).told
    assert "no longer knows whether it has committed" in words


@pytest.mark.parametrize("answer", [Answer.COMMITTED, Answer.ABORTED])
def test_a_load_that_the_sink_has_forgotten_waits_for_an_answer_and_each_record_is_loaded_once(
    world: World, passed: Watch, answer: Answer
) -> None:
    dies(world, "replay.commit-answered" if answer is Answer.COMMITTED else "replay.decided", passed)
    world.store.abort_by_itself(lambda: True)
    world.store.forget()
    told = replay(world, "next").told
    (label,) = [decision.load.label for decision in read_decisions(world.ledger, STREAM)]
    assert any("no longer knows whether it has committed" in words and label in words for words in told), told
    assert world.visible.total() == 4 + (4 if answer is Answer.COMMITTED else 0), "nothing of it is loaded meanwhile"
    with pytest.raises(NoSuchDecision):
        answer_decision(world.ledger, STREAM, "another", answer)
    answer_decision(world.ledger, STREAM, label, answer)
    replay(world, "last")
    assert world.visible == QUARANTINED
    assert not held(world)


def test_a_hasty_answer_counts_for_nothing_while_the_sink_knows_the_load(world: World, passed: Watch) -> None:
    dies(world, "replay.commit-answered", passed)
    (decision,) = read_decisions(world.ledger, STREAM)
    answer_decision(world.ledger, STREAM, decision.load.label, Answer.ABORTED)
    replay(world, "next")
    assert world.visible == QUARANTINED


def test_a_late_replay_that_has_lost_its_ranges_decides_nothing_and_aborts_its_load(
    world: World, passed: Watch
) -> None:
    """Another replay takes everything while this one has prepared its first chunk."""
    before: list[str] = []

    def overtaken(point: str) -> None:
        if point == "replay.source-checked" and not before:
            before.append(point)
            replay(world, "another")

    passed(overtaken)
    outcome = replay(world, "mine")
    assert world.visible == QUARANTINED
    assert any("is not held by this replay any more" in words for words in outcome.told)
    assert world.store.loads[1].state is LoadState.ABORTED


@pytest.mark.parametrize("fate", ["applied", "lost", "late"])
def test_answers_of_commits_that_are_lost_cost_no_record_and_double_none(world: World, fate: str) -> None:
    world.fates["commit"] = [fate] * 3
    try:
        replay(world, "mine")
    except Unreachable:
        replay(world, "next")
    for act in world.store.under_way:
        act()
    assert world.visible == QUARANTINED
    assert not held(world)


def test_a_driver_goes_on_where_the_sink_does_not_answer_for_a_load_of_a_replay(
    world: World, passed: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    dies(world, "replay.decided", passed)
    world.fates["commit"] = ["lost"] * 3
    with caplog.at_level(logging.WARNING):
        world.next_driver()
    assert "What a replay has decided could not be finished now" in caplog.text
    assert read_decisions(world.ledger, STREAM)


def goes_back(world: World, point: str, passed: Watch) -> None:
    """Let the ledger lose all that replays have done, once a replay has come to this point."""
    before = world.ledger.database.tables.rows
    dies(world, point, passed)
    world.ledger.database.tables.rows = before


@pytest.mark.parametrize("point", ["replay.commit-answered", "replay.settled"])
def test_a_ledger_that_went_back_to_before_a_decision_is_refused_and_continues_with_what_a_person_has_found(
    world: World, passed: Watch, point: str
) -> None:
    goes_back(world, point, passed)
    assert world.visible.total() == 4, "the sink has the load, and the ledger has its ranges in quarantine"
    for _ in range(2):
        with pytest.raises(
            ReplayNotInLedger, match=r"replay:1, and the ledger counts 0 loads of replays of shop/orders"
        ):
            replay(world, "next")
    assert world.visible.total() == 4
    assert {row.status for row in held(world)} == {FailureStatus.QUARANTINED}, "what was taken is put back"
    found = [FoundPart(row.batch, str(row.partition), 0, 4) for row in held(world) if row.partition == P0]
    assert settle_restored(world.ledger, STREAM, found) == LEAP
    assert not replay(world, "last").told
    assert world.visible == QUARANTINED
    assert not held(world)


def test_a_ledger_that_goes_back_once_more_is_refused_again(world: World, passed: Watch) -> None:
    goes_back(world, "replay.settled", passed)
    before = world.ledger.database.tables.rows
    found = [FoundPart(row.batch, str(row.partition), 0, 4) for row in held(world) if row.partition == P0]
    settle_restored(world.ledger, STREAM, found)
    replay(world, "last")
    world.ledger.database.tables.rows = before
    with pytest.raises(ReplayNotInLedger, match=r"replay:1, and the ledger counts 0"):
        replay(world, "next")
    settle_restored(world.ledger, STREAM, ())
    with pytest.raises(ReplayNotInLedger, match=rf"replay:{LEAP + 1}, and the ledger counts {LEAP}"):
        replay(world, "next")
    settle_restored(world.ledger, STREAM, [FoundPart(row.batch, str(row.partition), 0, None) for row in held(world)])
    assert not replay(world, "last of all").told
    assert world.visible == QUARANTINED


def test_what_a_replay_has_prepared_and_not_decided_is_aborted_by_the_one_that_needs_its_number(
    world: World, passed: Watch
) -> None:
    dies(world, "replay.read", passed)
    assert not replay(world, "next").told
    assert world.store.loads[1].state is LoadState.ABORTED
    assert [load.label for load in world.store.loads.values()][:2] == [f"{LABELS.name}:1"] * 2
    assert world.visible == QUARANTINED


def test_a_replay_that_another_has_overtaken_decides_its_load_under_the_next_number(
    world: World, passed: Watch
) -> None:
    """Another replay lands one partition while this one has prepared the other."""
    (of_p0,), (of_p1,) = ([RangeKey.of(row) for row in held(world) if row.partition == key] for key in (P0, P1))
    before: list[str] = []

    def overtaken(point: str) -> None:
        if point == "replay.source-checked" and not before:
            before.append(point)
            assert not replay(world, "another", wanted=[of_p1]).told

    passed(overtaken)
    outcome = replay(world, "mine", most=9, wanted=[of_p0])
    assert not outcome.told
    assert world.visible == QUARANTINED
    committed = [load.label for load in world.store.loads.values() if load.state is LoadState.COMMITTED]
    assert committed == [f"{LABELS.name}:1", f"{LABELS.name}:2"]


def test_a_ledger_that_went_back_is_told_at_once_where_a_divider_has_looked_at_the_part() -> None:
    with pytest.raises(ReplayNotInLedger), looked_at_before(is_divided=True), failing_records():
        raise ReplayNotInLedger("the sink has committed load 1")
