"""What is known of one stream, and how a look at its ledger or its source changes that. Performs no I/O.

A store that does not answer takes nothing away: what was known stays, with the store's problem beside it. So a lag never
turns into zero, and the age of the oldest record continues growing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from exactlyonce.ledger.connector import Landed
from exactlyonce.monitor.lag import PartitionLag, StreamLag, dated, measured, total, with_landed
from exactlyonce.positions.ranges import Partition
from exactlyonce.source.counted_files import FilesNotLanded
from exactlyonce.source.port import Bounds


@dataclass(frozen=True, slots=True)
class Counts:
    """What has landed since the monitor began to look: counters, which only go up."""

    batches: int = 0
    records: int = 0
    rows: int = 0
    dead_letters: int = 0


@dataclass(frozen=True, slots=True)
class FilesSeen:
    """What was counted of a folder for a stream that had landed up to these positions, or why nothing was, as a sentence."""

    landed: Mapping[Partition, int]
    found: FilesNotLanded | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What is known of one stream.

    `source_problem` and `ledger_problem` are sentences, None where the store answered when it was last asked; `asked_source`
    and `asked_ledger` tell whether it was asked at all. `remembered_timestamp` is the oldest record that another process
    has seen waiting; it stands until this one has measured. `measured_at` is when source and ledger last both answered.
    """

    landed: Landed | None = None
    counts: Counts = Counts()
    partitions: Mapping[Partition, PartitionLag] = field(default_factory=dict)
    ledger_problem: str | None = None
    source_problem: str | None = None
    asked_ledger: bool = False
    asked_source: bool = False
    remembered_timestamp: float | None = None
    measured_at: float | None = None
    files: FilesSeen | None = None
    """Of a source that is a folder, while no driver runs and nothing has landed since."""

    @property
    def not_landed(self) -> FilesNotLanded | None:
        """What is known of files that have not landed."""
        return None if self.files is None else self.files.found

    @property
    def was_asked(self) -> bool:
        """Whether anything was asked of its stores."""
        return self.asked_ledger or self.asked_source

    @property
    def source_up(self) -> bool:
        """Whether the source answered, for every partition of the stream, when it was last asked."""
        return self.asked_source and self.source_problem is None

    @property
    def ledger_up(self) -> bool:
        """Whether the ledger answered when it was last asked."""
        return self.asked_ledger and self.ledger_problem is None

    @property
    def problem(self) -> str | None:
        """Why the lag is not known for sure now, in a sentence; None where it is, or was never asked for."""
        return self.source_problem or self.ledger_problem or self._files_problem

    @property
    def _files_problem(self) -> str | None:
        if self.files is None:
            return None
        at_least_because = None if self.files.found is None else self.files.found.at_least_because
        return self.files.problem or (at_least_because and f"There may be more files: {at_least_because}")

    def lag(self, at: float) -> StreamLag | None:
        """Return the lag at a moment; None where it is not known.

        While a store does not answer, it is what is known of it: at least so much. Of that, a zero says nothing.
        """
        if self.not_landed is not None:
            is_none = self.not_landed.is_none
            return StreamLag(0 if is_none else None, self.not_landed.oldest_timestamp, None, is_none)
        if self.landed is None or not self.partitions:
            return None
        found = total(self.partitions, at)
        says_something = bool(found.records) or found.oldest_timestamp is not None
        return found if says_something or self.problem is None else None

    def oldest_timestamp(self, at: float) -> float | None:
        """Return the timestamp of the oldest record that has not landed; None where none waits, or it is not known."""
        if self.measured_at is None:
            return self.remembered_timestamp
        found = self.lag(at)
        return None if found is None else found.oldest_timestamp


def after_ledger(before: Snapshot, answer: Landed | str | None) -> Snapshot:
    """Return what is known after the ledger was asked; `answer` is None for a stream without a row, a text for a problem."""
    return _without_old_files(_after_ledger(before, answer))


def _after_ledger(before: Snapshot, answer: Landed | str | None) -> Snapshot:
    match answer:
        case str():
            return replace(before, asked_ledger=True, ledger_problem=answer)
        case None:
            return replace(before, asked_ledger=True, ledger_problem=None, landed=None, partitions={})
        case Landed():
            counts = Counts(
                before.counts.batches + answer.batches,
                before.counts.records + answer.records,
                before.counts.rows + answer.rows,
                before.counts.dead_letters + answer.dead_letters,
            )
            partitions = before.partitions if before.source_up else with_landed(before.partitions, answer.positions)
            return replace(
                before, asked_ledger=True, ledger_problem=None, landed=answer, counts=counts, partitions=partitions
            )


def after_source(
    before: Snapshot, landed: Mapping[Partition, int] | None, bounds: Mapping[Partition, Bounds], at: float
) -> Snapshot:
    """Return what is known after the source answered for every partition that counts.

    `landed` is where the ledger stood before the source was asked, so that it can never be ahead of a healthy source; None
    where the ledger does not know the stream, or has not answered yet.
    """
    measured_at = at if before.ledger_up else before.measured_at
    if landed is None:
        return replace(before, asked_source=True, source_problem=None, partitions={}, measured_at=measured_at)
    partitions = measured(landed, bounds, before.partitions, at)
    beyond = [f"{key} at {lag.landed}" for key, lag in partitions.items() if lag.is_beyond_source]
    if beyond:
        said = (
            f"More has landed than the source holds ({', '.join(beyond)}): the topic was recreated or has lost records."
        )
        return replace(before, asked_source=True, source_problem=said)
    return replace(before, asked_source=True, source_problem=None, partitions=partitions, measured_at=measured_at)


def after_source_problem(before: Snapshot, problem: str) -> Snapshot:
    """Return what is known when the source did not answer, or not for every partition that counts."""
    return replace(before, asked_source=True, source_problem=problem)


def landed_positions(known: Snapshot) -> Mapping[Partition, int] | None:
    """Return where a stream has landed, by the ledger's latest answer; None where it has not answered."""
    if not known.ledger_up:
        return None
    return {} if known.landed is None else known.landed.positions


def after_files(before: Snapshot, seen: FilesSeen | None) -> Snapshot:
    """Return what is known after files were counted; with None, as its driver runs and tells that by itself."""
    return _without_old_files(replace(before, files=seen))


def _without_old_files(known: Snapshot) -> Snapshot:
    """Forget what was counted for other positions: some of these files have landed since."""
    landed = {} if known.landed is None else known.landed.positions
    return known if known.files is None or known.files.landed == landed else replace(known, files=None)


def with_memory(before: Snapshot, timestamp: float) -> Snapshot:
    """Return what is known with the oldest record that another process has seen waiting, where this one has not measured."""
    if before.measured_at is not None or before.remembered_timestamp is not None:
        return before
    return replace(before, remembered_timestamp=timestamp)


def after_dating(before: Snapshot, timestamps: Mapping[Partition, float | None]) -> Snapshot:
    """Return what is known after records were fetched for their timestamps."""
    return replace(before, partitions=dated(before.partitions, timestamps)) if timestamps else before
