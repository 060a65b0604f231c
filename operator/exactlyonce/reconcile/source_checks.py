"""Is the source still the one that was read, and does it hold the next records? Performs no I/O."""

from __future__ import annotations

from exactlyonce.api.resource import FRESH
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.offsets import Positions, TopicPartition
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.source_change import added_partitions, returned_positions
from exactlyonce.reconcile.verdicts import Evidence, SourceReplaced


def source_replaced(seen: Observation, ledger: LedgerView) -> SourceReplaced | None:
    """A topic is gone or was made anew, a partition is gone, or what landed lies beyond the source's end."""
    evidence = [*_replaced_topics(seen, ledger), *_replaced_partitions(seen, ledger)]
    if not evidence:
        return None
    told = "; ".join(item.words for item in evidence)
    return SourceReplaced(
        f"The source is not the one this stream has read: {told}. Restore it, let a stream with another streamId read the "
        f"new one, or annotate {FRESH}={ledger.stream.token} to start anew on it.",
        tuple(evidence),
    )


def first_missing(seen: Observation, ledger: LedgerView) -> dict[TopicPartition, tuple[int, int]]:
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


def _expected(seen: Observation, ledger: LedgerView) -> Positions:
    """Where the stream stands in what the resource reads and the stream has read, now or before."""
    read = {key: offset for key, offset in ledger.landed.positions.items() if seen.request.source.reads(key)}
    return Positions({**read, **returned_positions(seen.source, ledger)})


def _replaced_topics(seen: Observation, ledger: LedgerView) -> list[Evidence]:
    evidence = []
    returned = {key.topic for key in returned_positions(seen.source, ledger)}
    before = {topic: known for topic, known in ledger.retired.topic_ids.items() if topic in returned}
    for topic, known in sorted({**before, **ledger.landed.topic_ids}.items()):
        current = seen.source.topic_ids.get(topic)
        if not seen.request.source.reads_topic(topic):
            continue
        if current is None:
            evidence.append(Evidence(f"topic {topic} does not exist any more", {"topic": topic, "id": known}))
        elif known and current != known:
            words = f"topic {topic} was made anew (its id was {known} and is {current})"
            evidence.append(Evidence(words, {"topic": topic, "id": known, "found": current}))
    return evidence


def _replaced_partitions(seen: Observation, ledger: LedgerView) -> list[Evidence]:
    evidence = []
    for key, landed in _expected(seen, ledger).items():
        if key.topic not in seen.source.topic_ids:
            continue
        bounds = seen.source.bounds.get(key)
        if bounds is None:
            words = f"{key} does not exist any more"
        elif landed > bounds.latest:
            words = f"{key} ends at {bounds.latest} and {landed - bounds.latest} records beyond that have landed"
        else:
            continue
        evidence.append(Evidence(words, {"topic": key.topic, "partition": key.partition, "landed": landed}))
    return evidence
