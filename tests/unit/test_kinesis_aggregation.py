"""User records in aggregates of the KPL: those of other aggregators, random ones, malformed ones, damaged ones."""

from __future__ import annotations

import base64
import hashlib
import json
import random
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest

from exactlyonce.connectors.kinesis.aggregation import MAGIC, RawRecord, UserRecordData, user_record_count, user_records
from exactlyonce.connectors.kinesis.positions import UserRecord

VECTORS = json.loads((Path(__file__).parent / "kinesis_aggregates.json").read_text())["aggregates"]
SEQUENCE_NUMBER = 49590338271490256608559692538361571095921575989136588898
Put = tuple[str, str | None, bytes]
"""What a producer put: partition key, explicit hash key, data."""


def integer(value: int) -> bytes:
    """The encoder of the tests: an integer of protocol buffers."""
    low, high = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + integer(high) if high else bytes([low])


def field(number: int, content: bytes | int) -> bytes:
    if isinstance(content, int):
        return integer(number << 3) + integer(content)
    return integer(number << 3 | 2) + integer(len(content)) + content


def inner(key: int | None, hash_key: int | None, data: bytes | None, *, more: bytes = b"") -> bytes:
    content = b"" if key is None else field(1, key)
    content += b"" if hash_key is None else field(2, hash_key)
    content += b"" if data is None else field(3, data)
    return field(3, content + more)


def sealed(message: bytes) -> bytes:
    return MAGIC + message + hashlib.md5(message).digest()


def aggregate(puts: Sequence[Put]) -> bytes:
    keys = list(dict.fromkeys(key for key, _, _ in puts))
    hash_keys = list(dict.fromkeys(hash_key for _, hash_key, _ in puts if hash_key is not None))
    message = b"".join(field(1, key.encode()) for key in keys)
    message += b"".join(field(2, hash_key.encode()) for hash_key in hash_keys)
    for key, hash_key, data in puts:
        message += inner(keys.index(key), None if hash_key is None else hash_keys.index(hash_key), data)
    return sealed(message)


def raw(data: bytes) -> RawRecord:
    return RawRecord(SEQUENCE_NUMBER, "the record's own key", data, 1_700_000_000_000)


def puts_of(records: Iterable[UserRecordData]) -> list[Put]:
    return [(record.partition_key, record.explicit_hash_key, record.data) for record in records]


def assert_malformed(data: bytes, reason: str = "") -> None:
    """It is one user record with all of the data and a reason."""
    (record,) = user_records(raw(data))
    assert user_record_count(raw(data)) == 1
    assert record.malformed is not None
    assert reason in record.malformed
    assert (record.record, record.data) == (UserRecord(SEQUENCE_NUMBER, 0), data)
    assert puts_of([record]) == [("the record's own key", None, data)]


def random_puts(chance: random.Random) -> list[Put]:
    keys = ["".join(chance.choices("abcü日", k=chance.randint(1, 200))) for _ in range(chance.randint(1, 200))]
    hash_keys = [None, *(str(chance.getrandbits(128)) for _ in range(3))]
    return [
        (chance.choice(keys), chance.choice(hash_keys), chance.randbytes(chance.choice([0, 1, 127, 128, 300, 20_000])))
        for _ in range(chance.randint(1, 60))
    ]


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
def test_what_aggregators_of_other_languages_make_is_read_as_it_was_put(vector: dict[str, object]) -> None:
    data = base64.b64decode(str(vector["data"]))
    expected = vector["user_records"]
    assert isinstance(expected, list)
    records = user_records(raw(data))
    assert [record.record for record in records] == [UserRecord(SEQUENCE_NUMBER, i) for i in range(len(expected))]
    assert puts_of(records) == [(put["key"], put["hash_key"], base64.b64decode(put["data"])) for put in expected]
    assert all(record.malformed is None for record in records)


@pytest.mark.parametrize("data", [b"", b"plain", MAGIC[:3], b"\x00" + MAGIC])
def test_a_record_that_is_no_aggregate_is_its_only_user_record(data: bytes) -> None:
    assert user_records(raw(data)) == [
        UserRecordData(UserRecord(SEQUENCE_NUMBER), "the record's own key", None, data, 1_700_000_000_000)
    ]


@pytest.mark.parametrize("seed", range(50))
def test_what_was_put_is_what_is_read_in_order(seed: int) -> None:
    puts = random_puts(random.Random(seed))
    records = user_records(raw(aggregate(puts)))
    assert puts_of(records) == puts
    assert user_record_count(raw(aggregate(puts))) == len(puts)
    assert [record.record.sub_sequence_number for record in records] == list(range(len(puts)))
    assert {record.arrival_milliseconds for record in records} == {1_700_000_000_000}


