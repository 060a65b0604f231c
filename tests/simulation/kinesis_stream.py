"""A simulated Kinesis stream, as boto3 shows it: sparse numbers, splits and merges, aggregates, retention by age, another life.

The product's own client, reader of shards, planner and bounds ask it. It keeps what was put, where and when, which is what the
oracle counts by.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from exactlyonce.aws.calls import Clock
from exactlyonce.connectors.kinesis.codec import CODEC
from exactlyonce.connectors.kinesis.positions import SHARD_END, UserRecord, position_after_record
from exactlyonce.positions.ranges import Partition
from tests.kinesis_api import GREATEST_HASH_KEY, START_SECONDS, KinesisApi, StoredShard, refusal
from tests.kinesis_in_memory import aggregated
from tests.simulation.scheduler import Simulation
from tests.simulation.source import TOPIC, Record

_SECONDS_A_STEP = 0.02
_MOST_OPEN_SHARDS = 4
_MOST_SHARDS = 9


class SimulatedTime:
    """Time that passes a little with each step, and by as much as anybody sleeps or the world lets pass."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._slept_seconds = 0.0

    @property
    def seconds(self) -> float:
        """Seconds since the run began."""
        return self._slept_seconds + self._simulation.now * _SECONDS_A_STEP

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self._slept_seconds += seconds

    def clock(self, seed: int) -> Clock:
        """Return the clock of a process."""
        return Clock(
            lambda: self.seconds, lambda: START_SECONDS + self.seconds, self.sleep, random.Random(f"clock {seed}")
        )


@dataclass(frozen=True, slots=True)
class Put:
    """A user record: what it is in the table, where it lies and how long that is, when it came, in seconds and in steps."""

    record: Record
    shard: str
    position: int
    behind: int
    arrived: datetime
    step: int


