"""Is the source still the one that was read, and does it hold the next records? Performs no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime

from exactlyonce.api.recovery import OnTopicDeleted
from exactlyonce.api.resource import FRESH
from exactlyonce.ledger.rows import BatchRow, BatchStatus, LedgerView
from exactlyonce.positions.fingerprint import Fingerprint, is_origin_id, is_other_origin
from exactlyonce.positions.ranges import PARTITION_END, Partition, Positions
from exactlyonce.reconcile.deleted_topics import deleted_origins, forgotten, may_forget, recreated_origins
from exactlyonce.reconcile.kept_state import keeps_state
from exactlyonce.reconcile.observation import Observation, Request
from exactlyonce.reconcile.source_change import added_partitions, returned_positions
from exactlyonce.reconcile.verdicts import Evidence, SourceReplaced


def source_replaced(seen: Observation, ledger: LedgerView) -> SourceReplaced | None:
    """A topic is gone or was recreated, a partition is gone, what landed lies beyond the source's end, or it is not there."""
    evidence = [*_replaced_topics(seen, ledger), *_replaced_partitions(seen, ledger), *_replaced_records(seen, ledger)]
    if not evidence:
        return None
    told = "; ".join(item.words for item in evidence)
    return SourceReplaced(
        f"The source is not the one this stream has read: {told}. Restore it, {_without_the_topics(seen, ledger)}"
        f"let a stream with another streamId read the new one, or annotate {FRESH}={ledger.stream.token} to start over on it.",
        tuple(evidence),
    )


def _without_the_topics(seen: Observation, ledger: LedgerView) -> str:
    """How a stream continues without the topics that are gone; nothing where it cannot."""
    gone, recreated = deleted_origins(seen, ledger), recreated_origins(seen, ledger)
    if keeps_state(seen) or not (gone or recreated) or not seen.source.selected:
        return ""
    if seen.request.source.pattern is None:
        return f"take {', '.join(sorted(gone))} out of what the source names to continue without, " if gone else ""
    if not may_forget(seen, ledger) or seen.request.on_topic_deleted is OnTopicDeleted.FORGET:
        return ""
    what = (
        "what is gone and read what was recreated from its first record"
        if recreated
        else f"the {seen.request.origin_noun}s that are gone"
    )
    return f"set recovery.onTopicDeleted to Forget to continue without {what}, "


def first_missing(seen: Observation, ledger: LedgerView) -> dict[Partition, tuple[int, int]]:
    """Return, for each partition that lacks its next record, the offset wanted and the earliest one held.

    A partition that appeared since is wanted from its first record; one that a changed resource has added begins where its
    start says, which the source holds.
    """
    missing, known = {}, _expected(seen, ledger)
    for key in sorted(seen.source.selected - added_partitions(seen.request, seen.source, ledger)):
        wanted, earliest = known.get(key, 0), seen.source.bounds[key].earliest
        if earliest > wanted:
            missing[key] = (wanted, earliest)
    return missing


def missing_words(request: Request, missing: Mapping[Partition, tuple[int, int]]) -> str:
    """Return how many records the source no longer holds, as far as positions tell, and between which."""
    shown = request.position_text
    told = ", ".join(f"{key} [{shown(wanted)}, {shown(earliest)})" for key, (wanted, earliest) in missing.items())
    if not request.positions_count_records:
        return f"The source no longer holds records that have not landed, and how many is not known: {told}"
    count = sum(earliest - wanted for wanted, earliest in missing.values())
    return f"The source no longer holds {count} records that have not landed: {told}"


def missing_evidence(request: Request, missing: Mapping[Partition, tuple[int, int]]) -> tuple[Evidence, ...]:
    """Return what is gone of each partition."""
    return tuple(
        Evidence(
            f"{key}: {_missing_of_one(request, wanted, earliest)}",
            {"topic": key.origin, "partition": key.key, "from": wanted, "until": earliest},
        )
        for key, (wanted, earliest) in missing.items()
    )


def last_seen(request: Request, ledger: LedgerView, missing: Collection[Partition]) -> tuple[Evidence, ...]:
    """Return when partitions last held what is gone, as far as that is known: each landing asks for those that it has read.

    Where positions do not count records, a range from the start of a partition tells nothing: nothing in front of it could be
    asked for, and it lands as well where all of it has expired.
    """
    left, evidence = set(missing), []
    rows = [row for row in (*ledger.earlier, *ledger.batches) if row.status is BatchStatus.LANDED]
    for row in sorted(rows, key=lambda row: row.batch, reverse=True):
        ranges = row.ranges.non_empty()
        read = sorted(key for key in left & ranges.keys() if request.positions_count_records or ranges[key].from_offset)
        if row.landed_at is not None and read:
            left -= set(read)
            evidence.append(_seen_in(row, row.landed_at, [str(key) for key in read]))
    return tuple(evidence)


def _seen_in(row: BatchRow, landed_at: datetime, read: list[str]) -> Evidence:
    moment = landed_at.astimezone(UTC).isoformat(timespec="seconds")
    words = f"{', '.join(read)} still held what comes next when batch {row.batch} landed, at {moment}"
    return Evidence(words, {"batch": row.batch, "landedAt": moment, "partitions": read})


def _missing_of_one(request: Request, wanted: int, earliest: int) -> str:
    shown = request.position_text
    if earliest == PARTITION_END:
        return f"it has landed up to {shown(wanted)} and does not exist any more; how many records it still held is not known"
    if not request.positions_count_records:
        return (
            f"the next position is {shown(wanted)}, the earliest held is {shown(earliest)}; how many records are gone is not "
            "known"
        )
    return f"the next record is {wanted}, the earliest held is {earliest}: {earliest - wanted} are gone"


