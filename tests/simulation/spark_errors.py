"""What a query of the model of Spark ends with."""

from __future__ import annotations


class SparkFailed(Exception):
    """The query ended with an error."""


class TaskFailedLate(SparkFailed):
    """A task failed after its work was done."""


class TaskLost(SparkFailed):
    """The executor of a task was given up."""


class PoisonRecord(SparkFailed):
    """A batch fails on one of its records."""


class BatchTooLarge(SparkFailed):
    """A batch needs more memory than there is."""


class LogTaken(SparkFailed):
    """CONCURRENT_STREAM_LOG_UPDATE: another query writes into this checkpoint."""


class LogUnreadable(SparkFailed):
    """A log of the checkpoint lacks a file, or holds what cannot be."""


class OffsetChanged(SparkFailed):
    """The log ends before where the query stands."""


class PartitionsDiffer(SparkFailed):
    """Partitions of the checkpoint are gone from the source, or new ones do not start from 0."""
