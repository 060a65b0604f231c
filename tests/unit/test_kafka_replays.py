"""Replays into a Kafka topic: each record is committed once, whoever dies, wakes late or gets no answer."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from exactlyonce.connectors.kafka.sink_spec import KafkaSink
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.ledger.decided import Answer
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce.ledger.replay_decisions import answer_decision, read_decisions
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.restored import FoundPart, settle_restored
from exactlyonce.ledger.rows import FailureStatus
from exactlyonce.positions.ranges import Positions
from exactlyonce_spark.connectors.kafka.replay_transactions import PATIENCE_SECONDS, ReplayTransactions
from exactlyonce_spark.connectors.kafka.replaying import KafkaReplayTarget
from exactlyonce_spark.connectors.kafka.sink_checks import Topic, require_keeps_all
from exactlyonce_spark.connectors.kafka.sink_errors import KafkaRefuses
from exactlyonce_spark.connectors.kafka.sink_target import KafkaTarget
from exactlyonce_spark.load_labels import NO_EPOCH, LoadLabels, ReplayLabels, names_replay
from exactlyonce_spark.replay import Replay
from exactlyonce_spark.replay_load_target import ReplayNotInLedger
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
OF_REPLAYS = ReplayLabels(STREAM, "token-1").name


@pytest.fixture
def world() -> KafkaWorld:
    """A stream that has continued after all records of its first batch."""
    made = KafkaWorld()
    pass_over_first_batch(made)
    return made


def marker_of(world: KafkaWorld, name: str) -> Any:
    return MemoryTransactions(world.brokers, name).take()


def target_of(world: KafkaWorld) -> KafkaReplayTarget:
    """Return the topic as a replay of its own process writes to it."""
    labels = ReplayLabels(STREAM, "token-1")
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
    return Replay(world.ledger, claim, target_of(world), world.topic, Reader(world), ReplayPace(CHUNK))


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
    before = world.brokers.ids[OF_REPLAYS].epoch
    world.next_driver()
    assert len(read_decisions(world.ledger, STREAM)) == 1
    assert world.brokers.ids[OF_REPLAYS].epoch == before, "a replay that lives may commit"
    world.now_seconds += PATIENCE_SECONDS
    land_a_batch(world)
    assert not read_decisions(world.ledger, STREAM)
    assert world.brokers.ids[OF_REPLAYS].epoch > before


@pytest.mark.parametrize("point", ["replay.decided", "replay.commit-answered"])
def test_a_marker_that_brokers_have_forgotten_leaves_the_decision_to_a_person(
    world: KafkaWorld, passed: Watch, point: str
) -> None:
    dies(world, point, passed)
    world.brokers.forget_markers()
    (told,) = replay(world, "next").told
    assert "the sink no longer knows whether it has committed their load" in told
    assert sum(row.offset_count for row in with_status(world, FailureStatus.REPLAYED)) == QUARANTINED.total() - CHUNK


def test_a_replay_ends_the_one_before_it_and_not_the_streams_transaction(world: KafkaWorld) -> None:
    other = target_of(world).loads
    other.transactions.begin()
    world.target()
    stream = world.brokers.ids[TRANSACTIONAL_ID].epoch
    assert not replay(world, "mine").told
    with pytest.raises(ExactlyOnceError, match="fenced"):
        other.transactions.abort()
    assert world.brokers.ids[TRANSACTIONAL_ID].epoch == stream


def test_the_id_of_replays_is_known_from_that_of_a_stream_and_is_covered_by_the_same_prefix() -> None:
    assert names_replay(OF_REPLAYS)
    assert names_replay(f"{OF_REPLAYS}:0123456789abcdef"), "as a replay of an earlier release was called"
    assert not names_replay(TRANSACTIONAL_ID)
    assert OF_REPLAYS.startswith(LoadLabels(STREAM, "token-1").prefix)


@pytest.mark.parametrize("point", ["replay.commit-answered", "replay.settled"])
def test_a_ledger_that_a_failover_took_a_decision_from_is_refused_before_anything_is_sent(
    world: KafkaWorld, passed: Watch, point: str
) -> None:
    before = world.ledger.database.tables.rows
    dies(world, point, passed)
    world.ledger.database.tables.rows = before
    with pytest.raises(
        ReplayNotInLedger, match=r"Kafka has committed exactlyonce:.*:replay:1, and the ledger counts 0"
    ):
        replay(world, "next")
    assert world.brokers.committed.total() == CHUNK
    found = [FoundPart(row.batch, str(row.partition), 0, CHUNK) for row in held(world) if row.partition == P0]
    settle_restored(world.ledger, STREAM, found)
    assert not replay(world, "last").told
    assert world.brokers.committed == QUARANTINED


def test_a_first_marker_after_brokers_have_forgotten_it_says_nothing_of_what_was_decided_before(
    world: KafkaWorld, passed: Watch
) -> None:
    dies(world, "replay.decided", passed)
    world.brokers.forget_markers()
    for token in ("next", "last"):  # the first of them writes a marker, and lands what is not in doubt
        told = replay(world, token).told
        assert token == "last" or "the sink no longer knows whether it has committed their load" in told[0]
    assert world.brokers.committed.total() == QUARANTINED.total() - CHUNK
    (decision,) = read_decisions(world.ledger, STREAM)
    answer_decision(world.ledger, STREAM, decision.load.label, Answer.ABORTED)
    assert not replay(world, "answered").told
    assert_all_landed(world)


def test_a_replay_that_lost_its_id_before_it_looks_records_nothing_of_what_another_has_decided(
    world: KafkaWorld, passed: Watch
) -> None:
    """Its marker is from before the other one's commit, by which the load would count as aborted."""
    late = prepared(world, "late")
    dies(world, "replay.commit-answered", passed)
    with pytest.raises(ExactlyOnceError, match="fenced"):
        late.run([RangeKey.of(row) for row in held(world)])
    assert not replay(world, "next").told
    assert_all_landed(world)


@pytest.mark.parametrize("is_compacted", [True, False])
def test_a_topic_that_keeps_the_latest_record_of_each_key_takes_no_replay(is_compacted: bool) -> None:
    sink = KafkaSink.model_validate({"bootstrapServers": "kafka:9092", "topic": "copies", "key": "id"})
    topic = Topic("cluster", 1, 1, 1_000_000, 1, is_compacted)
    if not is_compacted:
        require_keeps_all(sink, topic)
        return
    with pytest.raises(KafkaRefuses, match=r"topic copies: it is compacted \(cleanup.policy\), so of each key"):
        require_keeps_all(sink, topic)
