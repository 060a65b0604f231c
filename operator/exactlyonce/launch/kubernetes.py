"""Drivers as pods: a `Launcher` over the API server.

Nothing is remembered: every look is a live GET. A driver pod carries a finalizer of ours, so that a deleted one keeps its
record, and with it the proof of its end and its last message, until both are in the stream's status: docs/adr/0007.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from exactlyonce.crash_points import reached
from exactlyonce.launch.api_server import CONFLICT, FORBIDDEN, Answered, ApiServer, ApiServerUnreachable
from exactlyonce.launch.driver_pod import Manifests
from exactlyonce.launch.executor_pods import has_just_started, why_idle
from exactlyonce.launch.network_secret import drawn
from exactlyonce.launch.pod_endings import Patience, Reason, is_over, state_of
from exactlyonce.launch.pod_names import (
    ATTEMPT_LABEL,
    DRIVER,
    ENDING_FINALIZER,
    EXECUTOR,
    ROLE_LABEL,
    driver_name,
    selector_of,
    ui_service_name,
)
from exactlyonce.launch.pod_nodes import NodeState, needs_node, node_state
from exactlyonce.launch.pod_template import Manifest
from exactlyonce.launch.port import (
    NO_ORDERS,
    DriverState,
    Gone,
    LaunchFailed,
    ManifestRefused,
    NeverStarted,
    NotCreated,
    Orders,
    Running,
)
from exactlyonce.launch.records import attempt_of, role_of, spec_in
from exactlyonce.positions.ranges import Epoch

_CREATED = {
    "ConfigMap": "start.config-map-created",
    "Secret": "start.network-secret-created",
    "Pod": "start.pod-created",
}
_RECORDS = ("ConfigMap", "Pod")


@dataclass
class KubernetesLauncher:
    """The drivers of one stream, as pods of its namespace. `manifests_of` makes what an attempt consists of, with its orders.

    `grace_seconds` is how long a driver may take to drain; its pod's own grace period where it is None.
    """

    server: ApiServer
    namespace: str
    stream: str
    owner_uid: str
    manifests_of: Callable[[Epoch, Orders], Manifests]
    patience: Patience = field(default_factory=Patience)
    now: Callable[[], datetime] = lambda: datetime.now(UTC)
    grace_seconds: int | None = None

    def latest(self) -> Epoch:
        """Return the highest attempt of which something with this stream's name is there, whoever made it."""
        return max((attempt_of(found) for kind in _RECORDS for found in self._listed(kind)), default=Epoch(0))

    def state_of(self, attempt: Epoch) -> DriverState:
        """Return how the driver of an attempt is, from its pod's record as it is now."""
        name = driver_name(self.stream, attempt)
        pod = self._read("Pod", name)
        if pod is None:
            # It is created after its ConfigMap: without one, nobody has come as far as to create the pod.
            if self._read("ConfigMap", name) is None:
                return NeverStarted()
            return Gone(f"The record of pod {name} is gone, and nobody has seen how it ended.", str(Reason.RECORD_LOST))
        if not self._is_ours(pod, attempt):
            return Gone(f"Pod {name} is not this stream's driver of attempt {attempt}.", str(Reason.RECORD_LOST))
        node = self._node_of(pod) if needs_node(pod) else None
        return self._with_executors(attempt, state_of(pod, node, self.patience, self.now()))

    def _with_executors(self, attempt: Epoch, state: DriverState) -> DriverState:
        """Look at the executors of a driver that runs: without any, it lands nothing and says nothing."""
        if not isinstance(state, Running) or not state.started or state.pod is None:
            return state
        started_at, now = state.pod.started_at, self.now()
        if has_just_started(started_at, now):
            return state
        found = self._listed("Pod", f",{ATTEMPT_LABEL}={attempt},{ROLE_LABEL}={EXECUTOR}")
        return replace(state, idle_message=why_idle(found, started_at, now))

    def start(self, attempt: Epoch, orders: Orders = NO_ORDERS) -> None:
        """Create what the attempt consists of; what is there already and is ours is left as it is.

        Raises:
            LaunchFailed: if the API server does not take it now, or something else has its name.
            Refused: if a pod template or a manifest cannot be taken as it is.
        """
        made: dict[str, Manifest] = {}
        for manifest in self.manifests_of(attempt, orders).all():
            kind = manifest["kind"]
            try:
                made[kind] = self._create(manifest, attempt, made.get("ConfigMap"))
            except (NotCreated, ManifestRefused):
                if "ConfigMap" in made:
                    self._take_back(attempt)
                raise
            if kind in _CREATED:
                reached(_CREATED[kind], self.namespace, self.stream)

    def rehearse(self, attempt: Epoch) -> None:
        """Ask the API server whether it would create an attempt's objects now, and create nothing.

        Quotas, service accounts and admission answer a dry run as they answer the real one. A manifest at fault is left to the
        real one, which halts the stream; so is a webhook that does not support dry runs: the status of that answer is the same.

        Raises:
            NotCreated: if one of them would be refused for something outside of the stream's resource.
        """
        for manifest in self.manifests_of(attempt, NO_ORDERS).all():
            try:
                self.server.create(manifest, dry_run=True)
            except Answered as answer:
                if answer.status != CONFLICT and not answer.blames_manifest:
                    raise self._not_created(manifest, answer) from answer

    def latest_spec(self) -> Mapping[str, Any] | None:
        """Return the spec that the latest attempt was made of, of which anything is left; None where that cannot be told."""
        return spec_in(max(self.config_maps(), key=attempt_of, default=None))

    def spec_of(self, attempt: Epoch) -> Mapping[str, Any] | None:
        """Return the spec that an attempt was made of; None where its ConfigMap is gone, or is not this stream's."""
        found = self._read("ConfigMap", driver_name(self.stream, attempt))
        return spec_in(found if found is not None and self._is_ours(found, attempt) else None)

    def drain(self, attempt: Epoch) -> None:
        """Delete the driver's pod: its kubelet asks the driver to end, and waits for the grace period."""
        pod = self._read("Pod", driver_name(self.stream, attempt))
        if pod is not None and self._is_ours(pod, attempt) and "deletionTimestamp" not in pod["metadata"]:
            self._delete(pod, "Pod", self.grace_seconds)

    def kill(self, attempt: Epoch) -> None:
        """Delete the driver's pod with the shortest grace period; its kubelet still reports its end."""
        pod = self._read("Pod", driver_name(self.stream, attempt))
        if pod is not None and self._is_ours(pod, attempt):
            self._delete(pod, "Pod", grace_seconds=1)

    def clean_up(self, recorded: Epoch, keep: int, good: Epoch | None = None) -> None:
        """Let go of the attempts up to `recorded`, whose endings are in the status, and keep the last `keep` for their logs.

        Their pods lose the finalizer; one that may still run is deleted; ended ones beyond `keep` are removed with
        their ConfigMaps, and so are executors that a driver has left behind. Doing it again is harmless. The newest ConfigMap
        stays as long as any attempt is kept: it has the last spec that could be used. That of the attempt `good` stays in any
        case: it has the spec that a bad update is rolled back to.
        """
        pods = [pod for pod in self._listed("Pod") if attempt_of(pod) <= recorded]
        drivers = [pod for pod in pods if role_of(pod) == DRIVER and self._is_ours(pod)]
        kept: set[Epoch] = set()
        for pod in sorted(drivers, key=attempt_of, reverse=True):
            deleted = "deletionTimestamp" in pod["metadata"]
            if not deleted and is_over(pod) and len(kept) < keep:
                kept.add(attempt_of(pod))
            elif not deleted:
                self._delete(pod, "Pod")
            self.release(pod)
        for pod in pods:
            if role_of(pod) == EXECUTOR and self._is_left_behind(pod):
                self._delete(pod, "Pod")
        config_maps = self.config_maps()
        if keep:
            kept |= {max(map(attempt_of, config_maps), default=recorded)}
        if good is not None:
            kept |= {good}
        for config_map in config_maps:
            if attempt_of(config_map) <= recorded and attempt_of(config_map) not in kept:
                self._delete(config_map, "ConfigMap")

    def release_all(self) -> None:
        """Let every driver's pod of this name go: there is no stream any more whose status could record its end."""
        for pod in self._listed("Pod"):
            if role_of(pod) == DRIVER:
                self.release(pod)

    def remove_service(self) -> None:
        """Remove the Service of Spark's user interface, if there is one of this stream."""
        service = self._read("Service", ui_service_name(self.stream))
        if service is not None and self._is_ours(service):
            self._delete(service, "Service")

    def release(self, pod: Manifest) -> None:
        """Take our finalizer off a driver's pod: its ending is recorded, or its stream is gone."""
        try:
            self.server.remove_finalizer(pod, ENDING_FINALIZER)
        except Answered as answer:
            raise ApiServerUnreachable(
                f"Pod {pod['metadata']['name']} is still there, because its finalizer cannot be removed: {answer}."
            ) from answer

    def _create(self, manifest: Manifest, attempt: Epoch, config_map: Manifest | None) -> Manifest:
        """Create an object and return it, or the one that is there already and is ours."""
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        owner_uid = self.owner_uid
        if kind == "Secret" and config_map is not None:
            manifest, owner_uid = drawn(manifest, config_map), config_map["metadata"]["uid"]
        try:
            return self.server.create(manifest)
        except Answered as answer:
            if answer.status == CONFLICT:
                return self._require_ours(kind, name, None if kind == "Service" else attempt, owner_uid)
            if answer.blames_manifest:
                raise ManifestRefused(
                    f"The API server refuses {kind} {name}: {answer}; change the stream's resource."
                ) from answer
            raise self._not_created(manifest, answer) from answer

    def _not_created(self, manifest: Manifest, answer: Answered) -> NotCreated:
        return NotCreated(
            f"{manifest['kind']} {self.namespace}/{manifest['metadata']['name']} cannot be created: {answer}."
        )

    def _take_back(self, attempt: Epoch) -> None:
        """Remove the ConfigMap of an attempt that was refused, and its Secret with it: it would say that its pod got lost."""
        name = driver_name(self.stream, attempt)
        try:
            config_map = self._read("ConfigMap", name) if self._read("Pod", name) is None else None
            if config_map is not None and self._is_ours(config_map, attempt):
                self._delete(config_map, "ConfigMap")
        except ApiServerUnreachable:
            return  # the attempt is told as lost then, which costs a word only

    def _require_ours(self, kind: str, name: str, attempt: Epoch | None, owner_uid: str) -> Manifest:
        found = self._read(kind, name)
        if found is None:
            raise LaunchFailed(f"{kind} {self.namespace}/{name} was there and is gone; the next try creates it.")
        if not self._is_ours(found, attempt, owner_uid):
            raise LaunchFailed(
                f"{kind} {self.namespace}/{name} exists and is not this stream's; delete it, or give the stream another name."
            )
        return found

    def _is_ours(self, found: Manifest, attempt: Epoch | None = None, owner_uid: str | None = None) -> bool:
        """Whether an object belongs to this very resource, not to an older one of its name, and to `attempt`.

        `owner_uid` is given where its owner is not the resource itself.
        """
        owners = found["metadata"].get("ownerReferences") or ()
        owned = any(owner["uid"] == (owner_uid or self.owner_uid) for owner in owners)
        return owned and attempt in (None, attempt_of(found))

    def _is_left_behind(self, executor: Manifest) -> bool:
        """Whether an executor is one of a driver that is over; Spark makes its driver's pod its owner."""
        metadata = executor["metadata"]
        driver = driver_name(self.stream, attempt_of(executor))
        owners = metadata.get("ownerReferences") or ()
        return "deletionTimestamp" not in metadata and any(owner["name"] == driver for owner in owners)

    def _node_of(self, pod: Manifest) -> NodeState | None:
        """Return how the pod's node is, or None where the operator may not read nodes."""
        try:
            return node_state(self.server.read("Node", None, pod["spec"]["nodeName"]))
        except Answered as answer:
            if answer.status == FORBIDDEN:
                return None
            raise ApiServerUnreachable(f"Node {pod['spec']['nodeName']} cannot be read: {answer}.") from answer

    def _read(self, kind: str, name: str) -> Manifest | None:
        try:
            return self.server.read(kind, self.namespace, name)
        except Answered as answer:
            raise ApiServerUnreachable(f"{kind} {self.namespace}/{name} cannot be read: {answer}.") from answer

    def _listed(self, kind: str, narrower: str = "") -> list[Manifest]:
        """Return this stream's objects of a kind; `narrower` is a further part of the selector."""
        try:
            return self.server.list(kind, self.namespace, selector_of(self.stream) + narrower)
        except Answered as answer:
            raise ApiServerUnreachable(f"Each {kind} of {self.stream} cannot be listed: {answer}.") from answer

    def config_maps(self) -> list[Manifest]:
        """Return those of this very stream's attempts."""
        return [found for found in self._listed("ConfigMap") if self._is_ours(found)]

    def _delete(self, found: Manifest, kind: str, grace_seconds: int | None = None) -> None:
        try:
            self.server.delete(found, kind, grace_seconds)
        except Answered as answer:
            name = found["metadata"]["name"]
            raise ApiServerUnreachable(f"{kind} {self.namespace}/{name} cannot be deleted: {answer}.") from answer
