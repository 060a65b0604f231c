"""A replay into a topic over a real broker: replays die around their decision, and each id is read committed once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from exactlyonce.cli.local_replay import run_replay
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.restored import FoundPart, settle_restored
from exactlyonce.ledger.rows import FailureRow
from exactlyonce.reconcile.loop import Done
from exactlyonce_spark.crash_points import VARIABLE
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.integration.test_replay import replayed, warm
from tests.kafka_sink_rig import KafkaSinkRig

pytestmark = pytest.mark.seconds(55)

CHUNK = 6

MENDED = "select id, cast(id as string) as k, cast(_partition as string) as p from source"
FAILS = MENDED.replace("select id,", "select id div if(customer = 'nobody', 0, 1) as id,")


def test_replays_that_die_around_their_decision_leave_each_id_in_the_topic_once(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str
) -> None:
    recovery = {"backoff": {"initial": "0s", "max": "1s"}, "maxFailuresPerBatch": 1, "onPoisonBatch": "Quarantine"}
    overrides = {
        "spec.source.kafka.maxOffsetsPerTrigger": 20,
        "spec.transform": {"sql": FAILS},
        "spec.recovery": recovery,
        "spec.ledger": {"postgres": {"secretRef": {"name": "warehouse"}}},
    }
    rig = KafkaSinkRig(kafka, postgres_18, tmp_path, name, **overrides)
    rig.produce(20)
    rig.produce(1, customer="nobody")
    rig.produce(19)
    assert rig.run() == Done(completed=True), rig.story()
    landed = rig.counts()
    missing = set(rig.produced) - set(landed)
    assert 1 < len(missing) <= 20, "the record that fails, and its batch"
    rig.overrides["spec.transform"] = {"sql": MENDED}

    # Killed at every point without Spark: tests/unit/test_kafka_replays.py.
    postgres_18.execute("create table before as select * from exactlyonce.failures", name)
    dies_at(rig, "replay.commit-answered")
    assert rig.counts().total() == landed.total() + CHUNK
    first = min(quarantined(rig), key=RangeKey.of)
    lose_decision(postgres_18, name)
    refused = replayed(rig, "--yes")
    assert (refused.exit_code, "and the ledger counts 0 loads of replays of" in refused.output) == (1, True), (
        refused.output
    )
    assert rig.counts().total() == landed.total() + CHUNK, "what the topic has is not sent once more"
    settle_restored(
        rig.open().ledger, rig.open().stream.stream_id, [FoundPart.parse(f"{RangeKey.of(first)}-{first.until_offset}")]
    )
    landed += Counter(set(rig.counts()) - set(landed))

    dies_at(rig, "replay.commit-answered")
    assert sum(row.offset_count for row in quarantined(rig) if row.is_decided) == CHUNK
    assert rig.counts().total() == landed.total() + CHUNK, "a chunk is committed, and the ledger has not recorded it"
    dies_at(rig, "replay.decided")
    assert sum(row.offset_count for row in quarantined(rig) if row.is_decided) == CHUNK, "that one is recorded now"
    assert rig.counts().total() == landed.total() + CHUNK, "the next one is decided, and not committed"

    done = replayed(rig, "--yes")
    assert done.exit_code == 0, done.output
    assert rig.counts() == Counter(rig.produced), done.output
    assert not quarantined(rig)
    assert len(rig.rows("read_uncommitted")) > len(rig.produced), "what was decided and not committed was sent again"


def lose_decision(server: Postgres, database: str) -> None:
    """What replays have done is gone, as where a standby is promoted that had not received it; the topic keeps its rows."""
    server.execute(
        "delete from exactlyonce.replayed; delete from exactlyonce.failures; "
        "insert into exactlyonce.failures overriding system value select * from before",
        database,
    )


def dies_at(rig: KafkaSinkRig, point: str) -> None:
    """Run a replay in small chunks that dies at a point."""
    fired = rig.folder / f"fired-{point}-{rig.counts().total()}"
    environment = {**warm(rig, point), VARIABLE: f"{point}=kill-driver,{fired}"}
    keys = [RangeKey.of(row) for row in quarantined(rig)]
    report = run_replay(rig.open(), Path(rig.secrets), keys, most_records=CHUNK, environment=environment)
    assert fired.exists(), report
    assert report.problem is not None, "it died"


def quarantined(rig: KafkaSinkRig) -> list[FailureRow]:
    opened = rig.open()
    return [kept.row for kept in opened.ledger.kept_failures(opened.stream.stream_id, HELD, None, 100)]
