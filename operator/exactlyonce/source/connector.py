"""The port to a kind of source: where one is, how it is opened, and how many streams of it are asked at once.

Nothing here performs I/O; what is opened does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from exactlyonce.connectors.specs import SourceSpec
from exactlyonce.errors import ExactlyOnceError
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import Partition, Ranges
from exactlyonce.schema.places import NamedPlace
from exactlyonce.source.port import Bounds, LeaderEpochs, Source, SourceNow


@dataclass(frozen=True)
class Answer:
    """The bounds that were answered, and what was said of each partition that has none."""

    bounds: Mapping[Partition, Bounds]
    problems: Mapping[Partition, ExactlyOnceError]


class SourceFleet(Protocol):
    """One server of sources, asked for many streams at once; for one thread at a time."""

    def origins(self, specs: Collection[SourceSpec]) -> Mapping[str, Collection[int | str] | ExactlyOnceError]:
        """Return what there is, at least of what these streams name, with the keys of its partitions.

        A problem of one origin stands in its place; it does not stand in the way of the others.
        """
        ...

    def bounds(self, partitions: frozenset[Partition], *, committed_only: bool) -> Answer:
        """Return what each partition holds."""
        ...

    def timestamps(
        self, positions: Mapping[Partition, int], *, committed_only: bool
    ) -> Mapping[Partition, float | ExactlyOnceError | None]:
        """Return the timestamp of the first record at or after each position, None where there is none, or a problem.

        Those for which there was no time are left out, and not all of them.
        """
        ...

    def close(self) -> None:
        """Close the connections."""
        ...


class Reading(Protocol):
    """Records that are being read while Spark reads the batch."""

    def result(self) -> Mapping[Partition, Fingerprint]:
        """Return the fingerprints, after a bounded time; partitions of which none was read are left out. Never raises."""
        ...


@runtime_checkable
class TellsWithoutRecords(Protocol):
    """A `Reading` of a source in which a range may hold no record, so that no fingerprint of one is lacking."""

    @property
    def without_records(self) -> frozenset[Partition]:
        """The partitions whose ranges hold none."""
        ...


class SourceCheck(Source, Protocol):
    """A source, asked about partitions that have just been read."""

    def now(self, partitions: list[Partition]) -> SourceNow:
        """Return the earliest offset of each partition, the id of each origin, and the leaders' epochs."""
        ...

    def request_leader_epochs(self, partitions: list[Partition]) -> Callable[[], LeaderEpochs]:
        """Ask for the leaders' epochs as of now; the answer is awaited where it is called for."""
        ...

    def records_at(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, Fingerprint | None]:
        """Return the record at each offset, None where there is none; offsets that are not held are left out."""
        ...

    def compacted(self, origins: frozenset[str]) -> frozenset[str]:
        """Return the origins, of those given, from which compaction takes records."""
        ...

    def last_records(self, ranges: Ranges) -> Reading:
        """Begin to read the last record of each range."""
        ...


@dataclass(frozen=True)
class GoesOn:
    """Where a new stream continues behind the last row of each partition.

    `columns` is what a person calls origin, partition and position, `positions` how each is read, `start` the `start` of the
    new stream's source, and `notes` sentences of what the rows do not tell.
    """

    columns: tuple[str, str, str]
    positions: Mapping[Partition, int | str]
    start: Mapping[str, Any]
    notes: tuple[str, ...] = ()


class SourceAddress(Protocol):
    """Where a stream's source is and how to log in; its text never shows a password.

    `key` is equal for streams that may share one client and one `SourceFleet`.
    """

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The server and the login."""
        ...

    @property
    def shown(self) -> str:
        """What a person may read."""
        ...

    @property
    def reached_by_process(self) -> tuple[NamedPlace, ...]:
        """What is reached with the login of the process that asks.

        Nothing where the stream's own secret holds the login, or none is needed.
        """
        ...

    def store_name(self, namespace: str) -> str:
        """Return the name under which places at the server are counted (`control.bulkheads`).

        It says what is really connected to, by whom and for which namespace: streams of another one, or with another user,
        never take the places of this one, whatever server their secrets name.
        """
        ...

    def client(self) -> Any:
        """Return a client that streams with the same `key` can share; nothing is asked yet.

        Raises:
            SourceRefused: if no client can be made.
        """
        ...

    def start_behind(self, last: Mapping[Partition, int]) -> GoesOn:
        """Return where a new stream continues, by the position of the last row of each partition that has one.

        Raises:
            Refused: if the source does not tell what follows on a row.
            SourceRefused, SourceUnreachable: by situation; a source that tells it without being asked raises neither.
        """
        ...

    def open(self, client: Any = None) -> SourceCheck:
        """Return the source as the stream reads it, asked by this client, or by one of its own.

        Raises:
            SourceRefused: if no client can be made.
        """
        ...


class SourceConnector(Protocol):
    """A kind of source."""

    def address(self, spec: SourceSpec, secret: Mapping[str, str]) -> SourceAddress:
        """Return where the source of a stream is.

        Raises:
            SecretMissing: if the secret lacks what the spec needs.
        """
        ...

    def fleet(self, key: tuple[tuple[str, str], ...]) -> SourceFleet:
        """Return a server as the monitor asks it."""
        ...
