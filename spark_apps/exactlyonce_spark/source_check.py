"""What is asked of the source between reading and committing. No pyspark here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from exactlyonce.errors import ExactlyOnceError
from exactlyonce.offsets import BatchNumber, Positions, Ranges, TopicPartition
from exactlyonce_spark.landing import TopicReplaced


class RecordsLost(ExactlyOnceError):
    """Retention, or a truncated log, took records of the batch before they were read; nothing was landed."""


class SourceCheck(Protocol):
    """The source, asked about partitions that have just been read."""

    @property
    def brokers(self) -> str:
        """What a person calls the source."""
        ...

    def earliest_and_ids(self, partitions: list[TopicPartition]) -> tuple[Positions, dict[str, str]]:
        """Return the earliest offset of each partition and the id of each topic."""
        ...


def require_all_was_there(
    source: SourceCheck,
    batch: BatchNumber,
    ranges: Ranges,
    topic_ids: Mapping[str, str],
    records_read: int | None = None,
) -> None:
    """Require that the topics are the same and that nothing of the ranges was taken away before it was read.

    Every earliest offset must still be at or below the range's start. That tells a count smaller than the range that is
    right (compaction, transaction markers) from one that is not (retention), whatever was counted.

    Raises:
        RecordsLost, TopicReplaced: nothing may be landed.
    """
    read = list(ranges.non_empty())
    if not read:
        return
    earliest, found_ids = source.earliest_and_ids(read)
    for topic, topic_id in found_ids.items():
        if topic_ids.get(topic, topic_id) != topic_id:
            raise TopicReplaced(f"Topic {topic} was made anew while batch {batch} was read.")
    gone = {key: ranges[key] for key in read if earliest[key] > ranges[key].from_offset}
    if gone:
        told = ", ".join(f"{key} from {span.from_offset} to {earliest[key]}" for key, span in gone.items())
        counted = "" if records_read is None else f" ({records_read} of {ranges.record_count} were read)"
        raise RecordsLost(f"Retention took records of batch {batch} while it was read: {told}{counted}.")
