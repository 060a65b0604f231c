"""What every `LogStore` owes: one suite of claims for each implementation.

A test module subclasses `LogStoreContract` and overrides `open_store`; `ConcurrentLogStoreContract` asks in addition for
a `name_of_store`, a picklable word from which another process opens the same store.
"""

from __future__ import annotations

import multiprocessing
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from exactlyonce.checkpoint.store import (
    AlreadyExists,
    Created,
    CreateOutcome,
    Entry,
    ErasableStore,
    FileMissing,
    LogStore,
    OutputStore,
)

WRITERS = 4
ROUNDS = 40
PATIENCE_SECONDS = 120


class LogStoreContract(ABC):
    """Claims about one user of a store."""

    @abstractmethod
    def open_store(self, folder: Path) -> LogStore:
        """Return a store that is empty the first time; the same folder gives the same store again."""

    @pytest.fixture
    def store(self, tmp_path: Path) -> LogStore:
        return self.open_store(tmp_path / "checkpoints")

    @pytest.mark.parametrize("content", [b"", b"v1\n{}", bytes(range(256)), b"x" * 300_000])
    def test_a_created_file_holds_exactly_what_was_given(self, store: LogStore, content: bytes) -> None:
        assert store.create("g/offsets/0", content) == Created()
        assert store.read("g/offsets/0") == content

    def test_a_created_file_is_there_for_whoever_opens_the_store_next(self, tmp_path: Path) -> None:
        self.open_store(tmp_path).create("g/metadata", b"one")
        assert self.open_store(tmp_path).read("g/metadata") == b"one"

    def test_a_file_whose_name_is_taken_is_not_touched(self, store: LogStore) -> None:
        store.create("g/offsets/0", b"first")
        assert store.create("g/offsets/0", b"second") == AlreadyExists(b"first")
        assert store.read("g/offsets/0") == b"first"

    def test_creating_the_same_again_says_what_is_there(self, store: LogStore) -> None:
        store.create("g/offsets/0", b"same")
        assert store.create("g/offsets/0", b"same") == AlreadyExists(b"same")

    @pytest.mark.parametrize("path", ["g/offsets/1", "g/offsets", "g/nothing/1", "nothing", "other/offsets/0"])
    def test_what_is_not_there_is_missing_by_name(self, store: LogStore, path: str) -> None:
        store.create("g/offsets/0", b"one")
        with pytest.raises(FileMissing):
            store.read(path)

    def test_a_folder_that_does_not_exist_has_no_entries(self, store: LogStore) -> None:
        assert store.list("") == ()
        assert store.list("g/offsets") == ()

    def test_a_folder_lists_files_and_folders_by_name_hidden_ones_too(self, store: LogStore) -> None:
        for path in (
            "g/offsets/10",
            "g/offsets/9",
            "g/offsets/.9.crc",
            "g/offsets/copy/9",
            "g/commits/9",
            "h/metadata",
        ):
            store.create(path, b"four")
        assert store.list("g/offsets") == (
            Entry(".9.crc", 4, False),
            Entry("10", 4, False),
            Entry("9", 4, False),
            Entry("copy", store.list("g/offsets")[3].size_bytes, True),
        )
        assert [(entry.name, entry.is_folder) for entry in store.list("")] == [("g", True), ("h", True)]

    def test_a_name_that_begins_like_a_folders_is_not_in_it(self, store: LogStore) -> None:
        store.create("g/offsets/0", b"")
        store.create("g/offsets-old/0", b"")
        assert [entry.name for entry in store.list("g/offsets")] == ["0"]
        assert [entry.name for entry in store.list("g")] == ["offsets", "offsets-old"]

    def test_an_empty_file_is_listed_with_no_bytes(self, store: LogStore) -> None:
        store.create("g/offsets/0", b"")
        assert store.list("g/offsets") == (Entry("0", 0, False),)

    def test_a_create_leaves_nothing_but_its_file(self, store: LogStore) -> None:
        store.create("g/offsets/0", b"one")
        store.create("g/offsets/0", b"two")
        assert [entry.name for entry in store.list("g/offsets")] == ["0"]

    def test_a_file_is_replaced_when_it_holds_what_is_expected(self, store: LogStore) -> None:
        store.create("stream.json", b"one")
        assert store.replace("stream.json", b"one", b"two")
        assert store.read("stream.json") == b"two"
        assert [entry.name for entry in store.list("")] == ["stream.json"]

    def test_a_file_that_holds_something_else_is_not_replaced(self, store: LogStore) -> None:
        store.create("stream.json", b"one")
        assert not store.replace("stream.json", b"two", b"three")
        assert store.read("stream.json") == b"one"

    def test_a_file_that_is_gone_is_not_replaced(self, store: LogStore) -> None:
        assert not store.replace("stream.json", b"one", b"two")
        assert not store.replace("g/stream.json", b"one", b"two")
        assert store.list("") == ()

    def test_a_tree_has_every_file_at_any_depth_with_its_size(self, store: LogStore) -> None:
        for path in ("g/metadata", "g/state/0/1/SSTs/a.sst", "g/state/0/1/.2.delta.crc", "g-2/metadata"):
            store.create(path, b"four")
        assert dict(store.tree("g")) == {"metadata": 4, "state/0/1/SSTs/a.sst": 4, "state/0/1/.2.delta.crc": 4}
        assert dict(store.tree("g/state/0")) == {"1/SSTs/a.sst": 4, "1/.2.delta.crc": 4}
        assert dict(store.tree("nothing")) == {}

    @pytest.mark.parametrize("content", [b"", bytes(range(256)) * 5000])
    def test_a_copy_holds_the_same_and_leaves_what_it_was_made_from(self, store: LogStore, content: bytes) -> None:
        store.create("g/state/0/1.delta", content)
        for _ in range(2):
            store.copy("g/state/0/1.delta", "h/state/0/1.delta")
        assert store.read("h/state/0/1.delta") == store.read("g/state/0/1.delta") == content
        assert dict(store.tree("h")) == {"state/0/1.delta": len(content)}, "it leaves nothing beside itself"

    def test_a_copy_replaces_what_was_there_and_stays_when_its_source_is_replaced(self, store: LogStore) -> None:
        store.create("g/file", b"one")
        store.create("h/file", b"of an earlier try")
        store.copy("g/file", "h/file")
        store.replace("g/file", b"one", b"two")
        assert store.read("h/file") == b"one"

    def test_what_is_not_there_is_not_copied(self, store: LogStore) -> None:
        with pytest.raises(FileMissing):
            store.copy("g/file", "h/file")
        assert dict(store.tree("h")) == {}


