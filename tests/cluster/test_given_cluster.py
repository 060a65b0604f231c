"""The tests of this folder take a cluster that somebody else runs, too: here it is this run's own, named by its kubeconfig."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from testbed.cluster import Cluster
from testbed.images import Images

ROOT = Path(__file__).parents[2]
KEPT, LOST = "the_last_ended_drivers_are_kept", "a_driver_of_a_lost_node_is_given_up"


@pytest.mark.timeout(600)
def test_a_given_cluster_runs_what_needs_no_more_of_it_and_skips_the_rest_with_the_reason(
    cluster: Cluster, images: Images, tmp_path: Path
) -> None:
    environment = {
        **os.environ,
        "TEST_KUBECONFIG": str(cluster.kubeconfig),
        "TEST_HOST_ADDRESS": cluster.host_address,
        "EVERY_MODE": "1",
        "TEST_IMAGES": f"{images.operator},{images.spark}",
        "PATH": f"{cluster.kubectl_program.parent}:{os.environ['PATH']}",
    }
    command = [sys.executable, "-m", "pytest", "-rs", "-p", "no:cacheprovider", f"--basetemp={tmp_path / 'inner'}"]
    command += ["tests/cluster/test_driver_pods.py", "-k", f"{KEPT} or {LOST}"]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"1 passed, 1 skipped", done.stdout), done.stdout
    assert "stops the kubelet of a node, which only a cluster of its own allows: unset TEST_KUBECONFIG" in done.stdout


def test_a_cluster_that_is_given_by_half_is_refused_with_what_is_missing(tmp_path: Path) -> None:
    environment = {**os.environ, "TEST_KUBECONFIG": str(tmp_path / "config")}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "tests/cluster/test_driver_pods.py"]
    done = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True, text=True, timeout=100)
    assert done.returncode != 0
    assert "TEST_KUBECONFIG needs TEST_HOST_ADDRESS" in done.stdout + done.stderr
