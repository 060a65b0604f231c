"""The attempts of one StreamReplay as pods: how each is, what it has reported, and what all of them are to land."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from exactlyonce.launch.api_server import Answered, ApiServerUnreachable
from exactlyonce.launch.asked_ranges import AskedRange
from exactlyonce.launch.driver_pod import Manifests
from exactlyonce.launch.kubernetes import KubernetesLauncher
from exactlyonce.launch.pod_names import driver_name
from exactlyonce.launch.pod_template import Manifest
from exactlyonce.launch.port import DriverState
from exactlyonce.launch.records import attempt_of
from exactlyonce.launch.replay_document import ReplayReport
from exactlyonce.launch.replay_pod import ReplayOrders, asked_in, report_in, sink_in
from exactlyonce.positions.ranges import Epoch


class ReplayPods(Protocol):
    """Runs the attempts of one replay; nothing is remembered."""

    def state_of(self, attempt: Epoch) -> DriverState:
        """Return how the pod of an attempt is, now."""
        ...

    def report(self, attempt: Epoch) -> ReplayReport | None:
        """Return what an attempt has left, None where it left nothing that can be read."""
        ...

    def asked(self) -> tuple[AskedRange, ...] | None:
        """Return the ranges that the latest attempt was given, None where there is no trace of one."""
        ...

    def sink(self, attempt: Epoch) -> Mapping[str, Any] | None:
        """Return the sink that an attempt was started for, None where nothing tells."""
        ...

    def start(self, attempt: Epoch, orders: ReplayOrders) -> None:
        """Start an attempt; one that is there already is left as it is.

        Raises:
            LaunchFailed: if it cannot be started now.
            Refused: if what it is made of cannot be taken as it is.
        """
        ...

    def kill(self, attempt: Epoch) -> None:
        """End an attempt; doing it again is harmless."""
        ...

    def drain(self, attempt: Epoch) -> None:
        """Ask an attempt to end after the current chunk; asking again is harmless."""
        ...


@dataclass(frozen=True)
class KubernetesReplayPods:
    """The attempts of one replay on Kubernetes. `launcher` starts nothing: what is made differs with the orders."""

    launcher: KubernetesLauncher
    manifests_of: Callable[[Epoch, ReplayOrders], Manifests]

    def state_of(self, attempt: Epoch) -> DriverState:
        """Return how the pod of an attempt is, from its record as it is now."""
        return self.launcher.state_of(attempt)

    def report(self, attempt: Epoch) -> ReplayReport | None:
        """Return what an attempt has left as its termination message."""
        pod = self._read("Pod", attempt)
        return None if pod is None else report_in(pod)

    def asked(self) -> tuple[AskedRange, ...] | None:
        """Return the ranges in the ConfigMap of the latest attempt that has one."""
        latest_first = sorted(self.launcher.config_maps(), key=attempt_of, reverse=True)
        return asked_in(latest_first)

    def sink(self, attempt: Epoch) -> Mapping[str, Any] | None:
        """Return the sink in the ConfigMap of an attempt."""
        config_map = self._read("ConfigMap", attempt)
        return None if config_map is None else sink_in(config_map)

    def _read(self, kind: str, attempt: Epoch) -> Manifest | None:
        namespace, name = self.launcher.namespace, driver_name(self.launcher.stream, attempt)
        try:
            return self.launcher.server.read(kind, namespace, name)
        except Answered as answer:
            raise ApiServerUnreachable(f"{kind} {namespace}/{name} cannot be read: {answer}.") from answer

    def start(self, attempt: Epoch, orders: ReplayOrders) -> None:
        """Create the attempt's ConfigMap and its pod."""
        manifests = self.manifests_of(attempt, orders)
        replace(self.launcher, manifests_of=lambda _attempt, _orders: manifests).start(attempt)

    def kill(self, attempt: Epoch) -> None:
        """Delete the pod with the shortest grace period."""
        self.launcher.kill(attempt)

    def drain(self, attempt: Epoch) -> None:
        """Delete the pod; its kubelet asks the process to end, and waits for the grace period."""
        self.launcher.drain(attempt)
