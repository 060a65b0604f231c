"""What the ledger says of a folder of files, held against what readers are shown: for who changes it beside drivers.

A ledger that was restored to an earlier moment, or another ledger that has a stream of this name, would call files dispensable
that readers count. So the folder has to be this stream's under this very ledger, and what readers are shown must not be ahead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from exactlyonce.checkpoint.store import OutputStore
from exactlyonce.connectors.files.manifest import Manifest, digest_of
from exactlyonce.connectors.files.replayed import replayed_manifests
from exactlyonce.connectors.files.shown import latest_shown, read_shown, require_all_named
from exactlyonce.connectors.files.spark_log import LogUnfit, latest_compaction, require_not_ahead
from exactlyonce.connectors.files.tenancy import Tenant, require_own
from exactlyonce.ledger.port import Ledger, LedgerTransaction, Lock
from exactlyonce.ledger.replay_decisions import made_visible
from exactlyonce.ledger.rows import FailureStatus, StreamRow
from exactlyonce.positions.ranges import BatchNumber
from exactlyonce.sink.files import StreamUnknown


@dataclass(frozen=True, slots=True)
class Standing:
    """A stream's files at one moment of its ledger.

    `latest` is the latest batch that Spark's readers were shown before that moment, and `shown` are the URIs of the files that
    they were shown. `replayed` is what replays have landed and no batch has taken over: it counts, and Spark's readers are not
    shown it yet. `replaying` are the digests of the tokens of replays that hold ranges, and may land files.
    """

    tenant: Tenant
    stream: StreamRow
    manifests: Mapping[BatchNumber, Manifest]
    latest: BatchNumber | None
    shown: frozenset[str]
    replayed: tuple[Manifest, ...] = ()
    replaying: frozenset[str] = frozenset()


def standing(store: OutputStore, ledger: Ledger, stream_id: str, latest: BatchNumber | None) -> Standing:
    """Look, while drivers may be running. `latest` was listed before.

    What readers are shown is read before the ledger: it has landed by then, and what a compaction shows them was in the ledger
    first. A refusal counts only if they are still shown the same; else the look begins again, at what is the latest by then.

    Raises:
        StreamUnknown: if the ledger does not know the stream.
        PathOfAnother: if the folder is not this stream's, or was written with another ledger.
        LogUnfit: if readers are shown what this ledger does not know.
    """
    own = require_own(store, stream_id, ledger.identity())
    while True:
        shown = read_shown(store, store.location, latest)
        found = _read(ledger, stream_id, store.location)
        require_not_ahead(latest, found.stream.landed_batch, has_former=own.former_batch is not None)
        try:
            require_all_named(shown, store.location, found.manifests.values())
        except LogUnfit:
            now = latest_shown(store)
            # Behind a later compaction readers are not shown the former one, which nobody changes any more.
            is_read = latest_compaction(now) == latest_compaction(latest)
            if is_read and read_shown(store, store.location, latest) == shown:
                raise
            latest = now
        else:
            paths = frozenset(path for of_entry in shown.values() for path in of_entry)
            return Standing(own, found.stream, found.manifests, latest, paths, found.replayed, found.replaying)


@dataclass(frozen=True, slots=True)
class _Read:
    """What one transaction has read."""

    stream: StreamRow
    manifests: Mapping[BatchNumber, Manifest]
    replayed: tuple[Manifest, ...]
    replaying: frozenset[str]


def _read(ledger: Ledger, stream_id: str, location: str) -> _Read:
    with ledger.transaction() as transaction:
        stream = transaction.lock_stream(stream_id, Lock.SHARE)
        manifests = manifests_in(transaction, stream_id)
        replayed = replayed_manifests(made_visible(transaction.read_replayed(stream_id)))
        held = transaction.read_failures(stream_id, FailureStatus.REPLAYING)
    if stream is None:
        raise StreamUnknown(
            f"The stream {stream_id} was deleted from the ledger while its files were listed, so it cannot say which files in "
            f"{location} count; nothing was changed."
        )
    return _Read(stream, manifests, replayed, frozenset(digest_of(row.replay) for row in held))


def manifests_in(transaction: LedgerTransaction, stream_id: str) -> dict[BatchNumber, Manifest]:
    """Return every manifest of a stream.

    Raises:
        ManifestUnreadable: if one is not of the form that this release reads.
    """
    committables = transaction.read_committables(stream_id)
    return {batch: Manifest.from_json(batch, text) for batch, text in committables.items()}
