"""What Spark 4.2.0 does with each golden folder of its own file source and sink, for the tests that prove and tell it."""

from __future__ import annotations

RESTARTS: dict[str, tuple[str, int]] = {
    "by-three": ("Continues", 8),
    "dropped": ("Continues", 3),
    "equal": ("Continues", 13),
    "listed": ("Continues", 13),
    "planned": ("RunsAgain", 12),
    "written": ("RunsAgain", 12),
    "two-sources": ("Continues", 3),
    "stateful": ("Continues", 5),
    "older-compact-missing": ("Continues", 8),
    "sink-compact-missing": ("Continues", 13),
    "sink-gap": ("Continues", 13),
    "sink-torn": ("Continues", 13),
    "sink-empty": ("Continues", 13),
    "sink-behind": ("Continues", 13),
    "part-missing": ("Continues", 13),
}
"""The batch that a restart runs first, and whether it is run again."""

FAILS: dict[str, str] = {
    "source-compact-missing": "doesn't exist",
    "source-gap": "doesn't exist",
    "source-torn": "Unexpected end-of-input",
    "source-empty": "Incomplete log file",
    "source-last-missing": "batch 12 doesn't exist",
    "source-version-later": "The maximum supported log version is",
}
"""What stands in the error with which a restart fails."""

READERS_FAIL: dict[str, str] = {
    "sink-compact-missing": "doesn't exist",
    "sink-gap": "doesn't exist",
    "sink-torn": "Unexpected end-of-input",
    "sink-empty": "Incomplete log file",
    "part-missing": "FAILED_READ_FILE.FILE_NOT_EXIST",
}
"""What stands in the error of a reader of the output folder."""

WRITERS_FAIL: dict[str, str] = {
    "sink-compact-missing": "BATCH_METADATA_NOT_FOUND",
    "sink-gap": "BATCH_METADATA_NOT_FOUND",
    "sink-behind": "BATCH_METADATA_NOT_FOUND",
    "sink-torn": "Unexpected end-of-input",
    "sink-empty": "Incomplete log file",
}
"""What stands in the error of a query that puts the log of its sink together, at batch 19."""
