"""What `exactlyonce checkpoint` and `exactlyonce inspect` say: as text for a person, as data for a program. Performs no I/O."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, assert_never

from exactlyonce.checkpoint.state import Damage
from exactlyonce.inspect.checkpoint import Batch, Checkpoint
from exactlyonce.inspect.compare import Comparison, loses_rows, message_of
from exactlyonce.inspect.continuing import continued_after, continuing_message, start_behind
from exactlyonce.inspect.facts import Oddity
from exactlyonce.inspect.output import Output
from exactlyonce.inspect.restart import Continues, Fails, Restart, RunsAgain, StartsAnew, oddities_of, restart_of
from exactlyonce.positions.ranges import BatchNumber

_MOST_FILES = 5


@dataclass(frozen=True, slots=True)
class Report:
    """What was looked at, and how the two stand to each other where both were."""

    checkpoint: Checkpoint | None
    output: Output | None
    comparison: Comparison | None
    batches: int

    @property
    def needs_a_person(self) -> bool:
        """Whether a restart fails or loses rows, or readers of the output fail."""
        fails = False
        if self.checkpoint is not None:
            restart = restart_of(self.checkpoint)
            fails = isinstance(restart, Fails) or (isinstance(restart, RunsAgain) and restart.unproven is not None)
            fails = fails or is_altered(self.checkpoint)
        if self.output is not None:
            fails = fails or not self.output.is_whole or bool(self.output.missing)
        return fails or (self.comparison is not None and loses_rows(self.comparison))


def is_altered(checkpoint: Checkpoint) -> bool:
    """Return whether a file was changed after Spark wrote it."""
    return any(problem.name == Damage.CHECKSUM_MISMATCH for problem in checkpoint.problems.values())


def restart_message(found: Restart) -> str:
    """Return what a restart of Spark does, and what to do."""
    match found:
        case StartsAnew():
            return "It starts with batch 0, where the query's options say: there is nothing to continue."
        case Continues(batch):
            return f"It continues with batch {batch}: everything that was planned is committed."
        case RunsAgain(batch, plan, unproven):
            again = f"It runs batch {batch} again, with {_plan_words(plan)}"
            if unproven is None:
                return f"{again}: it was planned and not committed."
            first, last = unproven
            before = f"batch {first}" if first == last else f"batches {first} to {last}"
            return (
                f"{again}, and nothing of {before}, of which no commit is there: commits were lost, or Spark 2.1 wrote this, "
                "which keeps none. Find out whether the sink has these batches before you start it."
            )
        case Fails(condition, words, after):
            first_words = (
                ""
                if after is None
                else f"It runs batch {after.batch} again, with {_plan_words(after.plan)}, and then it fails"
            )
            fails = first_words or "It fails"
            return (
                f"{fails}: {words}. The error says: {condition}. Restore the folder from a backup, or "
                "begin a new checkpoint at the ends "
                "of the latest batch that the sink has."
            )
        case _:
            assert_never(found)


def text_of(report: Report) -> str:
    """Render a report for a person."""
    return "\n".join(_lines(report))


def _lines(report: Report) -> Iterator[str]:
    if report.checkpoint is not None:
        yield from _checkpoint_lines(report.checkpoint, report.batches)
    if report.output is not None:
        yield from _output_lines(report.output)
    if report.comparison is not None:
        yield "Together"
        yield f"  {message_of(report.comparison)}"
    latest = None if report.output is None else continued_after(report.output)
    if latest is not None:
        yield "A stream"
        yield f"  {continuing_message(latest, report.comparison)}"
        start = _start(report, latest)
        if start is not None:
            yield f"  start: {json.dumps(start)}"


def _checkpoint_lines(checkpoint: Checkpoint, batches: int) -> Iterator[str]:
    yield f"Checkpoint  {checkpoint.location}"
    yield f"Query       {checkpoint.query_id or 'unknown'}"
    yield f"Planned     {_latest(checkpoint.latest_planned)}"
    yield f"Committed   {_latest(checkpoint.latest_committed)}"
    for store in checkpoint.state:
        latest = "" if store.latest_version is None else f", latest version {store.latest_version}"
        size = f"partitions: {store.partitions}, files: {store.files}, size: {store.size_bytes:,} bytes"
        yield f"State       operator {store.operator}: {size}{latest}"
    shown = checkpoint.batches()[-batches:]
    if shown:
        yield "Batches"
    for batch in shown:
        yield from _batch_lines(batch)
    yield from _oddity_lines(oddities_of(checkpoint))
    yield "A restart of Spark"
    yield f"  {restart_message(restart_of(checkpoint))}"


def _batch_lines(batch: Batch) -> Iterator[str]:
    watermark = "" if batch.watermark_milliseconds is None else f", watermark {_time(batch.watermark_milliseconds)}"
    state = "committed" if batch.is_committed else "planned, not committed"
    yield f"  {batch.number}  {state}, planned {_time(batch.planned_milliseconds)}{watermark}"
    for source in batch.sources:
        yield f"       source {source.name}: {source.words}"
        for path in (source.files or ())[:_MOST_FILES]:
            yield f"         {path}"
        more = len(source.files or ()) - _MOST_FILES
        if more > 0:
            yield f"         and {more} more; -o json lists them all"


def _output_lines(output: Output) -> Iterator[str]:
    yield f"Output      {output.location}"
    log = output.log
    compactions = f"put together every {log.interval} batches, next at {log.next_compaction}"
    yield f"Log         up to batch {_latest(log.latest)}, {compactions}"
    yield f"Shown       {len(output.shown)} files, {sum(entry.size_bytes or 0 for entry in output.shown):,} bytes"
    yield from _oddity_lines(output.oddities)
    yield "Readers and writers"
    yield f"  {output_message(output)}"


def output_message(output: Output) -> str:
    """Return what Spark's readers and the query that writes a folder meet in it, and what to do."""
    log = output.log
    if log.latest is None:
        return "The log is empty: readers with Spark are shown nothing."
    if log.damage:
        return (
            f"Readers with Spark fail on batch {log.damaged[0]} of the log. A query that writes here "
            "continues and fails at batch "
            f"{log.next_compaction}, when it puts the log together. Restore the missing part of "
            "_spark_metadata from a backup; without "
            "one, write to another folder."
        )
    if output.missing:
        return "Readers with Spark fail on the missing files. Restore them from a backup: no restart writes them again."
    ends = f"up to batch {log.latest}"
    if output.orphans:
        return (
            f"Readers with Spark are shown everything {ends}, without the files of no entry, which may be "
            "removed while no query "
            "writes here."
        )
    return (
        f"Readers with Spark are shown everything {ends}. A query that writes here drops batches with numbers {ends}."
    )


