"""Topics that a pattern matched and that were deleted: may the stream forget them, and what is lost? Performs no I/O.

docs/adr/0010 tells when. A topic that was recreated under its name is another topic: the old one is forgotten and the new one
is read from its first record.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from exactlyonce.api.recovery import OnTopicDeleted
from exactlyonce.checkpoint.state import Readable
from exactlyonce.ledger.rows import FailureRow, FailureStatus, LedgerView
from exactlyonce.positions.fingerprint import is_origin_id, is_other_origin
from exactlyonce.positions.ranges import BatchNumber, OffsetRange, Partition, Positions, Ranges
from exactlyonce.reconcile.observation import Observation


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What the stream continues without: where it stood in topics that are gone, and the topics that were recreated.

    `lost` was planned of topics that are gone and had not landed. What else they held that had not landed is lost as well, and
    nobody knows how much it was.
    """

    stood: Positions = field(default_factory=Positions)
    lost: Ranges = field(default_factory=lambda: Ranges({}))
    recreated: frozenset[str] = frozenset()
    noun: str = "topic"

    @property
    def topics(self) -> frozenset[str]:
        """The topics that are gone; one that was recreated is gone, too, unless it was forgotten before."""
        return frozenset(key.origin for key in self.stood)

    @property
    def sentences(self) -> str:
        """What is forgotten, in sentences; empty where nothing is."""
        told = []
        if self.stood:
            also = f"; {self.lost} were planned and had not landed" if self.lost else ""
            told.append(
                f"{self.were_matched(self.topics)} deleted: records from {self.stood} on, if there were any, are lost{also}."
            )
        noun = self.noun.capitalize()
        told += [f"{noun} {topic} was recreated and is read from its first record." for topic in sorted(self.recreated)]
        return " ".join(told)

    def were_matched(self, origins: frozenset[str]) -> str:
        """Return the beginning of a sentence about origins that are gone."""
        many = len(origins) > 1
        named = f"{self.noun.capitalize()}{'s' if many else ''} {', '.join(sorted(origins))}"
        return f"{named}, which the pattern matched, {'were' if many else 'was'}"

    def failures(self, batch: BatchNumber) -> tuple[FailureRow, ...]:
        """Return the ledger's record of what is known to be lost."""
        words = f"its {self.noun} was deleted before the records landed"
        return tuple(
            FailureRow(
                batch, key, offsets.from_offset, offsets.until_offset, FailureStatus.LOST, "", words, origin_gone=True
            )
            for key, offsets in self.lost.items()
        )


def forgotten(seen: Observation, ledger: LedgerView) -> Forgotten:
    """Return what the resource lets the stream continue without; nothing unless it asks for that."""
    if seen.request.on_topic_deleted is not OnTopicDeleted.FORGET or not may_forget(seen, ledger):
        return Forgotten(noun=seen.request.origin_noun)
    recreated = recreated_origins(seen, ledger)
    gone = deleted_origins(seen, ledger) | (recreated & {key.origin for key in ledger.landed.positions})
    planned = _planned(seen, ledger)
    landed = ledger.landed.positions
    stood = {key: landed.get(key, 0) for key in (*landed, *planned) if key.origin in gone}
    lost = {key: OffsetRange(stood[key], end) for key, end in planned.items() if key in stood and end > stood[key]}
    return Forgotten(Positions(stood), Ranges(lost), recreated, seen.request.origin_noun)


def may_forget(seen: Observation, ledger: LedgerView) -> bool:
    """Whether topics may be forgotten: they were matched by a pattern, and something proves that the cluster is the same.

    Brokers of another cluster would lack the topics too, and their topics would be read from the beginning. A topic id belongs
    to one topic of one cluster; where there is none, the very record that landed last proves as much.
    """
    if seen.request.source.pattern is None:
        return False
    known = {**ledger.retired.origin_ids, **ledger.landed.origin_ids}
    current = seen.source.origin_ids
    if any(is_origin_id(topic_id) and current.get(topic) == topic_id for topic, topic_id in known.items()):
        return True
    kept, found = ledger.landed.fingerprints, seen.source.records
    # Where ids differ, the same record proves a copy of the topic, in another cluster perhaps.
    return any(
        found.get(key) is not None
        and kept[key].difference(found[key]) is None
        and not is_other_origin(known.get(key.origin), current.get(key.origin))
        for key in kept
    )


def deleted_origins(seen: Observation, ledger: LedgerView) -> frozenset[str]:
    """Return the topics that the stream has read, or planned to read, that the resource names, and that do not exist."""
    read = {topic for topic in ledger.landed.origin_ids if seen.request.source.reads_origin(topic)}
    planned = {key.origin for key in _planned(seen, ledger)} if seen.request.source.pattern is not None else set()
    return frozenset((read | planned) - seen.source.origin_ids.keys())


def recreated_origins(seen: Observation, ledger: LedgerView) -> frozenset[str]:
    """Return the topics that the resource reads and that are other ones than the stream has read under their names."""
    known = {**ledger.retired.origin_ids, **ledger.landed.origin_ids}
    selected = {key.origin for key in seen.source.selected}
    return frozenset(
        topic
        for topic, before in known.items()
        if topic in selected and is_other_origin(before, seen.source.origin_ids[topic])
    )


def _planned(seen: Observation, ledger: LedgerView) -> dict[Partition, int]:
    """How far batches beyond the landed one were planned, in what the resource reads, by the checkpoint and by the ledger."""
    landed_batch = ledger.stream.landed_batch
    assert landed_batch is not None, "a stream that never started is decided before"
    ends = [row.ranges.ends for row in ledger.batches if row.batch > landed_batch]
    if isinstance(seen.checkpoint, Readable) and seen.checkpoint.planned > landed_batch:
        ends.append(seen.checkpoint.planned_end)
    planned: dict[Partition, int] = {}
    for end in ends:
        for key, offset in end.items():
            if seen.request.source.reads(key):
                planned[key] = max(offset, planned.get(key, 0))
    return planned
