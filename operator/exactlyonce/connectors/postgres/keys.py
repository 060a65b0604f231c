"""Between partitions and positions and the columns that keep them. Performs no I/O.

Most partitions have a number and an offset of 64 bits, which the columns of the keys and indexes hold. A partition with a name
has its name in a column of its own and at the end of `topic`. A position beyond 64 bits has a column of its own, and the one of
64 bits holds the largest offset that there is.
"""

from __future__ import annotations

from exactlyonce.positions.ranges import Partition

LARGEST_OFFSET = 2**63 - 1
_SEPARATOR = "/"


def partition_columns(partition: Partition) -> tuple[str, int, str | None]:
    """Return `topic`, `partition` and `partition_name`."""
    if isinstance(partition.key, int):
        return partition.origin, partition.key, None
    return f"{partition.origin}{_SEPARATOR}{partition.key}", 0, partition.key


def partition_from(topic: str, number: int, name: str | None) -> Partition:
    """Return the partition of three columns."""
    if name is None:
        return Partition(topic, number)
    return Partition(topic.removesuffix(f"{_SEPARATOR}{name}"), name)


def position_columns(position: int) -> tuple[int, int | None]:
    """Return `next_offset` and `position`."""
    return (position, None) if position < LARGEST_OFFSET else (LARGEST_OFFSET, position)


def position_from(offset: int, position: int | None) -> int:
    """Return the position of two columns."""
    return offset if position is None else int(position)


def range_columns(from_position: int, until_position: int) -> tuple[int, int]:
    """Return `from_offset` and `until_offset`; of a range beyond 64 bits what tells it from others of its partition."""
    if until_position < LARGEST_OFFSET:
        return from_position, until_position
    mark = from_position % (LARGEST_OFFSET - 1)
    return mark, mark + 1


def is_plain(partition: Partition, *positions: int) -> bool:
    """Whether a number and offsets of 64 bits say it all."""
    return isinstance(partition.key, int) and all(position < LARGEST_OFFSET for position in positions)
