"""A checkpoint beside the output folder of its file sink: which batches Spark would drop. Performs no I/O.

Spark's file sink takes a batch whose number is not above the latest in `_spark_metadata` for one that it has written already,
and drops its rows without a word (FileStreamSink.addBatch, Spark 4.2.0).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from exactlyonce.inspect.checkpoint import Checkpoint
from exactlyonce.inspect.output import Output, files_of_batch
from exactlyonce.inspect.restart import Continues, Fails, RunsAgain, StartsAnew, restart_of
from exactlyonce.positions.ranges import BatchNumber

CLOCKS_DIFFER_MILLISECONDS = 5_000
"""A file that is older than its batch by no more than this proves nothing: two clocks may have told the times."""

Span = tuple[BatchNumber, BatchNumber]
"""The first batch and the last one."""


@dataclass(frozen=True, slots=True)
class Equal:
    """Both end with the same batch."""

    batch: BatchNumber


@dataclass(frozen=True, slots=True)
class PlannedOnly:
    """The latest planned batch is neither committed nor in the log; `orphans` may be files that it has written."""

    batch: BatchNumber
    orphans: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class WrittenNotCommitted:
    """The latest planned batch is in the log and was not committed: a restart runs it again and drops it, rightly."""

    batch: BatchNumber


@dataclass(frozen=True, slots=True)
class CheckpointAhead:
    """Batches are committed and not in the log: their rows are shown to nobody, and Spark does not run them again."""

    lost: Span


@dataclass(frozen=True, slots=True)
class SinkAhead:
    """The log holds batches that the checkpoint does not know: Spark would drop its batches of these numbers."""

    dropped: Span


@dataclass(frozen=True, slots=True)
class AnotherQuery:
    """Files under numbers that are committed here were written before this checkpoint planned them: another query's.

    `already` are such batches, whose rows were dropped; `dropped` those that would be.
    """

    already: tuple[BatchNumber, ...]
    dropped: Span | None


@dataclass(frozen=True, slots=True)
class NothingYet:
    """Neither has a batch."""


Comparison = Equal | PlannedOnly | WrittenNotCommitted | CheckpointAhead | SinkAhead | AnotherQuery | NothingYet


def compare(checkpoint: Checkpoint, output: Output) -> Comparison:
    """Return how a checkpoint and an output folder stand to each other."""
    planned, committed, latest = checkpoint.latest_planned, checkpoint.latest_committed, output.log.latest
    following = _next_batch(checkpoint)
    foreign = written_before(checkpoint, output)
    if foreign:
        return AnotherQuery(foreign, _span(following, latest))
    if latest is not None and latest > (-1 if planned is None else planned):
        return SinkAhead((following, latest))
    written = -1 if latest is None else latest
    if committed is not None and committed > written:
        return CheckpointAhead((BatchNumber(written + 1), committed))
    if planned is None:
        return NothingYet()
    if committed == planned:
        return Equal(planned)
    return WrittenNotCommitted(planned) if latest == planned else PlannedOnly(planned, output.orphans)


def written_before(checkpoint: Checkpoint, output: Output) -> tuple[BatchNumber, ...]:
    """Return the batches whose files in the log are older than their plan in the checkpoint."""
    found = []
    for number, plan in sorted(checkpoint.planned.items()):
        entries = files_of_batch(output.log, number)
        times = [it.modified_milliseconds for it in entries or () if it.modified_milliseconds is not None]
        planned = plan.planned_milliseconds
        if times and planned is not None and max(times) + CLOCKS_DIFFER_MILLISECONDS < planned:
            found.append(number)
    return tuple(found)


def message_of(found: Comparison) -> str:
    """Return what a comparison says, and what to do."""
    match found:
        case Equal(batch):
            return f"Equal: both end with batch {batch}. Nothing has to be done."
        case PlannedOnly(batch, orphans):
            parts = (
                f"; {len(orphans)} files of no entry may be its first try, and readers do not see them"
                if orphans
                else ""
            )
            return (
                f"Batch {batch} is planned and not written{parts}. Start Spark on this checkpoint: it runs "
                f"batch {batch} again and "
                "writes it once."
            )
        case WrittenNotCommitted(batch):
            return (
                f"Batch {batch} is written and not committed. Start Spark on this checkpoint: it reads "
                f"batch {batch} again, drops "
                "it because it is in the log, and continues after it. Nothing is lost."
            )
        case CheckpointAhead(lost):
            return (
                f"Checkpoint ahead: {_batches(lost)} {_are(lost)} committed and not in _spark_metadata, so no reader sees "
                f"{_its(lost)} rows and Spark does not write them again. Restore _spark_metadata and the "
                "part files from a backup, or "
                "read the ranges of these batches from the source again into another folder."
            )
        case SinkAhead(dropped):
            return (
                f"Sink ahead: Spark would drop the rows of {_batches(dropped)} without a word, because "
                "_spark_metadata has these "
                "numbers already. Do not start Spark on this checkpoint: restore the checkpoint that "
                "wrote the folder, or write to a "
                "folder of its own."
            )
        case AnotherQuery(already, dropped):
            more = f", and would drop those of {_batches(dropped)}" if dropped else ""
            return (
                f"Another query's: _spark_metadata has files under {_listed(already)} that are older than "
                "these batches of the "
                f"checkpoint, so Spark has dropped the rows of these batches without a word{more}. Stop "
                "the query, and have it write "
                "to a folder of its own, with a new checkpoint from where this one began."
            )
        case NothingYet():
            return "Neither has a batch. Nothing has to be done."
        case _:
            assert_never(found)


def loses_rows(found: Comparison) -> bool:
    """Return whether rows are lost, or would be by a restart."""
    return isinstance(found, CheckpointAhead | SinkAhead | AnotherQuery)


def _next_batch(checkpoint: Checkpoint) -> BatchNumber:
    """Return the batch that Spark runs first, whatever else stops it."""
    restart = restart_of(checkpoint)
    match restart:
        case Continues(batch) | RunsAgain(batch):
            return batch
        case StartsAnew():
            return BatchNumber(0)
        case Fails():
            planned = checkpoint.latest_planned
            return BatchNumber(0 if planned is None else planned + (planned == checkpoint.latest_committed))
        case _:
            assert_never(restart)


def _span(first: BatchNumber, last: BatchNumber | None) -> Span | None:
    return None if last is None or last < first else (first, last)


def _batches(span: Span) -> str:
    return f"batch {span[0]}" if span[0] == span[1] else f"batches {span[0]} to {span[1]}"


def _listed(batches: tuple[BatchNumber, ...]) -> str:
    return f"batch{'es' * (len(batches) > 1)} {', '.join(map(str, batches))}"


def _are(span: Span) -> str:
    return "is" if span[0] == span[1] else "are"


def _its(span: Span) -> str:
    return "its" if span[0] == span[1] else "their"
