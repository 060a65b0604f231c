"""`make cluster` ends when it is asked to, however it was started."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

IN_THE_BACKGROUND = """
import sys
from pathlib import Path
from testbed import __main__ as testbed

class NoCluster:
    kubeconfig, kubectl_program, host_address = Path("/k"), Path("/bin/kubectl"), "127.0.0.1"
    def __init__(self, *given): pass
    def __enter__(self): return self
    def __exit__(self, *problem): print("ended", flush=True)

testbed.cluster_tools.missing = lambda: None
testbed.ensure_images = lambda screen: type("Images", (), {"operator": "o", "spark": "s"})
testbed.ensure_store = lambda images, screen: None
testbed.Cluster = NoCluster
sys.argv[1:] = []
sys.exit(testbed.main())
"""


@pytest.mark.timeout(60)
@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM], ids=lambda it: it.name)
def test_a_cluster_that_was_started_in_the_background_ends_in_order(ending: signal.Signals) -> None:
    """A shell without job control starts what runs in the background with SIGINT ignored, and children inherit that."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        process = subprocess.Popen([sys.executable, "-c", IN_THE_BACKGROUND], stdout=subprocess.PIPE, text=True)
    finally:
        signal.signal(signal.SIGINT, before)
    assert process.stdout is not None
    try:
        while "Ctrl-C ends it" not in process.stdout.readline():
            assert process.poll() is None
        process.send_signal(ending)
        assert process.stdout.read() == "ended\n"
        assert process.wait() == 0
    finally:
        process.kill()
        process.stdout.close()
        process.wait()
