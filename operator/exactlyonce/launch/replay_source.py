"""What a source says of ranges that are to be replayed: asked once, for the replay itself and for whoever only looks."""

from __future__ import annotations

from collections.abc import Sequence

from exactlyonce.ledger.replay_rules import SourceFacts
from exactlyonce.ledger.rows import FailureRow
from exactlyonce.source.connector import SourceCheck


def facts_of(source: SourceCheck, rows: Sequence[FailureRow]) -> SourceFacts:
    """Return what the source holds now where these ranges are, each in a partition of its own.

    The record where a range's last one was is asked for only where the source still holds that position.

    Raises:
        SourceUnreachable, SourceRefused, OriginMissing: by situation.
    """
    now = source.now([row.partition for row in rows])
    offsets = {
        row.partition: row.fingerprint.offset
        for row in rows
        if row.fingerprint is not None and row.fingerprint.offset >= now.earliest[row.partition]
    }
    records = source.records_at(offsets) if offsets else {}
    found = {partition: records.get(partition) for partition in offsets}
    absent = frozenset(partition.origin for partition, record in found.items() if record is None)
    compacted = source.compacted(absent) if absent else frozenset[str]()
    return SourceFacts(now.earliest, now.origin_ids, found, compacted)
