"""Whatever an object of a log holds, it is read as what was written there or refused by its name; nothing else is raised.

A tenant can write any object with a checksum that fits, and the operator that reads it serves everybody.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from exactlyonce.checkpoint.store import FileTooLarge
from exactlyonce.connectors.object_log.documents import Archive, Entry, LogDamaged, Origin, Snapshot
from exactlyonce.connectors.object_log.fleet import ObjectLogFleet
from exactlyonce.connectors.object_log.ledger import ObjectLogLedger
from exactlyonce.connectors.object_log.log import ObjectLog
from exactlyonce.connectors.object_log.state import Table
from exactlyonce.errors import LedgerRefused
from exactlyonce.ledger.decided import Committable, DecidedBatch
from exactlyonce.ledger.port import Lock
from exactlyonce.ledger.rows import BatchStatus, FailureRow, FailureStatus, QueryMark
from exactlyonce.positions.fingerprint import Fingerprint
from exactlyonce.positions.ranges import BatchNumber, Epoch, OffsetRange, Positions, Ranges
from exactlyonce.positions.selection import Selection
from tests.ledgers import IDS, P0, P1, STREAM, batch_row, started
from tests.object_logs import archives, land, ledger_on, snapshots
from tests.simulation.objects import MemoryObjects

WRONG: dict[type, tuple[Any, ...]] = {
    int: (True, "7", 1.5, [], {}),
    str: (True, 7, [], {}),
    bool: (1, "true", [], {}),
    list: (7, "x", {}, [[]], [None]),
    dict: (7, "x", [], [[]]),
    type(None): (1.5, [], {}, [[]]),
}
"""Values of another type than the one that stands in a field."""

ENTRIES = ("000000000002.entry", "000000000005.entry", "000000000006.entry")

KINDS = {"entry": Entry, "snapshot": Snapshot, "committables": Archive}

Path = tuple[str | int, ...]


def log_with_every_row(every: int) -> MemoryObjects:
    """A log whose entries, or whose snapshot and archives, hold a row of every kind with every field set."""
    store = MemoryObjects()
    ledger = ledger_on(store, every=every)
    permit = started(ledger)
    for number in (1, 2):
        land(ledger, permit, number)
    with ledger.transaction() as transaction:
        row = transaction.lock_stream(STREAM, Lock.UPDATE)
        assert row is not None
        transaction.update_stream(replace(row, writer=Epoch(1), checkpoint_path="/c", stateful=True))
        transaction.write_query(STREAM, QueryMark(Selection(origins=frozenset(["orders"])), "hash", "limit", 5))
        load = Committable("label", "71", 5, Ranges({P0: OffsetRange(0, 2)}))
        decided = DecidedBatch(BatchNumber(2), (load,), {"orders": "id-1"}, {P0: Fingerprint(1, "digest", 1, 1)})
        transaction.write_decided(STREAM, decided)
        stand = transaction.read_positions(STREAM)
        positions = Positions({P0: stand.positions[P0]})  # the other one is retired
        transaction.set_positions(STREAM, replace(stand, positions=positions, origin_ids={"orders": "id-2"}))
        ranges = Ranges({P0: OffsetRange(2, 3)})
        transaction.advance_positions(STREAM, ranges, IDS, {P0: Fingerprint(2, "digest", 1, 1)})
        transaction.write_batch(STREAM, batch_row(3, BatchStatus.FAILED))
        transaction.write_failures(STREAM, (FAILURE,))
        transaction.write_replayed(STREAM, "replay-1", "records 7 to 9")
    return store


FAILURE = FailureRow(
    BatchNumber(1),
    P1,
    10,
    14,
    FailureStatus.LOST,
    "address",
    "retention",
    origin_id="id-1",
    fingerprint=Fingerprint(13, "digest", 1, 1),
    life="life-1",
    replay="nightly",
)


def content_of(store: MemoryObjects, name: str) -> tuple[str, dict[str, Any]]:
    path = next(path for path in sorted(store.objects, reverse=True) if path.endswith(name))
    return path, json.loads(store.objects[path])["content"]


def write(store: MemoryObjects, path: str, content: object) -> None:
    """Write an object with a checksum that fits."""
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    checksum = hashlib.sha256(text.encode()).hexdigest()
    store.objects[path] = f'{{"checksum":"{checksum}","content":{text}}}\n'.encode()


@pytest.mark.parametrize("other", [0, 2])
def test_a_log_of_another_format_is_refused_and_left_as_it_is(other: int) -> None:
    store = log_with_every_row(100)
    path, content = content_of(store, "log.json")
    write(store, path, {**content, "format": other})
    before = dict(store.objects)
    with pytest.raises(
        LedgerRefused, match=f"has the format {other}, and this release reads format 1; run the release"
    ):
        ObjectLogLedger(ObjectLog(store, "ledger")).view(STREAM)
    assert store.objects == before


def fields_of(content: object, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value of a document, with where it stands."""
    if path:
        yield path, content
    pairs: list[tuple[str | int, Any]] = []
    if isinstance(content, dict):
        pairs = list(content.items())
    if isinstance(content, list):
        pairs = list(enumerate(content))
    for name, value in pairs:
        yield from fields_of(value, (*path, name))


