"""Real streams from Kafka into the stand-in for Doris: drivers and servers are killed, time passes, ids are counted there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from exactlyonce.cli.main import main
from exactlyonce.launch.last_message import Ending, parse_last_message
from exactlyonce.launch.local import Unresponsive
from exactlyonce.reconcile.loop import Done
from testbed.doris.cluster import Fault
from testbed.doris.servers import StandIn
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.combinations import only_in_full
from tests.doris import DATABASE
from tests.doris_rig import HOUR_SECONDS, DorisRig, EventfulCluster, eventful
from tests.rig import eventually, running, thaw

BATCH = 2_600
"""More records than a driver loads by itself, so each task prepares a load."""


@pytest.fixture
def server() -> Iterator[StandIn]:
    with eventful() as stand_in:
        yield stand_in


@pytest.fixture
def cluster(server: StandIn) -> EventfulCluster:
    assert isinstance(server.cluster, EventfulCluster)
    return server.cluster


@pytest.fixture
def rig(kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str, server: StandIn) -> DorisRig:
    return DorisRig(kafka, postgres_18, tmp_path, name, server, **{"spec.source.kafka.maxOffsetsPerTrigger": BATCH})


def killed_at(rig: DorisRig, *points: str) -> None:
    """Run the stream to its end, its drivers killed at these points, and require that a driver came to each."""
    rig.overrides["spec.recovery.maxFailuresPerBatch"] = 50
    result = rig.run(crash=" ".join(f"{point}=kill-driver" for point in points), seconds=60.0 + 90.0 * len(points))
    assert isinstance(result, Done), rig.story()
    missed = [point for place, point in enumerate(points) if not any(rig.folder.glob(f"fired-{place}-*"))]
    assert not missed, f"no driver came to {missed}\n{rig.story()}"


def test_drivers_that_are_killed_at_the_points_of_both_phases_put_each_id_into_doris_once(
    rig: DorisRig, cluster: EventfulCluster
) -> None:
    """The answer to a first load is lost, and the hour passes in which Doris keeps what is prepared and decided."""
    cluster.faults.append(Fault.PREPARE_ANSWER_LOST)
    cluster.at_commit[1] = lambda: cluster.pass_time(2 * HOUR_SECONDS)
    rig.produce(BATCH + 500)
    killed_at(rig, "task.prepared", "batch.decided", "finish.written-again", "batch.committed")
    rig.assert_exactly_once()
    assert "FinishCommit" in rig.verdicts(), rig.story()
    assert not cluster.at_commit, "the hour has passed while a batch was decided"


@only_in_full
@pytest.mark.parametrize("name_of_server", ["frontend", "backend"])
def test_a_server_of_doris_that_is_killed_and_comes_back_costs_no_id(
    rig: DorisRig, server: StandIn, name_of_server: str
) -> None:
    """A driver that dies between the two phases, as in the first test, leaves the same behind."""
    rig.produce(4 * BATCH)
    opened = rig.open()
    with running(rig, opened):
        eventually(lambda: rig.landed() > 0, "the first batch has landed", 90)
        server.stop(name_of_server)
        eventually(lambda: any(kind == "Unreachable" for kind, _ in rig.events), "the loop has noticed", 90)
        rig.produce(BATCH)
        server.start(name_of_server)
        eventually(rig.has_all, "every record has landed", 120)
    rig.assert_exactly_once()


@only_in_full
def test_a_zombie_that_has_prepared_and_wakes_behind_its_successor_decides_nothing(rig: DorisRig) -> None:
    """tests/unit/test_doris_batches.py has such a zombie without Spark."""
    rig.produce(3 * BATCH)
    opened = rig.open()
    opened.launcher.unresponsive = Unresponsive.ABANDON
    opened.launcher.unresponsive_seconds = 4.0
    with running(rig, opened, crash="batch.rows-written@2=freeze"):
        eventually(rig.has_all, "the successor has landed every record", 120)
        thaw(opened, 1)
        words = opened.launcher.folder / "attempt-000001" / "last-words.json"
        eventually(words.exists, "the frozen driver has woken and ended")
    found = parse_last_message(words.read_text())
    assert found is not None
    assert found.ending == Ending.FENCED
    rig.assert_exactly_once()


@only_in_full
@pytest.mark.parametrize("point", ["batch.decided", "batch.committed"])
def test_a_stream_that_is_down_for_fourteen_hours_halts_in_doubt_and_loads_each_id_once_by_a_persons_answers(
    rig: DorisRig, server: StandIn, cluster: EventfulCluster, point: str
) -> None:
    """Doris forgets what became of the second batch: it was aborted after an hour, or committed at once.

    A person looks for its rows in the table, as the message says, and answers by `exactlyonce settle-loads`.
    tests/unit/test_doris_batches.py comes to this halt without Spark.
    """
    rig.produce(3 * BATCH)
    opened = rig.open()
    with running(rig, opened, crash=f"{point}@2=hold"):
        eventually(lambda: any(rig.folder.glob("fired-0-*")), "the driver has come to the point", 120)
        seen = rig.counts()
        server.stop("frontend")
        rig.kill_all(opened)
        eventually(lambda: any(kind == "Unreachable" for kind, _ in rig.events), "no driver comes to Doris", 90)
        cluster.pass_time(14 * HOUR_SECONDS)
        server.start("frontend")
        eventually(lambda: any(kind == "Halted" for kind, _ in rig.events), "the stream has halted", 120)
    message = next(words for kind, words in reversed(rig.events) if kind == "Halted")
    assert "the sink no longer knows whether it has committed 2 of its loads" in message
    ids = {int(one) for one in re.findall(r"SHOW TRANSACTION FROM `shop` WHERE id = (\d+)", message)}
    assert len(ids) == 2, "one load of each partition"
    assert not ids & set(cluster.transactions_of(DATABASE).known), "Doris has forgotten both"
    assert rig.counts() == seen, "nothing was loaded meanwhile"

    answer = {"batch.decided": "--aborted", "batch.committed": "--committed"}[point]
    resource = rig.folder / "stream.yaml"
    resource.write_text(yaml.safe_dump(rig.document()))
    answers = [word for label in re.findall(r"(exactlyonce:\S+) \(transaction", message) for word in (answer, label)]
    folders = ["--state", str(rig.folder / "state"), "--secrets", str(rig.secrets)]
    settled = CliRunner().invoke(main, ["settle-loads", str(resource), *answers, *folders])
    assert settled.exit_code == 0, settled.output
    assert isinstance(rig.run(), Done), rig.story()
    rig.assert_exactly_once()
