"""How registries' serializers put the id of a schema in front of a payload. Pure: who has the schemas is asked elsewhere.

Confluent: a zero byte and 4 bytes, big-endian. Apicurio: the same with 8 bytes. Glue: version 3, how the payload is compressed
(0: not, 5: zlib), and the 16 bytes of a UUID. A Protobuf payload of Confluent's and Apicurio's begins with the path to its
message in the schema's file.
"""

from __future__ import annotations

import uuid
import zlib
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

from exactlyonce_spark.decode.malformed import Malformed

MOST_BYTES = 64 << 20
"""Bytes that a compressed payload may become: more is an attack, or a mistake."""
MOST_INDEXES = 64
"""Messages within messages that a path may pass through."""
_GLUE_VERSION, _PLAIN, _ZLIB = 3, 0, 5


class Framing(Enum):
    """Whose serializers have written the records."""

    CONFLUENT = "Confluent"
    APICURIO = "Apicurio"
    GLUE = "Glue"


@dataclass(frozen=True, slots=True)
class Framed:
    """A value taken apart; `schema` is a number, or with Glue the text of a UUID."""

    schema: int | str
    payload: bytes


def unframed(framing: Framing, value: bytes) -> Framed:
    """Take a value apart.

    Raises:
        Malformed: if it does not begin as this framing does.
    """
    match framing:
        case Framing.CONFLUENT:
            return _with_number(framing, value, 4)
        case Framing.APICURIO:
            return _with_number(framing, value, 8)
        case Framing.GLUE:
            return _glue(value)
        case _:
            assert_never(framing)


def _with_number(framing: Framing, value: bytes, size: int) -> Framed:
    if len(value) < 1 + size:
        raise Malformed(f"the record has {len(value)} bytes, fewer than the {1 + size} of {framing.value}'s schema id")
    if value[0] != 0:
        raise Malformed(f"the record begins with byte 0x{value[0]:02x}, and {framing.value}'s schema id with 0x00")
    return Framed(int.from_bytes(value[1 : 1 + size], "big"), value[1 + size :])


def _glue(value: bytes) -> Framed:
    if len(value) < 18:
        raise Malformed(f"the record has {len(value)} bytes, fewer than the 18 of Glue's header")
    if value[0] != _GLUE_VERSION:
        raise Malformed(f"the record begins with byte 0x{value[0]:02x}, and Glue's header with 0x{_GLUE_VERSION:02x}")
    schema, payload = str(uuid.UUID(bytes=value[2:18])), value[18:]
    if value[1] == _PLAIN:
        return Framed(schema, payload)
    if value[1] != _ZLIB:
        raise Malformed(
            f"Glue's header names compression {value[1]}, which is neither {_PLAIN} (not at all) nor {_ZLIB} (zlib)"
        )
    return Framed(schema, _decompressed(payload))


def _decompressed(payload: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        found = decompressor.decompress(payload, MOST_BYTES)
    except zlib.error as problem:
        raise Malformed(f"the payload is not zlib: {problem}") from None
    if decompressor.unconsumed_tail:
        raise Malformed(f"the payload becomes more than {MOST_BYTES} bytes when it is decompressed")
    if not decompressor.eof or decompressor.unused_data:
        raise Malformed("the payload is cut short, or has more after what was compressed")
    return found


def message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes]:
    """Return the path to a Protobuf message in the schema's file, outermost first, and the message itself.

    The path is a number of indexes and as many indexes, zigzag varints; a single zero is the path (0).

    Raises:
        Malformed: if there is no such path.
    """
    count, place = _varint(payload, 0)
    if count == 0:
        return (0,), payload[place:]
    if not 0 < count <= MOST_INDEXES:
        raise Malformed(f"the record's path to its message has {count} indexes, and 1 to {MOST_INDEXES} are possible")
    indexes: list[int] = []
    for _ in range(count):
        index, place = _varint(payload, place)
        if index < 0:
            raise Malformed(f"the record's path to its message has the index {index}")
        indexes.append(index)
    return tuple(indexes), payload[place:]


def _varint(payload: bytes, place: int) -> tuple[int, int]:
    """Return a zigzag number of up to 32 bits, and the place after it."""
    found = 0
    for number in range(5):
        if place + number >= len(payload):
            raise Malformed("the record ends within the path to its message")
        byte = payload[place + number]
        found |= (byte & 0x7F) << (7 * number)
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), place + number + 1
    raise Malformed("the record's path to its message has a number of more than 32 bits")
