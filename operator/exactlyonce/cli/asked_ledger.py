"""The ledger of a stream of a FILE or of a cluster, opened to be looked at; and how what it holds is printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.cli.targets import cluster_of, is_of_a_cluster, looked_at
from exactlyonce.ledger.connector import OpenLedger


@dataclass(frozen=True)
class AskedLedger:
    """A stream and what its ledger keeps."""

    stream: Stream
    ledger: OpenLedger

    def position(self, position: int) -> int | str:
        """Return a position as the stream's source writes it: a number where positions count records."""
        source = self.stream.spec.source.spec
        return position if source.positions_count_records else source.position_text(position)


def asked_ledger(target: str, options: Mapping[str, Any]) -> AskedLedger:
    """Return the ledger that a command is about; nothing is connected to yet.

    Raises:
        ExactlyOnceError: if the stream, or the secret with the ledger's login, cannot be read.
    """
    if not is_of_a_cluster(target):
        opened = looked_at(target, options)
        return AskedLedger(opened.stream, opened.ledger)
    from exactlyonce.cli.cluster_offsets import cluster_ledger

    cluster, namespace = cluster_of(options)
    stream = parse_stream(cluster.stream(namespace, target), f"{namespace}/{target}")
    return AskedLedger(stream, cluster_ledger(cluster, stream))
