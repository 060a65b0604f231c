"""StreamReplays under a real operator: what is in quarantine lands once, through deaths of the operator and deletions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from exactlyonce import crash_points
from exactlyonce.api.resource import API_VERSION
from exactlyonce.api.stream_replay import REPLAY_KIND
from exactlyonce.launch.pod_names import launched_as
from testbed.cluster import KubectlFailed
from tests.cluster.operators import MakeOperator, MakeStream, WholeStream
from tests.combinations import EVERY_MODE

pytestmark = pytest.mark.timeout(900)

FAILS = "select id div if(customer = 'nobody', 0, 1) as id, customer, amount, ts from source"
MENDED = "select id, customer, amount, ts from source"
CHANGES = {
    "spec.source.kafka.maxOffsetsPerTrigger": 40,
    "spec.transform": {"sql": FAILS},
    "spec.recovery": {
        "backoff": {"initial": "1s", "max": "2s"},
        "maxFailuresPerBatch": 1,
        "onPoisonBatch": "Quarantine",
    },
}
MINUTELY = {"schedule": "* * * * *", "timeZone": "Europe/Berlin"}
STARTS = ("start.config-map-created", "start.pod-created")


@pytest.mark.seconds(120)
def test_what_is_in_quarantine_lands_once_by_a_replay_through_deaths_of_the_operator(
    make_stream: MakeStream, make_operator: MakeOperator, namespace: str, name: str, tmp_path: Path
) -> None:
    stream = make_stream(name)
    rig = stream.rig
    fired = {point: tmp_path / f"fired-{point}" for point in (*crash_points.REPLAY_POINTS, *STARTS)}
    mine = {point: f"{point}@{namespace}/{launched_as('mend') if point in STARTS else name}" for point in fired}
    crashes = " ".join(f"{mine[point]}={file}" for point, file in fired.items())
    stream.operators.append(make_operator(environment={crash_points.VARIABLE: crashes}))
    rig.produce(60)
    rig.produce(1, partition=1, customer="nobody")
    rig.produce(59)
    stream.apply({**CHANGES, "spec.replay": {**MINUTELY, "suspend": True}})
    stream.until(
        lambda: stands_at(stream) == len(rig.produced), "the stream has continued without the batch that fails"
    )
    missing = set(rig.produced) - set(rig.counts())
    assert 1 < len(missing) <= 40, "the record that fails, and its batch"

    apply(stream, "nobody", stream="nobody")
    until_phase(stream, "nobody", "Refused")
    assert get(stream, "nobody")["status"]["message"].startswith(f"There is no ExactlyOnceStream {namespace}/nobody;")
    apply(stream, "look", dryRun=True)
    until_phase(stream, "look", "Succeeded")
    looked = get(stream, "look")["status"]
    assert looked["records"] == {"asked": len(missing), "replayed": 0, "putBack": len(missing), "lost": 0}
    assert {it["found"] for it in looked["shown"]} == {"held"}
    assert set(rig.produced) - set(rig.counts()) == missing, "a dry run lands nothing"
    deleted_while_it_runs(stream, len(missing))
    assert scheduled(stream) == [], "many minutes may have begun, and the schedule is suspended"

    first = looked["shown"][-1]["id"]
    apply(stream, "mend", chunk=7, transform={"sql": MENDED}, **{"from": {"failures": {"ids": [first]}}})
    until_phase(stream, "mend", "Succeeded")
    done = get(stream, "mend")["status"]
    asked = done["records"]["asked"]
    assert (done["message"], done["attempt"]) == (f"{asked} of {asked} records have landed.", 1)

    patch(stream, {"transform": {"sql": MENDED}, "replay": {**MINUTELY, "suspend": False}})
    stream.until(rig.has_all, "the minutes that were missed are made up for by one replay, which lands the rest")
    rig.assert_exactly_once()
    until_phase(stream, scheduled(stream)[0], "Succeeded")
    if EVERY_MODE:  # else tests/unit/test_replay_schedule.py
        lands_by_a_threshold(stream)
    assert [point for point, file in fired.items() if not file.exists()] == [], "the operator died at each of them"
    assert row_of(stream, "mend")[:3] == ["mend", name, "Succeeded"]
    assert rig.sql("select distinct status from exactlyonce.failures where status <> 'Closed'") == [("Replayed",)]
    with pytest.raises(KubectlFailed, match="a StreamReplay never changes"):
        stream.kubectl("patch", "streamreplay", "mend", "--type=merge", "--patch", json.dumps({"spec": {"chunk": 8}}))
    stream.kubectl("delete", "streamreplay", "mend", *scheduled(stream), "--ignore-not-found")
    stream.until(lambda: pods_of(stream) == [], "what was made for a replay goes with it")


def deleted_while_it_runs(stream: WholeStream, count: int) -> None:
    """Delete a slow replay after its first chunk: its pod ends, and what it has not landed is there for the next one."""
    before = stream.rig.landed()
    apply(stream, "slow", limit=1, transform={"sql": MENDED})
    stream.until(lambda: stream.rig.landed() > before, "the first chunk has landed")
    stream.kubectl("delete", "streamreplay", "slow")
    stream.until(lambda: pods_of(stream) == [], "its pod goes with it")
    assert before < stream.rig.landed() < before + count


def lands_by_a_threshold(stream: WholeStream) -> None:
    """Let a second batch fail: as soon as it is in quarantine a replay is due, and lands what does not fail by itself."""
    patch(stream, {"transform": {"sql": FAILS}, "replay": None})
    for name in scheduled(stream):
        stream.kubectl("delete", "streamreplay", name)
    patch(stream, {"replay": {"whenFailedRecords": 1}})
    (bad,) = stream.rig.produce(1, partition=1, customer="nobody")
    stream.rig.produce(39)
    stream.until(
        lambda: stream.rig.landed() == len(stream.rig.produced) - 1, "all but the record that fails have landed"
    )
    until_phase(stream, scheduled(stream)[0], "Failed")
    stream.rig.assert_exactly_once(without=[bad])
    patch(stream, {"transform": {"sql": MENDED}, "replay": None})
    apply(stream, "last", transform={"sql": MENDED})
    until_phase(stream, "last", "Succeeded")
    stream.rig.assert_exactly_once()


def scheduled(stream: WholeStream) -> list[str]:
    """Return the names of the replays that the operator has made by itself."""
    found = json.loads(stream.kubectl("get", "streamreplays", "--output=json"))["items"]
    return [it["metadata"]["name"] for it in found if "ownerReferences" in it["metadata"]]


def patch(stream: WholeStream, spec: dict[str, Any]) -> None:
    """Change the stream's resource."""
    stream.kubectl("patch", "eos", stream.name, "--type=merge", "--patch", json.dumps({"spec": spec}))


