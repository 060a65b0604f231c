"""Faults beyond a crash: a frozen writer, a database that crashes, a connection cut at COMMIT, foreign writers."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from exactlyonce.launch.last_message import Ending, parse_last_message
from exactlyonce.launch.local import MARKER, Unresponsive
from exactlyonce.positions.ranges import Epoch, Partition, Positions
from exactlyonce_spark.crash_points import LET_GO
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.postgres_proxy import Cut, PostgresProxy
from tests.combinations import one_or_all
from tests.rig import Rig, eventually, running, thaw

pytestmark = pytest.mark.seconds(20)

LARGE = 2400


@pytest.fixture(scope="module")
def own_postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Postgres]:
    """A server that a test may crash, if it starts it again."""
    with Postgres(tmp_path_factory.mktemp("own") / "postgres") as server:
        yield server


@pytest.fixture
def own_rig(kafka: Kafka, own_postgres: Postgres, tmp_path: Path, name: str) -> Rig:
    return Rig(kafka, own_postgres, tmp_path, name)


def fired(rig: Rig, place: int = 0) -> bool:
    """Whether the crash that the test asked for in this place has happened."""
    return any(rig.folder.glob(f"fired-{place}-*"))


def let_go(rig: Rig, place: int = 0) -> None:
    """Let what is held at the crash point in this place continue."""
    (file,) = rig.folder.glob(f"fired-{place}-*")
    Path(f"{file}{LET_GO}").touch()


def words_of(rig: Rig, attempt: int) -> str | None:
    file = rig.open().launcher.folder / f"attempt-{attempt:06d}" / "last-words.json"
    words = parse_last_message(file.read_text()) if file.exists() else None
    return None if words is None else str(words.ending)


@pytest.mark.parametrize("point", one_or_all(["land.before-commit", "land.fenced", "batch.rows-written"]))
def test_a_frozen_driver_is_replaced_and_fails_at_its_fence_when_it_wakes(rig: Rig, point: str) -> None:
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = LARGE
    rig.produce(3 * LARGE)
    opened = rig.open()
    opened.launcher.unresponsive = Unresponsive.ABANDON
    opened.launcher.unresponsive_seconds = 4.0
    with running(rig, opened, crash=f"{point}@2=freeze"):
        eventually(rig.has_all, "the successor has landed every record", 120)
        assert fired(rig)
        thaw(opened, 1)
        eventually(lambda: words_of(rig, 1) is not None, "the frozen driver has woken and ended")
    assert words_of(rig, 1) == Ending.FENCED
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "RebuildFromSink"], (
        "its death was not proven, so its directory was left to it"
    )


def test_the_database_crashes_between_the_tasks_and_the_landing(own_rig: Rig, own_postgres: Postgres) -> None:
    own_rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = LARGE
    own_rig.produce(3 * LARGE)
    opened = own_rig.open()
    with running(own_rig, opened, crash="batch.rows-written@2=hold"):
        eventually(lambda: fired(own_rig), "the tasks have staged", 90)
        own_postgres.crash()
        own_postgres.start()
        let_go(own_rig)
        eventually(own_rig.has_all, "every record has landed", 120)
    own_rig.assert_exactly_once()
    assert any("staged 2400 rows and 0 are there" in words for _, words in own_rig.events), own_rig.story()


def test_the_database_is_away_for_a_while(own_rig: Rig, own_postgres: Postgres) -> None:
    own_rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = 300
    own_rig.produce(1500)
    opened = own_rig.open()
    with running(own_rig, opened):
        eventually(lambda: own_rig.landed() > 0, "the first batch has landed", 90)
        own_postgres.stop(signal.SIGINT)
        eventually(lambda: any(kind == "BackingOff" for kind, _ in own_rig.events), "the loop has noticed", 60)
        own_postgres.start()
        eventually(own_rig.has_all, "every record has landed", 120)
    own_rig.assert_exactly_once()


@pytest.mark.parametrize("commit", ["Batch", "Partition"])
def test_a_connection_cut_at_commit_is_settled_under_the_lock(rig: Rig, commit: str) -> None:
    """Before the server has seen the COMMIT of one batch, and after it has seen that of the next."""
    rig.overrides["spec.sink.postgres.commit"] = commit
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = LARGE
    rig.produce(4 * LARGE)
    point = "land.before-commit" if commit == "Batch" else "task.before-commit"
    cuts = list(Cut)
    with PostgresProxy(rig.postgres.port) as proxy:
        rig.write_secret(port=str(proxy.port))
        opened = rig.open()
        held = " ".join(f"{point}@{batch}=hold" for batch, _ in enumerate(cuts, 2))
        with running(rig, opened, crash=held):
            for place, cut in enumerate(cuts):
                eventually(lambda place=place: fired(rig, place), f"COMMIT {place} is about to be sent", 90)  # type: ignore[misc]
                proxy.arm(cut)
                let_go(rig, place)
            eventually(rig.has_all, "every record has landed", 120)
        assert proxy.cuts == cuts
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart"], "the driver, or Spark's second try of the task, settled it"


def test_a_task_that_outlives_its_driver_lands_nothing(rig: Rig) -> None:
    """The worker is taken out of its launcher's sight, as an executor on another node would be."""
    rig.overrides["spec.sink.postgres.commit"] = "Partition"
    rig.overrides["spec.sparkConf"] = {
        **rig.document()["spec"]["sparkConf"],
        f"spark.executorEnv.{MARKER}": "elsewhere",
    }
    rig.produce(LARGE)
    rig.cold = True
    opened = rig.open()
    with running(rig, opened, crash="task.before-commit@1=hold"):
        eventually(lambda: fired(rig), "a task is about to commit", 90)
        workers = [process for process in psutil.process_iter() if marker_of(process) == "elsewhere"]
        opened.launcher.kill(Epoch(1))
        eventually(rig.has_all, "the successor has landed every record", 120)
        held = [process for process in workers if process.is_running()]
        assert held, "the worker has outlived its driver"
        let_go(rig)
        assert not psutil.wait_procs(held, timeout=30)[1], "it has tried to land, failed and ended"
    rig.assert_exactly_once()
    assert rig.verdicts()[0] == "FirstStart"
    assert rig.verdicts()[1] in ("ReplayBatch", "FinishBatch")


