"""What a simulated world with another source or another kind of sink answers otherwise."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, cast

from exactlyonce.ledger.rows import FailureRow, StreamRow
from exactlyonce.positions.ranges import OffsetRange, Partition, Ranges
from exactlyonce_spark import tasks
from exactlyonce_spark.target import ManifestTarget
from tests.simulation import manifest
from tests.simulation.scheduler import Process
from tests.simulation.source import MemoryTopic

if TYPE_CHECKING:
    from tests.simulation.world import SimulatedWorld


class SourceAndSink:
    """The answers for a Kafka topic and a database; `topic` is what the stream reads."""

    topic: MemoryTopic
    keeps_letters = False
    kept_before: frozenset[Hashable] = frozenset()
    sink_of_drivers: str | None = None

    def is_well_formed(self, process: Process, record: Hashable) -> bool:
        """Whether a process finds a record well-formed; where `keeps_letters`, the others are dead letters."""
        return True

    def records_kept(self) -> set[Hashable]:
        """Return the records that are dead letters and have no row."""
        return set()

    def patched(self) -> AbstractContextManager[object]:
        """Return what has to hold while a run of this world lasts."""
        return nullcontext()

    def records_before(self, partition: Partition, position: int) -> int:
        """Return how many records of a partition, as the oracle counts them, lie before a position."""
        return position

    def records_in(self, partition: Partition, span: OffsetRange) -> set[Hashable]:
        """Return the records of a range, as the world knows them."""
        return {self.topic.record(partition, offset) for offset in range(span.from_offset, span.until_offset)}

    def is_landed(self, record: tuple[str, int, int], stands: Mapping[Partition, int]) -> bool:
        """Whether a stream that stands there has passed a record."""
        return any(key.key == record[1] and record[2] < end for key, end in stands.items())

    def is_doubtful(self, row: FailureRow) -> bool:
        """Whether a range is in quarantine of which nobody knows what became: its records may have landed."""
        return False

    def has_landed_all(self, stands: Mapping[Partition, int]) -> bool:
        """Whether a stream that stands there has everything."""
        return all(stands.get(key, 0) == end for key, end in self.topic.ends.items())

    def skipped_by_start(self) -> set[Hashable]:
        """Return the records that the stream's start may leave out although they can be read."""
        return set()

    def run_again(
        self, process: Process, without: Collection[tuple[Partition, OffsetRange]], ranges: Ranges, job: tasks.Job
    ) -> list[tasks.TaskReport]:
        """Run a job over the rows of exactly these ranges without some, where a sink of two phases has aborted them."""
        raise AssertionError("this world's sink has one phase")

    def leaves_a_batch_decided(self) -> bool:
        """Whether a batch of the stream is decided and has not landed."""
        return False

    def is_unfinished(self) -> bool:
        """Whether a batch that the positions have passed is yet to be committed in a sink of two phases."""
        return False

    def in_doubt(self) -> set[Hashable]:
        """Return the records of which a stream that has halted cannot say whether they have taken effect."""
        return set()

    def manifest_target(self, stream: StreamRow) -> ManifestTarget:
        """Return the sink as a driver writes to it, where it is a manifest."""
        return manifest.target_of(self._world, stream)

    def remove_orphans(self) -> None:
        """Somebody removes files that nobody will count."""
        manifest.remove_orphans(self._world)

    def compact(self) -> None:
        """Somebody merges small files."""
        manifest.compact(self._world)

    @property
    def _world(self) -> SimulatedWorld:
        return cast("SimulatedWorld", self)

    def strike_sink(self) -> None:
        """Something may go wrong with a sink that is no database."""

    def calm_sink(self) -> None:
        """Nothing goes wrong with it any more."""

    def time_out(self) -> None:
        """Hours pass, in which nobody has asked the sink for anything."""

    def begins_again(self) -> None:
        """A person has had the stream start over."""

    def wrong_since_commit(self) -> str | None:
        """Return what is wrong with the latest commit, beside records that are there twice."""
        return None
