"""What is kept of the last record that landed in a partition: enough to recognise it, nothing of what it says.

Performs no I/O. docs/adr/0018 tells what a fingerprint proves and what it cannot.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass

ZERO_ORIGIN_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The topic id of brokers that have none: 16 zero bytes in base64 (KIP-516). Every topic has it, so it identifies none."""

_DIGEST_BYTES = 16


def is_origin_id(topic_id: str | None) -> bool:
    """Whether a topic id identifies a topic; none, an empty one and the zero id do not."""
    return bool(topic_id) and topic_id != ZERO_ORIGIN_ID


def is_other_origin(known: str | None, found: str | None) -> bool:
    """Whether two topic ids prove that a topic was recreated; without two real ids nothing is proven either way."""
    return is_origin_id(known) and is_origin_id(found) and known != found


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """One record: where it stands, the leader epoch in which it was written, its timestamp, and a hash of its content."""

    offset: int
    digest: str
    timestamp_milliseconds: int | None = None
    leader_epoch: int | None = None

    def difference(self, found: Fingerprint | None) -> str | None:
        """Return how the record that is `found` at this offset differs, or None if it is this very record.

        The words name no content. A record that was written in another leader epoch is another record, even if it says the
        same: a log is identical up to a record only where offset and leader epoch agree (KIP-101).
        """
        if found is None:
            return "no record is there"
        if found.timestamp_milliseconds != self.timestamp_milliseconds:
            return f"its timestamp is {found.timestamp_milliseconds} and was {self.timestamp_milliseconds}"
        if found.digest != self.digest:
            return f"its checksum is {found.digest} and was {self.digest}"
        epochs = (self.leader_epoch, found.leader_epoch)
        if None not in epochs and self.leader_epoch != found.leader_epoch:
            return f"it was written in leader epoch {found.leader_epoch} and was of leader epoch {self.leader_epoch}"
        return None

    def to_json(self) -> str:
        """Render it as a ledger in tables keeps it."""
        values = {
            "offset": self.offset,
            "digest": self.digest,
            "timestamp": self.timestamp_milliseconds,
            "leaderEpoch": self.leader_epoch,
        }
        return json.dumps(values)

    @classmethod
    def from_json(cls, text: str | None) -> Fingerprint | None:
        """Parse what `to_json` renders; None where none is kept."""
        if text is None:
            return None
        found = json.loads(text)
        return cls(found["offset"], found["digest"], found["timestamp"], found["leaderEpoch"])


def digest_of(
    key: bytes | None,
    value: bytes | None,
    headers: Iterable[tuple[str, bytes | None]],
    timestamp_milliseconds: int | None,
) -> str:
    """Return a shortened SHA-256 of a record. Every part is preceded by its length, so no two records give the same input."""
    whole = hashlib.sha256()
    named = [part for name, content in headers for part in (name.encode(), content)]
    stamp = None if timestamp_milliseconds is None else str(timestamp_milliseconds).encode()
    for part in (stamp, key, value, *named):
        whole.update(b"-" if part is None else f"{len(part)}:".encode() + part)
    return whole.digest()[:_DIGEST_BYTES].hex()
