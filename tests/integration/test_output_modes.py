"""Results that change: outputMode Update writes each changed row by its key, Complete the whole result, each effect once.

The oracle counts the ids that the test produced by itself; a record that takes effect twice shows in count and sum.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import pytest

from exactlyonce.reconcile.loop import Done, Halted
from tests.combinations import in_full, one_or_all
from tests.rig import Rig

pytestmark = pytest.mark.seconds(13)

BATCH = 100
BY_CUSTOMER = "SELECT customer, count(*) AS orders, sum(id) AS total FROM source GROUP BY customer"
# A replayed batch of a query that keeps state is also replayed in test_stateful.py.
CRASHES, VERDICTS = in_full(
    ("land.before-commit@1=kill-driver batch.landed@2=kill-driver", ["FirstStart", "ReplayBatch", "SkipLanded"]),
    otherwise=("batch.landed@2=kill-driver", ["FirstStart", "SkipLanded"]),
)


def counting_customers(rig: Rig, mode: str, sql: str = BY_CUSTOMER, **sink: Any) -> None:
    """Let the stream count and sum the ids of each customer, in batches of records."""
    key = "primary key" if sink else ""
    rig.sql(f"create table totals (customer text {key}, orders bigint, total bigint)")
    rig.overrides |= {
        "spec.outputMode": mode,
        "spec.transform": {"sql": sql},
        "spec.source.kafka.maxOffsetsPerTrigger": BATCH,
        "spec.sink.postgres": {**rig.document()["spec"]["sink"]["postgres"], "table": "public.totals", **sink},
    }


def totals_of(ids: list[int]) -> list[tuple[str, int, int]]:
    """Count and sum of ids by customer, as the rig's orders have them."""
    found: dict[str, list[int]] = defaultdict(list)
    for number in ids:
        found[f"customer-{number % 97}"].append(number)
    return sorted((customer, len(of), sum(of)) for customer, of in found.items())


def totals(rig: Rig) -> list[tuple[Any, ...]]:
    return sorted(rig.sql("select customer, orders, total from totals"))


BY_KEY: list[dict[str, Any]] = [
    {"write": "Upsert", "keys": ["customer"]},
    {
        "write": "Merge",
        "keys": ["customer"],
        "merge": [{"column": "orders", "combine": "Last"}, {"column": "total", "combine": "Max"}],
    },
]


@pytest.mark.parametrize("sink", one_or_all(BY_KEY), ids=lambda sink: sink["write"])
def test_update_writes_each_total_once(rig: Rig, sink: dict[str, Any]) -> None:
    counting_customers(rig, "Update", **sink)
    rig.produce(3 * BATCH)
    # The kill behind the landing: below, with Complete; rows by their key through kills: test_writes.py.
    crashes, verdicts = in_full((CRASHES, VERDICTS), otherwise=(None, ["FirstStart"]))
    assert rig.run(crash=crashes) == Done(completed=True), rig.story()
    assert rig.verdicts() == verdicts
    assert totals(rig) == totals_of(rig.produced)


def test_complete_replaces_the_whole_result_through_kills_and_an_empty_one_empties_the_table(rig: Rig) -> None:
    """Rows that somebody else has put into the table go with the first batch: the table belongs to the stream."""
    small = "HAVING count(*) < 4"  # a result whose rows come and go: with the fourth of its records a customer is gone
    counting_customers(rig, "Complete", f"{BY_CUSTOMER} {small}")
    rig.sql("insert into totals values ('of another writer', 1, 1)")
    rig.produce(3 * BATCH)
    assert rig.run(crash=CRASHES) == Done(completed=True), rig.story()
    assert rig.verdicts() == VERDICTS
    assert totals(rig) == [row for row in totals_of(rig.produced) if row[1] < 4]
    rig.produce(BATCH - 12)
    assert rig.run() == Done(completed=True), rig.story()
    assert len(rig.produced) == 4 * 97, "every customer has four orders by now"
    assert totals(rig) == []
    rig.overrides["spec.outputMode"] = "Append"
    halted = rig.run()
    assert isinstance(halted, Halted)
    assert "the output mode or the state store is not the one that the state was made with" in halted.message


@pytest.mark.parametrize(
    ("mode", "sql", "sink", "told"),
    [
        ("Append", BY_CUSTOMER, {}, "or outputMode: Update, with write: Upsert"),
        ("Complete", "SELECT customer, id AS orders, id AS total FROM source", {}, "Complete needs an aggregation"),
    ],
)
def test_a_transform_that_does_not_go_with_its_output_mode_is_refused_in_one_sentence(
    rig: Rig, mode: str, sql: str, sink: dict[str, Any], told: str
) -> None:
    counting_customers(rig, mode, sql, **sink)
    rig.produce(4)
    halted = rig.run()
    assert isinstance(halted, Halted)
    assert halted.message.startswith("The transform cannot run as a stream that ")
    assert told in halted.message
    assert "\n" not in halted.message
