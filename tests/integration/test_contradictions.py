"""Verdicts that only a person can solve, and those after a restored sink: reached for real, counted by ids.

A verdict that halts writes nothing: table, checkpoint and ledger are the same before and after.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import subprocess
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from exactlyonce.api.resource import ADOPT, FRESH
from exactlyonce.reconcile.loop import Done, Halted
from testbed.kafka import Kafka
from testbed.postgres import Postgres
from tests.command import verdict_now
from tests.rig import Rig, eventually, running
from tests.snapshot import snapshot

pytestmark = pytest.mark.seconds(11)


@pytest.fixture
def own_postgres(tmp_path: Path) -> Iterator[Postgres]:
    """A server that a test may restore."""
    with Postgres(tmp_path / "postgres") as server:
        yield server


@pytest.fixture(scope="module")
def landed(kafka: Kafka, postgres_18: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Rig:
    """A stream that has landed 400 orders and has ended; tests that halt it leave it as it was."""
    rig = Rig(kafka, postgres_18, tmp_path_factory.mktemp("landed"), "contradictions")
    rig.produce(400)
    assert rig.run() == Done(completed=True)
    rig.assert_exactly_once()
    rig.produce(40)
    return rig


def halts(rig: Rig, changes: Mapping[str, Any] | None = None) -> str:
    """Run a stream that has to halt and write nothing, and return the sentence that says why."""
    before = snapshot(rig)
    result = rig.run(changes=changes)
    assert isinstance(result, Halted), rig.story()
    assert snapshot(rig) == before
    assert "\n" not in result.message
    return result.message


def annotated(annotation: str, value: object) -> dict[str, Any]:
    return {"metadata.annotations": {annotation: str(value)}}


def marker(rig: Rig) -> str:
    """Return the token that the checkpoint location holds."""
    return str(json.loads((rig.location / "stream.json").read_text())["token"])


def test_a_sink_that_was_restored_from_a_backup_is_filled_up_again(
    kafka: Kafka, own_postgres: Postgres, tmp_path: Path, name: str
) -> None:
    """The server is stopped, its data directory copied, and put back later, while the driver runs all the time."""
    rig = Rig(kafka, own_postgres, tmp_path, name)
    rig.produce(400)
    with running(rig, rig.open()):
        eventually(rig.has_all, "the first orders have landed", 120)
        backup = own_postgres.data.with_name("backup")
        own_postgres.stop()
        subprocess.run(["cp", "-a", str(own_postgres.data), str(backup)], check=True)
        own_postgres.start()
        rig.produce(400)
        eventually(rig.has_all, "the orders after the backup have landed", 120)

        own_postgres.stop()
        shutil.rmtree(own_postgres.data)
        backup.rename(own_postgres.data)
        own_postgres.start()
        assert rig.landed() == 400, "the sink is as it was"
        rig.produce(40)
        eventually(rig.has_all, "every order has landed again", 180)
    rig.assert_exactly_once()
    # Each stop of the server may also cost a driver, whose successor replays or resumes.
    assert [verdict for verdict in rig.verdicts() if verdict not in ("ReplayBatch", "Resume")] == [
        "FirstStart",
        "RewindToSink",
    ]
    assert any("was restored" in words for kind, words in rig.events if kind == "RewindToSink")
    assert len(rig.generations()) == 2, "the checkpoint that was ahead stays as evidence"


def test_a_resource_made_again_under_its_name_goes_on_where_the_ledger_stands(rig: Rig) -> None:
    """Its status is gone: only the file at first, then everything that was kept of it."""
    rig.produce(400)
    rig.run()
    before = rig.sql("select owner_uid, token from exactlyonce.streams")
    home = rig.folder / "state" / f"tests.{rig.name}"
    (home / "status.json").unlink()
    assert verdict_now(rig) == "Resume"
    shutil.rmtree(home)
    rig.produce(400)
    assert rig.run() == Done(completed=True)
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "Resume"]
    assert rig.open().statuses.read()[0].attempt == 2, "attempts continue counting"
    (owner, token), (new_owner, new_token) = before[0], rig.sql("select owner_uid, token from exactlyonce.streams")[0]
    assert owner != new_owner
    assert token == new_token


def test_a_copied_database_is_told_from_its_original_until_one_of_them_is_chosen(rig: Rig) -> None:
    rig.produce(400)
    opened = rig.open({"spec.trigger": {"availableNow": True}})
    rig.run(opened=opened)
    opened.ledger.close()
    original, clone = rig.name, f"{rig.name}_clone"
    rig.postgres.execute(f'create database "{clone}" template "{original}"')
    rig.produce(400)
    untouched = snapshot(rig)

    copied = in_database(rig, clone)
    reason = halts(copied)
    oids = {str(found): oid for found, oid in rig.postgres.execute("select datname, oid from pg_database")}
    assert f"database {oids[original]}, and this is" in reason
    assert f"database {oids[clone]}: a copied database" in reason
    token = marker(rig)
    assert f"annotate it {ADOPT}={token}, or {FRESH}={token} to start over" in reason
    assert copied.run(changes=annotated(ADOPT, token)) == Done(completed=True)
    copied.assert_exactly_once()
    assert verdict_now(copied, annotated(FRESH, token)) == "Resume", "an annotation that was left behind does nothing"

    rig.write_secret()
    reason = halts(rig)
    assert f"{rig.location} belongs to another ledger's tests/{original}, and the one at system" in reason
    assert f"database {oids[original]} names it too" in reason
    assert f"read the token in {rig.location}/stream.json with access of your own" in reason
    assert marker(rig) not in reason, "it is another ledger's"
    assert {**snapshot(rig), "files": {}} == {**untouched, "files": {}}
    assert rig.verdicts() == ["FirstStart", "Contradiction", "Resume", "Contradiction"]


def in_database(rig: Rig, name: str) -> Rig:
    """Return the same stream with its sink in another database."""
    other = copy.copy(rig)
    other.name = name
    other.overrides = {**rig.overrides, "metadata.name": rig.name, "spec.source.kafka.topics": [rig.name]}
    other.write_secret()
    return other


def test_a_ledger_row_that_is_lost_is_adopted_from_the_checkpoint_or_started_over(rig: Rig) -> None:
    rig.produce(400)
    rig.run()
    rig.sql("delete from exactlyonce.streams")
    rig.produce(400)
    reason = rig.run()
    token = marker(rig)
    assert isinstance(reason, Halted)
    assert f"{rig.location} holds a checkpoint of tests/{rig.name}, and the ledger at system" in reason.message
    assert f"read the token in {rig.location}/stream.json with access of your own" in reason.message
    assert token not in reason.message
    assert rig.landed() == 400
    assert rig.sql("select landed_batch, generation from exactlyonce.streams") == [(None, None)]
    halts(rig, annotated(ADOPT, "another-token"))

    assert rig.run(changes=annotated(ADOPT, token)) == Done(completed=True)
    rig.assert_exactly_once()
    assert verdict_now(rig, annotated(ADOPT, token)) == "Resume", "an annotation that was left behind does nothing"
    batches = rig.landed_batch()

    rig.sql("delete from exactlyonce.streams")
    rig.sql("truncate orders")
    assert rig.run(changes=annotated(FRESH, marker(rig))) == Done(completed=True)
    rig.assert_exactly_once()
    assert rig.verdicts() == ["FirstStart", "Contradiction", "Contradiction", "FirstStart", "FirstStart"]
    assert rig.landed_batch() > batches, "the numbers of batches continue"


def test_a_second_resource_with_the_same_stream_id_is_refused(landed: Rig) -> None:
    twin = {
        "metadata.name": "twin",
        "spec.streamId": f"tests/{landed.name}",
        "spec.checkpoint.local.path": str(landed.folder / "elsewhere"),
    }
    reason = halts(landed, twin)
    owner = landed.open().owner
    assert f"tests/{landed.name} belongs to the resource {owner}, and this is {landed.open(twin).owner}" in reason
    assert not (landed.folder / "elsewhere").exists()
    assert verdict_now(landed) == "Resume"


def test_a_lost_checkpoint_halts_where_the_resource_asks_for_it(landed: Rig) -> None:
    (generation,) = landed.generations()
    away = generation.rename(landed.folder / "away")
    reason = halts(landed, {"spec.recovery.onCheckpointLost": "Halt"})
    assert f"There is no checkpoint at {generation}" in reason
    assert "set recovery.onCheckpointLost to RebuildFromSink to continue" in reason
    assert verdict_now(landed) == "RebuildFromSink"
    away.rename(generation)
    assert verdict_now(landed, {"spec.recovery.onCheckpointLost": "Halt"}) == "Resume"


def test_a_ledger_that_was_changed_by_hand_halts_the_stream(landed: Rig) -> None:
    landed.sql("update exactlyonce.offsets set next_offset = 90 where partition = 1")
    reason = halts(landed)
    assert f"the ledger stands at 90 in {landed.name}-1, and its batch 1 ended at 100" in reason
    assert "restore all of it" in reason
    landed.sql("update exactlyonce.offsets set next_offset = 100 where partition = 1")
    assert verdict_now(landed) == "Resume"


def test_a_topic_that_is_no_longer_named_is_no_contradiction(landed: Rig, kafka: Kafka) -> None:
    """What becomes of it, and of one that is named again, is in test_changed_source.py."""
    kafka.create_topic(f"{landed.name}-other", 1)
    assert verdict_now(landed, {"spec.source.kafka.topics": [f"{landed.name}-other"]}) == "RebuildFromSink"
    assert verdict_now(landed) == "Resume"


DEDUPLICATE = """
def transform(rows):
    return rows.dropDuplicates(["id"]).select("id", "customer", "amount", "ts")
