"""Ask the stores about streams: each Kafka and each database once for all that use it. Blocking, bounded in time."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from exactlyonce.api.source_set import SourceSet
from exactlyonce.errors import ExactlyOnceError, SourceUnreachable, TopicMissing
from exactlyonce.ledger.postgres_fleet import Landed, TableSize
from exactlyonce.monitor.lag import positions_to_date
from exactlyonce.monitor.snapshot import (
    Snapshot,
    after_dating,
    after_ledger,
    after_source,
    after_source_problem,
)
from exactlyonce.monitor.targets import Target
from exactlyonce.offsets import BatchNumber, TopicPartition
from exactlyonce.source.kafka_fleet import Answer
from exactlyonce.source.kafka_selection import selected


class Brokers(Protocol):
    """One Kafka, asked for many streams at once; see `source.kafka_fleet.KafkaFleet`."""

    def topics(self) -> Mapping[str, int]:
        """Return every topic with its number of partitions."""
        ...

    def bounds(self, partitions: frozenset[TopicPartition], *, committed_only: bool) -> Answer:
        """Return what each partition holds."""
        ...

    def timestamps(
        self, positions: Mapping[TopicPartition, int], *, committed_only: bool
    ) -> Mapping[TopicPartition, float | None]:
        """Return the timestamp of the first record at or after each position."""
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class Database(Protocol):
    """One database, asked for many streams at once; see `ledger.postgres_fleet.PostgresFleet`."""

    def landed(self, schema: str, since: Mapping[str, BatchNumber | None]) -> Mapping[str, Landed]:
        """Return what is committed of each stream that has a row."""
        ...

    def sizes(self, schema: str) -> tuple[TableSize, ...]:
        """Return how large each table of the ledger is."""
        ...

    def close(self) -> None:
        """Close the connection."""
        ...


@dataclass
class Watched:
    """One stream under watch, with what is known of it. The threads that ask its two stores change it step by step."""

    target: Target
    snapshot: Snapshot = field(default_factory=Snapshot)
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def learn(self, step: Callable[[Snapshot], Snapshot]) -> None:
        """Change what is known; no other step comes between."""
        with self._guard:
            self.snapshot = step(self.snapshot)


def ask_database(database: Database, streams: Sequence[Watched]) -> ExactlyOnceError | None:
    """Look where each stream has landed; return the problem of the database, if it has one."""
    schemas: dict[str, list[Watched]] = defaultdict(list)
    for watched in streams:
        schemas[watched.target.ledger_schema].append(watched)
    trouble = None
    for schema, those in schemas.items():
        since = {watched.target.stream_id: _counted_until(watched.snapshot) for watched in those}
        try:
            answers = database.landed(schema, since)
        except ExactlyOnceError as problem:
            trouble = problem
            for watched in those:
                watched.learn(partial(after_ledger, answer=str(problem)))
            continue
        for watched in those:
            watched.learn(partial(after_ledger, answer=answers.get(watched.target.stream_id)))
    return trouble


def ask_brokers(brokers: Brokers, streams: Sequence[Watched]) -> ExactlyOnceError | None:
    """Measure each stream against its source; return the problem of the brokers, if they have one.

    Where the ledger stands is what it last said, before the source is asked.
    """
    try:
        topics = brokers.topics()
        for committed_only in (True, False):
            those = [watched for watched in streams if watched.target.committed_only is committed_only]
            _measure(brokers, those, topics, committed_only=committed_only)
    except ExactlyOnceError as problem:
        for watched in streams:
            watched.learn(partial(after_source_problem, problem=str(problem)))
        return problem
    return None


def _counted_until(snapshot: Snapshot) -> BatchNumber | None:
    return None if snapshot.landed is None else snapshot.landed.counted_until


def _measure(brokers: Brokers, streams: Sequence[Watched], topics: Mapping[str, int], *, committed_only: bool) -> None:
    wanted: list[tuple[Watched, Mapping[TopicPartition, int] | None, frozenset[TopicPartition]]] = []
    for watched in streams:
        landed = None if watched.snapshot.landed is None else watched.snapshot.landed.positions
        reads, missing = selected(watched.target.source, topics)
        named = SourceSet.of(watched.target.source)
        gone = [str(key) for key in sorted((landed or {}).keys() - reads) if named.reads(key)]
        if missing or gone:
            problem = TopicMissing(f"Kafka has no {', '.join([*missing, *gone])} for {watched.target.stream_id}.")
            watched.learn(partial(after_source_problem, problem=str(problem)))
        else:
            wanted.append((watched, landed, reads))
    asked = frozenset(key for _, _, reads in wanted for key in reads)
    answer = brokers.bounds(asked, committed_only=committed_only)
    now = time.time()
    for watched, landed, reads in wanted:
        silent = sorted(reads & answer.problems.keys())
        if silent:
            watched.learn(partial(after_source_problem, problem=str(answer.problems[silent[0]])))
        else:
            bounds = {key: answer.bounds[key] for key in reads}
            watched.learn(partial(after_source, landed=landed, bounds=bounds, at=now))
    _date(brokers, [watched for watched, _, _ in wanted], committed_only=committed_only)


def _date(brokers: Brokers, streams: Sequence[Watched], *, committed_only: bool) -> None:
    """Fetch the records whose age is not known, one fetch for all; streams that stand at the same position share one.

    Where several positions of a partition are wanted, they are fetched in turn.
    """
    wanted: dict[TopicPartition, dict[int, list[Watched]]] = defaultdict(lambda: defaultdict(list))
    for watched in streams:
        if watched.snapshot.source_up:
            for key, position in positions_to_date(watched.snapshot.partitions).items():
                wanted[key][position].append(watched)
    rounds = max((len(positions) for positions in wanted.values()), default=0)
    for number in range(rounds):
        chosen = {key: sorted(positions)[number] for key, positions in wanted.items() if number < len(positions)}
        found = brokers.timestamps(chosen, committed_only=committed_only)
        if not found:
            raise SourceUnreachable("Kafka sends no records to the monitor; their age is not known, it is tried again.")
        answers: dict[int, dict[TopicPartition, float | None]] = defaultdict(dict)
        owners: dict[int, Watched] = {}
        for key, timestamp in found.items():
            for watched in wanted[key][chosen[key]]:
                owners[id(watched)] = watched
                answers[id(watched)][key] = timestamp
        for number_of, watched in owners.items():
            watched.learn(partial(after_dating, timestamps=answers[number_of]))
