"""Spark's readers of Kafka, in Python: as a stream, and of exactly given ranges.

Options are seen in plans and logs, so the login is not an option: whoever reads takes it from the mounted secret.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.datasource_internal import _SimpleStreamReaderWrapper
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow

from exactlyonce.connectors.kafka.admin import KafkaAdmin
from exactlyonce.connectors.kafka.properties import consumer_properties, own_librdkafka_properties
from exactlyonce.connectors.kafka.reading import RangeReader
from exactlyonce.connectors.kafka.spec import KafkaSource
from exactlyonce.connectors.kafka.topics import KafkaTopics
from exactlyonce.launch.secrets import SECRETS_FOLDER, read_mounted
from exactlyonce.positions.ranges import OffsetRange, Partition, Positions, Ranges
from exactlyonce_spark.connectors.kafka.planner import Planner
from exactlyonce_spark.connectors.kafka.rows import arrow_batches, schema_text
from exactlyonce_spark.crash_points import reached
from exactlyonce_spark.decode.records import record_decoder
from exactlyonce_spark.decode.unread import LeftOut

FORMAT = "exactlyonce_kafka"

SMALL_RECORDS, SMALL_BYTES = 2000, 4 * 1024 * 1024
"""What the driver reads itself at most: so many offsets, and of them so many bytes in Arrow."""

_ASK_SECONDS = 15.0
_OF_THE_OPERATOR = {"start", "mirror_offsets"}

Offsets = dict[str, dict[str, int]]
"""Positions as Spark's own Kafka source writes them, parsed."""


@dataclass(frozen=True)
class Place:
    """What is read, by the words of the resource, which columns of it, and how values are decoded.

    `format` is that of the resource, as JSON.
    """

    spec: KafkaSource
    columns: tuple[str, ...]
    format: str
    left_out: LeftOut = field(default_factory=LeftOut)

    @classmethod
    def of(cls, options: Mapping[str, str]) -> Place:
        """Return what the options say."""
        return cls(
            KafkaSource.model_validate_json(options["source"]),
            tuple(options["columns"].split(",")),
            options["format"],
            LeftOut.of(options.get("left_out")),
        )

    def options(self) -> dict[str, str]:
        """Return the options that say so."""
        return {
            "source": self.spec.model_dump_json(by_alias=True, exclude_defaults=True, exclude=_OF_THE_OPERATOR),
            "columns": ",".join(self.columns),
            "format": self.format,
            **LeftOut.options(self.left_out.spans),
        }

    def schema(self) -> str:
        """Return the columns of a record, as DDL."""
        return schema_text(self.columns, record_decoder(self.format).ddl)

    def reader(self) -> RangeReader:
        """Return this process's reader, with the login as it is mounted now.

        Raises:
            SecretMissing: if the secret is not there, or holds no whole login.
            SourceRefused: if no client can be made.
        """
        return reader_of(consumer_properties(self.spec, self._secret()))

    def topics(self) -> KafkaTopics:
        """Return the topics of the stream, asked by a client of their own; raises as `reader`."""
        properties = own_librdkafka_properties(self.spec, self._secret())
        admin = KafkaAdmin(self.spec.bootstrap_servers, properties, _ASK_SECONDS)
        return KafkaTopics(self.spec, admin, _ASK_SECONDS)

    def batches(self, ranges: Ranges) -> Iterator[pa.RecordBatch]:
        """Read records; raises as `RangeReader.read`."""
        return arrow_batches(self.reader().read(ranges), self.columns, record_decoder(self.format), self.left_out)

    def _secret(self) -> dict[str, str]:
        reference = self.spec.secret_ref
        return {} if reference is None else read_mounted(Path(os.environ[SECRETS_FOLDER]), reference.name)


_kept: dict[tuple[tuple[str, Any], ...], RangeReader] = {}
"""The one reader of this process: a worker serves the tasks of one stream, whose login may change."""


def reader_of(properties: Mapping[str, Any]) -> RangeReader:
    """Return the reader of this process with these properties; a former one with others is closed."""
    key = tuple(sorted(properties.items()))
    if key not in _kept:
        made = RangeReader(properties)
        for former in _kept.values():
            former.close()
        _kept.clear()
        _kept[key] = made
    return _kept[key]


@dataclass
class TaskRanges(InputPartition):
    """What one task reads, as `Ranges` has it in JSON."""

    ranges: str


