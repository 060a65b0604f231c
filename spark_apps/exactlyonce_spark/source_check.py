"""What is asked of the source between reading and committing. No pyspark here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from exactlyonce.errors import ExactlyOnceError, SourceUnreachable
from exactlyonce.ledger.rows import LandedPositions
from exactlyonce.positions.fingerprint import Fingerprint, is_origin_id, is_other_origin
from exactlyonce.positions.ranges import BatchNumber, Partition, Ranges
from exactlyonce.source.connector import SourceCheck
from exactlyonce.source.port import LeaderEpochs, SourceNow
from exactlyonce_spark.planned import LandingRefused, OriginReplaced


class RecordsLost(ExactlyOnceError):
    """Retention, or a truncated log, took records before they were read; nothing of them was landed."""


class RecordsReplaced(LandingRefused):
    """Other records stand where records were that have landed, or that the batch has read; nothing was landed."""


class RecordNotShown(SourceUnreachable):
    """The source did not show a record that it had shown before, in time or at all; nothing was landed."""


class LeaderChanged(SourceUnreachable):
    """The leader of a partition changed while a batch was read; nothing was landed, and the batch is read again."""


@dataclass(frozen=True)
class KnownLog:
    """What is known of the log that a batch is read from.

    `verified` are the leaders' epochs at the latest look that compared what has landed; `begun` those just before the batch, or
    its tasks, began to read. A partition that was not asked about, or did not tell, is left out. `landed` are the fingerprints
    of the last landed records, `read` those of the last records of the batch.
    """

    verified: LeaderEpochs = field(default_factory=dict)
    begun: LeaderEpochs = field(default_factory=dict)
    landed: Mapping[Partition, Fingerprint] = field(default_factory=dict)
    read: Mapping[Partition, Fingerprint] = field(default_factory=dict)


def without_proof(
    partitions: Iterable[Partition], origin_ids: Mapping[str, str], epochs: LeaderEpochs
) -> frozenset[Partition]:
    """Return the partitions of which an epoch proves nothing: it is not told, or no origin id shows that it started over."""
    return frozenset(key for key in partitions if key not in epochs or not is_origin_id(origin_ids.get(key.origin)))


def require_all_was_there(
    source: SourceCheck,
    batch: BatchNumber,
    ranges: Ranges,
    origin_ids: Mapping[str, str],
    log: KnownLog,
    records_read: int | None = None,
) -> LeaderEpochs:
    """Require that the origins are the same and that nothing of the ranges was taken away before it was read.

    Every earliest offset must still be at or below the range's start. That tells a count smaller than the range that is
    right (compaction, transaction markers) from one that is not (retention), whatever was counted. A leader that is new since
    the latest look has to hold the records that have landed, and none may be new since the batch began to be read: what was
    read of the former one may have been lost with it. Returns the leaders' epochs as of now.

    Raises:
        RecordsLost, RecordsReplaced, OriginReplaced, LeaderChanged: nothing may be landed.
    """
    read = list(ranges.non_empty())
    if not read:
        return {}
    now = source.now(read)
    for origin, origin_id in now.origin_ids.items():
        if is_other_origin(origin_ids.get(origin), origin_id):
            raise OriginReplaced(f"{origin} was recreated while batch {batch} was read.")
    gone = {key: ranges[key] for key in read if now.earliest[key] > ranges[key].from_offset}
    if gone:
        told = ", ".join(f"{key} from {span.from_offset} to {now.earliest[key]}" for key, span in gone.items())
        counted = "" if records_read is None else f" ({records_read} of {ranges.record_count} were read)"
        raise RecordsLost(f"Retention took records of batch {batch} while it was read: {told}{counted}.")
    unproven = without_proof(read, now.origin_ids, now.leader_epochs)
    newly_led = {key for key in read if log.verified.get(key) != now.leader_epochs.get(key)}
    _require_same_records(source, batch, newly_led | unproven, log.landed, "have landed", now)
    _require_same_records(source, batch, unproven, log.read, "were read", now)
    _require_same_leaders(batch, read, log, now)
    return now.leader_epochs


def read_again_where_nothing_else_tells(
    source: SourceCheck, ranges: Ranges, origin_ids: Mapping[str, str], log: KnownLog
) -> Mapping[Partition, Fingerprint]:
    """Return the fingerprints of the last records; one that is lacking is read again where nothing else shows a new log.

    The tasks have read the records by now, so what was not there a moment ago, such as the end of a topic that was just
    recreated, is there.
    """
    lacking = without_proof((key for key in ranges.non_empty() if key not in log.read), origin_ids, log.begun)
    if not lacking:
        return log.read
    return {**log.read, **source.last_records(Ranges({key: ranges[key] for key in lacking})).result()}


def require_next_is_there(source: SourceCheck, landed: LandedPositions) -> None:
    """Require that the source is the one that has been read, and holds the next record of each partition or ends there.

    Raises:
        OriginReplaced: an origin was recreated; one that is still empty would be waited on for ever.
        RecordsLost: retention, or a truncated log, took records before they were read.
        SourceUnreachable, OriginMissing: as `SourceCheck.now`.
    """
    stands = landed.positions
    if not stands:
        return
    now = source.now(list(stands))
    for origin, origin_id in now.origin_ids.items():
        if is_other_origin(landed.origin_ids.get(origin), origin_id):
            raise OriginReplaced(f"{origin} was recreated; what has landed was read from the former one.")
    earliest = now.earliest
    told = ", ".join(f"{key} from {at} to {earliest[key]}" for key, at in stands.items() if earliest[key] > at)
    if told:
        raise RecordsLost(f"Retention took records before they were read: {told}.")


def _require_same_leaders(batch: BatchNumber, read: list[Partition], log: KnownLog, now: SourceNow) -> None:
    changed = [str(key) for key in read if key in log.begun and log.begun[key] != now.leader_epochs.get(key)]
    if changed:
        raise LeaderChanged(
            f"The leader of {', '.join(changed)} has changed while batch {batch} was read, and may not hold what was read; "
            "nothing was landed, the batch is read again."
        )


def _require_same_records(
    source: SourceCheck,
    batch: BatchNumber,
    partitions: Iterable[Partition],
    known: Mapping[Partition, Fingerprint],
    words: str,
    now: SourceNow,
) -> None:
    """Compare fingerprints with what the source holds now. Retention may have taken a record, and then nothing can be told."""
    asked = sorted(key for key in partitions if key in known)
    offsets = {key: known[key].offset for key in asked if known[key].offset >= now.earliest[key]}
    if not offsets:
        return
    found = source.records_at(offsets)
    absent = frozenset(key.origin for key in offsets if found.get(key) is None)
    compacted = source.compacted(absent) if absent else frozenset()
    differences = {key: known[key].difference(found.get(key)) for key in offsets}
    told = ", ".join(
        f"{key} at {offsets[key]} ({difference})"
        for key, difference in differences.items()
        if difference is not None and not (found.get(key) is None and key.origin in compacted)
    )
    if told:
        raise RecordsReplaced(
            f"The source lost records that {words}, and others may stand in their place: {told}. "
            f"Nothing of batch {batch} was landed."
        )
