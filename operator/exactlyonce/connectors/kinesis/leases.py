"""Leases as the Kinesis Client Library (KCL) 2 and 3 keep them in DynamoDB, one item for each shard. Performs no I/O.

    leaseKey                      S    the shard's id (partition key)
    checkpoint                    S    the last sequence number that was processed, or TRIM_HORIZON, LATEST, AT_TIMESTAMP,
                                       SHARD_END
    checkpointSubSequenceNumber   N    which user record of it, from 0
    leaseOwner                    S    the worker; missing where nobody holds the lease
    leaseCounter                  N    grows with every renewal and every taking; each write is conditional on it
    ownerSwitchesSinceCheckpoint  N
    parentShardId, childShardIds  SS
    startingHashKey, endingHashKey  S
    pendingCheckpoint…, checkpointOwner, throughputKBps     what a worker is about to do, and KCL 3's own
    exactlyonceStreams, exactlyonceCheckpoint               the mark of a stream, see lease_marks.py

A checkpoint is the last record that was *processed*; a position of ours is where the next read *starts*.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exactlyonce.bounded_text import one_line
from exactlyonce.connectors.kinesis.lease_marks import Mark, attributes_of, mark_in
from exactlyonce.connectors.kinesis.positions import (
    SHARD_END,
    SUB_SEQUENCE_BITS,
    TRIM_HORIZON,
    AfterRecord,
    AtShardEnd,
    AtTrimHorizon,
    InsideRecord,
    UserRecord,
    position_after_record,
    read_from,
)

LEASE_KEY, OWNER, COUNTER = "leaseKey", "leaseOwner", "leaseCounter"
CHECKPOINT, SUB_SEQUENCE = "checkpoint", "checkpointSubSequenceNumber"
SWITCHES, PARENTS, CHILDREN = "ownerSwitchesSinceCheckpoint", "parentShardId", "childShardIds"
FIRST_HASH_KEY, LAST_HASH_KEY = "startingHashKey", "endingHashKey"
_PREPARED = "pendingCheckpoint"
OF_A_WORKER = (
    _PREPARED,
    "pendingCheckpointSubSequenceNumber",
    "pendingCheckpointState",
    "checkpointOwner",
    OWNER,
)
"""Attributes that only a worker that holds the lease gives a meaning to."""

_ENTITY = "entityType"
"""Newer releases of KCL 3 keep other things in the same table, and say so here."""

_SENTINELS = ("TRIM_HORIZON", "LATEST", "AT_TIMESTAMP", "SHARD_END")
_SHARD_ID = re.compile(r"shardId-[0-9]{12}")
_MOST_SHOWN = 80

EVERY_USER_RECORD = (1 << SUB_SEQUENCE_BITS) - 1
"""The sub-sequence number of a checkpoint behind a whole record. KCL continues behind the user record that a checkpoint names,
and how many an aggregate had is not in a position. This is above each of them, so KCL delivers none of that record again."""


class NotALease(ValueError):
    """An item of the table is not a lease of one stream's shard; the text says why, and which item."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What a lease says was processed last; a sentinel has the sub-sequence number 0."""

    sequence_number: str
    sub_sequence_number: int = 0

    @property
    def text(self) -> str:
        """Both as one text; equal checkpoints have equal texts."""
        return f"{self.sequence_number}:{self.sub_sequence_number}"

    @property
    def is_end(self) -> bool:
        """Whether the shard was processed to its end."""
        return self.sequence_number == "SHARD_END"


@dataclass(frozen=True, slots=True)
class Lease:
    """One item of the table, as far as this program reads or writes it. Hash keys are missing in tables of KCL 1."""

    key: str
    checkpoint: Checkpoint
    counter: int = 0
    owner: str | None = None
    parents: frozenset[str] = frozenset()
    children: frozenset[str] = frozenset()
    hash_keys: tuple[int, int] | None = None
    is_pending: bool = field(default=False)
    """Whether it holds an attribute of a worker that is in the middle of something."""
    is_prepared: bool = False
    """Whether the application has prepared a checkpoint further on: what it did up to there may have taken effect."""
    mark: Mark | None = None
    """Which stream has written it; None where none has."""


def checkpoint_at(position: int) -> Checkpoint:
    """Return the checkpoint with which a KCL application continues exactly at a position.

    Raises:
        MalformedPosition: if it is not a position.
    """
    match read_from(position):
        case AtTrimHorizon():
            return Checkpoint("TRIM_HORIZON")
        case AtShardEnd():
            return Checkpoint("SHARD_END")
        case AfterRecord(sequence_number):
            return Checkpoint(str(sequence_number), EVERY_USER_RECORD)
        case InsideRecord(sequence_number, sub_sequence_number):
            return Checkpoint(str(sequence_number), sub_sequence_number - 1)


@dataclass(frozen=True, slots=True)
class StartsAt:
    """The shard continues at a position."""

    position: int


@dataclass(frozen=True, slots=True)
class StartsBehind:
    """The shard continues behind a user record. Whether the record has a further one, the record itself tells."""

    last: UserRecord

    def position(self, user_records: int) -> int:
        """Return the position, for a record that has so many user records."""
        following = self.last.sub_sequence_number + 1
        if following < user_records:
            return UserRecord(self.last.sequence_number, following).position
        return position_after_record(self.last.sequence_number)