def with_value(content: Any, path: Path, value: object) -> Any:
    changed = json.loads(json.dumps(content))
    place = changed
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = value
    return changed


def read_everything(store: MemoryObjects) -> None:
    """All that the operator, a driver and a person who lists files ask of a log."""
    log = ObjectLog(store, "ledger")
    ledger = ObjectLogLedger(log)
    fleet = ObjectLogFleet(log, store, "lake")
    ledger.view(STREAM)
    fleet.landed("", {STREAM: BatchNumber(0)})
    fleet.sizes("")
    with ledger.transaction() as transaction:
        transaction.read_committables(STREAM)
        transaction.read_replayed(STREAM)
        transaction.supersede_batches(STREAM, None)
        transaction.read_batches_after(STREAM, BatchNumber(0))


@pytest.mark.parametrize(
    ("name", "every"),
    [("log.json", 100), *((name, 100) for name in ENTRIES), (".snapshot", 6), (".committables", 6)],
)
def test_a_value_of_another_type_is_refused_by_the_name_of_its_object_in_every_field(name: str, every: int) -> None:
    store = log_with_every_row(every)
    if name == ".snapshot":
        assert snapshots(store)
        assert archives(store)
    read_everything(store)
    path, content = content_of(store, name)
    cases = [(where, wrong) for where, value in fields_of(content) for wrong in WRONG[type(value)] if wrong != value]
    assert cases
    kind = Origin if name == "log.json" else KINDS[name.rpartition(".")[2]]
    parse: Callable[[bytes, str], object] = kind.parse  # type: ignore[attr-defined]
    parse(store.objects[path], path)
    taken, escaped = [], []
    for where, wrong in cases:
        write(store, path, with_value(content, where, wrong))
        try:
            parse(store.objects[path], f"s3a://lake/{path}")
        except LogDamaged as problem:
            if path.rpartition("/")[2] not in str(problem) or "\n" in str(problem):
                escaped.append((where, wrong, str(problem)))
        except Exception as problem:
            escaped.append((where, wrong, repr(problem)))
        else:
            taken.append((where, wrong))
    assert escaped == []
    assert taken == []


@pytest.mark.parametrize(
    "document",
    [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"checksum":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"checksum":"","content":' + b"[" * 500 + b"]" * 500 + b"}",
        b"9" * 5000,
        b"null",
        b'"text"',
        b'{"checksum":null,"content":null}',
        b'{"checksum":"","content":[]}',
        b'{"checksum":"","content":{"format":NaN}}',
        b'{"checksum":"","content":{"format":1e999}}',
        '{"checksum":"","content":{}}'.encode("utf-16"),
        b'{"checksum":"","content":"\\ud800"}',
    ],
    ids=lambda document: repr(document[:24]),
)
@pytest.mark.parametrize("name", ["log.json", "000000000002.entry", ".snapshot", ".committables"])
def test_a_document_that_is_none_of_a_log_is_refused_by_its_name(document: bytes, name: str) -> None:
    store = log_with_every_row(6 if name in (".snapshot", ".committables") else 100)
    path = content_of(store, name)[0]
    store.objects[path] = document
    with pytest.raises((LogDamaged, FileTooLarge), match=rf"^[^\n]*{path.rpartition('/')[2]}[^\n]*$"):
        read_everything(store)


