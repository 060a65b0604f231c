"""Replays into a Kafka topic: each record is committed once, whoever dies, wakes late or gets no answer."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from exactlyonce.connectors.kafka.sink_spec import KafkaSink
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce.ledger.replay_decisions import read_decisions
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import Positions
from exactlyonce_spark.connectors.kafka.replay_transactions import PATIENCE_SECONDS, ReplayTransactions
from exactlyonce_spark.connectors.kafka.replaying import KafkaReplayTarget
from exactlyonce_spark.connectors.kafka.sink_checks import Topic, require_keeps_all
from exactlyonce_spark.connectors.kafka.sink_errors import KafkaRefuses
from exactlyonce_spark.connectors.kafka.sink_target import KafkaTarget
from exactlyonce_spark.load_labels import NO_EPOCH, LoadLabels, ReplayLabels, names_replay
from exactlyonce_spark.replay import Replay
from exactlyonce_spark.replay_outcome import ReplayOutcome, ReplayPace
from tests.kafka_sink_world import TRANSACTIONAL_ID, KafkaWorld, MemoryTransactions
from tests.ledgers import P0, P1, STREAM
from tests.quarantined_batch import ENDS, Reader, held, pass_over_first_batch, with_status
from tests.two_phase_stream import Killed, Watch, killed_at

QUARANTINED = Counter(f"{key.key}/{offset}" for key, end in ENDS.items() for offset in range(end))
OF_A_REPLAY = (
    "replay.claimed",
    "transaction.marked",
    "transaction.piece-sent",
    "replay.read",
    "replay.source-checked",
    "replay.decided",
    "replay.commit-answered",
    "replay.settled",
)
CHUNK = 4


@pytest.fixture
def world() -> KafkaWorld:
    """A stream that has continued after all records of its first batch."""
    made = KafkaWorld()
    pass_over_first_batch(made)
    return made


def marker_of(world: KafkaWorld, name: str) -> Any:
    return MemoryTransactions(world.brokers, name).take()


def target_of(world: KafkaWorld, token: str) -> KafkaReplayTarget:
    """Return the topic as a replay of its own process writes to it."""
    labels = ReplayLabels(STREAM, "token-1", token)
    transactions = MemoryTransactions(world.brokers, labels.name)

    def marker(name: str) -> Any:
        return marker_of(world, name)

    replays = ReplayTransactions(marker, 0.0)
    loads = KafkaTarget(
        transactions, transactions.take(), labels, NO_EPOCH, world.target().place, labels.name, marker, replays
    )
    return KafkaReplayTarget(loads)


def prepared(world: KafkaWorld, token: str) -> Replay:
    claim = ReplayClaim(STREAM, token)
    return Replay(world.ledger, claim, target_of(world, token), world.topic, Reader(world), ReplayPace(CHUNK))


def replay(world: KafkaWorld, token: str) -> ReplayOutcome:
    return prepared(world, token).run([RangeKey.of(row) for row in held(world)])


def dies(world: KafkaWorld, point: str, passed: Watch, times: int = 1) -> None:
    killed_at(point, passed, times)
    with pytest.raises(Killed):
        replay(world, "mine")
    passed(lambda point: None)


def assert_all_landed(world: KafkaWorld) -> None:
    assert world.brokers.committed == QUARANTINED
    assert sum(row.offset_count for row in with_status(world, FailureStatus.REPLAYED)) == QUARANTINED.total()
    assert not read_decisions(world.ledger, STREAM)


@pytest.mark.parametrize("point", OF_A_REPLAY)
@pytest.mark.parametrize("times", [1, 2])
def test_a_replay_that_dies_is_followed_by_one_that_lands_each_record_once(
    world: KafkaWorld, passed: Watch, point: str, times: int
) -> None:
    dies(world, point, passed, times if point not in ("replay.claimed", "transaction.marked") else 1)
    outcome = replay(world, "next")
    assert not outcome.told
    assert_all_landed(world)


@pytest.mark.parametrize("fate", ["lost", "late", "applied"])
def test_a_commit_without_an_answer_is_settled_by_the_marker(world: KafkaWorld, fate: str) -> None:
    world.brokers.fates = [*("answered",), fate]  # the first commit is that of a marker which says that there was none
    with suppress(ExactlyOnceError):  # it has fenced itself by asking what became of that commit
        replay(world, "mine")
    assert world.brokers.committed.total() == (CHUNK if fate == "applied" else 0)
    assert not read_decisions(world.ledger, STREAM)
    for request in world.brokers.under_way:
        with pytest.raises(ExactlyOnceError, match="fenced"):
            request()
    assert not replay(world, "next").told
    assert_all_landed(world)


def test_a_replay_that_sleeps_behind_its_decision_commits_nothing_once_another_has_finished_it(
    world: KafkaWorld, passed: Watch
) -> None:
    """The frozen one wakes when the next has landed its records."""

    def sleeps(point: str) -> None:
        if point == "replay.decided":
            passed(lambda point: None)
            assert not replay(world, "next").told
            assert_all_landed(world)

    passed(sleeps)
    with pytest.raises(ExactlyOnceError, match="fenced"):
        replay(world, "mine")
    assert_all_landed(world)


def land_a_batch(world: KafkaWorld) -> None:
    """Let the driver that runs land the batch of this world, which is of the records in quarantine again."""
    with world.ledger.transaction() as transaction:
        transaction.set_positions(
            STREAM, replace(transaction.read_positions(STREAM), positions=Positions({P0: 0, P1: 0}))
        )
    world.land()


def test_a_driver_leaves_a_decision_to_its_replay_for_a_while_and_then_finishes_it(
    world: KafkaWorld, passed: Watch
) -> None:
    dies(world, "replay.decided", passed)
    before = world.brokers.ids[name_of("mine")].epoch
    world.next_driver()
    assert len(read_decisions(world.ledger, STREAM)) == 1
    assert world.brokers.ids[name_of("mine")].epoch == before, "a replay that lives may commit"
    world.now_seconds += PATIENCE_SECONDS
    land_a_batch(world)
    assert not read_decisions(world.ledger, STREAM)
    assert world.brokers.ids[name_of("mine")].epoch > before


@pytest.mark.parametrize("point", ["replay.decided", "replay.commit-answered"])
def test_a_marker_that_brokers_have_forgotten_leaves_the_decision_to_a_person(
    world: KafkaWorld, passed: Watch, point: str
) -> None:
    dies(world, point, passed)
    world.brokers.forget_markers()
    (told,) = replay(world, "next").told
    assert "the sink no longer knows whether it has committed their load" in told
    assert sum(row.offset_count for row in with_status(world, FailureStatus.REPLAYED)) == QUARANTINED.total() - CHUNK


def test_a_replay_neither_ends_the_streams_transaction_nor_another_replay_that_has_decided_nothing(
    world: KafkaWorld, passed: Watch
) -> None:
    other = target_of(world, "other").loads
    other.transactions.begin()
    stream = world.brokers.ids[TRANSACTIONAL_ID].epoch if TRANSACTIONAL_ID in world.brokers.ids else None
    assert not replay(world, "mine").told
    other.transactions.abort()
    assert (world.brokers.ids[TRANSACTIONAL_ID].epoch if stream is not None else None) == stream


def name_of(token: str) -> str:
    return ReplayLabels(STREAM, "token-1", token).name


def test_the_id_of_a_replay_is_known_from_that_of_a_stream_and_is_covered_by_the_same_prefix() -> None:
    assert names_replay(name_of("mine"))
    assert name_of("mine") != name_of("other")
    assert not names_replay(TRANSACTIONAL_ID)
    assert name_of("mine").startswith(LoadLabels(STREAM, "token-1").prefix)


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_topic_that_keeps_the_latest_record_of_each_key_takes_no_replay(is_compacted: bool) -> None:
    sink = KafkaSink.model_validate({"bootstrapServers": "kafka:9092", "topic": "copies", "key": "id"})
    topic = Topic("cluster", 1, 1, 1_000_000, 1, is_compacted)
    if not is_compacted:
        require_keeps_all(sink, topic)
        return
    with pytest.raises(KafkaRefuses, match=r"topic copies: it is compacted \(cleanup.policy\), so of each key"):
        require_keeps_all(sink, topic)
