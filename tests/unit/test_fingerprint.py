"""A fingerprint tells records apart, keeps nothing of them, and counts for the position that it was kept for."""

from __future__ import annotations

import itertools

from exactlyonce.positions.fingerprint import Fingerprint, digest_of

HEADERS: list[tuple[str, bytes | None]] = [("trace", b"1")]


def test_records_that_differ_anywhere_have_other_digests() -> None:
    records: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]], int | None]] = [
        (b"k", b"v", [], 5),
        (b"k", b"v", [], 6),
        (b"k", b"v", [], None),
        (b"kv", b"", [], 5),
        (b"", b"kv", [], 5),
        (None, b"kv", [], 5),
        (b"kv", None, [], 5),
        (b"k", b"v", HEADERS, 5),
        (b"k", b"v", [("trace", None)], 5),
        (b"k", b"v", [("trace", b"")], 5),
        (b"k", b"v", [("trac", b"e1")], 5),
        (b"k", b"v", [*HEADERS, *HEADERS], 5),
    ]
    digests = [digest_of(*record) for record in records]
    assert all(one != other for one, other in itertools.combinations(digests, 2))
    assert digests == [digest_of(*record) for record in records]


def test_what_is_kept_holds_nothing_of_the_record() -> None:
    kept = Fingerprint(3, digest_of(b"patient-17", b"positive", [("ward", b"seven")], 5), 5, 0).to_json()
    assert not [word for word in ("patient", "17", "positive", "ward", "seven") if word in kept]


def test_a_fingerprint_is_read_as_it_was_written() -> None:
    for fingerprint in (Fingerprint(3, "abc", 5, 0), Fingerprint(3, "abc")):
        assert Fingerprint.from_json(fingerprint.to_json()) == fingerprint
    assert Fingerprint.from_json(None) is None
