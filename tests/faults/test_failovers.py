"""The database fails over to a real streaming standby that lacks the latest transactions, under a driver that continues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from exactlyonce_spark.crash_points import LET_GO
from testbed.kafka import Kafka
from testbed.postgres_replica import PostgresPair
from tests.combinations import one_or_all
from tests.rig import Rig, eventually, running

LARGE = 2400


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[PostgresPair]:
    with PostgresPair(tmp_path / "postgres") as servers:
        yield servers


@pytest.fixture
def own_rig(kafka: Kafka, pair: PostgresPair, tmp_path: Path, name: str) -> Rig:
    made = Rig(kafka, pair, tmp_path, name)
    made.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = LARGE
    made.produce(4 * LARGE)
    return made


def wait_at(rig: Rig, place: int) -> Path:
    """Wait until the driver is held at the crash point of this place in the list, and return its file."""
    eventually(lambda: any(rig.folder.glob(f"fired-{place}-*")), f"the driver is at point {place}", 240)
    return next(rig.folder.glob(f"fired-{place}-*"))


def let_go(fired: Path) -> None:
    Path(f"{fired}{LET_GO}").touch()


@pytest.mark.seconds(60)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("commit", one_or_all(["Batch", "Partition"]))
def test_a_landed_batch_that_a_failover_lost_lands_again_and_the_driver_lands_nothing_on_top(
    own_rig: Rig, pair: PostgresPair, commit: str
) -> None:
    own_rig.overrides["spec.sink.postgres.commit"] = commit
    opened = own_rig.open()
    with running(own_rig, opened, crash="batch.planned@2=hold batch.planned@3=hold", seconds=420):
        first = wait_at(own_rig, 0)
        pair.wait_for_standby()
        pair.cut_replication()
        let_go(first)
        second = wait_at(own_rig, 1)
        assert own_rig.landed() == 2 * LARGE
        pair.fail_over()
        assert own_rig.landed() == LARGE, "batch 2 is lost"
        let_go(second)
        eventually(own_rig.has_all, "every record has landed", 240)
    own_rig.assert_exactly_once()
    assert own_rig.verdicts() == ["FirstStart", "RewindToSink"], own_rig.story()
