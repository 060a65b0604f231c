"""How a stream continues what a query of Spark's own has written: behind which batch, and where it starts. Performs no I/O."""

from __future__ import annotations

from typing import Any, assert_never

from exactlyonce.inspect.checkpoint import Checkpoint
from exactlyonce.inspect.compare import (
    AnotherQuery,
    CheckpointAhead,
    Comparison,
    Equal,
    NothingYet,
    PlannedOnly,
    SinkAhead,
    WrittenNotCommitted,
)
from exactlyonce.inspect.output import Output, OutputOddity
from exactlyonce.inspect.ranges import offsets_of
from exactlyonce.positions.ranges import BatchNumber

CONTINUED_INTERVAL = 10
"""Batches: Spark's default for putting the log together, and the only interval that a stream continues."""

_FATAL = (OutputOddity.NAMES_ELSEWHERE, OutputOddity.PART_FILE_MISSING, OutputOddity.PART_FILE_ALTERED)


def continued_after(output: Output) -> BatchNumber | None:
    """Return the batch behind which a stream continues in this folder (`sink.files.continueAfterBatch`).

    None if it cannot, because a stream writes here already, for example, or if only the log is known.
    """
    fits = output.is_of_stream is False and output.is_whole and output.log.interval == CONTINUED_INTERVAL
    unfit = any(oddity.name in _FATAL for oddity in output.oddities)
    return output.log.latest if fits and not unfit else None


def start_behind(checkpoint: Checkpoint, latest: BatchNumber, comparison: Comparison) -> dict[str, Any] | None:
    """Return the `start` of a stream where the latest batch of the log ends.

    None where the checkpoint does not tell, or for several sources, or one whose positions are not offsets by topic.
    """
    batch = checkpoint.batch(latest)
    if not _says_where_it_ends(comparison) or batch is None or len(batch.sources) != 1:
        return None
    ends = offsets_of(batch.sources[0].end)
    if ends is None:
        return None
    offsets = [{"topic": topic, "partition": number, "offset": at} for (topic, number), at in ends.items()]
    return {"from": "Offsets", "offsets": offsets}


def continuing_message(latest: BatchNumber, comparison: Comparison | None) -> str:
    """Return what to do for it: a stream starts where the latest batch that readers are shown ends."""
    setting = f"With sink.files.continueAfterBatch: {latest} a stream continues here, once the query has ended for good"
    if comparison is None:
        return f"{setting}; compare the folder with the query's checkpoint (--checkpoint) first."
    if _says_where_it_ends(comparison):
        return (
            f"{setting}. It has to start where batch {latest} ends, as the checkpoint planned it: that is what readers are "
            "shown."
        )
    return (
        f"{setting}. This checkpoint does not say where batch {latest} of the log ends: find out from the rows what they "
        "hold of the source, and start the stream behind that."
    )


def _says_where_it_ends(comparison: Comparison) -> bool:
    """Whether the latest batch of the log is one that this checkpoint has planned."""
    match comparison:
        case Equal() | WrittenNotCommitted() | PlannedOnly() | CheckpointAhead():
            return True
        case SinkAhead() | AnotherQuery() | NothingYet():
            return False
        case _:
            assert_never(comparison)
