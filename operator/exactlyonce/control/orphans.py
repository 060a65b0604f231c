"""Pods whose stream is gone: nobody will record how they ended, so nothing keeps their records any more."""

from __future__ import annotations

import functools
from collections.abc import Callable

from exactlyonce.control.cluster import Cluster
from exactlyonce.control.lease import require_lease
from exactlyonce.control.wakeups import Key
from exactlyonce.launch.api_server import ApiServer
from exactlyonce.launch.driver_pod import Manifests
from exactlyonce.launch.kubernetes import KubernetesLauncher
from exactlyonce.launch.port import Orders
from exactlyonce.positions.ranges import Epoch


def release_orphans(cluster: Cluster, may_act: Callable[[], bool], key: Key) -> None:
    """Take the finalizer off the driver pods of a stream that is gone, as far as it really is.

    A stream that has only lost the labels of this operator's shard is another one's business.

    Raises:
        ClusterUnreachable, ApiServerUnreachable: if the API server does not answer.
    """
    if cluster.stream(key) is None:
        server = ApiServer(cluster.api, functools.partial(require_lease, may_act))
        KubernetesLauncher(server, key.namespace, key.name, "", _nothing).release_all()


def _nothing(attempt: Epoch, _orders: Orders) -> Manifests:
    raise AssertionError(f"attempt {attempt} of a stream that is gone is not started")
