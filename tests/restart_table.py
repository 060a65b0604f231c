"""The restart table: what Spark 4.2.0 does when it is started on each golden checkpoint, for the tests that prove it."""

from __future__ import annotations

from exactlyonce.positions.ranges import Positions
from testbed.golden import EARLIEST, ENDS, LATEST, START, positions

Ran = list[tuple[int, Positions, Positions]]
"""Batches in order, each with where it starts and ends."""

GOES_ON: dict[str, Ran] = {
    "checkpointed": [(3, ENDS[2], LATEST)],
    "planned": [(3, ENDS[2], ENDS[3]), (4, ENDS[3], LATEST)],
    "first-batch-planned": [(0, START, ENDS[0]), (1, ENDS[0], LATEST)],
    "offsets-version-2": [(3, ENDS[2], ENDS[3]), (4, ENDS[3], LATEST)],
    "commits-version-2": [(3, ENDS[2], ENDS[3]), (4, ENDS[3], LATEST)],
    "offsets-removed-in-part": [(3, ENDS[2], ENDS[3]), (4, ENDS[3], LATEST)],
    "with-ignored-files": [(3, ENDS[2], LATEST)],
    "checksum-file-empty": [(3, ENDS[2], LATEST)],
}
"""Spark continues, and rightly so."""

GOES_ON_WRONGLY: dict[str, Ran] = {
    "commits-missing": [(2, ENDS[1], ENDS[2]), (3, ENDS[2], LATEST)],
    "commits-behind": [(2, ENDS[1], ENDS[2]), (3, ENDS[2], LATEST)],
    "offsets-altered": [(3, ENDS[2], positions(7, 8, 10)), (4, positions(7, 8, 10), LATEST)],
    "kafka-start-missing": [(0, EARLIEST, ENDS[0]), (1, ENDS[0], LATEST)],
    "commits-version-3": [(2, ENDS[1], LATEST)],
}
"""Spark continues where batches may be missing, with a range that is not the planned one, or from a format not known here."""

FAILS: dict[str, tuple[Ran, str]] = {
    "metadata-missing": ([], "STREAMING_CHECKPOINT_MISSING_METADATA_FILE"),
    "metadata-empty": ([], "No content to map due to end-of-input"),
    "metadata-torn": ([], "Unexpected end-of-input"),
    "offsets-missing": ([], "assertion failed"),
    "offsets-gap": ([], "batch 1 doesn't exist"),
    "previous-offsets-missing": ([], "batch 1 doesn't exist"),
    "previous-offsets-missing-planned": ([], "Previous batch 2 not found in offset log"),
    "offsets-empty": ([], "Incomplete log file"),
    "offsets-torn": ([], "Unexpected end-of-input"),
    "offsets-torn-with-checksum": ([], "Unexpected end-of-input"),
    "offsets-version-later": ([], "The maximum supported log version is v2, but encountered v3"),
    "offsets-foreign-number": ([], "offsets/7 does not exist"),
    "offsets-stray-checksum": ([], "Multiple streaming queries are concurrently using"),
    "commits-ahead": ([(1, ENDS[0], ENDS[1])], "CONCURRENT_STREAM_LOG_UPDATE"),
    "commits-empty": ([], "Incomplete log file in the offset commit log"),
    "commits-torn": ([], "Unexpected end-of-input"),
    "commits-version-later": ([], "The maximum supported log version is v3, but encountered v4"),
    "commits-foreign-number": ([], "commits/7 does not exist"),
    "commits-stray-checksum": ([(2, ENDS[1], ENDS[2])], "Multiple streaming queries are concurrently using"),
    "kafka-start-torn": ([], "Expected e.g."),
}
"""Spark fails, after the batches it ran: those landed before already."""

OTHER_QUERIES = ["stateful", "state-without-offsets", "two-sources", "file-source"]
"""Not checkpoints of a query that copies the topic: the first two have tests of their own, the others are no stream's."""
