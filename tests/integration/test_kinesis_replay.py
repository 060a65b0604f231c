"""Records of a data stream land once more by a replay or a backfill: each id once, also those that are inside of aggregates."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from exactlyonce.cli.local_replay import run_replay
from exactlyonce.connectors.kinesis.spec import KinesisSource
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce.reconcile.loop import Done
from exactlyonce_spark.crash_points import VARIABLE
from testbed.kinesis import Kinesis
from testbed.postgres import Postgres
from tests.combinations import EVERY_MODE, in_full
from tests.integration.test_folder_replay import MENDED, OVERRIDES
from tests.integration.test_replay import replayed, statuses, warm
from tests.kinesis_in_memory import aggregated
from tests.kinesis_rig import KinesisRig
from tests.rig import eventually

pytestmark = pytest.mark.seconds(95)

SMALL = 2
"""Fewer user records than an aggregate has."""


@pytest.fixture(scope="module")
def kinesis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kinesis]:
    with Kinesis(tmp_path_factory.mktemp("stand-in")) as server:
        yield server


def test_the_records_of_a_batch_that_failed_land_once_and_a_backfill_has_its_window_once_though_both_are_killed(
    kinesis: Kinesis, postgres_18: Postgres, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = KinesisRig(kinesis, postgres_18, tmp_path, name, **OVERRIDES)
    rig.put(3)
    begin, first = moment(), len(rig.produced)
    poison = put_poison(rig)
    rig.put(3)
    until, last = moment(), len(rig.produced)
    rig.put(2)
    assert rig.run() == Done(completed=True), rig.story()
    missing = set(rig.produced) - set(rig.counts())
    assert len(missing) > SMALL
    assert poison in missing
    stood = rig.sql("select partition_name, position from exactlyonce.offsets order by 1")
    by_hand = ranges_of_failures(rig)

    for point in in_full(("replay.source-checked", "replay.landed"), otherwise=("replay.source-checked",)):
        killed(rig, point)
    assert "Replaying" in statuses(rig)
    again = replayed(rig, "--yes", "--chunk", str(SMALL))
    assert again.exit_code == 1, again.output
    assert "division by zero" in again.stderr.lower()
    assert set(rig.produced) - set(rig.counts()) == {poison}, "one bad record costs one record"

    (rig.folder / "mended.sql").write_text(MENDED)
    landed = replayed(rig, "--yes", "--transform", str(rig.folder / "mended.sql"))
    assert landed.exit_code == 0, landed.output
    assert "Landed 1 records (1 rows); 0 failed, 0 are lost." in landed.stdout
    every = len(rig.produced)
    assert rig.sql("select count(*), count(distinct id) from orders") == [(every, every)]
    assert statuses(rig) == {"Replayed"}
    assert rig.sql("select partition_name, position from exactlyonce.offsets order by 1") == stood

    rig.sql("create table orders_again (id bigint, customer text)")
    backfill = ("--from", "ranges", "--by-timestamp", begin, until, "--into", "orders_again", "--backfill", "again")
    mended = (*backfill, "--yes", "--transform", str(rig.folder / "mended.sql"))
    wanted = [(each,) for each in range(first, last)]
    if EVERY_MODE:  # a backfill that is killed is continued whatever the source: test_folder_backfill.py
        with monkeypatch.context() as patched:
            patched.setenv(VARIABLE, f"replay.landed=kill-driver,{rig.folder / 'fired-backfill'}")
            assert replayed(rig, *mended, "--chunk", str(SMALL)).exit_code == 1
        assert (rig.folder / "fired-backfill").exists()
        assert 0 < len(rig.sql("select id from orders_again")) < len(wanted), "a part has landed"
    # That one which is done lands nothing more is the same whatever the source: test_folder_backfill.py.
    for _ in in_full(("it is continued", "it is done"), otherwise=("it is continued",)):
        done = replayed(rig, *mended)
        assert done.exit_code == 0, done.output
        assert rig.sql("select id from orders_again order by id") == wanted

    rig.sql("create table orders_by_hand (id bigint, customer text)")
    into = ("--into", "orders_by_hand", "--backfill", "by-hand", "--transform", str(rig.folder / "mended.sql"))
    given = ("--from", "ranges", *by_hand, *into)
    assert "lies in these ranges is looked up by the process" in replayed(rig, *given).stdout
    if EVERY_MODE:  # whatever the source: tests/unit/test_backfill_plan.py
        with monkeypatch.context() as patched:
            patched.setenv(VARIABLE, f"backfill.planned=kill-driver,{rig.folder / 'fired-by-hand'}")
            assert replayed(rig, *given, "--yes").exit_code == 1
        assert (rig.folder / "fired-by-hand").exists()
    done = replayed(rig, *given, "--yes")
    assert done.exit_code == 0, done.output
    assert rig.sql("select id from orders_by_hand order by id") == [(each,) for each in sorted(missing)]
    assert rig.sql("select partition_name, position from exactlyonce.offsets order by 1") == stood


def ranges_of_failures(rig: KinesisRig) -> list[str]:
    """Return what is in quarantine as a person gives it, with positions as `exactlyonce offsets` shows them."""
    rows = rig.sql(
        "select partition_name, coalesce(from_position, from_offset), coalesce(until_position, until_offset) "
        "from exactlyonce.failures where status = 'Quarantined'"
    )
    texts = [
        json.dumps({rig.name: {shard: [KinesisSource.position_text(int(at)) for at in (start, end)]}})
        for shard, start, end in rows
    ]
    return [word for text in texts for word in ("--ranges", text)]


def moment() -> str:
    """Return a moment between what has arrived and what is put next, in whole seconds, as a person gives it."""
    next_second = int(time.time()) + 1
    eventually(lambda: time.time() >= next_second, "the next second has begun")
    return datetime.fromtimestamp(next_second, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def put_poison(rig: KinesisRig) -> int:
    """Put an aggregate of which the middle record fails the transform; return its id."""
    first = len(rig.produced)
    customers = ["customer 1", "nobody", "customer 2"]
    texts = [json.dumps({"id": first + place, "customer": customer}) for place, customer in enumerate(customers)]
    rig.produced += range(first, first + len(texts))
    rig.kinesis.put(rig.name, ("poison", aggregated(texts, "poison")))
    return first + 1


def killed(rig: KinesisRig, point: str) -> None:
    """Replay all in small chunks, by a process that dies at a point."""
    rows = rig.sql(
        "select batch, partition_name, coalesce(from_position, from_offset) from exactlyonce.failures "
        "where status in ('Quarantined', 'Replaying')"
    )
    wanted = [RangeKey(BatchNumber(batch), Partition(rig.name, shard), int(start)) for batch, shard, start in rows]
    environment = {**warm(rig, point), VARIABLE: f"{point}=kill-driver,{rig.folder / f'fired-{point}'}"}
    report = run_replay(rig.open(), Path(rig.secrets), wanted, most_records=SMALL, environment=environment)
    assert report.problem is not None, "it died"
