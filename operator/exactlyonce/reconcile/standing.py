"""What a new generation's positions go on with: topic ids and fingerprints. Performs no I/O."""

from __future__ import annotations

from exactlyonce.fingerprint import Fingerprint, is_topic_id
from exactlyonce.ledger.rows import LandedPositions, LedgerView
from exactlyonce.offsets import Positions, TopicPartition
from exactlyonce.source.bounds import SourceView


def standing_at(after: Positions, source: SourceView, goes_on: LedgerView | None) -> LandedPositions:
    """Return positions with the topic ids that the source has now.

    With `goes_on`, what that ledger knows of the records before them stays known: the ids of topics where the brokers have none
    now, and the fingerprints of positions that do not move. A stream that starts anew knows nothing of what was before.
    """
    topic_ids = {partition.topic: source.topic_ids.get(partition.topic, "") for partition in after}
    fingerprints: dict[TopicPartition, Fingerprint] = {}
    for landed in () if goes_on is None else (goes_on.retired, goes_on.landed):
        topic_ids |= {
            topic: known
            for topic, known in landed.topic_ids.items()
            if topic in topic_ids and not is_topic_id(topic_ids[topic])
        }
        fingerprints |= {
            key: kept for key, kept in landed.fingerprints.items() if after.get(key) == landed.positions.get(key)
        }
    return LandedPositions(after, topic_ids, fingerprints)
