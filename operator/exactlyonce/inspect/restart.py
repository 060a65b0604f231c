"""What a restart of Spark does with a checkpoint. Performs no I/O.

The order is Spark's own, and every line was measured with Spark 4.2.0: tests/integration/test_checkpoint_restarts.py and
test_file_query_restarts.py start it on each state (docs/checkpoint-states.md, docs/adr/0039).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from exactlyonce.checkpoint.state import Damage
from exactlyonce.inspect.checkpoint import Batch, Checkpoint
from exactlyonce.inspect.facts import Log, Oddity
from exactlyonce.inspect.file_log import FileLog
from exactlyonce.inspect.ranges import file_number_of
from exactlyonce.positions.ranges import BatchNumber

_PARSED_AS_LONG = re.compile(r"[+-]?\d{1,19}")
_HIDDEN_CHECKSUM = re.compile(r"\.(\d+)\.crc")


@dataclass(frozen=True, slots=True)
class StartsAnew:
    """There is nothing to continue: batch 0 starts where the query's options say."""


@dataclass(frozen=True, slots=True)
class Continues:
    """Everything planned is committed; the next batch is new."""

    batch: BatchNumber


@dataclass(frozen=True, slots=True)
class RunsAgain:
    """The latest planned batch is run again with the ranges of its plan.

    `unproven` are batches before it of which no commit is there: whatever became of them, they are not run again.
    """

    batch: BatchNumber
    plan: Batch | None
    unproven: tuple[BatchNumber, BatchNumber] | None = None


@dataclass(frozen=True, slots=True)
class Fails:
    """Spark ends with an error, in which `condition` stands; `after` is a batch that it runs again before."""

    condition: str
    words: str
    after: RunsAgain | None = None


Restart = StartsAnew | Continues | RunsAgain | Fails


def restart_of(checkpoint: Checkpoint) -> Restart:
    """Return what a restart of Spark 4.2.0 does, given the query that wrote the checkpoint."""
    return next(_failures(checkpoint), None) or _runs(checkpoint)


def oddities_of(checkpoint: Checkpoint) -> tuple[Oddity, ...]:
    """Return everything about a checkpoint that is not as Spark leaves it, whether or not a restart meets it."""
    offsets, commits = checkpoint.facts.offsets, checkpoint.facts.commits
    found = list(checkpoint.problems.values())
    found += [problem for log in checkpoint.file_sources.values() for problem in log.damage]
    planned, committed = offsets.latest, commits.latest
    if planned is None:
        found += _without_offsets(checkpoint)
    else:
        found += _gaps(offsets, planned)
        if committed is not None and committed > planned:
            found.append(Oddity(Damage.COMMITS_AHEAD, f"commits/{committed} exists and offsets ends at {planned}"))
        if planned > 0 and (committed is None or committed < planned - 1):
            ends = "commits/ is empty" if committed is None else f"commits ends at {committed}"
            found.append(Oddity(Damage.COMMITS_MISSING, f"{ends} and offsets/{planned} exists"))
    for name, log in (("offsets", offsets), ("commits", commits)):
        found += [
            Oddity(
                Damage.FOREIGN_NUMBER,
                f"{name}/{other} is not a log file, and Spark takes its name for batch {int(other)}",
            )
            for other in _foreign(log)
        ]
        found += [
            Oddity(Damage.STRAY_CHECKSUM, f"{name}/.{number}.crc exists and {name}/{number} does not")
            for number in _stray(log)
        ]
    return tuple(found)


def _without_offsets(checkpoint: Checkpoint) -> list[Oddity]:
    committed = checkpoint.facts.commits.latest
    if committed is not None:
        return [Oddity(Damage.OFFSETS_MISSING, f"commits/{committed} exists and offsets/ is empty")]
    if checkpoint.state:
        return [Oddity(Damage.STATE_WITHOUT_OFFSETS, "state/ has content and offsets/ is empty")]
    return []


def _gaps(offsets: Log, planned: BatchNumber) -> list[Oddity]:
    if len(offsets.numbers) > 1 and offsets.numbers[-2] != planned - 1:
        return [Oddity(Damage.OFFSETS_GAP, f"offsets/{offsets.numbers[-2]} is followed by offsets/{planned}")]
    if planned > 0 and len(offsets.numbers) == 1:
        words = f"offsets/{planned} exists and offsets/{planned - 1} does not"
        return [Oddity(Damage.PREVIOUS_OFFSETS_MISSING, words)]
    return []


def _failures(checkpoint: Checkpoint) -> Iterator[Fails]:
    """Yield what stops a restart, in the order in which Spark comes to it."""
    offsets, commits = checkpoint.facts.offsets, checkpoint.facts.commits
    planned, committed = offsets.latest, commits.latest
    yield from _failures_of_metadata(checkpoint)
    for name, log in (("offsets", offsets), ("commits", commits)):
        for other in _foreign(log):
            missing = f"{name}/{int(other)}"
            yield Fails(f"{missing} does not exist", f"it takes {name}/{other} for batch {int(other)}")
    if planned is None:
        if committed is not None:
            yield Fails("assertion failed", "the offset log is empty and the commit log is not")
        elif checkpoint.state:
            condition = "STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY"
            yield Fails(condition, "there is state without an offset log, if the query keeps state")
        return
    yield from _unreadable(checkpoint, f"offsets/{planned}")
    if committed is not None:
        yield from _unreadable(checkpoint, f"commits/{committed}")
    if planned > 0 and planned - 1 not in offsets.numbers:
        condition = f"batch {planned - 1} doesn't exist"
        if committed != planned:
            condition = f"Previous batch {planned - 1} not found in offset log"
        yield Fails(condition, f"it reads the latest two of the offset log, and offsets/{planned - 1} is missing")
    yield from _unreadable(checkpoint, f"offsets/{planned - 1}")
    yield from _failures_of_sources(checkpoint, planned, committed)
    yield from _failures_while_writing(checkpoint, planned, committed)


