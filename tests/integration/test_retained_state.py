"""A database that went back under a query that keeps state: the stream continues with the state that Spark retains.

The oracle counts by itself, from the ids that the test produced; what Spark or the ledger say of themselves is not asked.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from exactlyonce.api.refused_conf import IN_MEMORY, ROCKSDB, STATE_STORE
from exactlyonce.reconcile.loop import Done
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from testbed.s3 import S3
from tests.backup import back_up, restore
from tests.combinations import only_in_full
from tests.integration.test_s3_checkpoints import on_s3
from tests.rig import Rig
from tests.stateful_queries import BATCH, CHAIN, PYTHON_STATE, WINDOWS, StatefulQuery

pytestmark = pytest.mark.seconds(25)

CHANGELOGS = {"spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true"}
KINDS = [
    pytest.param(CHAIN, ROCKSDB, {}, id="chain, RocksDB"),
    pytest.param(CHAIN, IN_MEMORY, {}, id="chain, in memory"),
    pytest.param(CHAIN, ROCKSDB, CHANGELOGS, id="chain, RocksDB with changelogs"),
    pytest.param(PYTHON_STATE, ROCKSDB, {}, id="applyInPandasWithState, RocksDB"),
    pytest.param(PYTHON_STATE, IN_MEMORY, {}, id="applyInPandasWithState, in memory"),
    pytest.param(WINDOWS, ROCKSDB, {}, id="window, RocksDB"),
]


KINDS_ON_S3 = [ROCKSDB, IN_MEMORY]


# By default a query in one session, with each provider: test_checkpoint_restarts.py.
@only_in_full
@pytest.mark.parametrize(("query", "provider", "settings"), KINDS)
def test_a_database_that_lost_its_latest_commits_counts_every_record_once_again(
    rig: Rig, query: StatefulQuery, provider: str, settings: dict[str, str]
) -> None:
    """The last commits are lost after Spark has committed their batches: what it remembers has to be forgotten."""
    environment = query.set_up(rig)
    rig.overrides |= {
        "spec.source.kafka.maxOffsetsPerTrigger": BATCH,
        "spec.sparkConf": {**rig.document()["spec"]["sparkConf"], STATE_STORE: provider, **settings},
    }
    query.produce(rig, 2 * BATCH + 32)
    assert rig.run(environment=environment) == Done(completed=True), rig.story()
    back_up(rig)
    stood = rig.landed_batch()
    query.produce(rig, BATCH + 52)
    assert rig.run(environment=environment) == Done(completed=True), rig.story()
    assert rig.landed_batch() >= stood + 2, "the database loses several commits"
    (only,) = rig.generations()
    before = files_of(only)
    restore(rig)
    assert rig.landed_batch() == stood
    query.produce(rig, BATCH)
    assert rig.run(environment=environment) == Done(completed=True), rig.story()
    assert rig.verdicts() == ["FirstStart", "Resume", "RewindToSink"]
    query.assert_minutes_once(rig)
    old, new = rig.generations()
    assert before == files_of(old), "the generation that was ahead is untouched"
    (told,) = [words for kind, words in rig.events if kind == "RewindToSink"]
    assert f"It is made of the state that {old.name} retains of batch {stood}." in told
    assert len(list(new.glob("offsets/[0-9]*"))) > 2, "it continued in the new one"


# By default a query in one session, with its state on S3: test_checkpoint_restarts.py.
@only_in_full
@pytest.mark.parametrize("provider", KINDS_ON_S3)
def test_the_same_with_the_checkpoint_on_s3(
    kafka: Kafka, postgres_18: Postgres, s3: S3, tmp_path: Path, provider: str
) -> None:
    rig = on_s3(kafka, postgres_18, s3, tmp_path, f"s3state{KINDS_ON_S3.index(provider)}")
    environment = WINDOWS.set_up(rig)
    rig.overrides |= {
        "spec.source.kafka.maxOffsetsPerTrigger": BATCH,
        "spec.sparkConf": {**rig.document()["spec"]["sparkConf"], STATE_STORE: provider},
    }
    WINDOWS.produce(rig, BATCH)
    assert rig.run(environment=environment) == Done(completed=True), rig.story()
    back_up(rig)
    WINDOWS.produce(rig, BATCH)
    assert rig.run(environment=environment) == Done(completed=True), rig.story()
    restore(rig)
    WINDOWS.produce(rig, BATCH)
    assert rig.run(environment=environment) == Done(completed=True), rig.story()
    assert rig.verdicts() == ["FirstStart", "Resume", "RewindToSink"]
    WINDOWS.assert_minutes_once(rig)


def files_of(generation: Path) -> dict[str, bytes]:
    """Return every file of a generation that is no temporary one."""
    files = (path for path in generation.rglob("*") if path.is_file() and path.suffix != ".tmp")
    return {str(path.relative_to(generation)): path.read_bytes() for path in files}