class ErasableStoreContract(LogStoreContract):
    """Claims about a store whose content can be taken away."""

    @abstractmethod
    def open_store(self, folder: Path) -> ErasableStore:
        """As for every store."""

    def test_a_removed_file_is_gone_and_can_be_created_again(self, tmp_path: Path) -> None:
        store = self.open_store(tmp_path)
        store.create("stream.json", b"one")
        store.create("stream.json.old", b"two")
        store.remove("stream.json")
        assert [entry.name for entry in store.list("")] == ["stream.json.old"]
        assert store.create("stream.json", b"three") == Created()

    def test_a_removed_folder_is_gone_with_all_that_was_in_it_and_nothing_else(self, tmp_path: Path) -> None:
        store = self.open_store(tmp_path)
        for path in ("g/metadata", "g/offsets/0", "g/offsets/.0.crc", "g/state/0/0/1.zip", "g-2/metadata", "h"):
            store.create(path, b"x")
        store.remove("g")
        assert [entry.name for entry in store.list("")] == ["g-2", "h"]
        assert store.list("g/offsets") == ()
        with pytest.raises(FileMissing):
            store.read("g/metadata")

    def test_what_is_not_there_is_as_good_as_removed(self, tmp_path: Path) -> None:
        store = self.open_store(tmp_path)
        store.remove("nothing")
        store.create("g/metadata", b"x")
        store.remove("g")
        store.remove("g")
        assert store.list("") == ()


class OutputStoreContract(ABC):
    """Claims about a folder with any number of files, which is read piece by piece."""

    @abstractmethod
    def open_output(self, folder: Path) -> OutputStore:
        """Return the store of a folder, which is empty the first time."""

    def test_walking_and_listing_yield_what_is_there_and_nothing_of_a_folder_that_is_not(self, tmp_path: Path) -> None:
        store = self.open_output(tmp_path)
        for path in ("day=1/a", "day=1/.a.crc", "b", "b-2/c"):
            store.create(path, b"four")
        assert dict(store.walk("")) == {"day=1/a": 4, "day=1/.a.crc": 4, "b": 4, "b-2/c": 4}
        assert dict(store.walk("day=1")) == {"a": 4, ".a.crc": 4}
        assert {(entry.name, entry.is_folder) for entry in store.entries("")} == {
            ("b", False),
            ("b-2", True),
            ("day=1", True),
        }
        assert not list(store.walk("nothing"))
        assert not list(store.entries("nothing"))

    def test_deleted_files_are_gone_and_others_are_not(self, tmp_path: Path) -> None:
        store = self.open_output(tmp_path)
        for path in ("day=1/a", "day=1/b", "c"):
            store.create(path, b"four")
        for _ in range(2):
            store.delete(["day=1/a", "c", "nothing"])
        assert dict(store.walk("")) == {"day=1/b": 4}

    def test_the_folders_above_are_read_as_folders_of_their_own(self, tmp_path: Path) -> None:
        inner, outer = tmp_path / "lake" / "eu" / "orders", tmp_path / "lake"
        self.open_output(outer).create("_exactlyonce/stream.json", b"whose it is")
        above = {store.location.rpartition("/")[2]: store for store in self.open_output(inner).folders_above()}
        assert list(above)[:2] == ["eu", "lake"]
        assert above["lake"].read("_exactlyonce/stream.json") == b"whose it is"
        with pytest.raises(FileMissing):
            above["eu"].read("_exactlyonce/stream.json")


