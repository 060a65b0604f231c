"""Whose a lease is: what a stream adds to each lease that it writes, in the same write. Performs no I/O.

    exactlyonceStreams      L of S   the stream that has written the lease, then those from which it took the lease over
    exactlyonceCheckpoint   S        the checkpoint that it wrote

KCL writes the attributes that it knows and leaves all others as they are. So a lease whose checkpoint is another one than its
mark says was moved by an application since, and one that an application has made has no mark.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from exactlyonce.source.port import ShownStream

STREAMS, WRITTEN = "exactlyonceStreams", "exactlyonceCheckpoint"
MOST_STREAMS = 4
"""How many streams a lease names: those that took it over from each other longest ago are forgotten."""

_MOST_CHARACTERS = 300
"""A stream's id has at most 200."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The streams that have written a lease, the latest first, and which checkpoint that one wrote, as a text."""

    streams: tuple[str, ...]
    checkpoint: str

    @property
    def stream(self) -> str:
        """The stream that wrote the lease last."""
        return self.streams[0]


def name_of(shown: ShownStream) -> str:
    """Return the text by which a stream knows its own leases: its id, which ledger's it is, and its life."""
    ledger = hashlib.sha256(shown.ledger.encode()).hexdigest()[:16]
    return f"{shown.stream_id} {ledger} {shown.life}"


def is_same_stream(name: str, other: str) -> bool:
    """Whether two names are of one stream, maybe in two of its lives."""
    return name.rpartition(" ")[0] == other.rpartition(" ")[0]


def marked_by(name: str, before: Mark | None, checkpoint: str) -> Mark:
    """Return the mark of a lease that the stream `name` writes; `before` is the mark that the lease has."""
    former = () if before is None else before.streams
    return Mark((name, *(stream for stream in former if stream != name))[:MOST_STREAMS], checkpoint)


def mark_in(item: Mapping[str, Any]) -> Mark | None:
    """Return the mark of an item as DynamoDB answers it; None where there is none, or not one that a stream has written."""
    try:
        streams = tuple(entry["S"] for entry in item[STREAMS]["L"])
        checkpoint = item[WRITTEN]["S"]
    except (KeyError, TypeError):
        return None
    texts = (*streams, checkpoint)
    is_ours = all(isinstance(text, str) and len(text) <= _MOST_CHARACTERS for text in texts)
    return Mark(streams, checkpoint) if is_ours and 0 < len(streams) <= MOST_STREAMS else None


def attributes_of(mark: Mark) -> dict[str, dict[str, Any]]:
    """Return the attributes that are the mark, as DynamoDB takes them."""
    return {STREAMS: {"L": [{"S": stream} for stream in mark.streams]}, WRITTEN: {"S": mark.checkpoint}}
