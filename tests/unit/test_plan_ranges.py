"""Where the batch of a partition begins that appears while a query runs."""

from __future__ import annotations

import pytest

from exactlyonce.positions.ranges import OffsetRange, Partition, Positions, Ranges
from exactlyonce_spark.plan import PlanRefused, _ranges
from exactlyonce_spark.target import TaskRange

OLD, NEW = Partition("memory", 0), Partition("memory", 1)
STARTS, ENDS = Positions({OLD: 5}), Positions({OLD: 9, NEW: 7})


def test_a_partition_that_appears_begins_where_its_first_task_reads() -> None:
    tasks = (TaskRange(NEW, OffsetRange(3, 7)), TaskRange(OLD, OffsetRange(5, 9)), TaskRange(NEW, OffsetRange(2, 3)))

    assert _ranges(STARTS, ENDS, tasks) == Ranges({OLD: OffsetRange(5, 9), NEW: OffsetRange(2, 7)})


def test_a_partition_that_appears_is_refused_where_nothing_tells_what_its_tasks_read() -> None:
    """Taken for a partition without records, it would land nothing and move its position past all of them."""
    with pytest.raises(PlanRefused, match="memory-1 appeared while the query ran"):
        _ranges(STARTS, ENDS, None)

    assert _ranges(STARTS, Positions({OLD: 9}), None) == Ranges({OLD: OffsetRange(5, 9)})