def test_a_foreign_process_writes_into_the_checkpoint(rig: Rig) -> None:
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = LARGE
    rig.produce(3 * LARGE)
    opened = rig.open()
    with running(rig, opened, crash="batch.planned@2=hold"):
        eventually(lambda: fired(rig), "batch 2 is planned", 90)
        offsets = rig.generations()[0] / "offsets" / "2"
        lines = offsets.read_text().split("\n")
        further = Positions({Partition(rig.name, number): 1700 for number in range(4)})
        (offsets.parent / ".2.crc").unlink()
        offsets.write_text("\n".join([*lines[:2], further.to_json()]))
        (rig.generations()[0] / "commits" / "2").write_text('v1\n{"nextBatchWatermarkMs":0}')
        let_go(rig)
        eventually(rig.has_all, "every record has landed", 120)
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "RebuildFromSink"]
    assert any("was planned up to" in words and "and landed up to" in words for _, words in rig.events), rig.story()


def test_the_status_file_is_lost_while_a_driver_runs(rig: Rig) -> None:
    rig.produce(400)
    opened = rig.open()
    with running(rig, opened):
        eventually(rig.has_all, "every record has landed", 90)
        (opened.launcher.folder.parent / "status.json").unlink()
        rig.produce(400)
        eventually(rig.has_all, "every record has landed", 120)
    rig.assert_exactly_once()


def marker_of(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARKER)
    except (psutil.NoSuchProcess, psutil.AccessDenied):
        return None
