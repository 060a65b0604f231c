"""A real Kinesis Client Library continues exactly where a stream has landed, and a stream where the library has stopped.

Kinesis and DynamoDB are moto's, stand-ins; the library is Amazon's own (testbed/kcl.lock). What each is given is counted by
ids.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from exactlyonce.connectors.kinesis.aggregation import user_records
from exactlyonce.connectors.kinesis.bounds import KinesisBounds
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.dynamo_db import DynamoDbAddress, dynamo_db_client
from exactlyonce.connectors.kinesis.lease_marks import name_of
from exactlyonce.connectors.kinesis.lease_mirror import KnownTable, Seen
from exactlyonce.connectors.kinesis.lease_plan import UNMOVED_SECONDS
from exactlyonce.connectors.kinesis.lease_table import LeaseTable
from exactlyonce.connectors.kinesis.leases import checkpoint_at
from exactlyonce.connectors.kinesis.login import KinesisAddress
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON, position_after_record
from exactlyonce.connectors.kinesis.reading import ShardReader
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.errors import StartInvalid
from exactlyonce.positions.ranges import Partition, Positions
from exactlyonce.schema.aws_login import AwsLogin
from exactlyonce.source.port import ShownStream
from testbed import kcl
from testbed.kinesis import Kinesis
from tests.combinations import only_in_full
from tests.kinesis_api import ManualTime, client_of
from tests.kinesis_in_memory import aggregated
from tests.rig import eventually
from tests.unit.shown_streams import ShownTopic, condition, started_from

TABLE = "shop-orders"


@pytest.fixture
def kinesis(tmp_path: Path) -> Iterator[Kinesis]:
    with Kinesis(tmp_path / "stand-in") as server:
        yield server


def shard(number: int) -> str:
    return f"shardId-{number:012}"


@dataclass
class Stream:
    """A data stream, and one who reads it as a stream of this project does: positions alone say where it continues."""

    kinesis: Kinesis
    name: str
    positions: dict[str, int] = field(default_factory=dict)
    sent: int = 0
    landed: list[str] = field(default_factory=list)
    shown: ShownStream = field(default=ShownStream("tests/handed-over", "system 7 database 5", "first"))
    time: ManualTime = field(default_factory=ManualTime)

    def __post_init__(self) -> None:
        login = AwsLogin(self.kinesis.access_key, self.kinesis.secret_key)
        self.client = client_of(self.kinesis.client(), self.time)  # it waits without letting time pass
        address = DynamoDbAddress(self.kinesis.region, self.kinesis.endpoint, login)
        self.table = LeaseTable(dynamo_db_client(address), TABLE)
        document = {
            "streamName": self.name,
            "region": self.kinesis.region,
            "start": {"from": "LeaseTable"},
            "leaseTable": {"tableName": TABLE},
        }
        self.spec = KinesisSource.model_validate(document)
        self.source = self.as_an_operator_that_has_just_started()

    def as_an_operator_that_has_just_started(self) -> KinesisBounds:
        """Return the source of one who has not looked at the leases yet."""
        return KinesisBounds(self.spec, self.client, KnownTable(self.table, Seen()))

    def put(self, records: int) -> None:
        """Put records with new ids, every fourth of them an aggregate of five."""
        made = []
        for number in range(records):
            ids = [str(self.sent + each) for each in range(5 if number % 4 == 0 else 1)]
            key = f"key {self.sent}"  # of the user records too: the library drops those that are not of their shard
            made.append((key, aggregated(ids, key) if len(ids) > 1 else ids[0].encode()))
            self.sent += len(ids)
        self.kinesis.put(self.name, *made)

    def land(self, shard_id: str, most: int = 1_000_000) -> None:
        """Land so many user records of a shard, or what there is."""
        reader = ShardReader(self.client, self.name, shard_id, self.positions[shard_id])
        while most:
            fetched = reader.fetch()
            for record in fetched.records:
                users = [one for one in user_records(record) if one.record.position >= self.positions[shard_id]]
                self.landed += [one.data.decode() for one in users[:most]]
                behind = position_after_record(record.sequence_number)
                self.positions[shard_id] = users[most].record.position if most < len(users) else behind
                most -= min(most, len(users))
                if not most:
                    return
            if fetched.at_end:
                self.positions[shard_id] = SHARD_END
            if fetched.at_end or not (fetched.records or fetched.milliseconds_behind):
                return

    def stands(self) -> Positions:
        """Return where the stream stands in each shard."""
        return Positions({Partition(self.name, shard_id): at for shard_id, at in self.positions.items()})

    def show(self) -> None:
        """Let the lease table show where the stream stands."""
        assert self.source.show_landed(self.shown, self.stands()) is None

    def assert_left_to_the_library(self) -> None:
        """Require that a stream which is resumed as it was leaves the leases alone, behind which the library has continued."""
        before = self.table.leases()
        told = self.as_an_operator_that_has_just_started().show_landed(self.shown, self.stands())
        assert told is not None
        assert told.words.startswith("A KCL application has continued behind the checkpoint that this stream wrote")
        assert self.table.leases() == before
        marks = [lease.mark for lease in before.values()]
        assert all(mark is not None and mark.stream == name_of(self.shown) for mark in marks), "the library keeps marks"

    def take_over(self) -> None:
        """Start over where the leases say."""
        self.shown = replace(self.shown, life=f"{self.shown.life}, and another", took_over=True)
        found = self.source.start(self.source.view())
        self.positions = {str(key.key): position for key, position in found.items()}

    def assert_no_other_stream_may_start_from_the_leases(self, worker: str) -> None:
        """Require that a takeover, which waits for real, is refused while a worker lives."""
        client = KinesisClient(KinesisAddress(self.kinesis.region), self.kinesis.client)
        source = KinesisBounds(self.spec, client, KnownTable(self.table, Seen()))
        with pytest.raises(
            StartInvalid, match=f"LeaseTable cannot be used while worker '{worker}' holds the lease of "
        ):
            source.start(source.view())

    def inside_an_aggregate(self, shard_id: str) -> bool:
        return bool(self.positions[shard_id] & ((1 << 32) - 1))


def test_a_kinesis_client_library_and_a_stream_hand_a_data_stream_to_each_other_record_by_record(
    kinesis: Kinesis, tmp_path: Path, name: str
) -> None:
    kinesis.create_stream(name, 2)
    stream = Stream(kinesis, name, {shard(0): TRIM_HORIZON, shard(1): TRIM_HORIZON})
    taken: list[str] = []

    def consume(most: int) -> None:
        given = kcl.consume(kinesis, name, TABLE, tmp_path / "kcl", most)
        taken.extend(each.data for each in given)

    def assert_each_once() -> None:
        assert Counter(stream.landed + taken) == Counter(map(str, range(stream.sent)))

    # From inside an aggregate, and from behind one.
    stream.put(40)
    for number in (0, 1):
        while not stream.inside_an_aggregate(shard(number)):
            stream.land(shard(number), 1)
    while stream.inside_an_aggregate(shard(0)):
        stream.land(shard(0), 1)
    stream.show()
    consume(stream.sent - len(stream.landed))
    assert_each_once()
    stream.assert_left_to_the_library()
    # After a split: one parent is at its end, its children are somewhere and at their starts; what is left is the library's.
    stream.take_over()
    kinesis.split(name, shard(0))
    stream.put(40)
    stream.land(shard(0))
    assert stream.positions[shard(0)] == SHARD_END
    stream.positions[shard(2)] = TRIM_HORIZON
    stream.land(shard(2), 3)
    stream.show()
    left = stream.sent - len(stream.landed) - len(taken)
    consume(left - 7)
    # The stream takes the rest, wherever in an aggregate the library has stopped, and after a merge the library continues.
    stream.take_over()
    kinesis.merge(name, shard(2), shard(3))
    stream.put(40)
    for number in (1, 2, 3):
        stream.land(shard(number))
    assert stream.positions[shard(2)] == stream.positions[shard(3)] == SHARD_END
    kinesis.split(name, shard(1))  # which the library reads to its end
    stream.put(12)
    stream.show()
    consume(stream.sent - len(stream.landed) - len(taken))
    assert_each_once()


def test_the_leases_that_a_living_library_renews_are_left_to_it_and_told_until_it_is_gone(
    kinesis: Kinesis, tmp_path: Path, name: str
) -> None:
    kinesis.create_stream(name, 2)
    stream = Stream(kinesis, name, {shard(0): TRIM_HORIZON, shard(1): TRIM_HORIZON})
    stream.put(20)
    for number in (0, 1):
        stream.land(shard(number), 2)
    stream.show()
    before = stream.table.leases()
    operator, machine = stream.as_an_operator_that_has_just_started(), started_from({})
    assert isinstance(machine.topic, ShownTopic)
    machine.topic.answer = lambda: operator.show_landed(stream.shown, stream.stands())
    machine.reports.clear()

    def told() -> tuple[str, str, str]:
        found = condition(machine)
        assert found is not None
        return found

    def await_renewals(worker: str) -> None:
        """Each lease is seen to be renewed by this worker."""
        since = stream.table.leases()

        def are_renewed() -> bool:
            leases = stream.table.leases()
            return all(each.owner == worker and each.counter > since[key].counter for key, each in leases.items())

        eventually(are_renewed, f"{worker} renews its leases", kcl.PATIENCE_SECONDS)

    with kcl.holding(kinesis, name, TABLE, tmp_path / "kcl") as worker:
        await_renewals(worker)
        for number in (0, 1):
            stream.land(shard(number))
        machine.run_pass()
        assert told()[:2] == ("False", "Pending"), "nobody knows yet whether the worker lives"
        await_renewals(worker)
        stream.time.seconds += 3600.0
        machine.run_pass()
        shards = f"{shard(0)}, {shard(1)}"
        two_consumers = f"Two consumers: worker '{worker}' of a KCL application holds the lease of {shards} in "
        assert told()[:2] == ("False", "TwoConsumers")
        assert told()[2].startswith(f"{two_consumers}{stream.table.place}, ")
        assert machine.reports == [("LandedNotShown", told()[2])]
        stream.assert_no_other_stream_may_start_from_the_leases(worker)
        await_renewals(worker)  # by their counters: had anything been written, the library would have lost them
        leases = stream.table.leases()
        assert {key: (lease.checkpoint, lease.mark) for key, lease in leases.items()} == {
            key: (lease.checkpoint, lease.mark) for key, lease in before.items()
        }
    machine.run_pass()
    assert told()[:2] == ("False", "TwoConsumers"), "it renewed them since the last look"
    stream.time.seconds += UNMOVED_SECONDS
    machine.run_pass()
    assert told()[:2] == ("True", "Shown")
    assert {key: (lease.owner, lease.checkpoint) for key, lease in stream.table.leases().items()} == {
        key: (None, checkpoint_at(position)) for key, position in stream.positions.items()
    }
    assert len(machine.reports) == 1


@only_in_full  # compatible with version 2, in which it takes leases within seconds: the test above
@pytest.mark.timeout(900)
def test_the_library_in_the_mode_of_version_3_alone_goes_on_from_the_leases_of_a_stream_and_hands_back(
    kinesis: Kinesis, tmp_path: Path, name: str
) -> None:
    """It adds an index to the table, and two tables of its own beside it."""
    kinesis.create_stream(name, 2)
    stream = Stream(kinesis, name, {shard(0): TRIM_HORIZON, shard(1): TRIM_HORIZON})
    stream.put(40)
    while not stream.inside_an_aggregate(shard(0)):
        stream.land(shard(0), 1)
    stream.show()
    given = kcl.consume(
        kinesis, name, TABLE, tmp_path / "kcl", stream.sent - len(stream.landed) - 7, seconds=400, version=3
    )
    taken = [each.data for each in given]
    stream.assert_left_to_the_library()
    stream.take_over()
    stream.put(12)
    for number in (0, 1):
        stream.land(shard(number))
    stream.show()
    assert Counter(stream.landed + taken) == Counter(map(str, range(stream.sent)))
    table = kinesis.client("dynamodb").describe_table(TableName=TABLE)["Table"]
    assert [index["IndexName"] for index in table["GlobalSecondaryIndexes"]] == ["LeaseOwnerToLeaseKeyIndex"]
