"""A store of the model whose loads commit as soon as they are submitted, from files that somebody has written before.

A load is known by its label alone. Requests may be lost or arrive long after their sender has given up, a load may be
cancelled, and labels are forgotten once their loads ended ten minutes ago or more. The rules are those of Doris' broker load.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

from exactlyonce.ledger.decided import Committable, StagedFile
from exactlyonce.ledger.known_loads import Span
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.load_labels import LoadLabels
from exactlyonce_spark.staged_loads import (
    REMEMBERED_MILLISECONDS,
    Cancelled,
    End,
    Finished,
    NotTakenNow,
    Outcome,
    StagedLoads,
    WaitingFile,
)
from exactlyonce_spark.target import LoadState, PreparedLoad
from tests.simulation.two_phase_store import PREPARE_TRIES, SinkSilent, StoreTarget, TwoPhaseStore

MINUTE = 60_000
MOST_POLLS = 20


class LoadRunsLong(SinkSilent):
    """A load has not ended while a driver was waiting for it."""


class StoreFull(NotTakenNow):
    """So many loads wait that the store takes no more."""


class JobState(Enum):
    """How far a submitted load is."""

    PENDING = "pending"
    LOADING = "loading"
    FINISHED = "finished"
    CANCELLED = "cancelled"


@dataclass
class Job:
    """A load that was submitted: its file, the rows that it has read, and when it ended."""

    label: str
    file: str
    stage: JobState = JobState.PENDING
    rows: tuple[Hashable, ...] = ()
    ended_at: int = 0


@dataclass
class StagedStore(TwoPhaseStore):
    """Takes prepared loads, too. `cancels` says whether a load is cancelled now, `dawdles` whether it makes no progress.

    `loses_file` says whether the file of a load goes while it is read, which leaves some of its rows; `is_full` whether so many
    loads wait that the store takes no more now.
    """

    cancels: Callable[[], bool] = lambda: False
    dawdles: Callable[[], bool] = lambda: False
    loses_file: Callable[[], bool] = lambda: False
    is_full: Callable[[], bool] = lambda: False
    skips_missing: bool = False
    """Whether a load whose file is gone finishes without a row, as Doris may have it, or is cancelled."""
    now: int = MINUTE
    files: dict[str, tuple[Hashable, ...]] = field(default_factory=dict)
    jobs: dict[str, Job] = field(default_factory=dict)
    finished_labels: set[str] = field(default_factory=set)
    """Which loads have ever loaded rows: no request tells, and a person who looks at the rows does."""
    read_by: dict[str, tuple[Hashable, ...]] = field(default_factory=dict)
    lacking: dict[str, tuple[Hashable, ...]] = field(default_factory=dict)
    """Which rows a load lacks, by its label, whose file went while it was read."""

    def put(self, file: str, rows: Sequence[Hashable]) -> None:
        """Write a file."""
        self._asked(f"put {file}", partial(self.files.__setitem__, file, tuple(rows)))

    def remove(self, file: str) -> None:
        """Remove a file."""
        self._asked(f"remove {file}", lambda: self.files.pop(file, None))

    def holds(self, file: str) -> bool:
        """Whether a file is there."""
        return self._asked(f"look for {file}", lambda: file in self.files)

    def listed(self) -> list[str]:
        """Return the files."""
        return self._asked("list files", lambda: list(self.files))

    def submit(self, label: str, file: str) -> bool:
        """Load a file under a label; one that is known and not cancelled is not loaded again. False if the store is full."""
        return self._asked(f"submit {label}", partial(self._submit, label, file))

    def show(self, label: str) -> tuple[JobState, int] | None:
        """Return how far the latest load of a label is, and how many rows it has read."""
        return self._asked(f"show {label}", partial(self._show, label))

    def clock(self) -> int:
        """Return the store's time."""
        return self._asked("ask for the time", lambda: self.now)

    def another_number(self) -> int:
        """Return a number that no label of this store has."""
        self._number += 1
        return self._number

    def progress(self) -> None:
        """Each load that runs comes a little further, or does not."""
        for job in list(self.jobs.values()):
            self._advance(job)

    def pass_minutes(self, minutes: int, forgets: Callable[[], bool]) -> bool:
        """Let time pass; labels of loads that ended ten minutes ago may be forgotten then. Whether one was."""
        self.now += minutes * MINUTE
        ended = [job for job in self.jobs.values() if job.stage in (JobState.FINISHED, JobState.CANCELLED)]
        gone = [job for job in ended if self.now - job.ended_at >= REMEMBERED_MILLISECONDS and forgets()]
        for job in gone:
            del self.jobs[job.label]
        return bool(gone)

    def _submit(self, label: str, file: str) -> bool:
        if self.is_full():
            return False
        before = self.jobs.get(label)
        if before is None or before.stage is JobState.CANCELLED:
            self.jobs[label] = Job(label, file)
        return True

    def _show(self, label: str) -> tuple[JobState, int] | None:
        job = self.jobs.get(label)
        if job is None:
            return None
        self._advance(job)
        return job.stage, len(job.rows)

    def _advance(self, job: Job) -> None:
        if job.stage in (JobState.FINISHED, JobState.CANCELLED) or self.dawdles():
            return
        is_missing = job.stage is JobState.PENDING and job.file not in self.files
        if (is_missing and not self.skips_missing) or self.cancels():
            job.stage, job.ended_at = JobState.CANCELLED, self.now
        elif job.stage is JobState.PENDING:
            job.stage, job.rows = JobState.LOADING, self.files.get(job.file, ())
            if len(job.rows) > 1 and self.loses_file():
                del self.files[job.file]
                job.rows, self.lacking[job.label] = job.rows[:-1], job.rows[-1:]
        else:
            job.stage, job.ended_at = JobState.FINISHED, self.now
            if job.rows:
                self.finished_labels.add(job.label)
                self.read_by[job.label] = job.rows
                self.visible(job.rows)


