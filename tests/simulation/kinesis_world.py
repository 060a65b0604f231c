"""A world whose source is a Kinesis stream: shards that are split and merged, aggregates, retention, a stream made again."""

from __future__ import annotations

import json
import random
from collections.abc import Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from typing import Any, cast
from unittest import mock

from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.spec import Delivery
from exactlyonce.connectors.kinesis import bounds, start
from exactlyonce.connectors.kinesis.bounds import KinesisBounds
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.login import KinesisAddress
from exactlyonce.connectors.kinesis.positions import SHARD_END, TRIM_HORIZON
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.connectors.specs import Commit
from exactlyonce.ledger.rows import StreamRow
from exactlyonce.positions.ranges import OffsetRange, Partition
from exactlyonce.reconcile.verdicts import FirstStart
from exactlyonce.source.connector import SourceCheck
from exactlyonce.source.port import Source
from exactlyonce_spark.connectors.kinesis import planner
from tests.decoders import BYTES_OPTION
from tests.kinesis_api import START_SECONDS, refusal
from tests.simulation.causes import ERRORS_OF_KINESIS
from tests.simulation.files import MemoryStore
from tests.simulation.kinesis_spark import InLine, KinesisQuery, SimulatedPlace, in_line
from tests.simulation.kinesis_stream import Put, SimulatedStream, SimulatedTime
from tests.simulation.resource import STREAM_ID, RequestedSpec, of_poison
from tests.simulation.scenario import Scenario
from tests.simulation.scheduler import Process
from tests.simulation.source import TOPIC
from tests.simulation.world import SimulatedWorld

REGION = "eu-west-1"
OWN_HAZARDS = ("reshard", "throttled", "late answers", "unlisted")
_NOT_WITH_SHARDS = frozenset(
    {
        "delivery changed",
        "foreign writes",
        "topics changed",
        "new partition",
        "former life",
        "commit changed",
        "drop ledger",
    }
    | {"leader moves", "truncate"}
)
"""What happens to topics alone, and what other worlds show whose part of the protocol does not see which source it is."""

_FILES_SHARE = 0.1
"""How many of the streams land in files; such a world takes twice as long, and most of the protocol is the same."""

_STARTS: tuple[Mapping[str, Any], ...] = (
    {"from": "TrimHorizon"},
    {"from": "Latest"},
    {"from": "Timestamp", "timestamp": datetime.fromtimestamp(START_SECONDS + 2, UTC).isoformat()},
)