class KafkaStreamReader(_SimpleStreamReaderWrapper, SupportsTriggerAvailableNow):
    """Plans and reads batches. Spark keeps one in a process of the driver for the life of the query.

    It is of the class by which Spark takes records from that process, with no Python in the task that gets them; the public
    one of that kind reads every record there. `one_range_each`: each task reads one range, however small a batch is.
    """

    def __init__(self, place: Place, most: int, *, one_range_each: bool) -> None:
        self._place = place
        self._most = most
        self._one_range_each = one_range_each
        self._planner: Planner | None = None
        self._held: tuple[tuple[Offsets, Offsets], list[pa.RecordBatch]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Tasks are given the reader, and not what the planner holds."""
        return {**self.__dict__, "_planner": None, "_held": None}

    @property
    def simple_reader(self) -> KafkaStreamReader:  # type: ignore[override]
        """Itself: what Spark asks of the reader that it believes to be inside."""
        return self

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what there is now, and end."""
        self._planned().read_until_now()

    def initialOffset(self) -> Offsets:
        """Return no partition: Spark does not keep what is answered here, so every checkpoint is seeded.

        Spark asks before batch 0 of a seed, whose end names each partition where the stream starts; nothing is read in it.
        """
        return {}

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return no limit of Spark's own: the planner has it."""
        return ReadAllAvailable()

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return where the next batch ends."""
        starts = positions_of(start)
        assert starts, "a query over Kafka starts from a seeded checkpoint, which names its partitions"
        ends = self._planned().ends(starts)
        if ends != starts:
            reached("source.end-planned")
        return offsets_of(ends)

    def partitions(self, start: Offsets, end: Offsets) -> Sequence[InputPartition]:
        """Return a task for each range, or one for a batch whose records are read here."""
        self._held = None
        ranges = self._ranges(positions_of(start), positions_of(end)).non_empty()
        is_small = 0 < ranges.record_count <= SMALL_RECORDS and (len(ranges) == 1 or not self._one_range_each)
        records = self._read(ranges) if is_small else None
        if records is None:
            return one_task_each(ranges)
        self._held = (start, end), records
        return [TaskRanges(ranges.to_json())]

    def getCache(self, start: Offsets, end: Offsets) -> Iterator[pa.RecordBatch] | None:  # type: ignore[override]
        """Return the records of a batch that `partitions` has read, once."""
        held, self._held = self._held, None
        return None if held is None or held[0] != (start, end) else iter(held[1])

    def commit(self, end: Offsets) -> None:
        """Do nothing: that Spark has done with a batch does not say that it has landed."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:  # type: ignore[override]
        """Read the records of a task."""
        return read_task(self._place, partition)

    def _ranges(self, starts: Positions, ends: Positions) -> Ranges:
        """Return what a batch reads.

        A partition that only its end names has nothing in it, as `Planner.ends` plans it. In a batch that Spark's own Kafka
        source has planned, it is read from its first record.
        """
        appeared = ends.keys() - starts.keys() if starts else frozenset()
        first = self._topics().earliest(appeared) if appeared else {}
        return Ranges(
            {key: OffsetRange(starts.get(key, min(first.get(key, end), end)), end) for key, end in ends.items()}
        )

    def _read(self, ranges: Ranges) -> list[pa.RecordBatch] | None:
        """Return the records of a small batch; None if they turn out to be large."""
        batches, size = [], 0
        for batch in self._place.batches(ranges):
            size += batch.nbytes
            if size > SMALL_BYTES:
                return None
            batches.append(batch)
        return batches

    def _topics(self) -> KafkaTopics:
        topics = self._planned().topics
        assert isinstance(topics, KafkaTopics)
        return topics

    def _planned(self) -> Planner:
        if self._planner is None:
            # pyarrow looks for it when it makes the first array, which takes a second of the first small batch.
            threading.Thread(target=import_module, args=("pandas",), daemon=True).start()
            self._planner = Planner(self._place.topics(), self._most)
        return self._planner


class KafkaRangesReader(DataSourceReader):
    """Reads exactly given ranges."""

    def __init__(self, place: Place, ranges: Ranges) -> None:
        self._place = place
        self._ranges = ranges

    def partitions(self) -> Sequence[InputPartition]:
        """Return a task for each range."""
        return one_task_each(self._ranges.non_empty())

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the records of a task."""
        return read_task(self._place, partition)


class KafkaData(DataSource):
    """What Spark calls by the name in `FORMAT`."""

    @classmethod
    def name(cls) -> str:
        """Return its name."""
        return FORMAT

    def schema(self) -> str:
        """Return the columns of a record."""
        return Place.of(self.options).schema()

    def streamReader(self, schema: Any) -> KafkaStreamReader:
        """Return the reader of a stream."""
        return KafkaStreamReader(
            Place.of(self.options), int(self.options["most"]), one_range_each="one_range_each" in self.options
        )

    def reader(self, schema: Any) -> KafkaRangesReader:
        """Return the reader of ranges."""
        return KafkaRangesReader(Place.of(self.options), Ranges.from_json(self.options["ranges"]))


def one_task_each(ranges: Ranges) -> list[TaskRanges]:
    """Return a task for each range."""
    return [TaskRanges(Ranges({key: span}).to_json()) for key, span in ranges.items()]


def read_task(place: Place, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Read the records of a task."""
    assert isinstance(partition, TaskRanges)
    return place.batches(Ranges.from_json(partition.ranges))


def positions_of(offsets: Offsets) -> Positions:
    """Return what a map of offsets says."""
    return Positions(
        {Partition(topic, int(number)): at for topic, numbers in offsets.items() for number, at in numbers.items()}
    )


def offsets_of(positions: Positions) -> Offsets:
    """Return positions as a map of offsets whose text is that of `KafkaCodec.render_entry`: Spark compares the texts."""
    found: Offsets = json.loads(positions.to_json())
    return found
