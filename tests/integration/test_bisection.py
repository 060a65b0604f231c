"""Records that fail by themselves, over real servers: all others land, though the driver that looks for them is killed."""

from __future__ import annotations

import pytest

from exactlyonce.reconcile.loop import Done
from tests.combinations import EVERY_MODE, in_full
from tests.integration.test_quarantine import POISON, ids_between
from tests.rig import Rig

pytestmark = pytest.mark.seconds(40)

IDS = 800
DIVIDES = "select id div if(customer = 'nobody', 0, 1) as id, customer, amount, ts from source"
REFUSED_ID = 750
"""A row that only the table refuses."""


def test_all_but_the_records_that_fail_land_once_though_the_driver_that_looks_for_them_is_killed(rig: Rig) -> None:
    # In the simulation it is killed between every two statements: tests/simulation. A death while it looks counts as a failure.
    crash, failures = in_full(
        (
            "bisect.tried=kill-driver bisect.found=kill-driver land.left-out-kept=kill-driver batch.landed=kill-driver",
            4,
        ),
        otherwise=("land.left-out-kept=kill-driver", 2),
    )
    rig.overrides |= {
        "spec.transform": {"sql": DIVIDES},
        "spec.recovery": {
            "backoff": {"initial": "0s", "max": "1s"},
            "maxFailuresPerBatch": failures,
            "onPoisonBatch": "Bisect",
            "maxQuarantined": 3,
        },
        "spec.sink.postgres.commit": "Partition" if EVERY_MODE else "Batch",
    }
    rig.sql(f"alter table orders add check (id <> {REFUSED_ID})")
    rig.produce(700)
    rig.send([(0, POISON)])
    rig.produce(1, partition=1, customer="nobody")
    rig.produce(IDS - 701)
    assert rig.run(crash=crash) == Done(completed=True), rig.story()

    found = rig.counts()
    assert set(found.values()) == {1}, "nothing is doubled"
    assert set(rig.produced) - set(found) == {700, REFUSED_ID}, "one bad record costs one record"
    kept = rig.sql(
        "select partition, from_offset, until_offset, batch, error from exactlyonce.failures where status = 'Quarantined'"
    )
    left_out = [id_ for partition, start, end, *_ in kept for id_ in ids_between(rig, partition, start, end)]
    assert sorted(left_out, key=str) == [700, REFUSED_ID, None], "the two, and the record whose id is not a number"
    errors = {id_: error for (*_, error), id_ in zip(kept, left_out, strict=True)}
    assert "Malformed record in topic" in errors[None]
    assert "zero" in errors[700].lower()
    assert "orders_id_check" in errors[REFUSED_ID]
    assert len({batch for *_, batch, _ in kept}) == 1
    assert rig.sql(
        "select status, note from exactlyonce.batches where batch = %s", next(batch for *_, batch, _ in kept)
    ) == [("Landed", "It landed without 3 of its records, which are in quarantine.")]
    assert [kind for kind, _ in rig.events].count("BatchBisected") == 1
    assert "BatchQuarantined" not in [kind for kind, _ in rig.events], rig.story()