class KinesisWorld(SimulatedWorld):
    """Everything of one seed. `start` is what the resource says of it; `clients` are those of the processes that live long."""

    query_type = KinesisQuery
    positions_count_records = False
    asks_again = True  # a stream waits while nobody can tell whether an idle shard has lost records
    errors = ERRORS_OF_KINESIS

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        super().__init__(seed, scenario)
        self.time = SimulatedTime(self.simulation)
        dice = random.Random(f"kinesis {seed}")
        self.stream = SimulatedStream(
            time=cast(Any, self.time),
            page_records=dice.randint(1, 4),
            empty_share=dice.choice([0.0, 0.2]),
            chance=dice,
            before_call=self._before_call,
            late=self._late,
            steps=lambda: self.simulation.steps,
        )
        self.stream.begin(dice.randint(1, 3))
        for shard in self.stream.open_shards:
            self.stream.produce(shard, dice.randint(1, 6), together=dice.random() < 0.3)
        self.topic = cast(Any, self.stream)
        self.start_from = dice.choices(range(len(_STARTS)), weights=[6, 2, 1])[0]
        self.held_bytes = dice.choice([planner.PARTITION_HELD_BYTES, 1000])
        self._clients: dict[Process | None, KinesisClient] = {}
        self._made = 0
        self._ended_in: dict[str, int] = {}
        self._planned: dict[Hashable, tuple[int, Partition]] = {}
        self.place = SimulatedPlace(TOPIC, TOPIC, REGION, None, None, BYTES_OPTION, connect=self._client)

    def struck_by(self, hazard: str, told: str) -> None:
        """Note what has gone wrong, and the records that the stream no longer holds and the table does not hold either."""
        self.simulation.tell(told)
        self.struck.add(hazard)
        counts, rows = self.database.tables.target, self.database.tables.rows
        for record in self.stream.gone:
            if counts[record]:
                continue
            self.taken.add(record)
            put = self.stream.where[cast(Any, record)]
            row = rows.get(("position", STREAM_ID, Partition(TOPIC, put.shard)))
            if row is not None and row[0] != TRIM_HORIZON:
                continue
            # Nobody read the shard, so nobody can tell which was its oldest record (docs/adr/0030, known limits), unless the
            # checkpoint says where a batch ends in it: as long as that one is continued, the record is known.
            planned_in = self._planned_in(put)
            if planned_in is None:
                self.unasked.add(record)
            else:
                self._planned.setdefault(record, (planned_in, Partition(TOPIC, put.shard)))

    def never_asked(self) -> set[Hashable]:
        """Return the records of which nothing tells that they were there, those of plans that were given up among them."""
        for record, (generation, key) in list(self._planned.items()):
            if any(number > generation and self._ends_at_start(path, key) for number, path in self._plans()):
                del self._planned[record]
                self.unasked.add(record)
        return self.unasked

    def _planned_in(self, put: Put) -> int | None:
        """Return the published generation, if the latest batch in its log goes beyond the start of a record's shard."""
        row = self.database.tables.rows.get(("stream", STREAM_ID))
        published = row.generation if isinstance(row, StreamRow) else None
        if published is None or put.record[0] != f"life-{self.stream.life}":
            return None
        plans = [path for number, path in self._plans() if number == published]
        latest = max(plans, key=lambda path: int(path.rsplit("/", 1)[-1]), default=None)
        key = Partition(TOPIC, put.shard)
        return None if latest is None or self._ends_at_start(latest, key) else published

    def _plans(self) -> list[tuple[int, str]]:
        """The files of all offset logs, each with the number of its generation."""
        found = [(path.partition("/offsets/"), path) for path in self.store.files]
        return [(int(folder.split("-")[1]), path) for (folder, _, name), path in found if name.isdigit()]

    def _ends_at_start(self, path: str, key: Partition) -> bool:
        """Whether a batch that was planned, or the end that a checkpoint was seeded with, is at the start of a shard."""
        lines = self.store.files[path].decode(errors="replace").splitlines()
        try:
            ends = json.loads(lines[-1]).get(key.origin, {})
        except (IndexError, ValueError, AttributeError):
            return False  # it was torn, or stands before the seed
        return bool(ends.get(str(key.key), "TRIM_HORIZON") == "TRIM_HORIZON")

    def client(self) -> KinesisClient:
        """Return the client of the process that is running."""
        process = self.simulation.running
        if process not in self._clients:
            self._clients[process] = self._client()
        return self._clients[process]

    def source_check(self) -> SourceCheck:
        """Return the stream as the process that is running asks it before it lands."""
        return self._bounds(self.requested)

    def source(self, requested: RequestedSpec) -> Source:
        """Return the stream as an operator's pass looks at it."""
        return self._bounds(requested)

    def resource(self, requested: RequestedSpec) -> Stream:
        """Return the stream's resource."""
        return _resource(requested, self.on_truncated, self.start_from)

    def patched(self) -> AbstractContextManager[object]:
        """Return what has to hold while a run lasts: calls for several shards are made one after the other."""
        return self._patches()

    def records_before(self, partition: Partition, position: int) -> int:
        """Return how many user records of a shard lie before a position."""
        if position == SHARD_END and self._ended_in.get(str(partition.key)) != self.stream.life:
            return 0  # it is the end of the shard that had this name in the stream's life before
        return self.stream.before(partition, position)

    def records_in(self, partition: Partition, span: OffsetRange) -> set[Hashable]:
        """Return the user records of a range, of all lives of the stream."""
        found = self.stream.of(partition)
        return {put.record for put in found if span.from_offset <= put.position < span.until_offset}

    def is_landed(self, record: tuple[str, int, int], stands: Mapping[Partition, int]) -> bool:
        """Whether a stream that stands there has passed a user record."""
        put = self.stream.where.get(record)
        return put is not None and put.position < stands.get(Partition(TOPIC, put.shard), 0)

    def has_landed_all(self, stands: Mapping[Partition, int]) -> bool:
        """Whether a stream that stands there has everything: what has expired in shards it never knew is nobody's."""
        return all(
            put.position < stands.get(Partition(TOPIC, put.shard), 0) or put.record in self.never_asked()
            for (life, _), puts in self.stream.puts.items()
            if life == self.stream.life
            for put in puts[-1:]
        )

    def skipped_by_start(self) -> set[Hashable]:
        """Return the records that the stream's start may leave out: those that were there when it was decided."""
        if self.start_from == 0:
            return set()
        starts = [
            attempt.decided
            for attempt in self.journal.attempts
            if attempt.decision is not None and isinstance(attempt.decision.verdict, FirstStart)
        ]
        latest = max((step for step in starts if step is not None), default=0)
        moment = START_SECONDS + 2
        return {
            put.record
            for put in self.stream.where.values()
            if put.step <= latest and (self.start_from == 1 or put.arrived.timestamp() < moment)
        }

    def begins_again(self) -> None:
        """A person has had the stream start over: what has expired since it landed is nobody's."""
        self.taken |= self.stream.gone
        self.unasked |= self.stream.gone

    def wrong_since_commit(self) -> str | None:
        """Records of a parent have landed, and records of its child were there before, or came with the same commit."""
        for key, row in self.database.tables.rows.items():
            if key[0] in ("position", "retired") and row[0] == SHARD_END:
                self._ended_in.setdefault(str(key[2].key), self.stream.life)
        counts, before = self.database.tables.target, self.database._latest[-1].target
        for (life, shard), puts in self.stream.puts.items():
            if life != self.stream.life or not any(counts[put.record] for put in puts):
                continue
            late = [
                put.record
                for parent in self.stream.parents[life, shard]
                for put in self.stream.puts[life, parent]
                if not before[put.record] and counts[put.record]
            ]
            if late:
                return f"{shard} has landed before the last records of its parent: {late}"
        return None

    def _bounds(self, requested: RequestedSpec) -> KinesisBounds:
        spec = self.resource(requested).spec.source.spec
        assert isinstance(spec, KinesisSource)
        return KinesisBounds(spec, self.client())

    def _client(self) -> KinesisClient:
        self._made += 1
        return KinesisClient(KinesisAddress(REGION), lambda: self.stream, self.time.clock(self._made))

    @contextmanager
    def _patches(self) -> Iterator[None]:
        with ExitStack() as stack:
            for module in (bounds, start):
                stack.enter_context(mock.patch.object(module, "each", in_line))
            stack.enter_context(mock.patch.object(planner, "ThreadPoolExecutor", InLine))
            stack.enter_context(mock.patch.object(planner, "PARTITION_HELD_BYTES", self.held_bytes))
            yield

    def _fitting(self, scenario: Scenario) -> Scenario:
        dice = random.Random(f"hazards {self.seed}")
        into_files = random.Random(f"files {self.seed}").random() < _FILES_SHARE
        if into_files:
            scenario = scenario.with_manifest()
        own = {hazard for hazard in OWN_HAZARDS if scenario.hazards and dice.random() < 0.75}
        if scenario.hazards & {"restore", "failover", "lose ledger", "start over"}:
            own.discard("unlisted")  # a ledger that goes back asks for the shard again, and it is not there then
        return replace(
            scenario,
            delivery=Delivery.EXACTLY_ONCE,
            commit=Commit.BATCH,
            stateful=False,
            bisect=False,  # refused: its positions count no records
            manifest=into_files,
            hazards=(scenario.hazards - _NOT_WITH_SHARDS) | own,
        )

    def _before_call(self, method: str) -> None:
        self.simulation.step(f"kinesis {method}")
        if not self.stream.up:
            raise refusal("ServiceUnavailable", method, status=503)
        if self.strikes("throttled", 0.03):
            raise refusal("ProvisionedThroughputExceededException", method)
        if method == "get_records" and self.strikes("throttled", 0.02):
            raise refusal("ExpiredIteratorException", method)

    def _late(self) -> None:
        if self.strikes("late answers", 0.2):
            self.simulation.step("kinesis answers late")


@cache
def _resource(requested: RequestedSpec, on_truncated: str, start_from: int) -> Stream:
    return parse_stream(
        {
            "apiVersion": "exactlyonce.dev/v1alpha1",
            "kind": "ExactlyOnceStream",
            "metadata": {"name": "orders", "namespace": "shop", "annotations": dict(requested.annotations)},
            "spec": {
                "source": {
                    "kinesis": {
                        "streamName": TOPIC,
                        "region": REGION,
                        "start": dict(_STARTS[start_from]),
                        "maxRecordsPerTrigger": requested.limit,
                    },
                    "format": {"schema": "id BIGINT"},
                },
                "sink": {"postgres": {"secretRef": {"name": "warehouse"}, "table": "orders"}},
                "checkpoint": {"local": {"path": MemoryStore.location}},
                "recovery": {"onSourceTruncated": on_truncated, **of_poison(requested)},
            },
        },
        "the simulation",
    )
