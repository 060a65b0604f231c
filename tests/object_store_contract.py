"""What every `ObjectStore` owes beside reading and creating: names in order, and deletion."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from pathlib import Path

import pytest

from exactlyonce.checkpoint.store import AlreadyExists, Created, FileMissing, ObjectStore


class ObjectStoreContract(ABC):
    """Claims about the store that an object log is kept in."""

    @abstractmethod
    def open_objects(self, folder: Path) -> ObjectStore:
        """Return a store that is empty the first time; the same folder gives the same store again."""

    @pytest.fixture
    def objects(self, tmp_path: Path) -> ObjectStore:
        return self.open_objects(tmp_path / "objects")

    def test_names_come_in_order_and_only_those_after_the_one_given(self, objects: ObjectStore) -> None:
        for number in (3, 1, 20, 2):
            objects.create(f"log/{number:04}.entry", b"x")
        objects.create("log/0002.snapshot", b"x")
        objects.create("logs/0009.entry", b"x")
        assert objects.names_after("log", "0002") == ("0002.entry", "0002.snapshot", "0003.entry", "0020.entry")
        assert objects.names_after("log", "0002.entry") == ("0002.snapshot", "0003.entry", "0020.entry")
        assert objects.names_after("log", "0020.entry") == ()
        assert len(objects.names_after("log", "")) == 5
        assert objects.names_after("nothing", "") == ()

    def test_what_is_deleted_is_gone_its_name_is_free_again_and_the_rest_stays(self, objects: ObjectStore) -> None:
        for name in ("1", "2", "3"):
            objects.create(f"log/{name}", name.encode())
        for _ in range(2):
            objects.delete(["log/1", "log/3", "log/4"])
        objects.delete([])
        assert objects.names_after("log", "") == ("2",)
        with pytest.raises(FileMissing):
            objects.read("log/1")
        assert objects.create("log/1", b"another") == Created()
        assert objects.create("log/2", b"another") == AlreadyExists(b"2")

    def test_a_list_shows_every_file_that_was_there_before_it_whatever_comes_and_goes_meanwhile(
        self, objects: ObjectStore
    ) -> None:
        for number in range(5):
            objects.create(f"log/{number:04}", b"x")
        ended = threading.Event()

        def come_and_go() -> None:
            number = 100
            while not ended.is_set():
                objects.create(f"log/{number:04}", b"x")
                objects.delete([f"log/{number:04}"])
                number += 1

        other = threading.Thread(target=come_and_go)
        other.start()
        try:
            for _ in range(30):
                assert objects.names_after("log", "")[:5] == tuple(f"{number:04}" for number in range(5))
        finally:
            ended.set()
            other.join()
