"""Streams that read a folder, as they are run: drivers are killed, checkpoints are lost, and ids counted in the table."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from exactlyonce.reconcile.loop import Done, Halted
from exactlyonce_spark.connectors.files.told_waiting import WaitingReader
from exactlyonce_spark.metrics import NotLanded
from testbed.postgres import Postgres
from tests.combinations import in_full, only_in_full
from tests.file_queries import made
from tests.folder_rig import FolderRig

pytestmark = pytest.mark.seconds(15)


def test_each_id_lands_once_though_drivers_are_killed_and_the_checkpoint_is_lost_with_its_lists(
    postgres_18: Postgres, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig = FolderRig(postgres_18, tmp_path, name, **{"spec.source.format.onMalformed": "DeadLetter"})
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setenv("TMPDIR", str(scratch))
    rig.put(40)
    young = rig.put(2, seconds=4_000_000_000)  # still written, as far as anybody can tell
    (rig.incoming / "malformed.json").write_text('\n{"id": "no number"}\n')
    # Points of every batch are left out here: tests/faults/test_crash_points.py.
    killed, verdicts = in_full(
        (
            ("source.end-planned", "batch.begun@3", "land.before-commit@5", "batch.landed@7"),
            {"ReplayBatch", "SkipLanded"},
        ),
        otherwise=(("source.end-planned", "land.before-commit@5"), {"ReplayBatch"}),
    )
    crash = " ".join(f"{point}=kill-driver" for point in killed)
    assert isinstance(rig.run(crash=crash), Done), rig.story()
    rig.assert_exactly_once(without=rig.produced[-10:])
    told = max(scratch.glob("exactlyonce-waiting-*/waiting.json"), key=lambda path: path.stat().st_mtime)
    waiting = WaitingReader(str(told)).not_landed()
    assert waiting == NotLanded(2, sum(path.stat().st_size for path in young), 4e9), "what a driver serves of its lag"
    for path in young:
        os.utime(path, (1_700_000_900, 1_700_000_900))
    assert verdicts <= set(rig.verdicts()), rig.story()
    assert rig.sql("select place->>'file', place->>'line' from exactlyonce.dead_letters") == [("malformed.json", "2")]
    assert 0 < len([*(rig.location / "source").glob("*/*")]) <= 20, "lists are put together, and those before removed"

    # The latest generation is lost: the next one is seeded where the ledger stands, and the lists beside it say what was read.
    shutil.rmtree(rig.generations()[-1])
    rig.put(5)
    rig.put(2, seconds=1_600_000_000)
    archive = tmp_path / "archive"
    archiving = {"spec.source.files.cleanSource": "Archive", "spec.source.files.archivePath": str(archive)}
    assert isinstance(rig.run(changes=archiving), Done), rig.story()
    rig.assert_exactly_once()
    assert list(rig.incoming.iterdir()) == []
    assert len([*archive.iterdir()]) == rig.files + 1, "with the malformed one"
    assert rig.verdicts()[-1] == "RebuildFromSink", rig.story()

    # All of the location is lost, and files that have landed are elsewhere: nobody knows what was read, so the stream stops.
    shutil.rmtree(rig.location)
    unread = rig.put(1)
    halted = rig.run()
    assert isinstance(halted, Halted), rig.story()
    assert "files of " in halted.message, halted.message
    assert "nothing says which" in halted.message, halted.message
    rig.assert_exactly_once(without=rig.produced[-5 * len(unread) :])


@only_in_full  # without Spark: tests/unit/test_folder_planner.py
def test_a_stream_whose_whole_location_is_lost_continues_where_the_folder_proves_what_was_read(
    postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    rig = FolderRig(postgres_18, tmp_path, name)
    rig.put(7)
    assert isinstance(rig.run(), Done), rig.story()
    shutil.rmtree(rig.location)
    rig.put(4)

    assert isinstance(rig.run(), Done), rig.story()

    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "RebuildFromSink"], rig.story()


@only_in_full  # the sentences: tests/unit/test_folder_reading.py; a limit that changed: tests/integration/test_batch_limits.py
def test_a_file_that_changes_between_plan_and_landing_halts_the_stream_and_another_limit_is_the_way_out(
    postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    rig = FolderRig(postgres_18, tmp_path, name)
    changed, vanished, _ = rig.put(3)
    once = {"spec.recovery.maxFailuresPerBatch": 1}
    assert isinstance(rig.run(crash="batch.begun@1=raise", changes=once), Halted), rig.story()
    changed.write_text(changed.read_text() + json.dumps({"id": 100}) + "\n")
    rig.produced.append(100)

    halted = rig.run()

    assert isinstance(halted, Halted), rig.story()
    assert f"{changed.name} (" in halted.message, halted.message
    assert "change maxFilesPerTrigger" in halted.message
    assert rig.landed() == 0
    vanished.unlink()
    another = {"spec.source.files.maxFilesPerTrigger": 2}
    gone = rig.run(changes={**once, **another})
    assert isinstance(gone, Halted), rig.story()
    assert f"gone from {rig.incoming}: {vanished.name}." in gone.message
    for name in re.findall(r"[^ ,]+/source/[^ ,]+", gone.message.removesuffix(".")):
        Path(name).unlink()
    assert isinstance(rig.run(changes=another), Done), rig.story()
    assert "ReplanBatch" in rig.verdicts(), rig.story()
    rig.assert_exactly_once(without=rig.produced[5:10])


@only_in_full  # every state of such a checkpoint, without Spark: tests/unit/test_folder_start.py
def test_a_stream_continues_behind_a_query_of_sparks_own_though_its_first_driver_is_killed(
    postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    query = made("listed", tmp_path)
    rig = FolderRig(
        postgres_18,
        tmp_path,
        name,
        **{
            "spec.source.files": {
                "path": str(query / "source"),
                "minFileAge": "0s",
                "start": {"from": "SparkCheckpoint", "checkpoint": str(query / "checkpoint")},
            },
            "spec.transform": {"sql": "SELECT id, customer FROM source"},
        },
    )
    for number, file in enumerate(sorted((query / "source").glob("*.json"))):
        os.utime(file, (1_767_225_600 + 60 * number,) * 2)  # as scripts/make_golden_file_queries.py has it
    (query / "source" / "late.json").write_text('{"id": 100}\n')
    os.utime(query / "source" / "late.json", (1, 1))
    rig.produced += [13, 100]

    assert isinstance(rig.run(crash="land.before-commit@1=kill-driver"), Done), rig.story()

    rig.assert_exactly_once()
