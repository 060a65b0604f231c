"""Put one stream together with its cluster: stores from its secrets, a launcher for its pods, its status."""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.api.ledger import ledger_of
from exactlyonce.api.resource import Stream
from exactlyonce.api.spec import StreamSpec
from exactlyonce.assembly import ledger_address
from exactlyonce.checkpoint.locations import StoreInPods, store_name
from exactlyonce.checkpoint.store import ErasableStore
from exactlyonce.control.checkpoint_stores import (
    measured_beside,
    operators_store,
    require_ledger_in_reach,
    source_in_reach,
)
from exactlyonce.control.cluster import Cluster
from exactlyonce.control.guarded_stores import Erasable, GuardedLedger, GuardedLogStore, GuardedSource, Opened, Opening
from exactlyonce.control.incomplete import assembling, rehearsing
from exactlyonce.control.lease import require_lease
from exactlyonce.control.operator_locations import NO_LOCATIONS, OperatorLocations
from exactlyonce.control.operator_sources import NO_SOURCES, OperatorSources
from exactlyonce.control.owners import owner_is_gone, owner_of
from exactlyonce.control.pass_ports import PassPorts
from exactlyonce.control.resource_hashes import driver_plan
from exactlyonce.control.resource_status import ResourceStatus
from exactlyonce.control.rollback import defaults_in_force, stream_made_of
from exactlyonce.control.shared import Shared
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import ExactlyOnceError, SecretMissing
from exactlyonce.launch.api_server import ApiServer
from exactlyonce.launch.driver_pod import START_SECONDS, Manifests, manifests_of
from exactlyonce.launch.kubernetes import KubernetesLauncher
from exactlyonce.launch.pod_endings import Patience
from exactlyonce.launch.pod_settings import PodDefaults, resolve
from exactlyonce.launch.port import NO_ORDERS, Orders
from exactlyonce.ledger.connector import LedgerAddress
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.monitor.targets import Watch, target_of
from exactlyonce.positions.ranges import Epoch
from exactlyonce.reconcile.observe import Stores
from exactlyonce.reconcile.pass_context import Attempts, PassContext, Place, Reporter, Timing
from exactlyonce.schema.model import SecretRef, parse_duration

_DEFAULT_DRAIN = timedelta(minutes=5)

_KNOWN_SECONDS = 900.0
"""How long the secrets of a driver that runs are not read again; the next attempt reads them in any case."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What is known of a resource whose stores were opened: its version, and how its ledger was reached then."""

    uid: str
    generation: int
    address: LedgerAddress
    until: float

    @classmethod
    def of(cls, document: Mapping[str, Any], address: LedgerAddress, now: float) -> _Known:
        metadata = document["metadata"]
        return cls(metadata["uid"], metadata["generation"], address, now + _KNOWN_SECONDS)

    def is_of(self, document: Mapping[str, Any], now: float) -> bool:
        """Whether it is of this very version of the resource, and not too old."""
        metadata = document["metadata"]
        return (self.uid, self.generation) == (metadata["uid"], metadata["generation"]) and now < self.until


