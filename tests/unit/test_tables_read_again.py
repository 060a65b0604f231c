"""A table that Spark reads again in each run of a batch: where a query may use it, and where it is refused.

Each plan is as Spark 4.2.0 makes it, without the nodes in between; real ones are in tests/integration/test_static_tables.py.
"""

from __future__ import annotations

import pytest

from exactlyonce_spark.tables_read_again import PlanNode, Role, refused_table

SOURCE = PlanNode(Role.SOURCE, "MicroBatchScan")
TABLE = PlanNode(Role.TABLE, "Scan JDBCRelation(customers)")
WRITTEN_OUT = PlanNode(Role.OTHER, "LocalTableScan")


def join(*sides: PlanNode) -> PlanNode:
    return PlanNode(Role.OTHER, "Join", sides)


def state(below: PlanNode) -> PlanNode:
    return PlanNode(Role.STATE, "StateStoreSave", (below,))


def shuffle(below: PlanNode) -> PlanNode:
    return PlanNode(Role.SHUFFLE, "Exchange", (below,))


def broadcast(below: PlanNode) -> PlanNode:
    return PlanNode(Role.BROADCAST, "BroadcastExchange", (below,))


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(SOURCE, id="no table"),
        pytest.param(state(shuffle(SOURCE)), id="state without a table"),
        pytest.param(state(shuffle(join(SOURCE, WRITTEN_OUT))), id="rows that are written in the query"),
        pytest.param(join(SOURCE, broadcast(TABLE)), id="a table that is broadcast"),
        pytest.param(join(shuffle(SOURCE), shuffle(TABLE)), id="both sides are shuffled, and then joined"),
        pytest.param(join(broadcast(SOURCE), TABLE), id="the records are broadcast"),
        pytest.param(shuffle(join(SOURCE, broadcast(shuffle(TABLE)))), id="shuffled after a broadcast table"),
        pytest.param(join(state(shuffle(SOURCE)), broadcast(TABLE)), id="a table after the state"),
        pytest.param(
            join(shuffle(join(SOURCE, broadcast(TABLE))), shuffle(TABLE)), id="the first of two tables is broadcast"
        ),
    ],
)
def test_a_record_is_joined_once_whatever_runs_again(plan: PlanNode) -> None:
    assert refused_table(plan) is None


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(state(shuffle(join(SOURCE, broadcast(TABLE)))), id="broadcast"),
        pytest.param(state(join(shuffle(SOURCE), shuffle(TABLE))), id="shuffled"),
        pytest.param(join(state(shuffle(join(SOURCE, TABLE))), WRITTEN_OUT), id="below other nodes"),
        pytest.param(state(shuffle(state(shuffle(join(SOURCE, TABLE))))), id="below two"),
    ],
)
def test_state_is_not_made_of_rows_that_another_run_may_not_find(plan: PlanNode) -> None:
    """A batch that has landed runs again for its state when its driver died before Spark knew that it had."""
    assert (refused_table(plan) or "").startswith(
        "The transform keeps state (StateStoreSave) of records that it has joined or compared with other rows "
        "(Scan JDBCRelation(customers)), which Spark reads again"
    )


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(shuffle(join(SOURCE, TABLE)), id="beside the records"),
        pytest.param(
            join(shuffle(join(shuffle(SOURCE), shuffle(TABLE))), shuffle(TABLE)), id="the first of two tables"
        ),
        pytest.param(shuffle(join(broadcast(SOURCE), TABLE)), id="the records are broadcast"),
    ],
)
def test_joined_records_are_not_shuffled_where_a_lost_task_may_join_them_otherwise(plan: PlanNode) -> None:
    """Half of a batch's tasks would have got the rows of the first run, and half those of the second."""
    assert (refused_table(plan) or "").startswith(
        "The transform shuffles records that it has joined with other rows (Scan JDBCRelation(customers))"
    )