class StoreLoads(StagedLoads):
    """The store's loads as a driver of an epoch submits them. A file's name is its label and the number of a try."""

    def __init__(self, store: StagedStore, labels: LoadLabels, epoch: Epoch) -> None:
        self._store = store
        self._labels = labels
        self._epoch = epoch

    def now_milliseconds(self) -> int:
        """Return the store's time."""
        return self._store.clock()

    def submit(self, committable: Committable) -> None:
        """Submit a load."""
        assert committable.staged is not None, "it waits in a file"
        if not self._store.submit(committable.label, committable.staged.name):
            raise StoreFull(f"{committable.label} is not taken, since too many loads wait")

    def outcome_of(self, committable: Committable) -> Outcome:
        """Ask until a load has ended."""
        for _ in range(MOST_POLLS):
            shown = self._store.show(committable.label)
            if shown is None:
                return End.NOT_FOUND
            stage, rows = shown
            if stage is JobState.CANCELLED:
                return Cancelled()
            if stage is JobState.FINISHED:
                return Finished(rows)
        raise LoadRunsLong(f"{committable.label} has not ended")

    def is_there(self, committable: Committable) -> bool:
        """Ask for the file."""
        assert committable.staged is not None, "it waits in a file"
        return self._store.holds(committable.staged.name)

    def remove(self, file: StagedFile) -> None:
        """Remove a file."""
        self._store.remove(file.name)

    def another_label(self, batch: BatchNumber) -> str:
        """Return a label; numbers of the store make it another one each time."""
        return self._labels.label(self._epoch, batch, f"another-{self._store.another_number():x}")

    def waiting(self) -> Iterable[WaitingFile]:
        """List the files of this life."""
        for file in self._store.listed():
            epoch = self._labels.epoch_of(file.partition("/")[0])
            if epoch is not None:
                yield WaitingFile(StagedFile(file, "the store"), epoch)


class StagingTarget(StoreTarget):
    """Rows of small tasks are prepared, those of large ones wait in files."""

    def __init__(self, store: StagedStore, labels: LoadLabels, epoch: Epoch, stages_from: int = 0) -> None:
        super().__init__(store, labels, epoch)
        self._files = store
        self._stages_from = stages_from
        self._loads = StoreLoads(store, labels, epoch)

    @property
    def staged_loads(self) -> StagedLoads:
        """The store's."""
        return self._loads

    def prepare(self, batch: BatchNumber, part: str, rows: Any, spans: Sequence[Span] = ()) -> PreparedLoad | None:
        """Write the rows into a file; a request without an answer is given up, and the next one has another name."""
        if not rows or len(rows) < self._stages_from:
            return super().prepare(batch, part, rows)
        label = self._labels.label(self._epoch, batch, part)
        for number in range(PREPARE_TRIES):
            file = f"{label}/{number}"
            try:
                self._files.put(file, rows)
            except SinkSilent:
                if number == PREPARE_TRIES - 1:
                    raise
            else:
                return PreparedLoad(label, "", len(rows), staged=StagedFile(file, "the store"))
        raise AssertionError("the last try returns or raises")


def seen_by_a_person(store: TwoPhaseStore, committable: Committable) -> LoadState | None:
    """Return whether the rows of a load are there; None where nobody can know yet."""
    if committable.staged is None:
        return store.truth.get(int(committable.transaction_id))
    assert isinstance(store, StagedStore), "only there do rows wait in files"
    if committable.label in store.lacking and committable.label in store.finished_labels:
        return None
    return LoadState.COMMITTED if committable.label in store.finished_labels else LoadState.ABORTED
