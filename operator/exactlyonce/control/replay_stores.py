"""What a pass over a StreamReplay asks of the stream's ledger and source, and how the replay's pods are put together."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Protocol

from exactlyonce.api.resource import Stream
from exactlyonce.api.source import Source
from exactlyonce.api.stream_replay import StreamReplay
from exactlyonce.control.bulkheads import Store
from exactlyonce.control.checkpoint_stores import source_in_reach
from exactlyonce.control.deadline import NEVER, Deadline
from exactlyonce.control.lease import require_lease
from exactlyonce.control.owners import owner_of
from exactlyonce.control.replay_found import found_in
from exactlyonce.control.replay_keys import replays_of
from exactlyonce.control.replay_ledger import LOOKS_SECONDS, GuardedReplayLedger, ReplayLedger
from exactlyonce.control.stream_assembly import StreamAssembly
from exactlyonce.control.wakeups import Key
from exactlyonce.errors import ExactlyOnceError, Refused
from exactlyonce.launch.api_server import ApiServer
from exactlyonce.launch.backfill import Span, parts_of
from exactlyonce.launch.driver_pod import Manifests
from exactlyonce.launch.kubernetes import KubernetesLauncher
from exactlyonce.launch.pod_names import launched_as
from exactlyonce.launch.port import Orders
from exactlyonce.launch.replay_pod import ReplayOrders, replay_manifests
from exactlyonce.launch.replay_pods import KubernetesReplayPods, ReplayPods
from exactlyonce.ledger.history import RecordedFailure
from exactlyonce.ledger.replay_rules import why_not
from exactlyonce.ledger.rows import FailureRow, Owner
from exactlyonce.positions.ranges import Epoch, Positions
from exactlyonce.reconcile.between_times import FoundBetween, found_between
from exactlyonce.reconcile.replay_choice import Shown, one_of_each_partition
from exactlyonce.source.connector import SourceAddress, SourceCheck

PASS_SECONDS = 300.0
"""So long one pass over replays may ask its stores; with the longest calls it stays below what `health` condemns."""


class ReplayStores(Protocol):
    """What a pass over the replays of a stream works with."""

    def for_a_pass(self) -> ReplayStores:
        """Return the same for a pass that begins now, and which may not ask for ever."""
        ...

    def ledger(self, stream: Stream) -> ReplayLedger:
        """Return the stream's ledger; its secrets are read for that."""
        ...

    def shown(self, stream: Stream, kept: Sequence[RecordedFailure], life: str) -> tuple[Shown, ...]:
        """Return what ledger and source say of each range; a source that cannot be asked is told of each."""
        ...

    def between(self, stream: Stream, begin: datetime, until: datetime, landed: Positions | None) -> FoundBetween:
        """Return what of the stream's source lies between two moments, as far as `landed`, or to where the source ends now."""
        ...

    def parts(self, stream: Stream, spans: Sequence[Span]) -> tuple[FailureRow, ...]:
        """Return ranges as a backfill would record them; those that the source does not hold are refused."""
        ...

    def pods(self, replay: StreamReplay, document: Mapping[str, Any], stream: Stream | None) -> ReplayPods:
        """Return the attempts of a replay; without a stream none can be started."""
        ...

    def owner(self, stream: Mapping[str, Any]) -> Owner:
        """Return whose a stream is, as its ledger has it."""
        ...

    def forget(self, stream: Key) -> None:
        """Drop what is known of a stream that has no replay any more."""
        ...


