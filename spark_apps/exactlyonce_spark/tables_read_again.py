"""What a query may do with a table that Spark reads again in each run of a batch: pure rules over the shape of its plan.

A batch may run again after it has landed, for the state that it keeps, and a task may run again within a batch. The source
gives the same records each time; another table need not give the same rows. docs/stateful-queries.md has the reasons.
No pyspark here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto


class Role(Enum):
    """What a node of a plan is to these rules."""

    SOURCE = auto()
    """It reads the stream's source."""
    TABLE = auto()
    """It reads something else, whenever it runs."""
    STATE = auto()
    """It keeps state in the checkpoint."""
    SHUFFLE = auto()
    """It hands rows from tasks to tasks; when a task is lost, what it had handed over is made again."""
    BROADCAST = auto()
    """It is run once for a batch and kept by the driver, whichever tasks run again."""
    OTHER = auto()
    """None of these, among them rows that are written in the query itself."""


@dataclass(frozen=True, slots=True)
class PlanNode:
    """A node of an executed plan, with what it gets its rows from. `name` is what Spark calls it."""

    role: Role
    name: str
    below: tuple[PlanNode, ...] = ()


def refused_table(plan: PlanNode) -> str | None:
    """Return why a query cannot be landed exactly once because of another table that it reads, or None."""
    for node in _nodes(plan):
        if node.role is Role.STATE and (table := _first(node, Role.TABLE)) is not None:
            return (
                f"The transform keeps state ({node.name}) of records that it has joined or compared with other rows "
                f"({table.name}), which Spark reads again whenever a batch runs again: with other rows the state would no "
                "longer match what has landed. Use them after the operator that keeps state, or write them into the statement "
                "as VALUES."
            )
        if node.role is Role.SHUFFLE and _first(node, Role.SOURCE) is not None:
            table = _first(node, Role.TABLE, not_below=Role.BROADCAST)
            if table is not None:
                return (
                    f"The transform shuffles records that it has joined with other rows ({table.name}): a task that runs again "
                    "may find different rows, and records would be lost or doubled. Broadcast them, with the hint BROADCAST in "
                    "SQL or functions.broadcast, so that they are read once for each batch."
                )
    return None


def _nodes(plan: PlanNode, not_below: Role | None = None) -> Iterator[PlanNode]:
    yield plan
    if plan.role is not not_below:
        for child in plan.below:
            yield from _nodes(child, not_below)


def _first(plan: PlanNode, role: Role, not_below: Role | None = None) -> PlanNode | None:
    return next((node for node in _nodes(plan, not_below) if node.role is role), None)
