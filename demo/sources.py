"""Where the demo's orders come from: a topic of Kafka, or a data stream of a stand-in for Kinesis, each on this machine."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from botocore.config import Config
from confluent_kafka import Producer

from demo.orders import NotAccepted, order
from testbed.kafka import Kafka
from testbed.kinesis import Kinesis

NAME, PARTITIONS = "orders", 4
_MOST_RECORDS_A_REQUEST = 500


class Sender(Protocol):
    """Puts orders into a source."""

    def send(self, numbers: range) -> None:
        """Put the orders with these ids, each once."""
        ...

    def finish(self) -> None:
        """Wait until the source has taken what was sent."""
        ...


class Source(Protocol):
    """A source of the demo: a server that runs while it is entered."""

    product: str
    """What is started, for a sentence."""
    orders: int
    """How many orders it is given where nothing else is asked for."""
    orders_a_second: int
    reshards: tuple[str, str] | None
    """The titles of two changes of its partitions, which are made before the two kills at random; None if it has none."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def prepare(self) -> None:
        """Make the topic or data stream."""
        ...

    def spec(self) -> dict[str, Any]:
        """Return the part of the resource's `source` that says where records are."""
        ...

    def secrets(self) -> dict[str, dict[str, str]]:
        """Return the secrets that `spec` names, each with its keys."""
        ...

    def sender(self) -> Sender:
        """Return a sender of the calling thread."""
        ...

    def reshard(self, number: int) -> str:
        """Make one of the `reshards`, by its place, and return what was done."""
        ...


class KafkaTopic:
    """A topic with four partitions."""

    product = "Kafka"
    orders = 200_000
    orders_a_second = 4000
    reshards: tuple[str, str] | None = None

    def __init__(self, folder: Path) -> None:
        self._kafka = Kafka(folder / "kafka")

    def __enter__(self) -> Self:
        self._kafka.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kafka.__exit__(kind, problem, trace)

    def prepare(self) -> None:
        """Make the topic."""
        self._kafka.create_topic(NAME, PARTITIONS)

    def spec(self) -> dict[str, Any]:
        """The example's own, at the address of this broker."""
        return {
            "kafka": {
                "bootstrapServers": self._kafka.bootstrap_servers,
                "topics": [NAME],
                "start": {"from": "Earliest"},
                "maxOffsetsPerTrigger": 2 * self.orders_a_second,
            }
        }

    def secrets(self) -> dict[str, dict[str, str]]:
        """The broker asks for no login."""
        return {}

    def sender(self) -> Sender:
        """Return an idempotent producer."""
        return _ToKafka(self._kafka.bootstrap_servers)

    def reshard(self, number: int) -> str:
        """A topic keeps its partitions."""
        raise NotImplementedError


class KinesisStream:
    """A data stream with four shards, of which one is split and two are merged while it is read.

    The stand-in serves one request at a time, so there are fewer orders.
    """

    product = "a stand-in for Kinesis (moto; not Amazon's service)"
    orders = 20_000
    orders_a_second = 400
    reshards: tuple[str, str] | None = ("split a shard", "merge two shards")

    def __init__(self, folder: Path) -> None:
        self._kinesis = Kinesis(folder / "kinesis")

    def __enter__(self) -> Self:
        self._kinesis.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, problem: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kinesis.__exit__(kind, problem, trace)

    def prepare(self) -> None:
        """Make the data stream."""
        self._kinesis.create_stream(NAME, PARTITIONS)

    def spec(self) -> dict[str, Any]:
        """The data stream, at the address of the stand-in."""
        return {
            "kinesis": {
                "streamName": NAME,
                "region": self._kinesis.region,
                "endpoint": self._kinesis.endpoint,
                "secretRef": {"name": "aws"},
                "start": {"from": "TrimHorizon"},
                "maxRecordsPerTrigger": 2 * self.orders_a_second,
            }
        }

    def secrets(self) -> dict[str, dict[str, str]]:
        """A login, which the stand-in does not check."""
        return {"aws": self._kinesis.secret()}

    def sender(self) -> Sender:
        """Return a client that sends nothing twice: a repeated request would double orders before the stream has read them."""
        return ToKinesis(self._kinesis.client(config=Config(retries={"total_max_attempts": 1})))

    def reshard(self, number: int) -> str:
        """Split the first open shard, or merge the first two."""
        one, other = [shard["ShardId"] for shard in self._kinesis.open_shards(NAME)][:2]
        if number == 0:
            self._kinesis.split(NAME, one)
            done = f"{one} is split"
        else:
            self._kinesis.merge(NAME, one, other)
            done = f"{one} and {other} are merged"
        return f"{done}; {len(self._kinesis.open_shards(NAME))} shards are open"


class _ToKafka:
    """Sends to the partitions in turn."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap_servers, "linger.ms": 20, "enable.idempotence": True, "log_level": 2}
        )

    def send(self, numbers: range) -> None:
        """Hand orders to the producer's own thread."""
        for number in numbers:
            self._producer.produce(NAME, order(number), partition=number % PARTITIONS)
        self._producer.poll(0)

    def finish(self) -> None:
        """Wait for the broker."""
        left = self._producer.flush(30)
        if left:
            raise NotAccepted(f"Kafka did not take {left} orders within 30 s.")


class ToKinesis:
    """Sends with PutRecords; the id is the partition key, so that orders spread over the shards."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def send(self, numbers: range) -> None:
        """Put orders, and raise if Kinesis did not take each."""
        for first in range(numbers.start, numbers.stop, _MOST_RECORDS_A_REQUEST):
            some = range(first, min(first + _MOST_RECORDS_A_REQUEST, numbers.stop))
            records = [{"PartitionKey": str(number), "Data": order(number)} for number in some]
            failed = self._client.put_records(StreamName=NAME, Records=records)["FailedRecordCount"]
            if failed:
                raise NotAccepted(f"Kinesis did not take {failed} of the orders {some.start} to {some.stop - 1}.")

    def finish(self) -> None:
        """Each request has been answered."""


SOURCES: dict[str, type[KafkaTopic | KinesisStream]] = {"kafka": KafkaTopic, "kinesis": KinesisStream}
