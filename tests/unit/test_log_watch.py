"""What a running driver asks of the log before it lands: over the simulation's topic."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from exactlyonce.connectors.kinesis.bounds import Fingerprints
from exactlyonce.positions.fingerprint import ZERO_ORIGIN_ID, Fingerprint
from exactlyonce.positions.ranges import PARTITION_END, BatchNumber, OffsetRange, Partition, Ranges
from exactlyonce_spark.log_watch import LogWatch
from exactlyonce_spark.source_check import LeaderChanged, RecordsReplaced
from tests.kinesis_api import KinesisApi, bounds_of
from tests.simulation.source import TOPIC, MemoryTopic

KEY = Partition(TOPIC, 0)
BATCH = BatchNumber(4)


class Scenario:
    """A driver that lands ten records per batch. `asked` are the questions that the source was asked."""

    def __init__(self, *, has_ids: bool = True) -> None:
        self.asked: list[str] = []
        self.topic = MemoryTopic({KEY: 100}, has_ids=has_ids, step=self.asked.append)
        self.watch = LogWatch(self.topic)
        self.ids = {TOPIC: "id-1" if has_ids else ZERO_ORIGIN_ID}
        self.landed: dict[Partition, Fingerprint] = {}
        self.stands = 0

    def run_batch(self, while_read: Callable[[], None] = lambda: None) -> None:
        ranges = Ranges({KEY: OffsetRange(self.stands, self.stands + 10)})
        self.watch.begin(ranges, self.ids, self.landed, self.watch.request_epochs(ranges)())
        while_read()
        self.watch.require(BATCH, ranges, self.ids)
        self.landed = dict(self.watch.fingerprints(ranges))
        self.stands += 10

    def lose_from(self, offset: int) -> None:
        """Another leader, which lacks the records from `offset` on, and producers that continue."""
        self.topic.truncate(KEY, offset)
        self.topic.ends[KEY] = 100


def test_under_one_leader_no_batch_but_a_drivers_first_compares_what_landed() -> None:
    scenario = Scenario()
    scenario.run_batch()
    scenario.run_batch()
    scenario.asked.clear()
    scenario.run_batch()
    assert scenario.asked == [
        "ask the source for leader epochs",
        "read single records",
        "ask the source for earliest, ids and leader epochs",
    ]


def test_a_new_leader_that_holds_what_landed_is_landed_from() -> None:
    scenario = Scenario()
    scenario.run_batch()
    scenario.topic.move_leader(KEY)
    scenario.run_batch()
    assert scenario.stands == 20


def test_a_new_leader_that_lacks_what_landed_ends_the_driver_with_partition_and_offset() -> None:
    scenario = Scenario()
    scenario.run_batch()
    scenario.lose_from(8)
    with pytest.raises(
        RecordsReplaced, match=r"records that have landed.*orders-0 at 9 .*Nothing of batch 4 was landed"
    ):
        scenario.run_batch()


def test_the_last_landed_record_is_compared_while_the_source_holds_it_and_retention_may_take_it() -> None:
    scenario = Scenario()
    scenario.run_batch()
    scenario.lose_from(8)
    scenario.topic.starts[KEY] = 9
    with pytest.raises(RecordsReplaced, match=r"orders-0 at 9 "):
        scenario.run_batch()
    scenario.topic.starts[KEY] = 10
    scenario.run_batch()
    assert scenario.stands == 20


def test_a_leader_that_lacks_only_what_had_not_landed_is_landed_from() -> None:
    scenario = Scenario()
    scenario.run_batch()
    scenario.lose_from(10)
    scenario.run_batch()
    assert scenario.stands == 20


def test_a_leader_that_changes_while_a_batch_is_read_lets_nothing_land_and_the_batch_is_read_again() -> None:
    scenario = Scenario()
    scenario.run_batch()
    with pytest.raises(LeaderChanged, match="orders-0 has changed while batch 4 was read"):
        scenario.run_batch(while_read=lambda: scenario.topic.move_leader(KEY))
    scenario.run_batch()
    assert scenario.stands == 20


def test_a_driver_compares_what_an_earlier_one_landed_before_it_lands_itself() -> None:
    scenario = Scenario()
    scenario.run_batch()
    scenario.lose_from(8)
    scenario.watch = LogWatch(scenario.topic)
    with pytest.raises(RecordsReplaced, match="have landed"):
        scenario.run_batch()


@pytest.mark.parametrize("batches", [0, 2])
def test_a_topic_without_an_id_that_is_recreated_while_a_batch_is_read_is_noticed_by_its_records(batches: int) -> None:
    scenario = Scenario(has_ids=False)
    for _ in range(batches):
        scenario.run_batch()

    def recreate() -> None:
        scenario.topic.recreate(TOPIC)
        scenario.topic.ends[KEY] = 100

    with pytest.raises(RecordsReplaced):
        scenario.run_batch(while_read=recreate)


def test_the_last_record_of_a_topic_without_an_id_is_known_also_where_it_was_not_there_yet_before_the_batch() -> None:
    """As where the topic is recreated just before the batch: then the tasks read records that had not been written."""
    scenario = Scenario(has_ids=False)
    scenario.topic.ends[KEY] = 5

    def produce() -> None:
        scenario.topic.ends[KEY] = 100

    scenario.run_batch(while_read=produce)
    assert scenario.landed[KEY].offset == 9


def test_a_partition_that_was_read_to_its_end_needs_no_fingerprint_and_nobody_is_warned(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario()
    monkeypatch.setattr(scenario.topic, "last_records", lambda _: Fingerprints({}))
    ranges = Ranges({KEY: OffsetRange(0, PARTITION_END)})
    scenario.watch.begin(ranges, scenario.ids, {}, scenario.watch.request_epochs(ranges)())
    scenario.watch.fingerprints(ranges)
    assert not caplog.records


def test_a_range_that_holds_no_record_lacks_no_fingerprint_and_hides_no_later_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario()
    ranges = Ranges({KEY: OffsetRange(0, 10)})
    monkeypatch.setattr(scenario.topic, "last_records", bounds_of(KinesisApi()).last_records)
    scenario.watch.begin(ranges, scenario.ids, {}, scenario.watch.request_epochs(ranges)())
    scenario.watch.fingerprints(ranges)
    assert not caplog.records, "it begins at TRIM_HORIZON"
    monkeypatch.setattr(scenario.topic, "last_records", lambda _: Fingerprints({}))
    later = Ranges({KEY: OffsetRange(10, 20)})
    scenario.watch.begin(later, scenario.ids, {}, scenario.watch.request_epochs(later)())
    scenario.watch.fingerprints(later)
    (warned,) = caplog.messages
    assert str(KEY) in warned
