"""What registries' serializers put in front of a payload is taken apart, and what is no such thing is malformed."""

from __future__ import annotations

import uuid
import zlib

import pytest

from exactlyonce_spark.decode.framing import MOST_BYTES, Framed, Framing, message_indexes, unframed
from exactlyonce_spark.decode.malformed import Malformed

ID = uuid.UUID("12345678-1234-5678-1234-567812345678")


@pytest.mark.parametrize(
    ("framing", "value", "found"),
    [
        (Framing.CONFLUENT, b"\0\0\0\0\x07rest", Framed(7, b"rest")),
        (Framing.CONFLUENT, b"\0\xff\xff\xff\xff", Framed(2**32 - 1, b"")),
        (Framing.APICURIO, b"\0" + (2**40).to_bytes(8, "big") + b"rest", Framed(2**40, b"rest")),
        (Framing.GLUE, b"\x03\0" + ID.bytes + b"rest", Framed(str(ID), b"rest")),
        (Framing.GLUE, b"\x03\x05" + ID.bytes + zlib.compress(b"rest"), Framed(str(ID), b"rest")),
    ],
)
def test_a_value_is_taken_apart(framing: Framing, value: bytes, found: Framed) -> None:
    assert unframed(framing, value) == found


@pytest.mark.parametrize(
    ("framing", "value", "reason"),
    [
        (Framing.CONFLUENT, b"", "has 0 bytes, fewer than the 5"),
        (Framing.CONFLUENT, b'{"id":1}', "begins with byte 0x7b"),
        (Framing.APICURIO, b"\0\0\0\0\x07", "fewer than the 9"),
        (Framing.GLUE, b"\0\0\0\0\x07", "fewer than the 18"),
        (Framing.GLUE, b"\x02\0" + ID.bytes, "begins with byte 0x02"),
        (Framing.GLUE, b"\x03\x07" + ID.bytes, "names compression 7"),
        (Framing.GLUE, b"\x03\x05" + ID.bytes + b"rest", "is not zlib"),
        (Framing.GLUE, b"\x03\x05" + ID.bytes + zlib.compress(b"rest")[:-1], "cut short"),
        (Framing.GLUE, b"\x03\x05" + ID.bytes + zlib.compress(b"rest") + b"x", "has more after"),
        (Framing.GLUE, b"\x03\x05" + ID.bytes + zlib.compress(bytes(MOST_BYTES + 1)), "becomes more than"),
    ],
)
def test_a_value_that_does_not_begin_as_its_framing_does_is_malformed(
    framing: Framing, value: bytes, reason: str
) -> None:
    with pytest.raises(Malformed, match=reason):
        unframed(framing, value)


@pytest.mark.parametrize(
    ("payload", "path"),
    [(b"\0rest", (0,)), (b"\x02\x02rest", (1,)), (b"\x04\x02\x06rest", (1, 3)), (b"\x02\x80\x02rest", (128,))],
)
def test_the_path_to_a_protobuf_message_is_read(payload: bytes, path: tuple[int, ...]) -> None:
    assert message_indexes(payload) == (path, b"rest")


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "ends within"),
        (b"\x04\x02", "ends within"),
        (b"\x01", "-1 indexes"),
        (b"\x02\x01", "the index -1"),
        (b"\xff" * 6, "32 bits"),
        (b"\xfe\x01", "127 indexes"),
    ],
)
def test_a_path_that_is_none_is_malformed(payload: bytes, reason: str) -> None:
    with pytest.raises(Malformed, match=reason):
        message_indexes(payload)