def apply(of: WholeStream, name: str, **spec: Any) -> None:
    """Create a StreamReplay of everything that the stream has in quarantine."""
    metadata = {"name": name, "namespace": of.namespace}
    made = {"apiVersion": API_VERSION, "kind": REPLAY_KIND, "metadata": metadata}
    asked = {"stream": of.name, "from": {"failures": {}}, **spec}
    of.kubectl("create", "--filename=-", stdin=json.dumps({**made, "spec": asked}))


def get(stream: WholeStream, name: str) -> dict[str, Any]:
    """Return a StreamReplay as it is now."""
    return dict(json.loads(stream.kubectl("get", "streamreplay", name, "--output=json")))


def until_phase(stream: WholeStream, name: str, phase: str) -> None:
    """Wait until a StreamReplay is in a phase."""
    stream.until(lambda: get(stream, name).get("status", {}).get("phase") == phase, f"the replay {name} is {phase}")


def row_of(stream: WholeStream, name: str) -> list[str]:
    """Return what `kubectl get streamreplays` shows of one."""
    return stream.kubectl("get", "streamreplays", name, "--no-headers").split()


def pods_of(stream: WholeStream) -> list[str]:
    """Return the pods and ConfigMaps of all replays of the stream."""
    selector = f"--selector=exactlyonce.dev/replay-of={stream.name}"
    return stream.kubectl("get", "pods,configmaps", selector, "--output=name").split()


def stands_at(stream: WholeStream) -> int:
    """Return how many records lie before the stream's positions."""
    return int(stream.rig.sql("select coalesce(sum(next_offset), 0) from exactlyonce.offsets")[0][0])
