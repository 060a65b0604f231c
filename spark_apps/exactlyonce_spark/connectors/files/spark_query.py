"""Which files of a folder a query of Spark's own file source has read, by its checkpoint, which is only read. No pyspark here.

Whether the query has ended is told by what a restart of Spark would do, which `exactlyonce.inspect` knows (docs/adr/0039).
"""

from __future__ import annotations

from typing import assert_never
from urllib.parse import unquote

from exactlyonce.bounded_text import some_of
from exactlyonce.connectors.files.source_position import LEFT_OUT, SourceFile
from exactlyonce.errors import Refused
from exactlyonce.inspect.checkpoint import Checkpoint, read_checkpoint
from exactlyonce.inspect.facts import CheckpointFacts
from exactlyonce.inspect.file_log import FileEntry
from exactlyonce.inspect.gather import NothingOfSpark, ReadStore, facts_of
from exactlyonce.inspect.ranges import file_number_of
from exactlyonce.inspect.restart import Continues, Fails, RunsAgain, StartsAnew, restart_of
from exactlyonce.schema.places import S3_PREFIX

_OTHER_SCHEMES = ("s3://", "s3n://")
_AGAIN = (
    "Start that query once more as it is, with Trigger.AvailableNow, let it end by itself, and start this stream again."
)


class QueryUnfit(Refused):
    """A query's checkpoint does not prove which files have been read and have taken effect."""


def files_read_by(store: ReadStore, folder: str) -> tuple[SourceFile, ...]:
    """Return the files of the query's committed batches as they are written down to be left out, in the order of their times.

    `folder` is the folder as the stream names it, without `file://`.

    Raises:
        QueryUnfit: saying what is in the way, and what to do.
        StoreUnreachable: if the storage does not answer.
    """
    try:
        facts = facts_of(store, 1).checkpoint
    except NothingOfSpark as problem:
        raise QueryUnfit(f"start.checkpoint: {problem}") from problem
    if facts is None:
        raise QueryUnfit(
            f"{store.location} is the output folder of a query and not its checkpoint; name its checkpointLocation."
        )
    found = files_of(facts)
    paths = {entry.path: path_below(entry.path, folder) for entry in found}
    outside = [path for path, below in paths.items() if below is None]
    if outside:
        raise QueryUnfit(
            f"The query of {store.location} has read {some_of(outside)}, outside of {folder}; let source.files.path be the "
            "folder that it reads."
        )
    read = [
        SourceFile(path, entry.size_bytes or 0, entry.modified_milliseconds or 0, LEFT_OUT)
        for entry in found
        if (path := paths[entry.path]) is not None
    ]
    return tuple(sorted({file.path: file for file in read}.values(), key=lambda file: file.order))


def files_of(facts: CheckpointFacts) -> tuple[FileEntry, ...]:
    """Return the files of all committed batches. Performs no I/O.

    Raises:
        QueryUnfit: if the latest batch is not committed, the query keeps state, or the checkpoint does not tell all files.
    """
    checkpoint = read_checkpoint(facts)
    _require_ended(checkpoint)
    if facts.state:
        raise QueryUnfit(
            f"The query of {facts.location} keeps state, which holds records that have not taken effect yet, and no stream can "
            "take it over. Start a stream with another sink over all files, or over those of a moment (from: Timestamp)."
        )
    latest = checkpoint.latest_planned
    planned = None if latest is None else checkpoint.planned.get(latest)
    end = file_number_of(planned.ends[0]) if planned is not None and len(planned.ends) == 1 else None
    log = checkpoint.file_sources.get(0)
    if end is None or log is None:
        raise QueryUnfit(
            f"The query of {facts.location} does not read one folder alone, by Spark's file source; only the checkpoint of "
            "such a query tells which files this stream has to leave out."
        )
    if log.damage or log.latest is None or log.latest < end:
        said = log.damage[0].words if log.damage else f"sources/0 ends at {log.latest}, and offsets at entry {end}"
        raise QueryUnfit(f"{facts.location} does not tell all files that its query has read: {said}. Restore the file.")
    # Spark writes an entry before the plan that names its number: one that no plan names has not been read.
    return tuple(entry for entry in log.all_entries() if entry.batch is not None and entry.batch <= end)


def _require_ended(checkpoint: Checkpoint) -> None:
    where = checkpoint.location
    match restart_of(checkpoint):
        case Continues():
            return
        case StartsAnew():
            raise QueryUnfit(
                f"The query of {where} has not planned any batch, so it has read nothing; leave start out."
            )
        case RunsAgain(batch=batch):
            raise QueryUnfit(
                f"Batch {batch} of the query of {where} was planned and is not committed, so nobody knows whether its rows are "
                f"in its sink. {_AGAIN}"
            )
        case Fails(condition=condition, words=words):
            raise QueryUnfit(
                f"The query of {where} cannot be continued ({condition}: {words}), so nothing proves which files have taken "
                "effect. Restore its checkpoint; `exactlyonce checkpoint` shows what is in it."
            )
        case never:
            assert_never(never)


def path_below(path: str, folder: str) -> str | None:
    """Return a path of Spark's log, which is an encoded URI, from the folder on; None if it is not in the folder.

    Performs no I/O. Source: FileStreamSource.FileEntry, SparkPath.urlEncoded, Spark 4.2.0.
    """
    plain = unquote(path)
    for scheme in _OTHER_SCHEMES:
        if plain.startswith(scheme):
            plain = S3_PREFIX + plain.removeprefix(scheme)
    if plain.startswith("file:"):
        plain = "/" + plain.removeprefix("file:").lstrip("/")
    above = f"{folder}/"
    return plain.removeprefix(above) if plain.startswith(above) and plain != above else None
