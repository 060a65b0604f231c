"""What a replay of a data stream is protected by, taken away."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from exactlyonce.positions.ranges import OffsetRange
from exactlyonce_spark.connectors.kinesis.dividing import ShardDivider
from exactlyonce_spark.replay_parts import Expired


@contextmanager
def a_range_is_lost_as_a_whole_once_its_beginning_has_expired() -> Iterator[None]:
    """Where the beginning of a range has expired, a replay gives up all of it, without asking what the shard still holds."""

    def expired(_divider: ShardDivider, _shard: str, offsets: OffsetRange, problem: Any) -> Expired:
        return Expired(offsets.until_offset, str(problem))

    with mock.patch.object(ShardDivider, "_expired", expired):
        yield
