"""A replay into Doris over real servers: replays die before and behind a decision, and each id is in the table once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from exactlyonce.cli.local_replay import run_replay
from exactlyonce.cli.main import main
from exactlyonce.launch.local import MARKER
from exactlyonce.ledger.held import HELD
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow
from exactlyonce.reconcile.loop import Done
from exactlyonce_spark.crash_points import VARIABLE
from testbed.doris.servers import StandIn
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.doris import DATABASE
from tests.doris_rig import HOUR_SECONDS, DorisRig, EventfulCluster, eventful
from tests.warm.launcher import warm_environment

pytestmark = pytest.mark.seconds(50)

FAILS = "select id div if(customer = 'nobody', 0, 1) as id, customer, amount from source"
MENDED = "select id, customer, amount from source"


@pytest.fixture
def server() -> Iterator[StandIn]:
    with eventful() as stand_in:
        yield stand_in


def test_replays_that_die_before_and_behind_their_decision_leave_each_id_in_doris_once(
    kafka: Kafka, postgres_18: Postgres, tmp_path: Path, name: str, server: StandIn
) -> None:
    cluster = server.cluster
    assert isinstance(cluster, EventfulCluster)
    recovery = {"backoff": {"initial": "0s", "max": "1s"}, "maxFailuresPerBatch": 1, "onPoisonBatch": "Quarantine"}
    overrides = {
        "spec.source.kafka.maxOffsetsPerTrigger": 20,
        "spec.transform": {"sql": FAILS},
        "spec.recovery": recovery,
    }
    rig = DorisRig(kafka, postgres_18, tmp_path, name, server, **overrides)
    rig.produce(20)
    rig.produce(1, customer="nobody")
    rig.produce(19)
    assert rig.run() == Done(completed=True), rig.story()
    landed = rig.counts()
    missing = set(rig.produced) - set(landed)
    assert 1 < len(missing) <= 20, "the record that fails, and its batch"
    rig.overrides["spec.transform"] = {"sql": MENDED}

    # In the simulation they are killed between every two statements: tests/simulation/loads_replay_world.py.
    report = dies_at(rig, "replay.source-checked", most_records=100)
    assert report is not None, "it died"
    assert prepared(cluster), "its load is prepared"
    assert rig.counts() == landed, "and nobody sees it"
    assert not any(row.is_decided for row in quarantined(rig))
    cluster.pass_time(2 * HOUR_SECONDS)  # after which Doris aborts it

    report = dies_at(rig, "replay.decided", most_records=6)
    assert report is not None, "it died"
    assert any(row.is_decided for row in quarantined(rig)), "a first chunk is decided"
    assert rig.counts() == landed, "and not committed"

    # A driver that starts finishes what the replay has decided, and commits nothing of the one that did not decide.
    rig.produce(2)
    assert rig.run() == Done(completed=True), rig.story()
    now = rig.counts()
    assert len(now) > len(landed) + 2, rig.story()
    assert max(now.values()) == 1
    assert not any(row.is_decided for row in quarantined(rig))

    done = command(rig, "replay", "--yes")
    assert done.exit_code == 0, done.output
    assert rig.counts() == Counter(rig.produced), done.output
    assert not quarantined(rig)
    assert not prepared(cluster)


def dies_at(rig: DorisRig, point: str, *, most_records: int) -> str | None:
    """Run a replay that dies at a point, and return what its starter was told."""
    fired = rig.folder / f"fired-{point}-{len(list(rig.folder.glob('fired-*')))}"
    environment = {**warm(rig, point), VARIABLE: f"{point}=kill-driver,{fired}"}
    keys = [RangeKey.of(row) for row in quarantined(rig)]
    report = run_replay(rig.open(), Path(rig.secrets), keys, most_records=most_records, environment=environment)
    assert fired.exists(), report
    return report.problem


def quarantined(rig: DorisRig) -> list[FailureRow]:
    opened = rig.open()
    return [kept.row for kept in opened.ledger.kept_failures(opened.stream.stream_id, HELD, None, 100)]


def prepared(cluster: EventfulCluster) -> list[str]:
    """The labels of what Doris has prepared and neither committed nor aborted."""
    known = cluster.transactions_of(DATABASE).known.values()
    return [one.label for one in known if one.status.name == "PRECOMMITTED"]


def command(rig: DorisRig, word: str, *arguments: str) -> Result:
    """Run a command on the stream as its file has it."""
    file = rig.folder / "orders.yaml"
    file.write_text(yaml.safe_dump(rig.document()))
    options = ["--secrets", str(rig.secrets), "--state", str(rig.folder / "state")]
    environment = {**warm(rig, "command"), "COLUMNS": "250"}
    return CliRunner().invoke(main, [word, str(file), *options, *arguments], env=environment)


def warm(rig: DorisRig, name: str) -> dict[str, str]:
    """What lets the process of a replay take a JVM that is there already."""
    return {**warm_environment({}), MARKER: f"{rig.folder}/{name}"}
