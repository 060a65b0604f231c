"""Put one stream together with its cluster: stores from its secrets, a launcher for its pods, its status."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from exactlyonce.api.checkpoint import Checkpoint
from exactlyonce.api.model import SecretRef, parse_duration
from exactlyonce.api.resource import Stream
from exactlyonce.api.spec import OPERATORS_OWN, StreamSpec
from exactlyonce.checkpoint.locations import open_store
from exactlyonce.checkpoint.store import ErasableStore
from exactlyonce.control.cluster import Cluster
from exactlyonce.control.resource_status import ResourceStatus
from exactlyonce.control.stream_pass import Parts, owner_is_gone, owner_of, plan_of
from exactlyonce.errors import Refused, SecretMissing
from exactlyonce.launch.api_server import ApiServer
from exactlyonce.launch.driver_pod import Manifests, manifests_of
from exactlyonce.launch.kubernetes import KubernetesLauncher
from exactlyonce.launch.pod_endings import Patience
from exactlyonce.launch.pod_settings import PodDefaults, resolve
from exactlyonce.ledger.postgres import PostgresLedger
from exactlyonce.ledger.postgres_connection import PostgresAddress
from exactlyonce.monitor.targets import Target, target_of
from exactlyonce.offsets import Epoch
from exactlyonce.reconcile.loop import World
from exactlyonce.reconcile.observe import Stores
from exactlyonce.reconcile.progress import Pace
from exactlyonce.source.kafka import KafkaBounds

_DEFAULT_DRAIN = timedelta(minutes=5)


class LocationOutOfReach(Refused):
    """The checkpoint is kept where the operator's pod does not reach."""


@dataclass(frozen=True)
class ClusterParts:
    """Puts streams of one cluster together. Nothing is connected to until a pass asks for it.

    `watch` is told where each stream is measured, `troubled` of each error that ends a pass.
    """

    cluster: Cluster
    defaults: PodDefaults
    patience: Patience = field(default_factory=Patience)
    watch: Callable[[Target], None] = lambda target: None
    troubled: Callable[[Exception], None] = lambda problem: None
    pace: Pace = field(default_factory=lambda: Pace(time.monotonic))

    def of(
        self,
        stream: Stream,
        document: Mapping[str, Any],
        statuses: ResourceStatus,
        report: Callable[[str, str], None],
    ) -> Parts:
        """Return the parts of a stream.

        Raises:
            SecretMissing: if a secret that it names is not there.
            ImageMissing: if no image is named for its pods.
        """
        spec, namespace = stream.spec, stream.metadata.namespace
        sink, kafka, checkpoint = spec.sink.postgres, spec.source.kafka, spec.checkpoint
        address = PostgresAddress.from_secret(sink.secret_ref.name, self._secret(namespace, sink.secret_ref))
        kafka_secret = self._secret(namespace, kafka.secret_ref)
        self.watch(target_of(stream, kafka_secret, address))
        stores = Stores(
            PostgresLedger(address, sink.ledger_schema),
            self._store(checkpoint, namespace),
            KafkaBounds(kafka, kafka_secret),
        )
        uid = document["metadata"]["uid"]

        def manifests(attempt: Epoch) -> Manifests:
            return manifests_of(resolve(stream, attempt, uid, self.defaults))

        manifests(Epoch(1))  # what cannot be made of the resource is said before anything is decided
        patience = replace(self.patience, start=spec.driver.start_timeout)
        launcher = self._launcher(document, manifests, patience)
        world = World(
            stores,
            launcher,
            statuses,
            owner_of(self.cluster, document),
            functools.partial(owner_is_gone, self.cluster),
            report,
            _now,
            functools.partial(self.pace.is_due, uid),
            self.troubled,
        )
        return Parts(world, driver_plan(spec), launcher.clean_up)

    def launcher_of(self, document: Mapping[str, Any]) -> KubernetesLauncher:
        """Return a launcher that can look at, drain and remove drivers, of a resource that may be invalid."""

        def no_manifests(attempt: Epoch) -> Manifests:
            raise AssertionError(f"attempt {attempt} of a stream that is being deleted is not started")

        return self._launcher(document, no_manifests, self.patience)

    def _launcher(
        self, document: Mapping[str, Any], manifests: Callable[[Epoch], Manifests], patience: Patience
    ) -> KubernetesLauncher:
        metadata = document["metadata"]
        server = ApiServer(self.cluster.api)
        return KubernetesLauncher(server, metadata["namespace"], metadata["name"], metadata["uid"], manifests, patience)

    def _store(self, checkpoint: Checkpoint, namespace: str) -> ErasableStore:
        if not checkpoint.is_on_s3:
            raise LocationOutOfReach(
                f"The checkpoint location {checkpoint.location} is a folder, which the operator cannot see from its own pod; "
                "give an s3a:// location."
            )
        return open_store(checkpoint, self._secret(namespace, checkpoint.secret_ref))

    def _secret(self, namespace: str, reference: SecretRef | None) -> Mapping[str, str]:
        if reference is None:
            return {}
        found = self.cluster.secret(namespace, reference.name)
        if found is None:
            raise SecretMissing(f"Secret {namespace}/{reference.name} is not there; create it.")
        return found

    def stores_of(self, stream: Stream) -> tuple[PostgresLedger, ErasableStore]:
        """Return where a stream's ledger rows and checkpoint are, to take them away.

        Raises:
            SecretMissing, LocationOutOfReach: if they cannot be reached.
        """
        spec, namespace = stream.spec, stream.metadata.namespace
        sink = spec.sink.postgres
        address = PostgresAddress.from_secret(sink.secret_ref.name, self._secret(namespace, sink.secret_ref))
        return PostgresLedger(address, sink.ledger_schema), self._store(spec.checkpoint, namespace)


def drain_timeout_of(document: Mapping[str, Any]) -> timedelta:
    """Return the drain time-out of a resource that may be invalid."""
    given = (document.get("spec") or {}).get("drainTimeout")
    try:
        return _DEFAULT_DRAIN if given is None else parse_duration(given)
    except ValueError:
        return _DEFAULT_DRAIN


def driver_plan(spec: StreamSpec) -> str:
    """Return what stands for the driver that a spec asks for, from what its user wrote alone.

    What the operator adds (its default image, the form of its manifests) is left out: an upgrade restarts no driver.
    """
    return plan_of(spec.differences(*OPERATORS_OWN))


def _now() -> datetime:
    return datetime.now(UTC)