class ConcurrentLogStoreContract(LogStoreContract):
    """Claims about several users of one store at once: threads, and processes that share nothing else."""

    @abstractmethod
    def name_of_store(self, folder: Path) -> tuple[Callable[[str], LogStore], str]:
        """Return a module's function and its argument, by which another process opens the store of `folder`."""

    def test_of_many_threads_exactly_one_creates_a_file(self, tmp_path: Path) -> None:
        barrier = threading.Barrier(WRITERS, timeout=PATIENCE_SECONDS)

        def create_all(writer: int) -> list[CreateOutcome]:
            store = self.open_store(tmp_path)
            return _race(store, writer, barrier.wait)

        with ThreadPoolExecutor(WRITERS) as threads:
            _assert_one_winner_a_round(self.open_store(tmp_path), list(threads.map(create_all, range(WRITERS))))

    def test_of_many_processes_exactly_one_creates_a_file(self, tmp_path: Path) -> None:
        context = multiprocessing.get_context("spawn")
        opened = self.name_of_store(tmp_path)
        barrier = context.Barrier(WRITERS, timeout=PATIENCE_SECONDS)
        with context.Pool(WRITERS, _begin, (barrier,)) as processes:
            outcomes = processes.starmap(
                _race_in_process, [(*opened, writer) for writer in range(WRITERS)], chunksize=1
            )
        _assert_one_winner_a_round(self.open_store(tmp_path), outcomes)

    def test_of_many_replacing_processes_no_one_overwrites_another(self, tmp_path: Path) -> None:
        self.open_store(tmp_path).create("counter", b"0")
        context = multiprocessing.get_context("spawn")
        opened = self.name_of_store(tmp_path)
        with context.Pool(WRITERS, _begin, (context.Barrier(WRITERS, timeout=PATIENCE_SECONDS),)) as processes:
            processes.starmap(_count_up, [opened] * WRITERS, chunksize=1)
        assert self.open_store(tmp_path).read("counter") == str(WRITERS * ROUNDS).encode()

    def test_a_reader_never_sees_a_part_of_a_file(self, tmp_path: Path) -> None:
        """Files of one repeated letter, each replaced while others read: a mixture or a short one would be a part."""
        whole = {letter.encode() * 20_000 for letter in "abcdef"}
        self.open_store(tmp_path).create("file", b"a" * 20_000)
        ended = threading.Event()

        def read_all() -> list[bytes]:
            store = self.open_store(tmp_path)
            torn = []
            while not ended.is_set():
                content = store.read("file")
                torn += [] if content in whole else [content]
            return torn

        with ThreadPoolExecutor(2) as threads:
            readers = [threads.submit(read_all) for _ in range(2)]
            store = self.open_store(tmp_path)
            try:
                for letter in "bcdefa" * 10:
                    assert store.replace("file", store.read("file"), letter.encode() * 20_000)
            finally:
                ended.set()
            assert [reader.result() for reader in readers] == [[], []]


_barrier: object = None


def _begin(barrier: object) -> None:
    global _barrier
    _barrier = barrier


def _wait() -> None:
    _barrier.wait()  # type: ignore[attr-defined] # a Barrier, whose class is not public


def _race(store: LogStore, writer: int, wait: Callable[[], object]) -> list[CreateOutcome]:
    outcomes = []
    for number in range(ROUNDS):
        wait()
        outcomes.append(store.create(f"g/offsets/{number}", f"writer {writer}".encode()))
    return outcomes


def _race_in_process(opens: Callable[[str], LogStore], name: str, writer: int) -> list[CreateOutcome]:
    return _race(opens(name), writer, _wait)


def _count_up(opens: Callable[[str], LogStore], name: str) -> None:
    store = opens(name)
    _wait()
    counted = 0
    while counted < ROUNDS:
        before = store.read("counter")
        counted += store.replace("counter", before, str(int(before) + 1).encode())


def _assert_one_winner_a_round(store: LogStore, outcomes: list[list[CreateOutcome]]) -> None:
    for number, round_outcomes in enumerate(zip(*outcomes, strict=True)):
        winners = [writer for writer, outcome in enumerate(round_outcomes) if outcome == Created()]
        assert len(winners) == 1, f"round {number}: {winners} created the file"
        content = f"writer {winners[0]}".encode()
        assert store.read(f"g/offsets/{number}") == content
        others = [outcome for outcome in round_outcomes if outcome != Created()]
        assert others == [AlreadyExists(content)] * (WRITERS - 1), "every other one is told what is there"
