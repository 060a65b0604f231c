"""A driver that is asked to end while no executor runs its batch: it ends, and its successor lands the batch once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pyspark
import pytest

from exactlyonce.launch.last_message import Ending
from exactlyonce.launch.port import Ended
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Done
from testbed.processes import free_port, port_answers, start
from tests.rig import Rig, eventually, running

DRAIN_SECONDS = 600


@pytest.fixture
def master_without_workers(tmp_path: Path) -> Iterator[str]:
    """A cluster that takes every driver and gives none an executor."""
    port = free_port()
    jars = Path(pyspark.__file__).parent / "jars"
    command = [
        "java",
        "-Xmx256m",
        "-Dspark.master.rest.enabled=false",
        "-cp",
        f"{jars}/*",
        "org.apache.spark.deploy.master.Master",
    ]
    command += ["--host", "127.0.0.1", "--port", str(port), "--webui-port", str(free_port())]
    master = start(command, tmp_path / "master.log", environment={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"})
    try:
        eventually(lambda: port_answers(port), "the master answers")
        yield f"spark://127.0.0.1:{port}"
    finally:
        master.kill()
        master.wait()


def in_hand(rig: Rig) -> bool:
    """Whether a batch was begun and has not landed."""
    if rig.sql("select to_regclass('exactlyonce.batches')")[0][0] is None:
        return False
    return bool(rig.sql("select 1 from exactlyonce.batches where status = 'InProgress'"))


def test_a_batch_that_no_executor_runs_is_left_to_the_next_driver_at_once(
    rig: Rig, master_without_workers: str
) -> None:
    rig.produce(40)
    opened = rig.open({"spec.drainTimeout": f"{DRAIN_SECONDS}s"})
    opened.launcher.document = replace(opened.launcher.document, master=master_without_workers)
    with running(rig, opened):
        eventually(lambda: in_hand(rig), "a batch waits for an executor")
    state = opened.launcher.state_of(Epoch(1))
    assert isinstance(state, Ended)
    assert state.words is not None, "it was not killed"
    assert state.words.ending is Ending.DRAINED
    assert rig.landed() == 0
    assert rig.run() == Done(completed=True), rig.story()
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "ReplayBatch"]