@dataclass(frozen=True, slots=True)
class StartsAtTip:
    """The worker was to start with what arrives next, and has processed nothing."""


@dataclass(frozen=True, slots=True)
class StartsAtUnknownMoment:
    """The worker was to start at a moment that only its own configuration knows, and has processed nothing."""


Continuation = StartsAt | StartsBehind | StartsAtTip | StartsAtUnknownMoment


def continuation(checkpoint: Checkpoint) -> Continuation:
    """Return where a KCL worker would continue with a checkpoint."""
    match checkpoint.sequence_number:
        case "TRIM_HORIZON":
            return StartsAt(TRIM_HORIZON)
        case "SHARD_END":
            return StartsAt(SHARD_END)
        case "LATEST":
            return StartsAtTip()
        case "AT_TIMESTAMP":
            return StartsAtUnknownMoment()
        case digits if checkpoint.sub_sequence_number >= EVERY_USER_RECORD:
            return StartsAt(position_after_record(int(digits)))
        case digits:
            return StartsBehind(UserRecord(int(digits), checkpoint.sub_sequence_number))


def lease_of(item: Mapping[str, Any]) -> Lease | None:
    """Return the lease that an item is, as DynamoDB answers it; None for what newer releases of KCL keep beside leases.

    Raises:
        NotALease: if it is anything else, whoever has written it.
    """
    if _text(item, _ENTITY, "") not in ("", "LEASE"):
        return None
    key = _text(item, LEASE_KEY)
    if _SHARD_ID.fullmatch(key) is None:
        raise NotALease(
            f"the item {one_line(key, _MOST_SHOWN)} is not named like a shard; the tables of applications that read several "
            "streams, and of other programs, are not used"
        )
    keys = (_text(item, FIRST_HASH_KEY, ""), _text(item, LAST_HASH_KEY, ""))
    return Lease(
        key,
        _checkpoint(item, key),
        _number(item, COUNTER),
        _text(item, OWNER, "") or None,
        _texts(item, PARENTS),
        _texts(item, CHILDREN),
        (int(keys[0]), int(keys[1])) if all(_is_number(one, 39) for one in keys) else None,
        any(name in item for name in OF_A_WORKER if name != OWNER),
        _PREPARED in item,
        mark_in(item),
    )


def item_of(lease: Lease) -> dict[str, Any]:
    """Return the item of a lease that nobody holds, as DynamoDB takes it."""
    item: dict[str, Any] = {
        LEASE_KEY: {"S": lease.key},
        COUNTER: {"N": str(lease.counter)},
        SWITCHES: {"N": "0"},
        CHECKPOINT: {"S": lease.checkpoint.sequence_number},
        SUB_SEQUENCE: {"N": str(lease.checkpoint.sub_sequence_number)},
        **({} if lease.mark is None else attributes_of(lease.mark)),
    }
    sets = {PARENTS: lease.parents, CHILDREN: lease.children}
    item |= {name: {"SS": sorted(shards)} for name, shards in sets.items() if shards}  # DynamoDB has no empty sets
    if lease.hash_keys is not None:
        item |= {
            name: {"S": str(key)} for name, key in zip((FIRST_HASH_KEY, LAST_HASH_KEY), lease.hash_keys, strict=True)
        }
    return item


def _checkpoint(item: Mapping[str, Any], key: str) -> Checkpoint:
    sequence_number, sub_sequence_number = _text(item, CHECKPOINT), _number(item, SUB_SEQUENCE, 0)
    if sequence_number in _SENTINELS:
        return Checkpoint(sequence_number)
    if not _is_number(sequence_number, 76):
        raise NotALease(
            f"the lease {key} has the checkpoint {one_line(sequence_number, _MOST_SHOWN)!r}, which KCL does not write"
        )
    return Checkpoint(sequence_number, sub_sequence_number)


def _text(item: Mapping[str, Any], name: str, default: str | None = None) -> str:
    found = _typed(item, name, "S", default)
    if isinstance(found, str):
        return found
    raise _malformed(item, name)


def _number(item: Mapping[str, Any], name: str, default: int | None = None) -> int:
    found = _typed(item, name, "N", None if default is None else str(default))
    if isinstance(found, str) and _is_number(found, 19):
        return int(found)
    raise _malformed(item, name)


def _texts(item: Mapping[str, Any], name: str) -> frozenset[str]:
    found: Any = _typed(item, name, "SS", ())
    if isinstance(found, (list, tuple)) and all(isinstance(one, str) for one in found):
        return frozenset(found)
    raise _malformed(item, name)


def _typed(item: Mapping[str, Any], name: str, kind: str, default: object) -> object:
    if name not in item:
        return default
    value = item[name]
    return value.get(kind) if isinstance(value, dict) else None


def _is_number(text: str, most_digits: int) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= most_digits


def _malformed(item: Mapping[str, Any], name: str) -> NotALease:
    key = _typed(item, LEASE_KEY, "S", None)
    return NotALease(f"the item {one_line(key or '?', _MOST_SHOWN)} has no {name} of the type that KCL gives it")
