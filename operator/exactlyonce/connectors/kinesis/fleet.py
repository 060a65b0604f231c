"""Ask one Kinesis for many streams: their shards, how long they keep records, the age of the oldest record not landed.

A stream is asked for once a round, however many of our streams read it. A shard costs one or two calls a round while nothing
waits in it, and none where a record waits whose age is known. What is refused of one stream or shard is told of it alone, and
what does not fit into the time of a round comes first in the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Generic, TypeVar

from exactlyonce.connectors.kinesis.answers import IteratorExpired, SequenceNumberRefused
from exactlyonce.connectors.kinesis.client import KinesisClient
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    TRIM_HORIZON,
    AfterRecord,
    AtShardEnd,
    AtTrimHorizon,
    InsideRecord,
    read_from,
)
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.connectors.specs import SourceSpec
from exactlyonce.errors import ExactlyOnceError, OriginMissing, SourceUnreachable
from exactlyonce.positions.ranges import Partition
from exactlyonce.source.connector import Answer
from exactlyonce.source.port import Bounds

_QUESTION_SECONDS = 20.0
"""How long one question of the monitor may take for all of its streams; an answer that is under way may take longer."""

_MOST_EMPTY_PAGES = 10

Key = TypeVar("Key", str, Partition)
Told = TypeVar("Told")


class _Turns(Generic[Key]):
    """Whose turn it is where not all can be asked in the time of one question: who was asked longest ago comes first."""

    def __init__(self) -> None:
        self._asked: dict[Key, int] = {}
        self._question = 0

    def in_order(self, keys: Collection[Key]) -> list[Key]:
        self._question += 1
        self._asked = {key: self._asked.get(key, 0) for key in keys}
        return sorted(keys, key=lambda key: (self._asked[key], key))

    def was_asked(self, key: Key) -> None:
        self._asked[key] = self._question


class KinesisFleet:
    """One Kinesis as the monitor asks it, for the streams of one account; for one thread at a time."""

    def __init__(self, client: KinesisClient) -> None:
        self._client = client
        self._named: dict[str, str] = {}
        """How each stream is asked for, by its name: streams of another account have to be asked for by their ARN."""
        self._streams: _Turns[str] = _Turns()
        self._described: _Turns[str] = _Turns()
        self._shards: _Turns[Partition] = _Turns()
        self._read_on: dict[Partition, tuple[int, str]] = {}
        """For each shard in which nothing waited when it was last asked: behind which position, and the iterator there."""

    def origins(self, specs: Collection[SourceSpec]) -> Mapping[str, Collection[int | str] | ExactlyOnceError]:
        """Return the streams that these name and that exist, with their shards, or what is wrong with one."""
        self._named = {spec.stream: spec.named for spec in specs if isinstance(spec, KinesisSource)}
        missing: set[str] = set()

        def shards(name: str) -> tuple[str, ...]:
            try:
                return tuple(shard.id for shard in self._client.shards(self._named[name]))
            except OriginMissing:
                missing.add(name)
                return ()

        told = self._each(self._streams, self._named, shards)
        return {name: told.get(name, self._late(name)) for name in self._named if name not in missing}

    def bounds(self, partitions: frozenset[Partition], *, committed_only: bool) -> Answer:
        """Return how long each shard's stream keeps records; where a shard ends now is not known."""
        told = self._each(
            self._described,
            {partition.origin for partition in partitions},
            lambda name: self._client.described(self._named.get(name, name)).retention.total_seconds(),
        )
        found: dict[Partition, Bounds] = {}
        problems: dict[Partition, ExactlyOnceError] = {}
        for partition in partitions:
            seconds = told.get(partition.origin, self._late(partition.origin))
            if isinstance(seconds, ExactlyOnceError):
                problems[partition] = seconds
            else:
                found[partition] = Bounds(TRIM_HORIZON, SHARD_END, seconds)
        return Answer(found, problems)

    def timestamps(
        self, positions: Mapping[Partition, int], *, committed_only: bool
    ) -> Mapping[Partition, float | ExactlyOnceError | None]:
        """Return when the first record at or after each position arrived; None where there is none yet.

        A shard for which there was no time is left out, and asked first in the next round.
        """
        self._read_on = {key: known for key, known in self._read_on.items() if key.origin in self._named}
        return self._each(self._shards, positions, lambda key: self._arrival(key, positions[key]))

    def close(self) -> None:
        """Nothing is open between calls."""

    def _each(
        self,
        turns: _Turns[Key],
        keys: Collection[Key],
        call: Callable[[Key], Told],
    ) -> dict[Key, Told | ExactlyOnceError]:
        """Ask for each while there is time; a problem of one does not stand in the way of the others."""
        found: dict[Key, Told | ExactlyOnceError] = {}
        with self._client.within(_QUESTION_SECONDS):
            for key in turns.in_order(keys):
                if self._client.is_late:
                    return found
                turns.was_asked(key)
                try:
                    found[key] = call(key)
                except ExactlyOnceError as problem:
                    found[key] = problem
        return found

    def _late(self, stream: str) -> SourceUnreachable:
        return SourceUnreachable(
            f"{self._client.address.place} was not asked for stream {stream}: it took {_QUESTION_SECONDS:.0f} s to answer for "
            "others; this one comes before them in the next round."
        )

    def _arrival(self, key: Partition, position: int) -> float | None:
        iterator = self._iterator(key, position)
        for _ in range(_MOST_EMPTY_PAGES):
            if iterator is None:
                return None
            try:
                page = self._client.records(self._stream_of(key), str(key.key), iterator, 1)
            except IteratorExpired:
                iterator = self._fresh_iterator(key, position)
                continue
            if page.records:
                self._read_on.pop(key, None)
                return page.records[0].arrival_milliseconds / 1000
            iterator = page.next_iterator
            if iterator is not None:
                self._read_on[key] = position, iterator
            if not page.milliseconds_behind:
                return None
            if self._client.is_late:
                break
        raise SourceUnreachable(
            f"Shard {key.key} of stream {key.origin} answered without the records that wait in it: how old the oldest one "
            "is, is not known; it is asked again in the next round."
        )

    def _iterator(self, key: Partition, position: int) -> str | None:
        """Return where to continue reading, None at the end of a shard."""
        known = self._read_on.get(key)
        if known is not None and known[0] == position:
            return known[1]
        return self._fresh_iterator(key, position)

    def _fresh_iterator(self, key: Partition, position: int) -> str | None:
        self._read_on.pop(key, None)
        start: dict[str, Any]
        match read_from(position):
            case AtShardEnd():
                return None
            case AtTrimHorizon():
                start = {"ShardIteratorType": "TRIM_HORIZON"}
            case AfterRecord(number):
                start = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": str(number)}
                try:
                    return self._client.iterator(self._stream_of(key), str(key.key), **start)
                except SequenceNumberRefused:  # nothing has landed: the position is at the shard's oldest record
                    start = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": str(number + 1)}
            case InsideRecord(number, _):
                start = {"ShardIteratorType": "AT_SEQUENCE_NUMBER", "StartingSequenceNumber": str(number)}
        return self._client.iterator(self._stream_of(key), str(key.key), **start)

    def _stream_of(self, key: Partition) -> str:
        return self._named.get(key.origin, key.origin)