@dataclass
class SimulatedStream(KinesisApi):
    """One stream. `before_call` is where others may run, and may raise what Kinesis answers.

    `puts` are the user records of all lives of the stream, by shard in the order of their positions; `gone` are the records
    that have expired, or went with a deleted stream. `parents` are those of each shard of each life.
    """

    before_call: Callable[[str], None] = lambda method: None
    late: Callable[[], None] = lambda: None
    steps: Callable[[], int] = lambda: 0
    life: int = 1
    up: bool = True
    version: int = 0
    puts: dict[tuple[int, str], list[Put]] = field(default_factory=dict)
    where: dict[Record, Put] = field(default_factory=dict)
    gone: set[Hashable] = field(default_factory=set)
    parents: dict[tuple[int, str], tuple[str, ...]] = field(default_factory=dict)
    closed_at: dict[str, datetime] = field(default_factory=dict)
    unlisted: set[str] = field(default_factory=set)
    former: dict[Partition, set[int]] = field(default_factory=dict)
    """Nothing: no record of a stream ever stands where another one stood."""

    has_ids = True
    address = "eu-west-1"
    codec = CODEC

    def __post_init__(self) -> None:
        self.shards = {}
        self.created = self._now

    # What the model of topics has as well: the world, its hazards and the oracle ask by the number of records.

    @property
    def ends(self) -> dict[Partition, int]:
        """How many user records each shard of the stream's present life has ever had."""
        return {Partition(TOPIC, shard): len(puts) for (life, shard), puts in self.puts.items() if life == self.life}

    def record(self, key: Partition, place: int) -> Record:
        """Return the user record at a place of a shard."""
        return (f"life-{self.life}", _number(str(key.key)), place)

    def before(self, key: Partition, position: int) -> int:
        """Return how many user records of a shard lie before a position."""
        return sum(put.position < position for put in self.puts.get((self.life, str(key.key)), ()))

    def of(self, key: Partition) -> Iterator[Put]:
        """Yield the user records of a shard, of all lives of the stream."""
        for life in range(1, self.life + 1):
            yield from self.puts.get((life, str(key.key)), ())

    @property
    def open_shards(self) -> list[str]:
        """The shards to which records are added."""
        return [name for name, shard in self.shards.items() if not shard.is_closed]

    def begin(self, shards: int) -> None:
        """Make the shards that the stream is created with."""
        bounds = [GREATEST_HASH_KEY * number // shards for number in range(shards)] + [GREATEST_HASH_KEY + 1]
        for number in range(shards):
            self._open(bounds[number], bounds[number + 1] - 1)

    def produce(self, shard: str, count: int, *, together: bool) -> None:
        """Add user records, each in a record of its own or all in one aggregate."""
        life = self.life, shard
        records = [self.record(Partition(TOPIC, shard), len(self.puts[life]) + more) for more in range(count)]
        texts = ["/".join(map(str, record)) for record in records]
        data = [aggregated(texts)] if together else [text.encode() for text in texts]
        numbers = self.put(*data, shard=shard)
        for place, record in enumerate(records):
            number, sub = (numbers[0], place) if together else (numbers[place], 0)
            is_last = not together or place == count - 1
            behind = position_after_record(number) if is_last else UserRecord(number, sub + 1).position
            put = Put(record, shard, UserRecord(number, sub).position, behind, self._now, self.steps())
            self.puts[life].append(put)
            self.where[record] = put
        self.version += 1

    def split(self, shard: str) -> None:
        """Close a shard and open two."""
        first, last = self.hash_keys[shard]
        middle = (first + last) // 2
        self._close(shard)
        self._open(first, middle, shard)
        self._open(middle + 1, last, shard)

    def merge(self, one: str, other: str) -> None:
        """Close two neighbours and open one."""
        self._close(one)
        self._close(other)
        self._open(self.hash_keys[one][0], self.hash_keys[other][1], one, other)

    def reshard(self, dice: random.Random) -> str | None:
        """Split a shard, or merge two, at random; return what was done."""
        opened = sorted(self.open_shards, key=lambda shard: self.hash_keys[shard])
        if len(self.shards) >= _MOST_SHARDS:
            return None
        if len(opened) > 1 and (len(opened) >= _MOST_OPEN_SHARDS or dice.random() < 0.5):
            place = dice.randrange(len(opened) - 1)
            self.merge(opened[place], opened[place + 1])
            return f"{opened[place]} and {opened[place + 1]} are merged"
        shard = dice.choice(opened)
        self.split(shard)
        return f"{shard} is split"

    def pass_retention(self) -> None:
        """Take what is older than the retention: records, and closed shards of which none is left."""
        self.expire_by_age()
        oldest = self._now - timedelta(hours=self.retention_hours)
        self.gone |= {put.record for (life, _), puts in self.puts.items() for put in puts if put.arrived <= oldest}
        for shard in [name for name, at in self.closed_at.items() if name in self.shards and at <= oldest]:
            del self.shards[shard]
        self.version += 1

    def delete(self) -> None:
        """Delete the stream."""
        self.is_missing = True
        self.gone |= {put.record for puts in self.puts.values() for put in puts}
        self.shards.clear()
        self.closed_at.clear()
        self.unlisted.clear()

    def create_again(self, shards: int) -> None:
        """Create it again under its name: shards are counted from the start."""
        self.life += 1
        self.is_missing, self.created = False, self._now + timedelta(milliseconds=self.life)
        self.begin(shards)
        self.version += 1

    def list_shards(self, **arguments: Any) -> dict[str, Any]:
        """List the shards but those that are left out for now."""
        listed = super().list_shards(**arguments)
        listed["Shards"] = [told for told in listed["Shards"] if told["ShardId"] not in self.unlisted]
        self.late()
        return listed

    def get_records(self, **arguments: Any) -> dict[str, Any]:
        """Answer, perhaps late: of what came meanwhile the answer does not tell."""
        shard = arguments["ShardIterator"].split(":")[0]
        if shard not in self.shards and not self.is_missing:
            self._called("get_records")
            raise refusal("ResourceNotFoundException", "GetRecords", f"Shard {shard} does not exist")
        made_seconds = float(arguments["ShardIterator"].split(":")[2])
        if START_SECONDS + made_seconds < self.created.timestamp():
            self._called("get_records")
            raise refusal("ExpiredIteratorException", "GetRecords", "It is one of the stream that was deleted")
        answer = super().get_records(**arguments)
        if "NextShardIterator" not in answer and self.chance.random() < 0.5:
            children = [name for name, parent in self.parents.items() if name[0] == self.life and shard in parent]
            answer["ChildShards"] = [{"ShardId": name} for _, name in children]
        self.late()
        return answer

    def put(self, *data: bytes, shard: str = "") -> list[int]:
        """Add records; a number is greater than those of all shards before, as those of Kinesis are made from the time."""
        return super().put(*data, shard=shard)

    def _called(self, method: str) -> None:
        self.before_call(method)

    def _open(self, first: int, last: int, *parents: str) -> None:
        numbers = [_number(shard) for life, shard in self.puts if life == self.life]
        name = f"shardId-{max(numbers, default=-1) + 1:012d}"
        self.shards[name] = StoredShard(parents)
        self.hash_keys[name] = first, last
        self.puts[self.life, name], self.parents[self.life, name] = [], parents
        self.version += 1

    def _close(self, shard: str) -> None:
        self.close_shard(shard)
        self.closed_at[shard] = self._now

    @property
    def _now(self) -> datetime:
        return datetime.fromtimestamp(START_SECONDS + self.time.seconds, UTC)


def is_passed(put: Put, position: int) -> bool:
    """Whether a stream that stands at a position of a shard has passed a user record."""
    return put.position < position or position == SHARD_END


def _number(shard: str) -> int:
    return int(shard.removeprefix("shardId-"))
