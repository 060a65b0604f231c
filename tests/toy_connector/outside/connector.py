"""A memory as a source, outside of Spark."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any
from xmlrpc.client import Error

from exactlyonce.connectors.toy.codec import CODEC, ToyCodec
from exactlyonce.connectors.toy.memory import ORIGIN, client_of
from exactlyonce.connectors.toy.spec import ToySource

from exactlyonce.connectors.specs import Origins, SourceSpec
from exactlyonce.errors import SourceUnreachable
from exactlyonce.positions.fingerprint import Fingerprint, digest_of
from exactlyonce.positions.ranges import Partition, Positions, Ranges
from exactlyonce.schema.places import NamedPlace
from exactlyonce.source.connector import Answer, GoesOn
from exactlyonce.source.port import Bounds, LeaderEpochs, SourceNow, SourceView


@dataclass(frozen=True)
class MemoryClient:
    """A memory that is asked; each call is bounded in time."""

    server: str

    def bounds(self) -> tuple[str, dict[Partition, Bounds]]:
        """Return its identity, and what each partition holds."""
        found = self._asked(lambda memory: memory.describe())
        return found["identity"], {Partition(ORIGIN, int(key)): Bounds(0, end) for key, end in found["ends"].items()}

    def record(self, partition: Partition, offset: int) -> Fingerprint | None:
        """Return one record."""
        found = self._asked(lambda memory: memory.read(str(partition.key), offset, offset + 1))
        return Fingerprint(offset, digest_of(None, found[0].encode(), (), None)) if found else None

    def _asked(self, question: Callable[[Any], Any]) -> Any:
        try:
            with client_of(self.server) as memory:
                return question(memory)
        except (OSError, Error) as problem:
            raise SourceUnreachable(f"The memory at {self.server} does not answer ({problem}).") from problem


@dataclass(frozen=True)
class Fingerprints:
    """What `last_records` has read."""

    found: Mapping[Partition, Fingerprint]

    def result(self) -> Mapping[Partition, Fingerprint]:
        """Return it."""
        return self.found


@dataclass(frozen=True)
class ToyBounds:
    """A `SourceCheck` over a memory."""

    address: str
    codec: ToyCodec = CODEC

    @property
    def _asked(self) -> MemoryClient:
        return MemoryClient(self.address)

    def view(
        self,
        also: frozenset[Partition] = frozenset(),
        offsets: Mapping[Partition, int] | None = None,
        stands: Mapping[Partition, int] | None = None,
    ) -> SourceView:
        """Return what it holds."""
        identity, bounds = self._asked.bounds()
        records = self.records_at(offsets or {})
        return SourceView(bounds, {ORIGIN: identity}, frozenset(bounds), records=records)

    def start(self, view: SourceView, only: frozenset[Partition] | None = None) -> Positions:
        """Return the first record of each partition."""
        return Positions({key: view.bounds[key].earliest for key in (view.selected if only is None else only)})

    def now(self, partitions: list[Partition]) -> SourceNow:
        """Return where each partition begins, and the identity."""
        identity, bounds = self._asked.bounds()
        return SourceNow(Positions({key: bounds[key].earliest for key in partitions}), {ORIGIN: identity}, {})

    def request_leader_epochs(self, partitions: list[Partition]) -> Callable[[], LeaderEpochs]:
        """Return nothing: a memory has no leader."""
        return dict

    def records_at(self, offsets: Mapping[Partition, int]) -> Mapping[Partition, Fingerprint | None]:
        """Return the record at each offset."""
        return {key: self._asked.record(key, offset) for key, offset in offsets.items()}

    def compacted(self, origins: frozenset[str]) -> frozenset[str]:
        """Return nothing: records stay."""
        return frozenset()

    def last_records(self, ranges: Ranges) -> Fingerprints:
        """Read the last record of each range."""
        found = {key: self._asked.record(key, span.until_offset - 1) for key, span in ranges.non_empty().items()}
        return Fingerprints({key: record for key, record in found.items() if record is not None})


@dataclass(frozen=True)
class ToyFleet:
    """A `SourceFleet` over a memory."""

    asked: MemoryClient

    def origins(self, specs: Collection[SourceSpec]) -> Origins:
        """Return its partitions."""
        return {ORIGIN: [key.key for key in self.asked.bounds()[1]]}

    def bounds(self, partitions: frozenset[Partition], *, committed_only: bool) -> Answer:
        """Return what each partition holds."""
        bounds = self.asked.bounds()[1]
        return Answer({key: bounds[key] for key in partitions if key in bounds}, {})

    def timestamps(
        self, positions: Mapping[Partition, int], *, committed_only: bool
    ) -> Mapping[Partition, float | None]:
        """Return nothing: records have no timestamp."""
        return dict.fromkeys(positions)

    def close(self) -> None:
        """Nothing is open."""


@dataclass(frozen=True)
class ToyAddress:
    """Where a memory is."""

    server: str

    @property
    def key(self) -> tuple[tuple[str, str], ...]:
        """The server."""
        return (("server", self.server),)

    @property
    def shown(self) -> str:
        """The server."""
        return self.server

    @property
    def reached_by_process(self) -> tuple[NamedPlace, ...]:
        """Nothing: no process has a login of its own for it."""
        return ()

    def store_name(self, namespace: str) -> str:
        """Return the name of the memory."""
        return f"the memory at {self.server} of namespace {namespace}"

    def client(self) -> None:
        """Return nothing: a connection is made for each question."""

    def start_behind(self, last: Mapping[Partition, int]) -> GoesOn:
        """Return nothing to start with: a memory is always read from its start."""
        return GoesOn(("memory", "partition", "offset"), {key: position + 1 for key, position in last.items()}, {})

    def open(self, client: Any = None) -> ToyBounds:
        """Return the memory."""
        return ToyBounds(self.server)


class ToyConnector:
    """Memories."""

    def address(self, spec: SourceSpec, secret: Mapping[str, str]) -> ToyAddress:
        """Return where the memory is."""
        assert isinstance(spec, ToySource), "the registry gives each connector its own spec"
        return ToyAddress(spec.server)

    def fleet(self, key: tuple[tuple[str, str], ...]) -> ToyFleet:
        """Return a memory as the monitor asks it."""
        return ToyFleet(MemoryClient(dict(key)["server"]))


SOURCE = ToyConnector()
