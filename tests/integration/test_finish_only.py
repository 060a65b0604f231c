"""Real drivers without a query: what is decided in the stand-in for Doris lands though no query follows; ids are counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from exactlyonce.api.resource import FRESH
from exactlyonce.cli.local_stream import LocalStream
from exactlyonce.cli.run import start_over
from exactlyonce.launch.port import Ended
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.loop import Done, Halted, PassResult, Wanted, Watching
from testbed.doris.servers import StandIn
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.doris_rig import HOUR_SECONDS, DorisRig, EventfulCluster, eventful
from tests.rig import eventually

BATCH = 2_600
"""More records than a driver loads by itself, so each task prepares a load."""

NO_SPARK = "driver.session-started=kill-driver"
"""A driver that starts Spark does not come to its end."""


@pytest.fixture
def server() -> Iterator[StandIn]:
    with eventful() as stand_in:
        yield stand_in


@pytest.fixture
def rig(kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str, server: StandIn) -> DorisRig:
    return DorisRig(kafka, postgres_18, tmp_path, name, server, **{"spec.source.kafka.maxOffsetsPerTrigger": BATCH})


def view_of(opened: LocalStream) -> LedgerView:
    view = opened.ledger.view(opened.stream.stream_id)
    assert view is not None
    return view


def decided(rig: DorisRig) -> LocalStream:
    """Return the stream whose first driver has decided the first batch and was killed; no pass has seen that yet."""
    rig.produce(BATCH + 500)
    opened = rig.open()
    opened.launcher.environment = rig.crash_environment("batch.decided=kill-driver")
    start_over(opened)
    assert rig.loop(opened).run_pass() == Watching(Epoch(1))
    eventually(lambda: isinstance(opened.launcher.state_of(Epoch(1)), Ended), "the driver has died", 90)
    assert view_of(opened).decided is not None, rig.log_tail(opened, Epoch(1))
    assert rig.counts() == Counter(), "nothing is committed yet"
    return opened


def passes(
    rig: DorisRig, opened: LocalStream, wanted: Wanted = Wanted.RUN, until: type[PassResult] = Done
) -> PassResult:
    """Run passes, each time waiting for the driver that runs, until one comes to such a result."""
    loop = rig.loop(opened)
    for _ in range(60):
        result = loop.run_pass(wanted)
        if isinstance(result, until):
            return result
        if isinstance(result, Watching):
            opened.launcher.wait(result.attempt, 5.0)
    raise AssertionError(f"it does not come to its end\n{rig.story()}")


def kinds(rig: DorisRig) -> list[str]:
    """Return the kinds of events that tell what was decided, in order."""
    told = {"FinishFirst", "Finished", "SourceTruncated", "FirstStart", "FinishCommit"}
    return [kind for kind, _ in rig.events if kind in told]


def test_a_stream_that_is_suspended_with_a_decided_batch_lands_it_without_starting_spark(rig: DorisRig) -> None:
    opened = decided(rig)
    opened.launcher.environment = rig.crash_environment(NO_SPARK)
    assert passes(rig, opened, Wanted.REST) == Done(completed=False)
    assert rig.counts().total() == BATCH
    assert set(rig.counts().values()) == {1}
    assert kinds(rig) == ["FirstStart", "FinishFirst", "Finished"]
    assert "Batch 1, which was decided, has landed." in rig.story()
    assert view_of(opened).decided is None
    assert isinstance(rig.run(), Done), rig.story()
    rig.assert_exactly_once()


def test_a_stream_whose_next_records_are_gone_lands_what_is_decided_and_then_halts(rig: DorisRig) -> None:
    opened = decided(rig)
    for partition in range(rig.partitions):
        rig.kafka.delete_records_before(rig.name, partition, (BATCH + 500) // rig.partitions)
    opened.launcher.environment = rig.crash_environment(NO_SPARK)
    passes(rig, opened, until=Halted)
    assert rig.counts().total() == BATCH
    assert kinds(rig) == ["FirstStart", "FinishFirst", "Finished", "SourceTruncated"]
    assert view_of(opened).decided is None


def test_a_new_start_lands_what_was_decided_first_though_its_rows_have_to_be_made_again(
    rig: DorisRig, server: StandIn
) -> None:
    """Two hours later Doris has aborted what was prepared. What landed before stays in the table, and is read again."""
    opened = decided(rig)
    cluster = server.cluster
    assert isinstance(cluster, EventfulCluster)
    cluster.pass_time(2 * HOUR_SECONDS)
    token = view_of(opened).stream.token
    again = rig.open({"metadata.annotations": {FRESH: token}, "spec.trigger": {"availableNow": True}})
    passes(rig, again)
    assert kinds(rig) == ["FirstStart", "FinishFirst", "Finished", "FirstStart"]
    found = rig.counts()
    assert Counter(found.values()) == Counter({2: BATCH, 1: 500}), (
        "the decided batch has landed, and all was read again"
    )
    assert view_of(again).stream.token != token
