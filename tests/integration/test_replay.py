"""Replays over real servers: a stream with records that fail continues, the transform is mended, and each id is there once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner, Result

from exactlyonce.cli.local_replay import run_replay
from exactlyonce.cli.main import main
from exactlyonce.launch.replay_document import ReplayReport
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.positions.ranges import BatchNumber, Partition
from exactlyonce.reconcile.loop import Done
from exactlyonce_spark.crash_points import VARIABLE
from tests.combinations import EVERY_MODE, in_full
from tests.replayed_transforms import OF_EACH_RECORD, OF_MANY
from tests.rig import Rig
from tests.warm.launcher import warm_environment

FAILS = "select id div if(customer = 'nobody', 0, 1) as id, customer, amount, ts from source"
MENDED = "select id, customer, amount, ts from source"
SMALL = 7
"""Fewer records than one partition has in a batch, and none that fails is among the first."""

NO_BACKOFF = {"initial": "0s", "max": "1s"}
OVERRIDES = {
    "spec.source.kafka.maxOffsetsPerTrigger": 40,
    "spec.transform": {"sql": FAILS},
    "spec.recovery": {"backoff": NO_BACKOFF, "maxFailuresPerBatch": 1, "onPoisonBatch": "Quarantine"},
}


def test_what_is_in_quarantine_lands_once_after_the_transform_is_mended_though_replays_are_killed(rig: Rig) -> None:
    rig.overrides |= OVERRIDES
    rig.produce(60)
    rig.produce(1, partition=1, customer="nobody")
    rig.produce(59)
    assert rig.run() == Done(completed=True), rig.story()
    missing = set(rig.produced) - set(rig.counts())
    assert 1 < len(missing) <= 40, "the record that fails, and its batch"
    stood = positions(rig)

    shown = replayed(rig)
    assert shown.exit_code == 0, shown.output
    assert "Nothing was changed" in shown.stdout
    assert shown.stdout.count(" held") == len(ranges(rig))

    # In the simulation they are killed between every two statements: tests/simulation/test_replays.py.
    for point in in_full(
        ("replay.claimed", "replay.read", "replay.rows-written", "replay.landed"), otherwise=("replay.landed",)
    ):
        with_crash(rig, point)
    left = missing - set(rig.counts())
    assert len(left) == len(missing) - SMALL, "the first chunk has landed, and nothing else"
    assert statuses(rig) == {"Replaying", "Replayed"}
    if EVERY_MODE:  # by default the simulation and tests/unit/test_replay_rules.py say so
        again = replayed(rig, "--yes")
        assert again.exit_code == 1, "the record fails as it did"
        assert "division by zero" in again.stderr.lower()
        assert len(set(rig.produced) - set(rig.counts())) == 1, "one bad record costs one record"
        assert statuses(rig) == {"Quarantined", "Replayed"}

    (rig.folder / "mended.sql").write_text(MENDED)
    landed = replayed(rig, "--yes", "--transform", str(rig.folder / "mended.sql"))
    assert landed.exit_code == 0, landed.output
    rig.assert_exactly_once()
    assert statuses(rig) == {"Replayed"}
    assert positions(rig) == stood, "the stream stands where it stood"


def replayed(rig: Rig, *arguments: str) -> Result:
    """Run `exactlyonce replay` on the stream as its file has it."""
    file = rig.folder / "orders.yaml"
    file.write_text(yaml.safe_dump(rig.document()))
    options = ["--state", str(rig.folder / "state"), "--secrets", str(rig.secrets)]
    return CliRunner().invoke(main, ["replay", str(file), *options, *arguments], env={"COLUMNS": "250"})


def positions(rig: Rig) -> list[tuple[Any, ...]]:
    return rig.sql("select partition, next_offset from exactlyonce.offsets order by partition")


def ranges(rig: Rig) -> list[RangeKey]:
    rows = rig.sql("select batch, topic, partition, from_offset from exactlyonce.failures where status <> 'Replayed'")
    return [RangeKey(BatchNumber(batch), Partition(topic, number), start) for batch, topic, number, start in rows]


def statuses(rig: Rig) -> set[str]:
    return {status for (status,) in rig.sql("select status from exactlyonce.failures where status not in ('Closed')")}


def with_crash(rig: Rig, point: str) -> ReplayReport:
    """Replay all with small chunks, by a process that dies at a point."""
    crash = f"{point}=kill-driver,{rig.folder / f'fired-{point}'}"
    environment = warm_environment({VARIABLE: crash})
    report = run_replay(rig.open(), Path(rig.secrets), ranges(rig), most_records=SMALL, environment=environment)
    assert report.problem is not None, "it died"
    return report


def test_a_transform_that_makes_rows_of_several_records_is_refused_by_what_does_so() -> None:
    """A static table may be summed up and joined: its rows are all there."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.replayed_transforms"], stdout=subprocess.PIPE, check=True, text=True
    )
    found = json.loads(ran.stdout)
    assert [text for text in OF_EACH_RECORD if found[text] is not None] == []
    assert [text for text, node in OF_MANY.items() if node not in (found[text] or "")] == []