def _oddity_lines(oddities: tuple[Oddity, ...]) -> Iterator[str]:
    if oddities:
        yield "Oddities"
    for oddity in oddities:
        yield f"  {oddity.name}: {oddity.words}"


def _start(report: Report, latest: BatchNumber) -> dict[str, Any] | None:
    if report.checkpoint is None or report.comparison is None:
        return None
    return start_behind(report.checkpoint, latest, report.comparison)


def data_of(report: Report) -> dict[str, Any]:
    """Render a report for a program."""
    latest = None if report.output is None else continued_after(report.output)
    return {
        "checkpoint": None if report.checkpoint is None else _checkpoint_data(report.checkpoint, report.batches),
        "output": None if report.output is None else _output_data(report.output),
        "comparison": None if report.comparison is None else _comparison_data(report.comparison),
        "start": None if latest is None else _start(report, latest),
        "needsAPerson": report.needs_a_person,
    }


def _checkpoint_data(checkpoint: Checkpoint, batches: int) -> dict[str, Any]:
    restart = restart_of(checkpoint)
    return {
        "location": checkpoint.location,
        "queryId": checkpoint.query_id,
        "planned": checkpoint.latest_planned,
        "committed": checkpoint.latest_committed,
        "batches": [_batch_data(batch) for batch in checkpoint.batches()[-batches:]],
        "state": [_camel(asdict(store)) for store in checkpoint.state],
        "oddities": [asdict(oddity) for oddity in oddities_of(checkpoint)],
        "restart": {"kind": type(restart).__name__, **_restart_data(restart), "message": restart_message(restart)},
    }


def _restart_data(restart: Restart) -> dict[str, Any]:
    match restart:
        case StartsAnew():
            return {"batch": 0}
        case Continues(batch):
            return {"batch": batch}
        case RunsAgain(batch, plan, unproven):
            return {
                "batch": batch,
                "plan": None if plan is None else _batch_data(plan),
                "unproven": None if unproven is None else [*unproven],
            }
        case Fails(condition, _, after):
            return {"condition": condition, "batch": None if after is None else after.batch}
        case _:
            assert_never(restart)


def _batch_data(batch: Batch) -> dict[str, Any]:
    return {
        "batch": batch.number,
        "committed": batch.is_committed,
        "plannedAt": _iso(batch.planned_milliseconds),
        "watermark": _iso(batch.watermark_milliseconds),
        "sources": [_camel(asdict(source)) for source in batch.sources],
    }


def _output_data(output: Output) -> dict[str, Any]:
    return {
        "location": output.location,
        "latest": output.log.latest,
        "compactInterval": output.log.interval,
        "nextCompaction": output.log.next_compaction,
        "files": [entry.path for entry in output.shown],
        "orphans": None if output.orphans is None else [*output.orphans],
        "missing": [*output.missing],
        "oddities": [asdict(oddity) for oddity in output.oddities],
        "continueAfterBatch": continued_after(output),
        "message": output_message(output),
    }


def _comparison_data(found: Comparison) -> dict[str, Any]:
    return {"kind": type(found).__name__, **asdict(found), "message": message_of(found), "losesRows": loses_rows(found)}


def _camel(values: Mapping[str, Any]) -> dict[str, Any]:
    def name(key: str) -> str:
        first, *rest = key.split("_")
        return first + "".join(part.capitalize() for part in rest)

    return {name(key): value for key, value in values.items()}


def _plan_words(plan: Batch | None) -> str:
    if plan is None:
        return "the ranges of its plan"
    return "; ".join(f"source {source.name}: {source.words}" for source in plan.sources)


def _latest(batch: int | None) -> str:
    return "nothing" if batch is None else str(batch)


def _iso(milliseconds: int | None) -> str | None:
    return None if milliseconds is None else _time(milliseconds)


def _time(milliseconds: int | None) -> str:
    if milliseconds is None:
        return "at an unknown time"
    try:
        return (
            datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms after 1970"
