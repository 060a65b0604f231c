"""Which loads of a decided batch wait for an answer: as the ledger has them, or as far as the status of a stream tells."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from exactlyonce.api.resource import parse_stream
from exactlyonce.api.status import Phase
from exactlyonce.errors import ExactlyOnceError, Refused
from exactlyonce.ledger.known_loads import told_spans
from exactlyonce.ledger.rows import LedgerView

if TYPE_CHECKING:
    from exactlyonce.control.cluster_reader import ClusterReader  # the Kubernetes client takes half a second to import


class NothingToSettle(Refused):
    """Nothing was written: there is nothing to answer for, or an answer is for a load that the stream has not recorded."""


@dataclass(frozen=True, slots=True)
class DecidedLoads:
    """The loads of a decided batch by the names that answers have, each with what is told of it; `loads` is their number.

    `not_read` says why the ledger was not read. Then the loads are those of the latest verdict, which may be older than the
    batch, or than what a driver has done of it since: there may be others, and `batch` is None where it names none at all.
    `message` is what the stream says of itself, which may name some, too. `found` is the name of a load that the sink has
    committed and that the ledger does not know; it is among the others.
    """

    stream: str
    batch: int | None
    named: Mapping[str, str]
    loads: int
    message: str = ""
    not_read: str = ""
    found: str = ""

    def names(self, label: str) -> bool:
        """Whether a load is among those that are known, or the message names it."""
        return label in self.named or label in re.split(r"[\s,;=]+", self.message)


def loads_in_ledger(stream: str, view: LedgerView | None, message: str = "") -> DecidedLoads:
    """Return all loads that wait, as the ledger has them.

    Raises:
        NothingToSettle: if no batch is decided, and the sink has none that the ledger does not know.
    """
    decided, found = (None, None) if view is None else (view.decided, view.stream.loads.found)
    if found is not None and found.label:
        named = {found.label: f"{found.rows} rows of {told_spans(found.spans)}, which the ledger does not know"}
        return DecidedLoads(stream, found.batch, named, 1, message, found=found.label)
    if decided is None:
        raise _nothing_decided(stream)
    named = {one.answered_as: f"{one.rows} rows of {one.ranges}" for one in decided.committables}
    return DecidedLoads(stream, decided.batch, named, len(named), message)


def loads_in_status(resource: Mapping[str, Any], not_read: str) -> DecidedLoads:
    """Return the loads that the status of a stream of a cluster tells of, where its ledger was not read.

    A driver that decided its batch while it ran has left the verdict that it was started by: only its last message tells.

    Raises:
        NothingToSettle: if the verdict names no decided batch and the stream has not halted.
    """
    status, stream = resource.get("status") or {}, _key(resource)
    message = str(status.get("message") or "")
    evidence = (status.get("verdict") or {}).get("evidence") or ()
    told = next((item for item in evidence if "labels" in item), None)
    if told is not None:
        labels = dict.fromkeys(map(str, told["labels"]), "")
        return DecidedLoads(stream, int(told["batch"]), labels, int(told["loads"]), message, not_read)
    if status.get("phase") != Phase.HALTED:
        raise _nothing_decided(stream, f" That is by its status; its ledger is not read from here: {not_read}")
    return DecidedLoads(stream, None, {}, 0, message, not_read)


def loads_in_cluster(cluster: ClusterReader, resource: Mapping[str, Any]) -> DecidedLoads:
    """Return the loads that the ledger of a stream of a cluster has, or those of its status where that cannot be read.

    A person who may not read the ledger, or is in a network that does not reach it, can answer nevertheless.

    Raises:
        NothingToSettle: if no batch is decided.
    """
    from exactlyonce.cli.cluster_offsets import cluster_ledger

    try:
        stream = parse_stream(dict(resource), _key(resource))
        view = cluster_ledger(cluster, stream).view(stream.stream_id)
    except ExactlyOnceError as problem:
        return loads_in_status(resource, str(problem))
    if view is None or view.stream.owner.uid != resource["metadata"]["uid"]:
        # A path of the operator's may be another folder on this machine, and a ledger that was moved is no longer this one.
        return loads_in_status(resource, "what is found from here is not this resource's.")
    return loads_in_ledger(_key(resource), view, str((resource.get("status") or {}).get("message") or ""))


def _key(resource: Mapping[str, Any]) -> str:
    return f"{resource['metadata']['namespace']}/{resource['metadata']['name']}"


def _nothing_decided(stream: str, more: str = "") -> NothingToSettle:
    return NothingToSettle(f"{stream} has no batch that is decided and waits for its sink; nothing was written.{more}")