"""


def test_a_query_with_state_halts_when_its_checkpoint_is_lost(rig: Rig) -> None:
    """The state is what tells that an id was seen: while it lives no id lands twice, however often it is produced."""
    (rig.folder / "deduplicate.py").write_text(DEDUPLICATE)
    path = {"PYTHONPATH": os.pathsep.join([str(rig.folder), os.environ.get("PYTHONPATH", "")])}
    rig.overrides["spec.transform"] = {"python": {"module": "deduplicate"}}
    rig.overrides["spec.source.kafka.maxOffsetsPerTrigger"] = 300
    rig.produce(200)
    rig.produced.clear()
    rig.produce(400)
    assert rig.run(environment=path) == Done(completed=True)
    rig.assert_exactly_once()
    assert rig.sql("select stateful from exactlyonce.streams") == [(True,)]

    (generation,) = rig.generations()
    kept = generation.rename(rig.folder / "kept")
    new = rig.produce(40)
    reason = halts(rig)
    assert f"There is no checkpoint at {generation}" in reason
    assert "The query keeps state in its checkpoint, which offsets alone cannot rebuild (" in reason
    assert "): restore the checkpoint; or, to continue with empty state, " in reason
    assert "make a stream with another streamId that starts at the offsets" in reason
    assert f"{rig.name}-3@150" in reason
    kept.rename(generation)
    assert verdict_now(rig) == "Resume", "the checkpoint was restored"

    rig.produced.clear()
    again = rig.produce(20)
    offsets = [{"topic": rig.name, "partition": number, "offset": 150} for number in range(4)]
    with_empty_state = {
        "spec.streamId": "another",
        "spec.checkpoint.local.path": str(rig.folder / "elsewhere"),
        "spec.source.kafka.start": {"from": "Offsets", "offsets": offsets},
    }
    another = rig.open({**with_empty_state, "spec.trigger": {"availableNow": True}}, state="of-another-resource")
    assert rig.run(environment=path, opened=another) == Done(completed=True)
    assert rig.counts() == Counter([*range(400), *new, *again]), "the empty state knows nothing of what landed before"