@dataclass(frozen=True)
class ClusterReplayStores:
    """The stores of the streams of one cluster, reached as the streams' own passes reach them."""

    assembly: StreamAssembly
    deadline: Deadline = NEVER

    def for_a_pass(self) -> ClusterReplayStores:
        """Return the stores of a pass that begins now."""
        return replace(self, deadline=self.deadline.within(PASS_SECONDS))

    def ledger(self, stream: Stream) -> ReplayLedger:
        """Return the stream's ledger.

        Raises:
            SecretMissing, LocationOutOfReach: if it cannot be reached.
        """
        shared, namespace = self.assembly.shared, stream.metadata.namespace
        address = self.assembly.address_of_ledger(stream.spec, namespace)
        name = address.store_name(namespace)
        shared.bulkheads.belongs(replays_of(Key(namespace, stream.metadata.name)), name)
        return GuardedReplayLedger(shared.clients.ledger(address), shared.bulkheads.store(name), self.deadline)

    def shown(self, stream: Stream, kept: Sequence[RecordedFailure], life: str) -> tuple[Shown, ...]:
        """Return what ledger and source say of each range."""
        refused = {it.identifier: why_not(it.row, life) for it in kept}
        told = {it.identifier: Shown(it, None, refused[it.identifier] or "") for it in kept}
        asked = [it for it in kept if refused[it.identifier] is None and not it.row.is_decided]
        try:
            source, at_source = self._source(stream)
            looks = self.deadline.within(LOOKS_SECONDS)
            for group in one_of_each_partition(asked):
                with nullcontext() if looks.is_over else at_source.entered():
                    told |= {it.kept.identifier: it for it in found_in(source, group, looks)}
        except Refused as problem:
            told |= {it.identifier: Shown(it, None, f"the source was not asked: {problem}") for it in asked}
        return tuple(told.values())

    def parts(self, stream: Stream, spans: Sequence[Span]) -> tuple[FailureRow, ...]:
        """Return ranges as the source has them."""
        source, at_source = self._source(stream)
        looks = self.deadline.within(LOOKS_SECONDS)
        with at_source.entered():
            return parts_of(source, spans, lambda: not looks.is_over)

    def between(self, stream: Stream, begin: datetime, until: datetime, landed: Positions | None) -> FoundBetween:
        """Return what lies between two moments."""
        _, at_source = self._at_source(stream, stream.spec.source)
        with at_source.entered():
            return found_between(
                begin, until, landed, stream.spec.source, lambda source: self._at_source(stream, source)[0].open()
            )

    def _source(self, stream: Stream) -> tuple[SourceCheck, Store]:
        address, at_source = self._at_source(stream, stream.spec.source)
        return address.open(), at_source

    def _at_source(self, stream: Stream, source: Source) -> tuple[SourceAddress, Store]:
        namespace = stream.metadata.namespace
        secrets = functools.partial(self.assembly.secret, namespace)
        address = source_in_reach(source, namespace, secrets, self.assembly.sources)
        self.deadline.require()
        bulkheads, name = self.assembly.shared.bulkheads, address.store_name(namespace)
        bulkheads.belongs_too(replays_of(Key(namespace, stream.metadata.name)), name)
        return address, bulkheads.store(name)

    def pods(self, replay: StreamReplay, document: Mapping[str, Any], stream: Stream | None) -> ReplayPods:
        """Return the attempts of a replay."""
        metadata = document["metadata"]
        server = ApiServer(self.assembly.cluster.api, functools.partial(require_lease, self.assembly.may_act))
        launcher = KubernetesLauncher(
            server,
            metadata["namespace"],
            launched_as(metadata["name"]),
            metadata["uid"],
            _nothing,
            self.assembly.patience,
        )

        def manifests_of(attempt: Epoch, orders: ReplayOrders) -> Manifests:
            assert stream is not None, "what names no stream is not started"
            return replay_manifests(replay, metadata["uid"], stream, attempt, self.assembly.defaults, orders)

        return KubernetesReplayPods(launcher, manifests_of)

    def owner(self, stream: Mapping[str, Any]) -> Owner:
        """Return whose a stream is."""
        return owner_of(self.assembly.cluster, stream)

    def forget(self, stream: Key) -> None:
        """Drop which stores the replays of a stream have."""
        self.assembly.shared.bulkheads.forget(replays_of(stream))


def _nothing(attempt: Epoch, _orders: Orders) -> Manifests:
    raise ExactlyOnceError(f"attempt {attempt} of a replay is started with its ranges alone")
