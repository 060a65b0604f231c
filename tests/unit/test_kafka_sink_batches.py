"""The rows of a batch are in Kafka once, wherever its driver dies and whatever becomes of its transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from exactlyonce.errors import ExactlyOnceError, RowsNotTaken
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.fence import Fenced, claim_epoch, raise_epoch
from exactlyonce.ledger.publish import record_answers
from exactlyonce.ledger.rows import BatchStatus
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark import crash_points
from exactlyonce_spark.connectors.kafka.sink_errors import KafkaAway, TransactionGone
from exactlyonce_spark.connectors.kafka.sink_marker import Marker
from exactlyonce_spark.crash_points import POINTS_OF_TRANSACTIONS
from exactlyonce_spark.two_phase_finish import LoadsInDoubt
from tests.kafka_sink_world import TRANSACTIONAL_ID, KafkaWorld
from tests.ledgers import STREAM, new_stream
from tests.two_phase_stream import OF_A_BATCH, OF_A_FINISH, READS, Killed, Watch, decided_and_dead, killed_at, span_of

ALL = Counter({f"{key.key}/{at}": 1 for key, span in READS.items() for at in range(*span_of(span))})
FIRST = BatchNumber(1)
OF_THE_DRIVER = [point for point in (*POINTS_OF_TRANSACTIONS, *OF_A_BATCH) if point != "task.prepared"]
OF_FINISHING = [point for point in OF_A_FINISH if point not in ("finish.aborted", "commit.answered")]


def landed_in_the_end(world: KafkaWorld, drivers: int = 4) -> None:
    """Start drivers until one lands the batch; each finishes first what is decided."""
    for _ in range(drivers):
        try:
            world.next_driver()
            world.land()
        except (Killed, KafkaAway, TransactionGone):
            continue
        break
    assert (world.brokers.committed, world.status()) == (ALL, BatchStatus.LANDED)


@pytest.mark.parametrize("point", OF_THE_DRIVER)
def test_a_batch_whose_driver_dies_is_in_the_topic_once(point: str, passed: Watch) -> None:
    world = KafkaWorld()
    killed_at(point, passed)
    with pytest.raises(Killed):
        world.land()
    assert world.brokers.committed in (Counter(), ALL), "a batch is seen as a whole, or not at all"
    landed_in_the_end(world)


@pytest.mark.parametrize("point", OF_FINISHING)
def test_a_driver_that_dies_while_it_finishes_a_batch_leaves_it_to_the_next_one(point: str, passed: Watch) -> None:
    world = KafkaWorld()
    killed_at("batch.decided", passed)
    with pytest.raises(Killed):
        world.land()
    killed_at(point, passed)
    with pytest.raises(Killed):
        world.next_driver()
    crash_points.watch(lambda point: None)
    landed_in_the_end(world)


def test_nothing_is_seen_before_the_ledger_has_decided(passed: Watch) -> None:
    world, seen = KafkaWorld(), []
    passed(lambda point: seen.append((point, world.brokers.committed.total(), str(world.status()))))
    world.land()
    assert [step for step in seen if step[0].startswith(("batch.", "commit."))][2:] == [
        ("batch.rows-written", 0, "InProgress"),
        ("batch.source-checked", 0, "InProgress"),
        ("batch.decided", 0, "Decided"),
        ("commit.answered", 8, "Decided"),
        ("batch.committed", 8, "Decided"),
        ("batch.landed", 8, "Landed"),
    ]


@pytest.mark.parametrize("fate", ["applied", "lost", "late"])
def test_a_lost_answer_to_a_commit_is_settled_by_the_marker_once_the_id_is_taken(fate: str) -> None:
    world = KafkaWorld()
    world.brokers.fates = ["answered", fate]  # the first is that of the marker alone
    with pytest.raises(KafkaAway):
        world.land()
    world.next_driver()
    for act in world.brokers.under_way:
        with pytest.raises(TransactionGone):
            act()
    assert bool(world.read_again) is (fate != "applied"), "rows are made again only where they were not committed"
    landed_in_the_end(world)


def test_rows_of_a_decided_transaction_that_the_brokers_aborted_are_made_again(passed: Watch) -> None:
    world = KafkaWorld()
    passed(lambda point: world.brokers.abort_by_time() if point == "batch.decided" else None)
    with pytest.raises(TransactionGone):
        world.land()
    crash_points.watch(lambda point: None)
    assert world.status() is BatchStatus.DECIDED
    world.next_driver()
    assert (world.read_again, world.brokers.committed) == ([READS], ALL)
    assert world.status() is BatchStatus.LANDED


def test_a_driver_that_was_superseded_behind_its_decision_commits_nothing(passed: Watch) -> None:
    """A zombie: it has decided, is frozen, and wakes when its successor has finished the batch."""
    world = KafkaWorld()

    def superseded(point: str) -> None:
        if point == "batch.decided":
            crash_points.watch(lambda point: None)
            world.next_driver()
            assert world.brokers.committed == ALL

    passed(superseded)
    with pytest.raises(TransactionGone):
        world.land()
    assert world.brokers.committed == ALL


def test_a_driver_that_was_superseded_before_its_decision_decides_nothing(passed: Watch) -> None:
    world = KafkaWorld()

    def superseded(point: str) -> None:
        if point == "batch.rows-written":
            crash_points.watch(lambda point: None)
            world.next_driver()

    passed(superseded)
    with pytest.raises(Fenced):
        world.land()
    assert not world.brokers.committed
    landed_in_the_end(world)


def test_a_superseded_driver_that_takes_the_id_again_costs_a_start_and_no_row(passed: Watch) -> None:
    """A zombie that is frozen before it takes the id: its epoch in Kafka is the greater one, and it is fenced by the ledger."""
    world = KafkaWorld()
    former = world.permit
    world.next_driver()

    def taken_from(point: str) -> None:
        if point == "batch.decided":
            crash_points.watch(lambda point: None)
            world.target(former)
            with pytest.raises(Fenced):
                world.finish(former)

    passed(taken_from)
    with pytest.raises(TransactionGone):
        world.land()
    assert world.status() is BatchStatus.DECIDED
    landed_in_the_end(world)


@pytest.mark.parametrize("point", ["batch.decided", "batch.committed"])
def test_a_marker_that_was_forgotten_leaves_a_doubt_that_no_later_driver_takes_for_an_answer(
    point: str, passed: Watch
) -> None:
    world = KafkaWorld()
    killed_at(point, passed)
    with pytest.raises(Killed):
        world.land()
    seen = Counter(world.brokers.committed)
    world.brokers.forget_markers()
    for _ in range(3):
        with pytest.raises(LoadsInDoubt, match="Look into the topic") as told:
            world.next_driver()
        assert not any(words in str(told.value) for words in ("the table", "remove them")), "it is a topic"
    assert (world.brokers.committed, world.status()) == (seen, BatchStatus.DECIDED)


@pytest.mark.parametrize(
    ("point", "answer"), [("batch.decided", Answer.ABORTED), ("batch.committed", Answer.COMMITTED)]
)
def test_a_persons_answer_ends_the_doubt_and_the_marker_is_one_again(point: str, answer: Answer, passed: Watch) -> None:
    world = KafkaWorld()
    killed_at(point, passed)
    with pytest.raises(Killed):
        world.land()
    world.brokers.forget_markers()
    with pytest.raises(LoadsInDoubt):
        world.next_driver()
    epoch = Epoch(world.permit.epoch + 1)
    raise_epoch(world.ledger, new_stream(world.ledger), epoch, "ticket")
    record_answers(world.ledger, STREAM, epoch, FIRST, dict.fromkeys(world.decided_labels(), answer))
    world.permit = claim_epoch(world.ledger, STREAM, epoch, "claim", "ticket")[0]
    world.finish()
    landed_in_the_end(world)
    assert bool(world.read_again) is (answer is Answer.ABORTED)


def test_rows_that_cannot_be_made_leave_no_transaction_open() -> None:
    world = KafkaWorld()

    def failing(after: int) -> Iterator[Any]:
        yield from world.rows(READS)[:after]
        raise RowsNotTaken("the query failed")

    for after in (0, 1):
        with pytest.raises(RowsNotTaken):
            world.target().prepare(FIRST, "driver-1", failing(after))
        assert world.brokers.ids[TRANSACTIONAL_ID].open is None
    assert not world.brokers.committed


def test_a_marker_is_written_again_after_an_hour_so_that_a_stream_with_few_rows_keeps_one() -> None:
    world, commits = KafkaWorld(), list[str]()
    world.brokers.fates = CountedFates(commits)
    world.target().prepare(FIRST, "driver-1", world.rows(READS))
    assert len(commits) == 1, "one of its own for the first batch"
    world.target().prepare(FIRST, "driver-2", world.rows(READS))
    assert len(commits) == 1
    world.now_seconds = 3601
    world.brokers.forget_markers()
    world.target().prepare(FIRST, "driver-3", world.rows(READS))
    assert len(commits) == 2
    assert Marker.from_metadata(world.brokers.ids[TRANSACTIONAL_ID].marker) == Marker()


def test_a_marker_that_is_written_again_still_names_the_latest_batch() -> None:
    """By the driver that has committed it, and by the next one: a ledger that went back is known by it."""
    world = KafkaWorld()
    world.land()
    world.now_seconds = 7200.0
    for _ in range(2):
        world.target().prepare(BatchNumber(2), "driver-1", world.rows(READS))
        marker = Marker.from_metadata(world.brokers.ids[TRANSACTIONAL_ID].marker)
        assert marker is not None
        assert marker.batch == FIRST
        world.next_driver()


def test_what_was_decided_in_an_earlier_life_is_settled_under_the_id_of_that_life(passed: Watch) -> None:
    """An adopted stream has another token, and so another transactional id."""
    world = KafkaWorld()
    decided_and_dead(world, passed)
    world.token = "token-2"
    world.next_driver()
    assert not world.read_again, "the marker of the earlier life says that it was committed"
    assert (world.brokers.committed, world.status()) == (ALL, BatchStatus.LANDED)


def test_a_batch_that_failed_is_aborted_before_another_one_begins() -> None:
    world = KafkaWorld()
    target = world.target()
    assert target.prepare(FIRST, "driver-1", world.rows(READS)) is not None
    load = target.prepare(FIRST, "driver-2", world.rows(READS))
    assert load is not None
    assert world.brokers.ids[TRANSACTIONAL_ID].open is not None
    assert not world.brokers.committed


def test_a_batch_without_rows_leaves_no_transaction_open_and_keeps_the_marker() -> None:
    """Else a stream whose query yields nothing for a week would have a ledger that goes back unnoticed."""
    world, commits = KafkaWorld(), list[str]()
    world.land()
    world.brokers.fates = CountedFates(commits)
    for at_seconds, marked in [(3599.0, 0), (7200.0, 1), (7201.0, 1), (14400.0, 2)]:
        world.now_seconds = at_seconds
        world.brokers.forget_markers()
        assert world.target().prepare(BatchNumber(2), "driver-1", []) is None
        assert (len(commits), world.brokers.ids[TRANSACTIONAL_ID].open) == (marked, None)
        found = Marker.from_metadata(world.brokers.ids[TRANSACTIONAL_ID].marker)
        assert (found and found.batch) == (FIRST if at_seconds in (7200.0, 14400.0) else None)


@pytest.mark.parametrize(
    "text", ["", "5", "{}", '{"label": 1, "batch": 2}', '{"label": "x", "batch": -1}', '{"label": null, "batch": 1}']
)
def test_what_somebody_else_has_committed_is_no_marker(text: str) -> None:
    assert Marker.from_metadata(text) is None


class CountedFates(list[str]):
    """Fates of which each is an answer; whoever commits is counted."""

    def __init__(self, commits: list[str]) -> None:
        super().__init__(["answered"] * 100)
        self.commits = commits

    def pop(self, place: int = -1) -> str:  # type: ignore[override]
        self.commits.append("commit")
        return super().pop(place)


assert issubclass(TransactionGone, ExactlyOnceError)
