"""Generations and the marker of a location: how they are named, made, found again and left alone."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from exactlyonce.checkpoint.generation import (
    MARKER,
    Generation,
    Marker,
    MarkerUnreadable,
    contents_of,
    create_marker,
    list_generations,
    parse_generation,
    read_marker,
    replace_marker,
    write_seed,
)
from exactlyonce.checkpoint.state import read_generation
from exactlyonce.connectors.kafka.codec import CODEC
from exactlyonce.errors import StoreUnreachable
from exactlyonce.positions.ranges import BatchNumber, Epoch
from testbed.golden import ENDS, START
from tests.checkpoints import readable
from tests.simulation.files import MemoryStore

OURS = Marker("shop/orders", "token-1")
THEIRS = Marker("shop/returns", "token-2")
SEVENTH = Generation(7, Epoch(3))


class Died(Exception):
    """The process that wrote is gone."""


def dies_at(count: int) -> MemoryStore:
    """Return a store whose writer dies before its `count`-th write."""
    left = iter(range(count))

    def step(_: str) -> None:
        if next(left, None) is None:
            raise Died

    return MemoryStore(step)


def seed(store: MemoryStore, batch: int = 41) -> None:
    write_seed(store, CODEC, SEVENTH, BatchNumber(batch), START, 2)


@pytest.mark.parametrize(
    ("generation", "folder"),
    [
        (Generation(1, Epoch(1)), "generation-000001-a1"),
        (Generation(3, Epoch(17)), "generation-000003-a17"),
        (Generation(1_234_567, Epoch(12)), "generation-1234567-a12"),
    ],
)
def test_a_generation_is_named_by_its_number_and_the_attempt_that_made_it(generation: Generation, folder: str) -> None:
    assert generation.folder == folder
    assert parse_generation(folder) == generation
    assert generation.path("/checkpoints/orders/") == f"/checkpoints/orders/{folder}"


@pytest.mark.parametrize(
    "name", ["generation-1-a1", "generation-000001", "generation-000001-a1.bak", "Generation-000001-a1", "offsets", ""]
)
def test_another_folder_is_no_generation(name: str) -> None:
    assert parse_generation(name) is None


def test_generations_are_listed_oldest_first_and_files_are_none() -> None:
    store = MemoryStore()
    for folder in ("generation-000010-a9", "generation-000002-a8", "generation-000002-a12", "notes"):
        store.create(f"{folder}/metadata", b"{}")
    store.create("generation-000099-a1", b"a file")
    expected = (Generation(2, Epoch(8)), Generation(2, Epoch(12)), Generation(10, Epoch(9)))
    assert list_generations(store) == expected


def test_the_ledger_beside_the_generations_is_not_foreign() -> None:
    store = MemoryStore()
    store.create("ledger/log.json", b"")
    assert contents_of(store).foreign == ()


def test_what_is_neither_ours_nor_hidden_is_foreign() -> None:
    store = MemoryStore()
    for path in (MARKER, "generation-000001-a1/metadata", ".snapshot/x", "offsets/0", "metadata"):
        store.create(path, b"{}")
    assert contents_of(store).foreign == ("metadata", "offsets")


def test_a_location_without_a_marker_is_no_ones() -> None:
    assert read_marker(MemoryStore()) is None


def test_a_marker_says_whose_the_location_is() -> None:
    store = MemoryStore()
    assert create_marker(store, OURS) == OURS
    assert read_marker(store) == OURS
    assert json.loads(store.read(MARKER)) == {"streamId": "shop/orders", "token": "token-1"}


def test_the_second_stream_at_a_location_is_told_of_the_first() -> None:
    store = MemoryStore()
    create_marker(store, OURS)
    assert create_marker(store, THEIRS) == OURS
    assert read_marker(store) == OURS, "nothing was overwritten"


def test_a_marker_is_replaced_only_where_it_says_what_was_seen_before() -> None:
    store = MemoryStore()
    assert replace_marker(store, OURS, OURS), "nothing is there"
    assert replace_marker(store, OURS, THEIRS)
    assert replace_marker(store, OURS, THEIRS), "after a crash it is asked for again"
    assert not replace_marker(store, replace(THEIRS, token="token-of-before"), OURS), "it was adopted meanwhile"
    assert read_marker(store) == THEIRS


def test_no_text_that_is_made_of_a_marker_holds_its_token() -> None:
    assert OURS.token not in f"{OURS} {OURS!r}"


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'"x"', b'{"streamId":"shop/orders"}', b"\xff"])
def test_a_marker_that_is_something_else_is_neither_missing_nor_overwritten(content: bytes) -> None:
    store = MemoryStore()
    store.create(MARKER, content)
    with pytest.raises(MarkerUnreadable, match=r"^/checkpoints/orders/stream.json is not readable"):
        read_marker(store)
    with pytest.raises(MarkerUnreadable, match=r"^/checkpoints/orders/stream.json is not readable"):
        create_marker(store, OURS)
    assert store.read(MARKER) == content


@pytest.mark.parametrize("batch", [0, 1, 41])
def test_a_seed_is_written_with_the_offsets_last(batch: int) -> None:
    """Spark looks at the offsets first: before they are there, it finds no batch to run."""
    store = MemoryStore()
    seed(store, batch)
    before = [f"commits/{batch}", f"offsets/{batch - 1}"] if batch else ["sources/0/0"]
    expected = ["metadata", *before, f"offsets/{batch}"]
    assert list(store.files) == [f"{SEVENTH.folder}/{path}" for path in expected]


@pytest.mark.parametrize("count", range(4))
def test_a_seed_cut_short_is_finished_by_writing_it_again(count: int) -> None:
    store = dies_at(count)
    with pytest.raises(Died):
        seed(store)
    assert len(store.files) == count
    again = MemoryStore()
    again.files = store.files
    seed(again)
    assert readable(again, SEVENTH.folder).planned_end == START


def test_writing_a_seed_twice_changes_nothing() -> None:
    store = MemoryStore()
    seed(store)
    before = dict(store.files)
    seed(store)
    assert store.files == before


@pytest.mark.parametrize("path", ["metadata", "commits/41", "offsets/40", "offsets/41"])
def test_a_folder_that_holds_something_else_is_not_seeded_over(path: str) -> None:
    store = MemoryStore()
    store.create(f"{SEVENTH.folder}/{path}", b"not ours")
    with pytest.raises(
        StoreUnreachable, match=rf"{SEVENTH.folder}/{path} exists with other content; it was not touched"
    ):
        seed(store)
    assert store.read(f"{SEVENTH.folder}/{path}") == b"not ours"


@pytest.mark.parametrize("foreign", ["offsets/42", "commits/42", "offsets/.42.crc", "state/0/0/1.delta"])
def test_a_seed_that_does_not_read_back_as_written_is_refused(foreign: str) -> None:
    """Something else was in the folder, or writes into it: such a generation is never published."""
    store = MemoryStore()
    seed(store)
    store.create(f"{SEVENTH.folder}/{foreign}", store.read(f"{SEVENTH.folder}/offsets/41"))
    if foreign.startswith("state"):
        assert readable(store, SEVENTH.folder).stateful
    with pytest.raises(StoreUnreachable, match="reads back as"):
        seed(store)


def test_two_generations_do_not_share_a_query_id() -> None:
    store = MemoryStore()
    seed(store)
    write_seed(store, CODEC, Generation(8, Epoch(3)), BatchNumber(41), ENDS[0], 2)
    ids = {store.read(f"{folder}/metadata") for folder in (SEVENTH.folder, Generation(8, Epoch(3)).folder)}
    assert len(ids) == 2
    assert read_generation(store, CODEC, SEVENTH.folder) != read_generation(
        store, CODEC, Generation(8, Epoch(3)).folder
    )


def test_a_seed_names_the_watermark_policy_where_it_is_not_sparks_default() -> None:
    """What the offset log does not name Spark takes for the default, whatever the session is set to."""
    named = {"spark.sql.shuffle.partitions": "2", "spark.sql.streaming.multipleWatermarkPolicy": "max"}
    for policy, conf in (("min", {"spark.sql.shuffle.partitions": "2"}), ("max", named)):
        store = MemoryStore()
        write_seed(store, CODEC, SEVENTH, BatchNumber(0), START, 2, policy)
        assert readable(store, SEVENTH.folder).conf == conf