@pytest.mark.parametrize(
    ("name", "where", "wrong"),
    [
        ("entry", ("changes", "groups", 0, 0), "unknown table"),
        ("entry", ("format",), float("inf")),
        ("entry", ("kind",), "x" * 10_000),
        (".snapshot", ("number",), 5),
        (".snapshot", ("rows", 3, 0, 9), "2026-01-01T00:00:00"),
        (".snapshot", ("rows", 3, 0, 9), "yesterday"),
        (".snapshot", ("rows", 3, 0, 3), {"orders": {"0": [5, 2]}}),
        (".snapshot", ("rows", 3, 0, 3), {"orders": {"": [2, 5]}}),
        (".snapshot", ("rows", 3, 0, 2), "x" * 10_000),
        (".snapshot", ("rows", 3, 0, 7), 99),
        (".snapshot", ("rows", 2), [1]),
        (".snapshot", ("rows", 3, 0), [1, 2]),
    ],
)
def test_a_value_that_no_release_writes_is_refused_by_the_name_of_its_object(
    name: str, where: Path, wrong: object
) -> None:
    store = log_with_every_row(6 if name == ".snapshot" else 100)
    path, content = content_of(store, name)
    if where[0] == "rows":
        first = next(place for place, group in enumerate(content["rows"]["groups"]) if group[0] == "batch")
        where = ("rows", "groups", first, *where[1:])
    write(store, path, with_value(content, where, wrong))
    with pytest.raises(LogDamaged, match=rf"^[^\n]*{path.rpartition('/')[2]}[^\n]*$") as told:
        read_everything(store)
    assert len(str(told.value)) < 600, "what a tenant wrote does not fill the status of a resource"


@pytest.mark.parametrize(
    "log_id", ["", "../other", "0" * 31, "0" * 33, "A" * 32, "a/b", "..", "0" * 31 + "\n", "0" * 32 + "\n", 7, None]
)
def test_an_id_that_no_log_has_is_part_of_no_path(log_id: object) -> None:
    store = log_with_every_row(100)
    path, content = content_of(store, "log.json")
    write(store, path, {**content, "id": log_id})
    asked: list[str] = []
    store.hooks.step = asked.append
    for ask in (read_everything, lambda found: ledger_on(found).database_identity()):
        with pytest.raises(LogDamaged, match=r"log\.json"):
            ask(store)
    assert set(asked) == {"read ledger/log.json"}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("number", 7),
        ("part", 1),
        ("streamId", "shop/refunds"),
        ("texts", []),
        ("texts", [[1, "record 1"], [1, "record 1"], [2, "record 2"]]),
        ("texts", [[1, "record 1"]]),
    ],
)
def test_an_archive_that_is_not_the_one_that_is_referred_to_is_damaged(field: str, value: object) -> None:
    store = log_with_every_row(6)
    path, content = content_of(store, ".committables")
    assert field in content
    write(store, path, {**content, field: value})
    with pytest.raises(LogDamaged, match=path.rpartition("/")[2]):
        read_everything(store)


def test_the_log_with_every_row_has_one() -> None:
    """So the values of another type are tried in all of them."""
    store = log_with_every_row(100)
    rows = [row for name in ENTRIES for row in content_of(store, name)[1]["changes"]["groups"]]
    rows += content_of(log_with_every_row(6), ".snapshot")[1]["rows"]["groups"]
    assert {row[0] for row in rows} == {str(table) for table in Table}


DECIDED = json.loads(
    DecidedBatch(
        BatchNumber(2),
        (Committable("label", "71", 5, Ranges({P0: OffsetRange(0, 2)})),),
        {"orders": "id-1"},
        {P0: Fingerprint(1, "digest", 1, 1)},
    ).to_json()
)


def _decided_in(content: dict[str, Any]) -> list[list[Any]]:
    """The items of an entry that are decided batches."""
    return [item for group in content["changes"]["groups"] if group[0] == "decided" for item in group[3]]


@pytest.mark.parametrize("path", [path for path, _ in fields_of(DECIDED)], ids=str)
@pytest.mark.parametrize("other", [None, [], {}, -1, [None]], ids=repr)
def test_a_decided_batch_with_a_value_of_another_type_is_damage_or_says_the_same(path: Path, other: object) -> None:
    store = log_with_every_row(100)
    name = next(name for name in ENTRIES if _decided_in(content_of(store, name)[1]))
    found, content = content_of(store, name)
    (row,) = _decided_in(content)
    decided = json.loads(row[0])
    holder: Any = decided
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = other
    row[0] = json.dumps(decided)
    write(store, found, content)
    try:
        read_everything(store)
    except LogDamaged:
        return
    assert other in ([], {}) or path[-1] in (4, 5), "nothing is to be committed, or nothing is known of the record"
