"""`python -m exactlyonce.control`: the operator's process."""

from __future__ import annotations

import asyncio
import functools
import signal
import sys
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from typing import Any

import kopf
from aiohttp import web
from kubernetes import client, config
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from exactlyonce.api.conditions import rendered
from exactlyonce.control.allowlists import admitted_stream, still_admitted
from exactlyonce.control.bulkheads import Bulkheads
from exactlyonce.control.cluster import GROUP, PLURAL, VERSION, Cluster
from exactlyonce.control.deletion import Deletion
from exactlyonce.control.erase import erase
from exactlyonce.control.health import Health
from exactlyonce.control.kopf_storages import NoDiffs, NoProgress
from exactlyonce.control.lease import KubernetesLeaseStore, Lease
from exactlyonce.control.lifecycle import Operator
from exactlyonce.control.logs import configure_logs
from exactlyonce.control.metrics import OperatorMetrics
from exactlyonce.control.metrics_page import MetricsPage
from exactlyonce.control.observer import Observer
from exactlyonce.control.orphans import release_orphans
from exactlyonce.control.pass_ports import Leaving, Making, Writing
from exactlyonce.control.passes import Passes
from exactlyonce.control.replay_cluster import ReplayCluster
from exactlyonce.control.replay_pass import ReplayPasses
from exactlyonce.control.replay_step import StepPorts
from exactlyonce.control.replay_stores import ClusterReplayStores
from exactlyonce.control.rollback import Rollback
from exactlyonce.control.settings import OperatorSettings, read_settings
from exactlyonce.control.shared import Shared
from exactlyonce.control.stream_assembly import StreamAssembly, drain_timeout_of
from exactlyonce.control.stream_pass import StreamPasses
from exactlyonce.control.wakeups import Key, WakeUps
from exactlyonce.launch.pod_names import DRIVER, ROLE_LABEL
from exactlyonce.monitor.collector import StreamCollector
from exactlyonce.monitor.monitor import Monitor

_WATCHED_PAGE = 50  # a resource may have 1.4 MB
_IDLE_SECONDS = 0.5
"""How long kopf keeps a task with the last event of each object: the first list brings one of every object."""


def connect(workers: int) -> client.ApiClient:
    """Return a client for the cluster this process runs in, or for the one that KUBECONFIG names."""
    try:
        config.load_incluster_config()  # type: ignore[no-untyped-call] # the client has no types here
    except config.ConfigException:
        config.load_kube_config()  # type: ignore[no-untyped-call] # as above
    configuration = client.Configuration.get_default_copy()
    configuration.connection_pool_maxsize = workers + 4
    configuration.retries = False
    return client.ApiClient(configuration)


def build(settings: OperatorSettings, api: client.ApiClient, registry: CollectorRegistry) -> Operator:
    """Put the operator together; `registry` gets its metrics."""
    cluster = Cluster.connect(api)
    lease_store = KubernetesLeaseStore(client.CoordinationV1Api(api), settings.lease_namespace, settings.lease_name)
    lease = Lease(settings.identity, lease_store, time.monotonic, settings.lease_times)
    metrics = OperatorMetrics(registry)
    monitor = Monitor(on_problem=metrics.store_failed)
    registry.register(StreamCollector(monitor, lambda: lease.is_held, time.time, settings.partition_series))
    observer = Observer(monitor, metrics)
    bulkheads = Bulkheads(settings.workers)

    def may_act() -> bool:
        return lease.is_held

    assembly = StreamAssembly(
        cluster,
        settings.defaults,
        may_act=may_act,
        watch=observer.watch,
        note_problem=metrics.note_problem,
        shared=Shared(bulkheads=bulkheads),
        locations=settings.locations,
        sources=settings.sources,
    )
    deletion = Deletion(cluster, assembly.launcher_of, drain_timeout_of, functools.partial(erase, assembly), may_act)
    admitted = functools.partial(still_admitted, allowlists=settings.allowlists, defaults=settings.defaults)
    default = settings.defaults.image
    rollback = Rollback(
        lambda document, attempt: admitted(assembly.made_by(document, attempt)),
        None if default is None else default.name,
    )
    parsed = functools.partial(admitted_stream, allowlists=settings.allowlists, defaults=settings.defaults)
    passes = StreamPasses(
        cluster,
        Making(
            assembly.of,
            parsed,
            lambda document: admitted(assembly.last_made(document)),
            assembly.launcher_of,
        ),
        Writing(lambda status, resource: rendered(status, resource, datetime.now(UTC)), may_act),
        Leaving(deletion.run, assembly.forget, functools.partial(release_orphans, cluster, may_act)),
        observer,
        rollback,
        settings.selector,
    )
    wakeups = WakeUps(time.monotonic, bulkheads.may_run)
    metrics.measure(lambda: wakeups.waiting, may_act, f"{settings.lease_namespace}/{settings.lease_name}")
    replays = ReplayCluster(cluster)

    def every_key() -> list[Key]:
        return [*cluster.keys(settings.namespaces, settings.selector), *replays.keys(settings.namespaces)]

    steps = StepPorts(ClusterReplayStores(assembly), parsed)
    both = Passes(passes, ReplayPasses(replays, steps, may_act, settings.selector, observer.replays))
    watched = replays.can_be_watched(settings.namespaces)
    return Operator(wakeups, both, lease, settings.workers, every_key, observer, settings.monitor_seconds, watched)


