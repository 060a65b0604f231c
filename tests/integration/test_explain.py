"""`exactlyonce explain` on states made without Spark: what it says, its exit status, and that it changes nothing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import yaml

from exactlyonce.checkpoint.generation import MARKER
from exactlyonce.connectors.kafka.bounds import KafkaBounds
from exactlyonce.positions.ranges import Epoch
from testbed.processes import free_port
from tests.offline import Everything, OfflineStream, command
from tests.rig import Rig, eventually
from tests.stand_in import PYTHONPATH

LAUNCHES, FAILED, HALTS = 0, 1, 2


@dataclass(frozen=True)
class State:
    """What drivers left, and what is to be decided about it: verdict, batch, words of the reason and of the evidence."""

    made: Callable[[OfflineStream], object]
    verdict: str
    batch: int | None
    said: tuple[str, ...]
    actions: tuple[str, ...]
    exit_status: int = LAUNCHES
    changes: dict[str, Any] = field(default_factory=dict)


def resumable(stream: OfflineStream) -> None:
    stream.run(1, 5, 5, 5, 5)
    stream.release()


def landed_unknown_to_spark(stream: OfflineStream) -> None:
    stream.run(1, 5, 5, 5, 5)
    stream.plan(2, 9, 8, 5, 5)
    stream.land(2, 9, 8, 5, 5)
    stream.release()


def planned_only(stream: OfflineStream) -> None:
    stream.run(1, 5, 5, 5, 5)
    stream.plan(2, 9, 8, 5, 5)
    stream.release()


def landed_in_part(stream: OfflineStream) -> None:
    stream.run(1, 5, 5, 5, 5)
    stream.plan(2, 9, 8, 5, 5)
    stream.land_in_part(2, 1, 9, 8, 5, 5)
    stream.release()


def checkpoint_lost(stream: OfflineStream) -> None:
    resumable(stream)
    shutil.rmtree(stream.folder)


def restored_sink(stream: OfflineStream) -> None:
    stream.run(1, 5, 5, 5, 5)
    stream.plan(2, 9, 8, 5, 5)
    stream.checkpoint(2)
    stream.release()


def truncated_source(stream: OfflineStream) -> None:
    resumable(stream)
    stream.rig.kafka.delete_records_before(stream.rig.name, 2, 7)


def remade_topic(stream: OfflineStream) -> None:
    resumable(stream)
    rig = stream.rig
    before = rig.open().stores.source.view().origin_ids
    rig.kafka.delete_topic(rig.name)
    eventually(lambda: rig.open().stores.source.view().missing == (rig.name,), "the topic is gone")
    rig.kafka.create_topic(rig.name, rig.partitions)
    eventually(lambda: rig.name in rig.open().stores.source.view().origin_ids, "the topic is there again")
    assert rig.open().stores.source.view().origin_ids != before


def location_of_another(stream: OfflineStream) -> None:
    resumable(stream)
    (stream.rig.location / MARKER).write_text(json.dumps({"streamId": "shop/other", "token": "another"}))


STATES = {
    "it never ran": State(
        lambda stream: None, "FirstStart", None, ("the stream starts at",), ("WriteMarker", "SeedAndPublish", "Launch")
    ),
    "all agree": State(resumable, "Resume", 1, ("batch 1", "{n}-0@5, {n}-1@5, {n}-2@5, {n}-3@5"), ("Launch",)),
    "planned and not landed": State(
        planned_only,
        "ReplayBatch",
        2,
        ("Batch 2 was planned and has not landed", "the sink holds batch 1", "{n}-0@9, {n}-1@8, {n}-2@5, {n}-3@5"),
        ("Launch",),
    ),
    "landed, and Spark does not know": State(
        landed_unknown_to_spark,
        "SkipLanded",
        2,
        ("Batch 2 landed with the ranges that were planned", "the commit log ends with batch 1"),
        ("Launch",),
    ),
    "landed in part": State(
        landed_in_part,
        "FinishBatch",
        2,
        ("{n}-1",),
        ("Launch",),
        changes={"spec.sink.postgres.commit": "Partition"},
    ),
    "the checkpoint is gone": State(
        checkpoint_lost,
        "RebuildFromSink",
        None,
        ("generation-000001-a1", "the sink holds batch 1", "{n}-0@5, {n}-1@5, {n}-2@5, {n}-3@5"),
        ("SeedAndPublish", "Launch"),
    ),
    "the checkpoint is gone and is not to be rebuilt": State(
        checkpoint_lost,
        "Contradiction",
        None,
        ("generation-000001-a1", "onCheckpointLost"),
        (),
        HALTS,
        {"spec.recovery.onCheckpointLost": "Halt"},
    ),
    "a driver that may still live": State(
        lambda stream: stream.run(1, 5, 5, 5, 5),
        "RebuildFromSink",
        None,
        ("nothing proves that the driver of attempt 1 ended",),
        ("SeedAndPublish", "Launch"),
    ),
    "the sink was restored": State(
        restored_sink,
        "RewindToSink",
        None,
        ("Spark has committed batch 2", "the sink holds batch 1"),
        ("SeedAndPublish", "Launch"),
    ),
    "retention took records": State(
        truncated_source,
        "SourceTruncated",
        None,
        ("2 records", "{n}-2 [5, 7)", "the earliest held is 7", "ResumeFromEarliest"),
        (),
        HALTS,
    ),
    "retention took records, and the resource accepts it": State(
        truncated_source,
        "SourceTruncated",
        None,
        ("2 records", "{n}-2 [5, 7)"),
        ("SeedAndPublish", "Launch"),
        changes={"spec.recovery.onSourceTruncated": "ResumeFromEarliest"},
    ),
    "the topic was recreated": State(remade_topic, "SourceReplaced", None, ("recreated", "{n}"), (), HALTS),
    "the location is another stream's": State(
        location_of_another, "Contradiction", None, ("shop/other", "tests/{n}"), (), HALTS
    ),
}


@pytest.mark.parametrize("name_of_state", STATES)
def test_explain_tells_the_verdict_with_its_evidence_and_changes_nothing(rig: Rig, name_of_state: str) -> None:
    state = STATES[name_of_state]
    rig.produce(40)
    if name_of_state != "it never ran":
        state.made(OfflineStream(rig))
    before = Everything.of(rig)

    printed = command(rig, "explain", changes=state.changes)
    as_data = command(rig, "explain", "-o", "json", changes=state.changes)

    assert Everything.of(rig) == before
    assert (printed.exit_code, as_data.exit_code) == (state.exit_status, state.exit_status), printed.output
    lines = printed.stdout.splitlines()
    number = "" if state.batch is None else f"({state.batch})"
    code = json.loads(as_data.stdout)["reason"]
    with_code = "" if code is None else f" ({code})"
    assert lines[:2] == [f"Stream   tests/{rig.name}", f"Verdict  {state.verdict}{number}{with_code}"]
    assert [words for words in state.said if words.format(n=rig.name) not in printed.stdout] == [], printed.stdout
    assert ("the stream halts until a person has acted" in printed.stdout) == (state.exit_status == HALTS)

    document = json.loads(as_data.stdout)
    assert (document["streamId"], document["verdict"], document["batch"]) == (
        f"tests/{rig.name}",
        state.verdict,
        state.batch,
    )
    assert (document["actions"], document["halts"]) == (list(state.actions), state.exit_status == HALTS)
    assert f"Message  {document['message']}" in lines
    assert document["evidence"] != []
    assert [item["words"] for item in document["evidence"] if f"  - {item['words']}" not in lines] == []


def test_evidence_is_there_as_numbers_for_a_program(rig: Rig) -> None:
    rig.produce(40)
    truncated_source(OfflineStream(rig))
    evidence = json.loads(command(rig, "explain", "-o", "json").stdout)["evidence"]
    assert {"topic": rig.name, "partition": 2, "from": 5, "until": 7} in [item["data"] for item in evidence]


def test_what_explain_says_twice_is_the_same(rig: Rig) -> None:
    rig.produce(40)
    planned_only(OfflineStream(rig))
    assert command(rig, "explain").stdout == command(rig, "explain").stdout
    assert command(rig, "offsets", "-o", "json").stdout == command(rig, "offsets", "-o", "json").stdout


@pytest.fixture
def running_driver(rig: Rig) -> Iterator[OfflineStream]:
    """A stream whose driver, a stand-in, runs."""
    rig.produce(40)
    stream = OfflineStream(rig)
    stream.run(1, 5, 5, 5, 5)
    launcher = stream.opened.launcher
    launcher.environment = {"PYTHONPATH": PYTHONPATH}
    launcher.start(Epoch(1))
    yield stream
    launcher.kill(Epoch(1))
    launcher.wait(Epoch(1), 30)


def test_explain_beside_a_running_driver_says_so_and_leaves_it_alone(running_driver: OfflineStream) -> None:
    """What would be decided is what follows when it ends, not when it is lost without a trace."""
    told = command(running_driver.rig, "explain")
    assert told.exit_code == LAUNCHES
    assert "Driver   attempt 1 runs; this is what would be decided if it ended now" in told.stdout
    assert "Verdict  Resume(1)" in told.stdout
    document = json.loads(command(running_driver.rig, "explain", "-o", "json").stdout)
    assert (document["verdict"], document["runningAttempt"]) == ("Resume", 1)
    driver = running_driver.opened.launcher._children[Epoch(1)]
    assert driver.poll() is None


def test_a_source_that_cannot_be_asked_is_one_sentence_and_status_1(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaBounds.__init__, "__defaults__", (2.0, None))  # seconds
    rig.produce(40)
    resumable(OfflineStream(rig))
    before = Everything.of(rig)
    closed = f"127.0.0.1:{free_port()}"
    told = command(rig, "explain", changes={"spec.source.kafka.bootstrapServers": closed})
    assert (told.exit_code, told.stdout) == (FAILED, "")
    assert told.stderr.startswith(f"Kafka at {closed} does not answer (")
    assert told.stderr.count("\n") == 1
    assert Everything.of(rig) == before


@pytest.mark.parametrize("name_of_command", ["explain", "offsets"])
def test_a_database_that_refuses_is_one_sentence_and_status_1(rig: Rig, name_of_command: str) -> None:
    rig.write_secret(password="canary")
    told = command(rig, name_of_command)
    assert (told.exit_code, told.stdout) == (FAILED, "")
    assert "refuses the login: password authentication failed" in told.stderr
    assert told.stderr.count("\n") == 1
    assert "canary" not in told.stderr


def test_the_installed_command_ends_with_the_same_status(rig: Rig) -> None:
    """As a shell has it: output and errors apart, and a status to act on."""
    rig.produce(40)
    truncated_source(OfflineStream(rig))
    file = rig.folder / "stream.yaml"
    file.write_text(yaml.safe_dump(rig.document()))
    arguments = [str(file), "--state", str(rig.folder / "state"), "--secrets", str(rig.secrets)]
    statuses = {}
    for name in ("explain", "offsets", "validate"):
        words = [
            sys.executable,
            "-m",
            "exactlyonce.cli.main",
            name,
            *(arguments if name != "validate" else [str(file)]),
        ]
        ran = subprocess.run(words, check=False, capture_output=True, text=True, env=dict(os.environ), timeout=120)
        assert ran.stderr == ""
        statuses[name] = ran.returncode
    assert statuses == {"explain": HALTS, "offsets": 0, "validate": 0}