def _failures_of_metadata(checkpoint: Checkpoint) -> Iterator[Fails]:
    problem = checkpoint.problems.get("metadata")
    if problem is None:
        return
    if problem.name == Damage.METADATA_MISSING:
        before = "releases before 4.2 take a new query id and continue"
        yield Fails("STREAMING_CHECKPOINT_MISSING_METADATA_FILE", f"the file metadata is missing; {before}")
    elif problem.name == Damage.FILE_EMPTY:
        yield Fails("No content to map due to end-of-input", "the file metadata has no bytes")
    else:
        yield Fails("Unexpected end-of-input", "the file metadata is torn")


def _unreadable(checkpoint: Checkpoint, path: str) -> Iterator[Fails]:
    problem = checkpoint.problems.get(path)
    if problem is None:
        return
    number = BatchNumber(int(path.rpartition("/")[2]))
    held = checkpoint.planned if path.startswith("offsets") else checkpoint.committed
    if problem.name == Damage.CHECKSUM_MISMATCH and number in held:
        return  # Spark does not look at checksums, and the content is whole: it runs with what it says
    conditions = {
        Damage.FILE_EMPTY: "Incomplete log file",
        Damage.VERSION_UNSUPPORTED: "The maximum supported log version is",
    }
    yield Fails(conditions.get(Damage(problem.name), "Unexpected end-of-input"), problem.words)


def _failures_of_sources(
    checkpoint: Checkpoint, planned: BatchNumber, committed: BatchNumber | None
) -> Iterator[Fails]:
    if planned == 0 and committed is None:
        starts = [problem for path, problem in checkpoint.problems.items() if path.startswith("sources/")]
        yield from (Fails("Expected e.g.", problem.words) for problem in starts)
    for place, files in checkpoint.file_sources.items():
        yield from _failures_of_file_source(checkpoint, place, files)


def _failures_of_file_source(checkpoint: Checkpoint, place: int, log: FileLog) -> Iterator[Fails]:
    if log.damage:
        yield Fails(_condition_of(log), log.damage[0].words)
    planned = checkpoint.latest_planned
    if planned is None or planned not in checkpoint.planned or checkpoint.latest_committed == planned:
        return
    until = file_number_of(checkpoint.planned[planned].ends[place])
    if until is not None and until > (-1 if log.latest is None else log.latest):
        words = f"batch {planned} reads the files of {log.folder}/{until}, which is missing"
        yield Fails(f"batch {until} doesn't exist", words)


def _condition_of(log: FileLog) -> str:
    """Return what stands in the error of a source whose log is not whole: it reads all of it when it starts."""
    name = log.damage[0].name
    return {
        "EntryEmpty": "Incomplete log file",
        "LogVersionUnsupported": "The maximum supported log version is",
        "EntryTorn": "Unexpected end-of-input",
        "EntryAltered": "Unexpected end-of-input",
    }.get(name, "doesn't exist")


def _failures_while_writing(
    checkpoint: Checkpoint, planned: BatchNumber, committed: BatchNumber | None
) -> Iterator[Fails]:
    again = RunsAgain(planned, checkpoint.batch(planned))
    concurrent = "Multiple streaming queries are concurrently using"
    if committed is not None and committed > planned:
        words = f"commits/{committed} is there before the batch is planned"
        yield Fails("CONCURRENT_STREAM_LOG_UPDATE", words, again)
    first = planned if committed != planned else planned + 1
    for number in _stray(checkpoint.facts.offsets):
        if number == planned + 1:
            yield Fails(
                concurrent, f"it cannot write offsets/{number} beside .{number}.crc", None if first > planned else again
            )
    for number in _stray(checkpoint.facts.commits):
        if number == first:
            yield Fails(concurrent, f"it cannot write commits/{number} beside .{number}.crc", again)


def _runs(checkpoint: Checkpoint) -> Restart:
    planned, committed = checkpoint.latest_planned, checkpoint.latest_committed
    if planned is None:
        return StartsAnew()
    if committed == planned:
        return Continues(BatchNumber(planned + 1))
    first_unproven = 0 if committed is None else committed + 1
    unproven = None
    if first_unproven < planned:
        unproven = (BatchNumber(first_unproven), BatchNumber(planned - 1))
    return RunsAgain(planned, checkpoint.batch(planned), unproven)


def _foreign(log: Log) -> tuple[str, ...]:
    """Return the names that Spark parses as a batch beyond the latest (String.toLong) and does not write itself."""
    latest = -1 if log.latest is None else log.latest
    return tuple(name for name in log.others if _PARSED_AS_LONG.fullmatch(name) and int(name) > latest)


def _stray(log: Log) -> tuple[int, ...]:
    """Return the batches beyond the latest whose hidden checksums are there alone."""
    latest = -1 if log.latest is None else log.latest
    found = (match for name in log.others if (match := _HIDDEN_CHECKSUM.fullmatch(name)))
    return tuple(number for match in found if (number := int(match[1])) > latest)