def cannot_tell(seen: Observation, ledger: LedgerView) -> tuple[Evidence, ...]:
    """What would show that the source was replaced and cannot be asked: said, so that silence is no proof."""
    topics = _known_origin_ids(seen, ledger)
    unknown = sorted(
        topic
        for topic, known in topics.items()
        if topic in seen.source.origin_ids and not (is_origin_id(known) and is_origin_id(seen.source.origin_ids[topic]))
    )
    evidence = []
    if unknown:
        words = f"whether {', '.join(unknown)} was recreated cannot be told by its id: then or now the source had none"
        evidence.append(Evidence(words, {"topics": unknown}))
    for why, keys in _not_compared(seen, ledger).items():
        told = ", ".join(str(key) for key in keys)
        words = f"whether the last records that landed of {told} are still the same cannot be told: {why}"
        evidence.append(Evidence(words, {"partitions": [str(key) for key in keys]}))
    return tuple(evidence)


def _expected(seen: Observation, ledger: LedgerView) -> Positions:
    """Where the stream stands in what the resource reads and the stream has read, now or before, and what is still there."""
    gone = forgotten(seen, ledger).stood
    landed = ledger.landed.positions
    read = {key: offset for key, offset in landed.items() if seen.request.source.reads(key) and key not in gone}
    return Positions({**read, **returned_positions(seen, ledger)})


def _replaced_topics(seen: Observation, ledger: LedgerView) -> list[Evidence]:
    evidence, settled, noun = [], forgotten(seen, ledger), seen.request.origin_noun
    ids = {**dict.fromkeys(deleted_origins(seen, ledger), ""), **_known_origin_ids(seen, ledger)}
    for topic, known in sorted(ids.items()):
        current = seen.source.origin_ids.get(topic)
        if topic in settled.topics | settled.recreated:
            continue
        if current is None:
            evidence.append(Evidence(f"{noun} {topic} does not exist any more", {"topic": topic, "id": known}))
        elif is_other_origin(known, current):
            words = f"{noun} {topic} was recreated (its id was {known} and is {current})"
            evidence.append(Evidence(words, {"topic": topic, "id": known, "found": current}))
    return evidence


def _known_origin_ids(seen: Observation, ledger: LedgerView) -> dict[str, str]:
    """The ids, as the ledger has them, of the topics that the stream has read and that the resource reads."""
    returned = {key.origin for key in returned_positions(seen, ledger)}
    before = {topic: known for topic, known in ledger.retired.origin_ids.items() if topic in returned}
    known = {**before, **ledger.landed.origin_ids}
    return {topic: found for topic, found in known.items() if seen.request.source.reads_origin(topic)}


def _replaced_records(seen: Observation, ledger: LedgerView) -> list[Evidence]:
    """Records that are not those which landed, by their fingerprints: a log that lost its end and has grown again."""
    evidence = []
    for key, landed, kept in _fingerprints(seen, ledger):
        if key not in seen.source.records:
            continue
        found = seen.source.records[key]
        difference = kept.difference(found)
        if difference is None or (found is None and key.origin in seen.source.compacted):
            continue
        shown = seen.request.position_text
        words = (
            f"{key} has landed up to {shown(landed)} and offset {shown(kept.offset)} is not what landed ({difference})"
        )
        data = {"topic": key.origin, "partition": key.key, "landed": landed, "offset": kept.offset}
        evidence.append(Evidence(words, data))
    return evidence


def _not_compared(seen: Observation, ledger: LedgerView) -> dict[str, list[Partition]]:
    """The partitions whose last landed record was not compared, by why that is so."""
    reasons: dict[str, list[Partition]] = {}
    kept = {key: fingerprint for key, _, fingerprint in _fingerprints(seen, ledger)}
    for key, landed in _expected(seen, ledger).items():
        bounds = seen.source.bounds.get(key)
        if landed in (0, PARTITION_END) or bounds is None or not bounds.earliest <= landed <= bounds.latest:
            continue
        if key not in kept:
            reasons.setdefault("no fingerprint of them is kept", []).append(key)
        elif key not in seen.source.records:
            reasons.setdefault("the source no longer holds them", []).append(key)
        elif seen.source.records[key] is None:
            reasons.setdefault("compaction may have taken them", []).append(key)
    return reasons


def _fingerprints(seen: Observation, ledger: LedgerView) -> Iterator[tuple[Partition, int, Fingerprint]]:
    """The fingerprints of the partitions that the resource reads, each with the position that it was kept for."""
    kept = {**ledger.retired.fingerprints, **ledger.landed.fingerprints}
    for key, landed in _expected(seen, ledger).items():
        if key in kept:
            yield key, landed, kept[key]


def _replaced_partitions(seen: Observation, ledger: LedgerView) -> list[Evidence]:
    evidence = []
    for key, landed in _expected(seen, ledger).items():
        if key.origin not in seen.source.origin_ids or landed == PARTITION_END:
            continue  # what was read to its end may be gone
        bounds = seen.source.bounds.get(key)
        if bounds is None:
            words = f"{key} does not exist any more"
        elif landed > bounds.latest:
            words = f"{key} ends at {bounds.latest} and {landed - bounds.latest} records beyond that have landed"
        else:
            continue
        evidence.append(Evidence(words, {"topic": key.origin, "partition": key.key, "landed": landed}))
    return evidence
