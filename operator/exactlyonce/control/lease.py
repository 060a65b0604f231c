"""Which of several operators acts: a Lease of coordination.k8s.io, held by renewing it.

The Lease only saves work; safety is epoch, claim and published path. Still, who lost it stops before another may start: a
holder counts its time from before the request that renewed, and for less time than the others wait.

The election of the Kubernetes client library is not used: it ends on a connection that breaks, reads the wall clock, and cannot
say until when the Lease is held. Source of the rules: client-go, tools/leaderelection/leaderelection.go.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from exactlyonce.errors import ExactlyOnceError


class NotLeading(ExactlyOnceError):
    """The Lease was lost: another operator may act from now on, and this one does not."""


def require_lease(may_act: Callable[[], bool]) -> None:
    """Return if this operator may act now.

    Raises:
        NotLeading: if it may not.
    """
    if not may_act():
        raise NotLeading("The Lease is held by another operator.")


class LeaseConflict(Exception):
    """Another operator has written the Lease since it was read."""


class LeaseUnreachable(Exception):
    """The API server did not answer; nothing is known."""


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What the Lease says; `version` is its resourceVersion, None where there is no Lease yet."""

    holder: str | None
    transitions: int
    renewed: str
    version: str | None
    acquired: str = ""


class LeaseStore(Protocol):
    """Where the Lease is kept, with optimistic concurrency."""

    def read(self) -> LeaseRecord:
        """Return the Lease as it is now.

        Raises:
            LeaseUnreachable: if the API server does not answer.
        """
        ...

    def write(self, record: LeaseRecord, duration_seconds: int) -> LeaseRecord:
        """Create or replace the Lease of that version.

        Raises:
            LeaseConflict, LeaseUnreachable: if it was not written, or that is not known.
        """
        ...


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long a Lease is left to a silent holder, how long a holder trusts its last renewal, and how often it renews."""

    duration_seconds: float = 15.0
    trust_seconds: float = 10.0
    renew_seconds: float = 2.0

    def __post_init__(self) -> None:
        """A holder must stop trusting before the others may take over."""
        assert self.renew_seconds < self.trust_seconds < self.duration_seconds


@dataclass
class Lease:
    """One candidate. `step` is called every `times.renew_seconds`; `is_held` is asked before every act."""

    identity: str
    store: LeaseStore
    clock: Callable[[], float]
    times: LeaseTimes = field(default_factory=LeaseTimes)
    _held_until: float = float("-inf")
    _seen: tuple[str | None, str] | None = None
    _seen_at: float = 0.0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_held(self) -> bool:
        """Whether this operator may act now."""
        return self.clock() < self._held_until

    def step(self) -> bool:
        """Renew the Lease, or take it when its holder has been silent for its duration; return whether it is held."""
        with self._lock:
            with suppress(LeaseConflict, LeaseUnreachable):  # what was held is trusted until its time is over
                self._step()
            return self.is_held

    def release(self) -> None:
        """Give the Lease up, so that another operator need not wait for its end."""
        with self._lock:
            held, self._held_until = self.is_held, float("-inf")
            if not held:
                return
            try:
                record = self.store.read()
                if record.holder == self.identity:
                    self.store.write(replace(record, holder=None), 1)
            except (LeaseConflict, LeaseUnreachable):
                return

    def _step(self) -> None:
        begun = self.clock()
        record = self.store.read()
        if record.holder not in (None, "", self.identity) and not self._is_silent(record):
            self._held_until = float("-inf")
            return
        now = _moment(datetime.now(UTC))
        taken_over = record.holder != self.identity
        renewed = LeaseRecord(
            self.identity,
            record.transitions + (1 if taken_over and record.version is not None else 0),
            now,
            record.version,
            now if taken_over else record.acquired,
        )
        self.store.write(renewed, int(self.times.duration_seconds))
        self._held_until = begun + self.times.trust_seconds

    def _is_silent(self, record: LeaseRecord) -> bool:
        """Whether the holder has not renewed for the Lease's duration, by this process's own clock."""
        now = self.clock()
        if self._seen != (record.holder, record.renewed):
            self._seen, self._seen_at = (record.holder, record.renewed), now
        return now - self._seen_at >= self.times.duration_seconds


def _moment(time: datetime) -> str:
    """Return a time as the API server takes a MicroTime: with six digits, a T and a Z."""
    return time.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


class KubernetesLeaseStore:
    """The Lease of a namespace, by the Kubernetes client."""

    def __init__(self, api: Any, namespace: str, name: str, timeout_seconds: float = 4.0) -> None:
        self._api = api
        self._namespace = namespace
        self._name = name
        self._timeout_seconds = timeout_seconds

    def read(self) -> LeaseRecord:
        """Return the Lease; one without a version where there is none."""
        from kubernetes.client import ApiException

        try:
            lease = self._api.read_namespaced_lease(self._name, self._namespace, _request_timeout=self._timeout_seconds)
        except ApiException as problem:
            if problem.status == 404:
                return LeaseRecord(None, 0, "", None)
            raise LeaseUnreachable(str(problem.status)) from problem
        except Exception as problem:  # what the HTTP library raises when the connection breaks
            raise LeaseUnreachable(str(problem)) from problem
        spec = lease.spec
        return LeaseRecord(
            spec.holder_identity,
            spec.lease_transitions or 0,
            "" if spec.renew_time is None else _moment(spec.renew_time),
            lease.metadata.resource_version,
            "" if spec.acquire_time is None else _moment(spec.acquire_time),
        )

    def write(self, record: LeaseRecord, duration_seconds: int) -> LeaseRecord:
        """Create the Lease, or replace the version that was read."""
        from kubernetes.client import ApiException

        body = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": self._name, "namespace": self._namespace, "resourceVersion": record.version},
            "spec": {
                "holderIdentity": record.holder,
                "leaseDurationSeconds": duration_seconds,
                "leaseTransitions": record.transitions,
                "renewTime": record.renewed,
                "acquireTime": record.acquired or None,
            },
        }
        try:
            if record.version is None:
                del body["metadata"]["resourceVersion"]  # type: ignore[attr-defined] # a dict of dicts
                self._api.create_namespaced_lease(self._namespace, body, _request_timeout=self._timeout_seconds)
            else:
                self._api.replace_namespaced_lease(
                    self._name, self._namespace, body, _request_timeout=self._timeout_seconds
                )
        except ApiException as problem:
            if problem.status in (404, 409):
                raise LeaseConflict(str(problem.reason)) from problem
            raise LeaseUnreachable(str(problem.status)) from problem
        except Exception as problem:  # as above
            raise LeaseUnreachable(str(problem)) from problem
        return record
