"""A checkpoint on a PersistentVolumeClaim: the driver's pod reconciles, the operator never sees the volume."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from testbed.cluster import Cluster
from tests.cluster.operators import MakeOperator, MakeStream, WholeStream, watching_drivers
from tests.cluster.pods import apply

pytestmark = pytest.mark.timeout(1200)

IMAGE_USER = 65532
MOUNT = "/checkpoints"


@pytest.fixture
def volume(cluster: Cluster, namespace: str, tmp_path: Path) -> Path:
    """A folder of node1 that the claim `lake` is bound to; hostPath knows no fsGroup, so it is given to the image's user."""
    folder = tmp_path / "volume"
    folder.mkdir()
    os.chown(folder, IMAGE_USER, IMAGE_USER)
    terms = [{"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": ["node1"]}]}]
    common = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    name = f"{namespace}-lake"
    persistent_volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            **common,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": str(folder), "type": "Directory"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "lake"},
        "spec": {**common, "volumeName": name, "resources": {"requests": {"storage": "1Gi"}}},
    }
    cluster.kubectl("apply", "--filename", "-", stdin=json.dumps(persistent_volume))
    apply(cluster, namespace, claim)
    return folder


def on_claim(name: str) -> dict[str, Any]:
    """Return what a stream says of its checkpoint."""
    return {"spec.checkpoint": {"volume": {"claimName": "lake", "path": f"{MOUNT}/{name}", "mountPath": MOUNT}}}


def init_container(stream: WholeStream, attempt: int) -> dict[str, Any]:
    """Return how the kubelet reports the end of the reconciliation in an attempt's pod."""
    pod = json.loads(stream.kubectl("get", "pod", stream.driver_name(attempt), "--output=json"))
    (found,) = [entry for entry in pod["status"]["initContainerStatuses"] if entry["name"] == "reconcile"]
    return dict(found["state"]["terminated"])


@pytest.mark.seconds(140)
def test_a_stream_on_a_claim_says_what_its_volume_lacks_lands_once_halts_by_its_pods_verdict_and_leaves_its_folder(
    make_stream: MakeStream, make_operator: MakeOperator, cluster: Cluster, namespace: str, name: str, volume: Path
) -> None:
    stream = make_stream(name, {**on_claim(name), "spec.deletionPolicy": "Delete"})
    rig = stream.rig
    stream.operators.append(make_operator())
    with watching_drivers(cluster, namespace) as seen:
        rig.produce(12_000)
        os.chown(volume, 0, 0)
        stream.apply()
        stream.until(lambda: "BackingOff" in stream.reasons(), "its pod may not write the volume: it backs off")
        told = [words for reason, words in stream.events() if reason == "BackingOff"]
        assert any("Permission denied" in words and "may read and write" in words for words in told), told
        assert rig.landed() == 0
        os.chown(volume, IMAGE_USER, IMAGE_USER)

        stream.until(lambda: rig.landed() > 0, "the first batch has landed")
        stream.until(lambda: stream.phase == "Running", "it is seen to run")
        status = stream.status
        first = status["attempt"]
        generation = f"generation-000001-a{first}"
        assert (status["verdict"]["kind"], status["verdict"]["attempt"]) == ("FirstStart", first)
        assert status["checkpoint"] == {"generation": 1, "location": f"{MOUNT}/{name}/{generation}"}
        assert (status["driver"]["podName"], status["driver"]["image"]) == (
            stream.driver_name(first), stream.operators[0].image
        )  # fmt: skip
        assert (volume / name / generation / "offsets" / "0").exists()
        ended = init_container(stream, first)
        assert (ended["exitCode"], json.loads(ended["message"])["verdict"]) == (0, "FirstStart")

        cluster.kill_container(namespace, stream.driver_name(first))
        stream.until(lambda: stream.status["attempt"] == first + 1, "the next attempt is made")
        stream.until_landed_all()
        stream.until(lambda: stream.phase == "Running", "it is seen to run again")
        assert stream.status["verdict"]["kind"] in ("Resume", "ReplayBatch", "SkipLanded"), "its death was proven"
        rig.assert_exactly_once()
        stream.until(lambda: stream.status["progress"]["batch"] == rig.landed_batch(), "the batch is shown")

        stream.change({"spec.suspend": True})
        stream.until(lambda: stream.phase == "Suspended", "it is at rest")
        shutil.rmtree(volume / name / generation)
        rig.produce(1_000)
        stream.change({"spec.suspend": False, "spec.recovery": {"onCheckpointLost": "Halt"}})
        stream.until(lambda: stream.phase == "Halted", "the verdict of its pod halts it")
        verdict = stream.status["verdict"]
        assert (verdict["kind"], verdict["attempt"]) == ("Contradiction", first + 2)
        assert "The resource asks to halt here" in verdict["message"]
        assert stream.holding_condition == "Stalled: Contradiction"
        assert init_container(stream, first + 2)["exitCode"] == 2
        (driver,) = [
            entry
            for pod in stream.pods("driver")
            if pod["metadata"]["name"] == stream.driver_name(first + 2)
            for entry in pod["status"]["containerStatuses"]
        ]
        assert "running" not in driver["state"], "no driver has started"
        assert driver["started"] is False
        assert any(reason == "Contradiction" for reason, _ in stream.events())

        stream.change({"spec.recovery": {"onCheckpointLost": "RebuildFromSink"}})
        stream.until_landed_all()
        rig.assert_exactly_once()
        assert stream.status["verdict"]["kind"] == "RebuildFromSink"
    assert seen.doubled() == {}
    stream.streams.delete(stream.name)
    stream.until(lambda: stream.kubectl("get", "eos", "--output=name") == "", "the resource is gone")
    assert rig.sql("select count(*) from exactlyonce.streams") == [(0,)]
    assert (volume / name / "stream.json").exists()
    (left,) = [words for reason, words in stream.events() if reason == "LeftBehind"]
    assert f"The checkpoint stays in {MOUNT}/{name} on the claim lake" in left
    rig.assert_exactly_once()
