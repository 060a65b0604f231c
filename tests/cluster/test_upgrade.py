"""The operator is upgraded from the previous commit's chart and images while a stream runs: no driver restarts for it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from testbed.images import ROOT, Images, images_of_other_code
from tests.cluster.charts import Helm, Release
from tests.cluster.operators import WholeStream, watching_drivers
from tests.rig import eventually

pytestmark = pytest.mark.timeout(1800)

SYSTEM = "exactlyonce-upgraded"
CHART = Path("charts/exactlyonce-operator")
BEYOND = {
    "spec.source.kafka.start": {"from": "Offsets", "offsets": [{"topic": "no-such-topic", "partition": 0, "offset": 7}]}
}
"""A start that no topic has: the operator refuses it without a driver."""


@pytest.fixture
def previous_tree(tmp_path: Path) -> Path:
    """The tree of the commit before this one."""
    folder = tmp_path / "previous"
    folder.mkdir()
    git = ["git", "-C", str(ROOT)]
    found = subprocess.run([*git, "rev-parse", "--verify", "HEAD~1"], check=False, capture_output=True, text=True)
    if found.returncode:
        pytest.skip("There is no commit before this one here (a shallow clone?); `git fetch --unshallow` brings it.")
    archive = subprocess.run([*git, "archive", found.stdout.strip()], check=True, capture_output=True).stdout
    subprocess.run(["tar", "--extract", f"--directory={folder}"], check=True, input=archive)
    if not (folder / CHART / "Chart.yaml").exists():
        pytest.skip("The commit before this one has no chart.")
    return folder


@pytest.mark.seconds(70)
def test_an_upgrade_from_the_previous_commit_restarts_no_driver_and_the_next_attempt_is_of_the_new_release(
    cluster: Cluster, images: Images, previous_tree: Path, stream: WholeStream, namespace: str, tmp_path: Path
) -> None:
    old = images_of_other_code(images, previous_tree)
    cluster.load_layout(old.layout)
    cluster.kubectl("create", "namespace", SYSTEM)
    helm = Helm(cluster.helm_program, tmp_path, cluster.kubeconfig)
    before = Release(helm, cluster, old, SYSTEM, (namespace,), chart=previous_tree / CHART)
    after = replace(before, images=images, chart=ROOT / CHART)
    rig = stream.rig
    try:
        # The definition is there, made by other tests of this run, and the previous commit may have had another one.
        before.install(None, "--take-ownership", "--force-conflicts")
        halted = replace(stream, name=f"{stream.name}-halted", changes={**stream.changes, **BEYOND})
        with watching_drivers(cluster, namespace) as seen:
            rig.produce(4_000)
            stream.apply()
            stream.until_landed_all()
            (driver,) = stream.pods("driver")
            assert driver["spec"]["containers"][0]["image"] == old.spark
            halted.apply()
            halted.until(lambda: halted.phase == "Halted", "another stream has halted")
            told = halted.status["message"]
            assert "source.kafka.start.offsets" in told

            after.upgrade()
            stream.change({"spec.history": 2})  # what no driver reads
            generation = stream.resource["metadata"]["generation"]
            stream.until(lambda: stream.status["observedGeneration"] == generation, "the new operator has looked")
            (same,) = stream.pods("driver")
            assert same["metadata"]["uid"] == driver["metadata"]["uid"]
            rig.produce(2_000)
            stream.until_landed_all()
            assert stream.status["attempt"] == 1

            stream.change({"spec.restartNonce": 1})
            stream.until_lands(2)
            stream.until_landed_all()
            images_used = {
                pod["metadata"]["name"]: pod["spec"]["containers"][0]["image"] for pod in stream.pods("driver")
            }
            assert images_used[stream.driver_name(2)] == images.spark
        rig.assert_exactly_once()
        assert seen.doubled() == {}
        assert (halted.phase, halted.status["message"]) == ("Halted", told)
        assert halted.reasons()["Halted"] == 1, "the new operator has left it to a person"
        halted.streams.delete(halted.name)
        stream.streams.delete(stream.name)
        eventually(lambda: stream.kubectl("get", "eos", "--output=name") == "", "it has drained and is gone", 180)
    finally:
        after.uninstall()
        cluster.kubectl("delete", "namespace", SYSTEM, "--wait=false")
