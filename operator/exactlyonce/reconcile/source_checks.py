"""Is the source still the one that was read, and does it hold the next records? Performs no I/O."""

from __future__ import annotations

from exactlyonce.api.resource import FRESH
from exactlyonce.ledger.rows import LedgerView
from exactlyonce.offsets import TopicPartition
from exactlyonce.reconcile.observation import Observation
from exactlyonce.reconcile.verdicts import Contradiction, ContradictionReason, Evidence, SourceReplaced


def topic_left_out(seen: Observation, ledger: LedgerView) -> Contradiction | None:
    """The spec no longer reads a partition that the stream has read and the source still has."""
    dropped = [key for key in ledger.landed.positions if key in seen.source.bounds and key not in seen.source.selected]
    if not dropped:
        return None
    told = ", ".join(f"{key} (landed up to {ledger.landed.positions[key]})" for key in dropped)
    return Contradiction(
        ContradictionReason.TOPIC_LEFT_OUT,
        f"The resource no longer reads {told}; name it again in source.kafka, or make a stream with another streamId.",
        tuple(
            Evidence(
                f"{key} has landed up to {ledger.landed.positions[key]} and is not read any more",
                {"topic": key.topic, "partition": key.partition, "landed": ledger.landed.positions[key]},
            )
            for key in dropped
        ),
    )


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

    A partition that the stream never read is wanted from its first record.
    """
    missing = {}
    for key, bounds in sorted(seen.source.bounds.items()):
        wanted = ledger.landed.positions.get(key, 0)
        if bounds.earliest > wanted:
            missing[key] = (wanted, bounds.earliest)
    return missing


def _replaced_topics(seen: Observation, ledger: LedgerView) -> list[Evidence]:
    evidence = []
    for topic, known in sorted(ledger.landed.topic_ids.items()):
        current = seen.source.topic_ids.get(topic)
        if current is None:
            evidence.append(Evidence(f"topic {topic} does not exist any more", {"topic": topic, "id": known}))
        elif known and current != known:
            words = f"topic {topic} was made anew (its id was {known} and is {current})"
            evidence.append(Evidence(words, {"topic": topic, "id": known, "found": current}))
    return evidence


def _replaced_partitions(seen: Observation, ledger: LedgerView) -> list[Evidence]:
    evidence = []
    for key, landed in ledger.landed.positions.items():
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