def kopf_settings(settings: OperatorSettings) -> kopf.OperatorSettings:
    """Return kopf's settings: nothing is posted, patched or marked by it; it only watches."""
    given = kopf.OperatorSettings()
    given.posting.enabled = False
    given.watching.chunk_size = _WATCHED_PAGE  # a list of all streams, replays or pods is never whole in memory
    given.queueing.idle_timeout = _IDLE_SECONDS
    given.watching.label_selectors["", "v1", "pods"] = f"{ROLE_LABEL}={DRIVER}"
    given.persistence.finalizer = "exactlyonce.dev/kopf"  # never set: no handler needs it
    given.persistence.diffbase_storage, given.persistence.progress_storage = NoDiffs(), NoProgress()
    given.networking.error_backoffs = (1, 1, 2, 3, 5)  # after them it lists and watches again, for ever
    given.scanning.disabled = True  # the definition is there before the operator, and its namespaces are named or all
    if settings.selector:
        given.watching.label_selectors[GROUP, VERSION, PLURAL] = settings.selector
    return given


async def run(settings: OperatorSettings) -> None:
    """Run until SIGTERM or SIGINT."""
    api = connect(settings.workers)
    metrics = _metrics_of_the_process()
    operator = await asyncio.to_thread(build, settings, api, metrics)
    registry = kopf.OperatorRegistry()
    kopf.on.login(registry=registry)(lambda **given: kopf.login_via_client(**given))
    operator.register(registry)
    watching, unwatch = asyncio.Event(), asyncio.Event()
    page = MetricsPage(metrics)
    runner = web.AppRunner(Health(operator, time.monotonic, watching.is_set, page).application(), access_log=None)
    await runner.setup()
    await web.TCPSite(runner, port=settings.health_port).start()
    watches = kopf.operator(
        registry=registry,
        settings=kopf_settings(settings),
        standalone=True,
        clusterwide=not settings.namespaces,
        namespaces=settings.namespaces,
        stop_flag=unwatch,
        ready_flag=watching,
    )
    try:
        await _together(watches, watching, unwatch, operator)
    finally:
        await runner.cleanup()
        await page.end()


async def _together(
    watches: Coroutine[Any, Any, None], watching: asyncio.Event, unwatch: asyncio.Event, operator: Operator
) -> None:
    """Run watches and passes until one of them ends or a signal comes; passes end first.

    kopf takes the signals for itself as it starts, and as it ends it cancels every task that it does not know.
    """
    stop = asyncio.Event()
    watch = asyncio.create_task(watches, name="kopf")
    work = asyncio.create_task(operator.run(stop), name="operator")
    started = asyncio.create_task(watching.wait(), name="started")
    await asyncio.wait([watch, work, started], return_when=asyncio.FIRST_COMPLETED)
    started.cancel()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stop.set)
    await asyncio.wait([watch, work], return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.wait([work])
    unwatch.set()
    await asyncio.wait([watch])
    for task in (work, watch):
        if not task.cancelled():
            task.result()


def _metrics_of_the_process() -> CollectorRegistry:
    """Return a registry with the memory, CPU time and garbage of this process."""
    disable_created_metrics()  # type: ignore[no-untyped-call] # a moment beside each counter that nobody asks for
    registry = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=registry)
    return registry


def main() -> int:
    """Read the settings and run."""
    settings = read_settings()
    configure_logs(settings.log_format)
    asyncio.run(run(settings))
    return 0


if __name__ == "__main__":
    sys.exit(main())