@dataclass(frozen=True)
class StreamAssembly:
    """Puts streams of one cluster together. Nothing is connected to until a pass asks for it.

    `may_act` is asked before anything in the cluster is changed. `watch` is told where each stream is measured, and what is
    `measured_beside` it; `note_problem` of each error that ends a pass. `locations` and `sources` are
    those that an administrator lets the operator reach with its own login. A launch reads every secret again; a
    pass over a driver that runs reads none, unless it is the first over this version of the resource.
    """

    cluster: Cluster
    defaults: PodDefaults
    patience: Patience = field(default_factory=Patience)
    may_act: Callable[[], bool] = lambda: True
    watch: Watch = lambda target, checkpoint, files: None
    note_problem: Callable[[Exception], None] = lambda problem: None
    shared: Shared = field(default_factory=Shared)
    locations: OperatorLocations = NO_LOCATIONS
    sources: OperatorSources = NO_SOURCES
    clock: Callable[[], float] = time.monotonic
    known: dict[Key, _Known] = field(default_factory=dict, init=False)

    def of(
        self,
        stream: Stream,
        document: Mapping[str, Any],
        statuses: ResourceStatus,
        report: Callable[[str, str], None],
    ) -> PassPorts:
        """Return the ports of a stream; its secrets are read when a store is asked for the first time.

        What is missing, such as a secret or an image, is told by `StreamIncomplete` from the first question to a store, from
        the context's `check` and from `introduce`: never before the loop has looked at the driver.
        """
        spec, metadata = stream.spec, document["metadata"]
        key, uid = Key(stream.metadata.namespace, stream.metadata.name), metadata["uid"]
        at_shown = self.shared.bulkheads.shown(key.namespace)
        opening = Opening.for_a_pass(functools.partial(self._opened, stream, document), self.clock)
        stores = Stores(
            GuardedLedger(opening),
            GuardedLogStore(spec.checkpoint.location.rstrip("/"), opening),
            GuardedSource(spec.source.spec.address, opening, at_shown),
        )

        @functools.lru_cache(maxsize=1)
        def manifests(attempt: Epoch, orders: Orders) -> Manifests:
            defaults = defaults_in_force(self.defaults, stream, statuses.read()[0])
            return manifests_of(resolve(stream, attempt, uid, defaults, orders))

        def check() -> None:
            with assembling():
                manifests(Epoch(statuses.read()[0].attempt + 1), NO_ORDERS)
            _ = opening.opened

        def introduce() -> None:
            known = self.known.get(key)
            if known is None or not known.is_of(document, self.clock()):
                check()

        patience = replace(self.patience, start=spec.driver.start_timeout)
        launcher = self._launcher(document, manifests, patience)
        context = PassContext(
            stores,
            Attempts(launcher, check, rehearsing(lambda: launcher.rehearse(Epoch(statuses.read()[0].attempt + 1)))),
            statuses,
            Place(
                owner_of(self.cluster, document),
                functools.partial(owner_is_gone, self.cluster),
                in_pod=lambda: isinstance(opening.opened.checkpoints, StoreInPods),
                asks_again=True,
            ),
            Reporter(report, self.note_problem),
            Timing(_now, lambda: self.shared.rate_limit.is_due(uid), functools.partial(self._glance, key, opening)),
        )

        def clean_up(recorded: Epoch, keep: int) -> None:
            good = statuses.read()[0].last_good
            launcher.clean_up(recorded, keep, None if good is None else Epoch(good.attempt))
            if not spec.spark_ui.enabled:
                launcher.remove_service()

        return PassPorts(context, driver_plan(spec), clean_up, introduce)

    def last_made(self, document: Mapping[str, Any]) -> Stream | None:
        """Return a stream as the spec of its latest attempt has it, with the metadata of today; None where it cannot be had.

        Raises:
            ApiServerUnreachable: if the API server does not answer.
        """
        return stream_made_of(document, self.launcher_of(document).latest_spec())

    def made_by(self, document: Mapping[str, Any], attempt: Epoch) -> Stream | None:
        """Return a stream as the spec of one of its attempts has it, with the metadata of today; None where it cannot be had.

        Raises:
            ApiServerUnreachable: if the API server does not answer.
        """
        return stream_made_of(document, self.launcher_of(document).spec_of(attempt))

    def forget(self, key: Key) -> None:
        """Drop what is known of a stream that is gone."""
        self.known.pop(key, None)
        self.shared.bulkheads.forget(key)

    def _opened(self, stream: Stream, document: Mapping[str, Any]) -> Opened:
        """Open the stores of a stream with its secrets as they are now."""
        spec, namespace = stream.spec, stream.metadata.namespace
        key = Key(namespace, stream.metadata.name)
        secrets = functools.partial(self.secret, namespace)
        with assembling():
            address = self.address_of_ledger(spec, namespace)
            source = source_in_reach(spec.source, namespace, secrets, self.sources)
            names = (address.store_name(namespace), store_name(spec.checkpoint), source.store_name(namespace))
            at_ledger, at_checkpoints, at_source = (self.shared.bulkheads.store(name) for name in names)
            checkpoints = self._store(spec.checkpoint, namespace)
            opened = Opened(
                self.shared.clients.ledger(address),
                at_ledger,
                checkpoints,
                at_checkpoints,
                self.shared.clients.source(source),
                at_source,
            )
            self.watch(target_of(stream, source, address), *measured_beside(checkpoints, source))
        self.shared.bulkheads.belongs(key, *names)
        self.known[key] = _Known.of(document, address, self.clock())
        return opened

    def _glance(self, key: Key, opening: Opening, stream_id: str) -> LedgerView | None:
        """Look at a ledger for what is only shown, with the login that was good when the stores were opened last."""
        known = self.known.get(key)
        if known is None:
            return opening.opened.ledger.view(stream_id)
        try:
            with self.shared.bulkheads.store(known.address.store_name(key.namespace)).entered():
                return self.shared.clients.ledger(known.address).view(stream_id)
        except ExactlyOnceError:
            self.known.pop(key, None)  # the secret may be another by now: the next pass reads it
            raise

    def launcher_of(self, document: Mapping[str, Any]) -> KubernetesLauncher:
        """Return a launcher that can look at, drain and remove drivers, of a resource that may be invalid."""

        def no_manifests(attempt: Epoch, _orders: Orders) -> Manifests:
            raise AssertionError(f"attempt {attempt} of a stream that is deleted or has no spec is not started")

        return self._launcher(document, no_manifests, self.patience)

    def _launcher(
        self, document: Mapping[str, Any], manifests: Callable[[Epoch, Orders], Manifests], patience: Patience
    ) -> KubernetesLauncher:
        metadata = document["metadata"]
        server = ApiServer(self.cluster.api, functools.partial(require_lease, self.may_act))
        # As the resource has it now: a pod that runs was made with what it said then, and keeps that where it says nonsense.
        timeout = _drain_timeout(document)
        grace_seconds = None if timeout is None else math.ceil(timeout.total_seconds()) + START_SECONDS
        return KubernetesLauncher(
            server,
            metadata["namespace"],
            metadata["name"],
            metadata["uid"],
            manifests,
            patience,
            grace_seconds=grace_seconds,
        )

    def _store(self, checkpoint: Checkpoint, namespace: str) -> ErasableStore:
        return operators_store(checkpoint, namespace, self.secret(namespace, checkpoint.secret_ref), self.locations)

    def address_of_ledger(self, spec: StreamSpec, namespace: str) -> LedgerAddress:
        """Return where a stream's ledger is, or raise LocationOutOfReach."""
        ledger = ledger_of(spec)
        secret = self.secret(namespace, ledger.spec.secret_ref)
        require_ledger_in_reach(ledger, namespace, secret, self.locations)
        return ledger_address(spec, lambda _: secret)

    def secret(self, namespace: str, reference: SecretRef | None) -> Mapping[str, str]:
        """Return what a secret holds, or raise SecretMissing."""
        if reference is None:
            return {}
        found = self.cluster.secret(namespace, reference.name)
        if found is None:
            raise SecretMissing(f"Secret {namespace}/{reference.name} is not there; create it.")
        return found

    def erasable(self, stream: Stream) -> Erasable:
        """Return where a stream's ledger rows and checkpoint are, to take them away.

        Raises:
            SecretMissing, LocationOutOfReach: if they cannot be reached.
        """
        spec, namespace = stream.spec, stream.metadata.namespace
        address = self.address_of_ledger(spec, namespace)
        checkpoints = self._store(spec.checkpoint, namespace)
        names = (address.store_name(namespace), store_name(spec.checkpoint))
        self.shared.bulkheads.belongs(Key(namespace, stream.metadata.name), *names)
        at_ledger, at_checkpoints = (self.shared.bulkheads.store(name) for name in names)
        return Erasable(self.shared.clients.ledger(address), at_ledger, checkpoints, at_checkpoints)


def drain_timeout_of(document: Mapping[str, Any]) -> timedelta:
    """Return the drain time-out of a resource that may be invalid."""
    return _drain_timeout(document) or _DEFAULT_DRAIN


def _drain_timeout(document: Mapping[str, Any]) -> timedelta | None:
    given = (document.get("spec") or {}).get("drainTimeout")
    try:
        return _DEFAULT_DRAIN if given is None else parse_duration(given)
    except (TypeError, ValueError):
        return None


def _now() -> datetime:
    return datetime.now(UTC)
