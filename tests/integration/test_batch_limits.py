"""A batch that failed is planned again with a smaller limit, for real: no record is lost or doubled."""

from __future__ import annotations

import os

import pytest

from exactlyonce.positions.ranges import Ranges
from exactlyonce.reconcile.loop import Done, Halted
from tests.combinations import one_or_all, only_in_full
from tests.rig import Rig

SECONDS = 400.0
"""A batch that fails is tried four times by Spark itself, each with Python workers of its own."""

FRUGAL = '''
def transform(rows):
    """Have too little memory for more than 240 records at once; a small batch is one task, whatever its partitions."""
    def work(frames):
        for frame in frames:
            if len(frame) > 240:
                raise MemoryError("there is room for 240 records")
            yield frame
    kept = rows.select("id", "customer", "amount", "ts")
    return kept.mapInPandas(work, kept.schema)
'''


def records_by_batch(rig: Rig) -> dict[str, list[int]]:
    """How many records each batch read, by what became of it; seeds are left out."""
    found: dict[str, list[int]] = {}
    for status, ranges in rig.sql("select status, ranges::text from exactlyonce.batches order by batch"):
        count = Ranges.from_json(ranges).record_count
        if count:
            found.setdefault(status, []).append(count)
    return found


def test_a_lower_limit_after_a_failure_is_kept_to_by_the_next_batch(rig: Rig) -> None:
    rig.overrides["spec.recovery.maxFailuresPerBatch"] = 1
    rig.produce(400)
    assert isinstance(rig.run(crash="batch.rows-written@1=raise"), Halted)
    assert rig.landed() == 0
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = 40
    assert rig.run() == Done(completed=True)
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "ReplanBatch"]
    assert records_by_batch(rig) == {"Superseded": [400], "Landed": [40] * 10}
    assert rig.sql("select distinct status from exactlyonce.failures") == [("Superseded",)], "none stays open"


@pytest.mark.parametrize(
    ("crash", "verdicts"),
    # A driver that dies between two batches leaves nothing unfinished, whichever query was next: Resume in test_verdicts.py.
    one_or_all(
        [
            pytest.param(None, ["FirstStart", "ReplanBatch"], id="the driver continues by itself"),
            pytest.param(
                "driver.limit-grown=kill-driver",
                ["FirstStart", "ReplanBatch", "Resume"],
                id="it is killed between the two queries",
            ),
        ]
    ),
)
def test_a_batch_that_needs_too_much_memory_is_halved_and_the_limit_grows_back(
    rig: Rig, crash: str | None, verdicts: list[str]
) -> None:
    (rig.folder / "frugal.py").write_text(FRUGAL)
    rig.overrides["spec.transform"] = {"python": {"module": "frugal"}}
    rig.produce(480)
    opened = rig.open({"spec.trigger": {"availableNow": True}})
    environment = {"PYTHONPATH": os.pathsep.join([str(rig.folder), *filter(None, [os.environ.get("PYTHONPATH")])])}
    assert rig.run(opened=opened, crash=crash, environment=environment, seconds=SECONDS) == Done(completed=True)
    rig.assert_exactly_once()
    assert rig.verdicts() == verdicts
    assert records_by_batch(rig) == {"Superseded": [480], "Landed": [240, 240]}
    assert "BatchShrunk" in [kind for kind, _ in rig.events]
    status, _ = opened.statuses.read()
    assert (status.batch_limit, status.consecutive_failures.batch_failures) == (None, 0)


# By default: the end of such a transaction in test_bad_input.py, what is decided of it in tests/unit/decide/test_replan.py.
@only_in_full
def test_a_batch_that_takes_longer_than_its_transaction_may_is_halved(rig: Rig) -> None:
    """The database is slow with more than 240 rows at once, and with no fewer."""
    rig.overrides["spec.sink.postgres.transactionTimeout"] = "5s"
    rig.sql(
        "create function slow_with_many() returns trigger language plpgsql as $$ begin "
        "if (select count(*) from written) > 240 then perform pg_sleep(600); end if; return null; end $$"
    )
    rig.sql(
        "create trigger slow_with_many after insert on orders referencing new table as written "
        "for each statement execute function slow_with_many()"
    )
    rig.produce(480)
    opened = rig.open({"spec.trigger": {"availableNow": True}})
    assert rig.run(opened=opened, seconds=SECONDS) == Done(completed=True), rig.story()
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "ReplanBatch"]
    assert records_by_batch(rig) == {"Superseded": [480], "Landed": [240, 240]}
    assert "BatchShrunk" in [kind for kind, _ in rig.events]
    assert opened.statuses.read()[0].batch_limit is None
