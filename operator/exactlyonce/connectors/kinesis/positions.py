"""A position in a shard as one integer, and back. Performs no I/O.

A Kinesis sequence number is a decimal integer of up to 56 digits, unique within its shard and sparse; a record that the
Kinesis Producer Library (KPL) has aggregated holds many user records, told apart by sub-sequence numbers from 0. The rest
of the program orders and compares positions as integers, so both are put into one: the sequence number, and below it
`SUB_SEQUENCE_BITS` bits of the sub-sequence number. A position is where the next read starts: everything at or above it
is still to be read. After the last (or only) user record of a record it is that of the next sequence number, which no
record need have.

Differences of positions count nothing: sequence numbers are sparse.
"""

from __future__ import annotations

from dataclasses import dataclass

from exactlyonce.positions.ranges import PARTITION_END

SUB_SEQUENCE_BITS = 32
SEQUENCE_NUMBER_BITS = 256
"""More than any sequence number has: those of today have up to 186."""

TRIM_HORIZON = 0
"""The start of a shard: before its oldest record, whichever that is."""

SHARD_END = PARTITION_END
"""Behind the last record of a shard that was split or merged: nothing will ever follow."""

_TRIM_HORIZON_TEXT, _SHARD_END_TEXT = "TRIM_HORIZON", "SHARD_END"
_SEQUENCE_NUMBERS = 1 << SEQUENCE_NUMBER_BITS
_SUB_SEQUENCE_MASK = (1 << SUB_SEQUENCE_BITS) - 1


class MalformedPosition(ValueError):
    """A text or an integer is not a position in a shard."""


@dataclass(frozen=True, order=True, slots=True)
class UserRecord:
    """Which user record it is: the record's sequence number, and which one of an aggregate (0 without aggregation)."""

    sequence_number: int
    sub_sequence_number: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.sequence_number < _SEQUENCE_NUMBERS:
            raise MalformedPosition(f"{self.sequence_number} is not a sequence number")
        if not 0 <= self.sub_sequence_number <= _SUB_SEQUENCE_MASK:
            raise MalformedPosition(f"{self.sub_sequence_number} is not a sub-sequence number")

    @classmethod
    def at(cls, position: int) -> UserRecord:
        """Return the user record of a row, by its position.

        Raises:
            MalformedPosition: if no user record is there.
        """
        return cls(position >> SUB_SEQUENCE_BITS, position & _SUB_SEQUENCE_MASK)

    @property
    def position(self) -> int:
        """The position at this user record: a read from there returns it first."""
        return self.sequence_number << SUB_SEQUENCE_BITS | self.sub_sequence_number


def position_of_record(sequence_number: int) -> int:
    """Return the position at the first user record of a record. It is asked for each record, so it makes no `UserRecord`.

    Raises:
        MalformedPosition: if it is not a sequence number.
    """
    if not 0 <= sequence_number < _SEQUENCE_NUMBERS:
        raise MalformedPosition(f"{sequence_number} is not a sequence number")
    return sequence_number << SUB_SEQUENCE_BITS


def position_after_record(sequence_number: int) -> int:
    """Return the position behind all user records of a record.

    Raises:
        MalformedPosition: if none is behind it.
    """
    return position_of_record(sequence_number + 1)


@dataclass(frozen=True, slots=True)
class AfterRecord:
    """The read starts behind the record with this sequence number, which was read whole."""

    sequence_number: int


@dataclass(frozen=True, slots=True)
class InsideRecord:
    """The read starts inside the record with this sequence number, at a user record that is not the first."""

    sequence_number: int
    sub_sequence_number: int


@dataclass(frozen=True, slots=True)
class AtTrimHorizon:
    """The read starts with the oldest record of the shard."""


@dataclass(frozen=True, slots=True)
class AtShardEnd:
    """Nothing is left to read."""


ReadFrom = AtTrimHorizon | AfterRecord | InsideRecord | AtShardEnd


def read_from(position: int) -> ReadFrom:
    """Return where a read of the shard has to start.

    Raises:
        MalformedPosition: if it is not a position.
    """
    if position == TRIM_HORIZON:
        return AtTrimHorizon()
    if position == SHARD_END:
        return AtShardEnd()
    if not 0 < position < SHARD_END:
        raise MalformedPosition(f"{position} is not a position in a shard")
    sequence_number, sub_sequence_number = position >> SUB_SEQUENCE_BITS, position & _SUB_SEQUENCE_MASK
    if sub_sequence_number:
        return InsideRecord(sequence_number, sub_sequence_number)
    if not sequence_number:
        raise MalformedPosition(f"{position} is not a position in a shard")
    return AfterRecord(sequence_number - 1)


def to_text(position: int) -> str:
    """Return what a person reads and Spark's offset log holds.

    `TRIM_HORIZON`, `SHARD_END`, `after 4957…` behind a whole record, `4957…:3` at the user record that is next in an aggregate.
    """
    match read_from(position):
        case AtTrimHorizon():
            return _TRIM_HORIZON_TEXT
        case AtShardEnd():
            return _SHARD_END_TEXT
        case AfterRecord(sequence_number):
            return f"after {sequence_number}"
        case InsideRecord(sequence_number, sub_sequence_number):
            return f"{sequence_number}:{sub_sequence_number}"


def from_text(text: str) -> int:
    """Parse what `to_text` renders; each position has one text, so that texts can be compared.

    Raises:
        MalformedPosition: if it is anything else, such as a number that begins with a zero.
    """
    if text == _TRIM_HORIZON_TEXT:
        return TRIM_HORIZON
    if text == _SHARD_END_TEXT:
        return SHARD_END
    if text.startswith("after "):
        return position_after_record(_whole_number(text.removeprefix("after "), text))
    sequence_number, colon, sub_sequence_number = text.partition(":")
    if not colon or sub_sequence_number == "0":
        raise _malformed(text)
    return UserRecord(_whole_number(sequence_number, text), _whole_number(sub_sequence_number, text)).position


def _whole_number(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit() and len(digits) <= 80):
        raise _malformed(text)
    if digits[0] == "0" and digits != "0":
        raise MalformedPosition(f"{text[:80]!r} is not a position in a shard: a number in it begins with a zero")
    return int(digits)


def _malformed(text: str) -> MalformedPosition:
    return MalformedPosition(
        f"{text[:80]!r} is not a position in a shard, which is TRIM_HORIZON, SHARD_END, after <sequence number>, or "
        "<sequence number>:<sub-sequence number>"
    )