def test_the_order_of_tables_and_records_does_not_matter_and_tags_are_passed_over() -> None:
    tag = field(4, field(1, b"name") + field(2, b"value"))
    message = inner(0, 0, b"x", more=tag) + field(2, b"17") + field(1, b"k")
    assert puts_of(user_records(raw(sealed(message)))) == [("k", "17", b"x")]


KEY = field(1, b"k")
GOOD = inner(0, None, b"good")


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (KEY + GOOD + inner(1, None, b"x") + GOOD, "user record 1 names partition key 1 of 1"),
        (KEY + GOOD + inner(0, 0, b"x") + GOOD, "user record 1 names explicit hash key 0 of 0"),
        (KEY + inner((1 << 64) - 1, None, b"x"), "names partition key 18446744073709551615 of 1"),
        (KEY + inner(1 << 64, None, b"x"), "more than 64 bits"),
        (GOOD, "user record 0 names partition key 0 of 0"),
        (b"", "it holds no user record"),
        (KEY, "it holds no user record"),
        (KEY + GOOD + field(4, b"more"), "it has a field 4 of wire type 2"),
        (KEY + GOOD + field(1, 7), "it has a field 1 of wire type 0"),
        (KEY + GOOD + b"\x00", "it has a field 0"),
        (KEY + GOOD + b"\x1a", "is cut"),
        (KEY + GOOD + GOOD[:-1], "are left"),
        (KEY + field(3, field(1, 0)), "user record 0 has no data"),
        (KEY + inner(None, None, b"x"), "user record 0 has no partition key"),
        (KEY + inner(0, None, b"x", more=field(3, b"another")), "there twice or not of the format"),
        (KEY + inner(0, None, b"x", more=field(1, 0)), "there twice or not of the format"),
        (KEY + inner(0, None, b"x", more=field(5, b"")), "user record 0 has a field 5"),
        (KEY + inner(0, None, b"x", more=b"\xff"), "is cut"),
        (KEY + field(3, field(1, 0) + b"\x1a\x05abc"), "has 5 bytes, and 3 are left"),
        (field(1, b"\xff") + GOOD, "partition key 0 is not UTF-8"),
        (KEY + field(2, b"not a number") + GOOD, "explicit hash key 0 is not an integer"),
        (KEY + field(2, str(1 << 128).encode()) + GOOD, "explicit hash key 0 is not an integer"),
    ],
)
def test_an_aggregate_that_is_not_of_the_format_is_malformed_as_a_whole(message: bytes, reason: str) -> None:
    assert_malformed(sealed(message), reason)


def test_an_aggregate_with_another_md5_is_malformed() -> None:
    good = aggregate([("k", None, b"x")])
    assert_malformed(good[:-1] + bytes([good[-1] ^ 1]), "MD5")
    assert_malformed(good + b"\x00", "MD5")


@pytest.mark.parametrize("length", [4, 5, 19])
def test_an_aggregate_too_short_for_an_md5_is_malformed(length: int) -> None:
    assert_malformed(aggregate([("k", None, b"x")])[:length], f"{length} bytes are too few")


@pytest.mark.parametrize("seed", range(20))
def test_an_aggregate_that_was_cut_or_changed_anywhere_is_malformed(seed: int) -> None:
    chance = random.Random(seed)
    good = aggregate(random_puts(chance))
    for _ in range(50):
        at = chance.randrange(len(MAGIC), len(good))
        assert_malformed(good[:at])
        assert_malformed(good[:at] + bytes([good[at] ^ 1 << chance.randrange(8)]) + good[at + 1 :])


@pytest.mark.parametrize("seed", range(20))
def test_a_damaged_message_with_a_right_md5_is_read_as_its_bytes_say_or_is_malformed_as_a_whole(seed: int) -> None:
    """Such as an aggregator with a fault makes; what is read has to be all that the message holds."""
    chance = random.Random(seed)
    puts = [(f"key {n}", str(n) if n % 2 else None, chance.randbytes(chance.randrange(40))) for n in range(6)]
    message = bytearray(aggregate(puts)[len(MAGIC) : -16])
    for _ in range(300):
        damaged = bytearray(message)
        for _ in range(chance.randint(1, 3)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        if chance.random() < 0.3:
            del damaged[chance.randrange(len(damaged)) :]
        records = user_records(raw(sealed(bytes(damaged))))
        assert user_record_count(raw(sealed(bytes(damaged)))) == len(records)
        if records[0].malformed is None:
            assert sum(len(record.data) for record in records) < len(damaged)
            assert aggregate_again(records) <= len(damaged), "more is read than the bytes can hold"
            assert [record.record.sub_sequence_number for record in records] == list(range(len(records)))
        else:
            assert_malformed(sealed(bytes(damaged)))


def aggregate_again(records: Sequence[UserRecordData]) -> int:
    """The least number of bytes that hold these records."""
    return sum(len(record.data) + 6 for record in records)
