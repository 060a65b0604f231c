"""`python -m testbed`: a cluster of two nodes with the project's images, until Ctrl-C."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
from pathlib import Path

from testbed import cache, cluster_tools
from testbed.cluster import Cluster
from testbed.image_store import ensure_store
from testbed.images import ensure_images


def main() -> int:
    """Bring the cluster up, tell how to reach it, and end it when asked to."""
    parser = argparse.ArgumentParser(prog="python -m testbed", description=__doc__)
    parser.add_argument("--nodes", type=int, default=2, help="how many nodes, from 1 to 9")
    options = parser.parse_args()
    lack = cluster_tools.missing()
    if lack is not None:
        print(lack, file=sys.stderr)
        return 1
    screen = cache.Screen()
    images = ensure_images(screen)
    store = ensure_store(images, screen)
    screen.end()
    for ending in (signal.SIGINT, signal.SIGTERM):
        # Of SIGINT too: a shell without job control starts what runs in the background with it ignored.
        signal.signal(ending, signal.default_int_handler)
    folder = tempfile.TemporaryDirectory(prefix="exactlyonce-cluster-")
    with folder, Cluster(Path(folder.name), options.nodes, store) as cluster:
        try:
            print(f"export KUBECONFIG={cluster.kubeconfig}")
            print(f"export PATH={cluster.kubectl_program.parent}:$PATH    # kubectl, helm")
            print(f"# images: {images.operator} {images.spark}")
            print(
                f"# servers on this machine that pods must reach listen on {cluster.host_address}; Ctrl-C ends it",
                flush=True,
            )
            signal.pause()
        except KeyboardInterrupt:
            print("# ending", file=sys.stderr)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
