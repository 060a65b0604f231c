"""A checkpoint as a person reads it: its batches with their ranges, and what is wrong with its files. Performs no I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exactlyonce.bounded_json import JsonRefused, parse_json
from exactlyonce.checkpoint import files
from exactlyonce.checkpoint.state import Damage
from exactlyonce.inspect.facts import CheckpointFacts, Log, Oddity, StateStore
from exactlyonce.inspect.file_log import FileLog, read_log
from exactlyonce.inspect.query_log import Committed, Planned, read_committed, read_planned
from exactlyonce.inspect.ranges import file_number_of, is_file_source, partitions_of, range_text
from exactlyonce.positions.ranges import BatchNumber


@dataclass(frozen=True, slots=True)
class SourceRange:
    """What a batch covers of one source; `files` are those of a file source, None where its log does not tell them."""

    name: str
    words: str
    start: str | None
    end: str | None
    files: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch of the offset log. Times are milliseconds since 1970."""

    number: BatchNumber
    planned_milliseconds: int | None
    watermark_milliseconds: int | None
    is_committed: bool
    sources: tuple[SourceRange, ...]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the files of a checkpoint say. `problems` are of the files that a restart depends on, by their path."""

    location: str
    query_id: str | None
    facts: CheckpointFacts
    planned: Mapping[BatchNumber, Planned]
    committed: Mapping[BatchNumber, Committed]
    file_sources: Mapping[int, FileLog]
    state: tuple[StateStore, ...]
    problems: Mapping[str, Oddity]

    @property
    def latest_planned(self) -> BatchNumber | None:
        """The latest batch of the offset log."""
        return self.facts.offsets.latest

    @property
    def latest_committed(self) -> BatchNumber | None:
        """The latest batch of the commit log."""
        return self.facts.commits.latest

    def batch(self, number: BatchNumber) -> Batch | None:
        """Return a batch of which the offset log was read; its start is the end of the one before it."""
        found = self.planned.get(number)
        if found is None:
            return None
        before = self.planned.get(BatchNumber(number - 1))
        return Batch(
            number,
            found.planned_milliseconds,
            found.watermark_milliseconds,
            number in self.facts.commits.numbers,
            tuple(self._range(place, found, before) for place in range(len(found.ends))),
        )

    def batches(self) -> tuple[Batch, ...]:
        """Return every batch that was read, in order; the first only helps to tell where the second starts."""
        numbers = sorted(self.planned)
        shown = numbers[1:] if numbers and numbers[0] > 0 and len(numbers) > 1 else numbers
        return tuple(batch for number in shown if (batch := self.batch(number)) is not None)

    def _range(self, place: int, found: Planned, before: Planned | None) -> SourceRange:
        end = found.ends[place]
        start = before.ends[place] if before is not None and place < len(before.ends) else None
        is_first = before is None and not any(number < min(self.planned) for number in self.facts.offsets.numbers)
        if is_first and start is None and file_number_of(end) is None:
            start = _recorded_start(self.facts.sources.get(place))
        log = self.file_sources.get(place)
        until, after = file_number_of(end), file_number_of(start)
        read = None
        if log is not None and until is not None:
            entries = log.of_batches(-1 if after is None else after, until)
            read = None if entries is None else tuple(entry.path for entry in entries)
        name = found.names[place] if place < len(found.names) else str(place)
        return SourceRange(name, range_text(start, end), start, end, read)


def read_checkpoint(facts: CheckpointFacts) -> Checkpoint:
    """Return what the files of a checkpoint say."""
    planned, wrong_offsets = read_planned(facts.offsets)
    committed, wrong_commits = read_committed(facts.commits)
    problems = {f"offsets/{number}": problem for number, problem in wrong_offsets.items()}
    problems |= {f"commits/{number}": problem for number, problem in wrong_commits.items()}
    query_id, wrong = _query_id(facts)
    if wrong is not None:
        problems["metadata"] = wrong
    problems |= _torn_starts(facts, planned)
    logs = {
        place: read_log(f"sources/{place}", log)
        for place, log in facts.sources.items()
        if is_file_source(tuple(it.ends[place] for it in planned.values() if place < len(it.ends)))
    }
    return Checkpoint(facts.location, query_id, facts, planned, committed, logs, facts.state, problems)


def _query_id(facts: CheckpointFacts) -> tuple[str | None, Oddity | None]:
    if facts.metadata is None:
        if not facts.offsets.files and not facts.commits.files:
            return None, None
        return None, Oddity(Damage.METADATA_MISSING, "the file metadata is missing")
    try:
        return files.parse_metadata(facts.metadata), None
    except files.FileEmpty as problem:
        return None, Oddity(Damage.FILE_EMPTY, f"metadata: {problem}")
    except files.FileTorn as problem:
        return None, Oddity(Damage.FILE_TORN, f"metadata: {problem}")


def _torn_starts(facts: CheckpointFacts, planned: Mapping[BatchNumber, Planned]) -> dict[str, Oddity]:
    """Return the recorded starts of batch 0 that are not whole, of sources with partitions."""
    first = planned.get(BatchNumber(0))
    found = {}
    for place, log in facts.sources.items():
        if first is None or log.file(0) is None or place >= len(first.ends):
            continue
        if partitions_of(first.ends[place]) is not None and _recorded_start(log) is None:
            found[f"sources/{place}/0"] = Oddity(
                Damage.FILE_TORN, f"sources/{place}/0: it is not the start of a source"
            )
    return found


def _recorded_start(log: Log | None) -> str | None:
    """Return where batch 0 starts, which Kafka's source and others write down once, in `sources/N/0`."""
    first = None if log is None else log.file(0)
    if first is None or not first.content:
        return None
    text = first.content.decode(errors="replace").lstrip("\0")
    head, _, body = text.partition("\n")
    entry = body if head.startswith("v") else text
    try:
        parse_json(entry)
    except JsonRefused:
        return None
    return entry.strip()
