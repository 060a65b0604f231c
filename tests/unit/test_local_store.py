"""Checkpoints on a local disk: the claims of every store, and what a disk and a dying process add."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from exactlyonce.checkpoint.local import LocalLogStore
from exactlyonce.checkpoint.store import AlreadyExists, Created, Entry, FileMissing, LogStore
from exactlyonce.errors import StoreUnreachable
from tests.log_store_contract import (
    ConcurrentLogStoreContract,
    ErasableStoreContract,
    LogStoreContract,
    OutputStoreContract,
)
from tests.object_store_contract import ObjectStoreContract
from tests.simulation.files import MemoryStore
from tests.simulation.objects import MemoryObjects


class TestLocalDisk(ErasableStoreContract, ConcurrentLogStoreContract, ObjectStoreContract, OutputStoreContract):
    """The contract on a folder of this machine."""

    def open_store(self, folder: Path) -> LocalLogStore:
        return LocalLogStore(str(folder))

    def name_of_store(self, folder: Path) -> tuple[Callable[[str], LogStore], str]:
        return LocalLogStore, str(folder)

    def open_objects(self, folder: Path) -> LocalLogStore:
        return LocalLogStore(str(folder))

    def open_output(self, folder: Path) -> LocalLogStore:
        return LocalLogStore(str(folder))


class TestTheSimulationsObjects(ObjectStoreContract):
    """The object store of the simulation, when it is asked to be good."""

    def open_objects(self, folder: Path) -> MemoryObjects:
        return MemoryObjects()


class TestTheSimulationsMemory(LogStoreContract):
    """The store of the simulation owes the same, or it would prove another protocol."""

    _stores: dict[Path, MemoryStore]

    def open_store(self, folder: Path) -> LogStore:
        self.__dict__.setdefault("_stores", {})
        return self._stores.setdefault(folder, MemoryStore())


def test_a_location_may_be_given_as_a_path_or_as_spark_names_it(tmp_path: Path) -> None:
    LocalLogStore(f"file://{tmp_path}").create("stream.json", b"one")
    assert LocalLogStore(str(tmp_path)).read("stream.json") == b"one"
    assert LocalLogStore(f"file://{tmp_path}").location == f"file://{tmp_path}"


def test_a_created_file_and_every_folder_above_it_are_on_the_disk_before_anyone_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The order is what counts: content, then name, then the folders that hold the names."""
    seen = watch_the_disk(monkeypatch)
    LocalLogStore(str(tmp_path / "new")).create("g/offsets/0", b"one")
    linked = seen.index(("named", "0"))
    assert [what for what, name in seen[:linked] if name.endswith(".tmp")] == ["flushed"], (
        "the content, before its name"
    )
    after = [name for what, name in seen[linked:] if what == "flushed"]
    assert after == ["offsets", "g", "new"], "the folders, after it"
    assert ("flushed", tmp_path.name) in seen, "the location itself is new and has a name to flush"


def test_a_file_that_another_creator_left_is_flushed_before_it_is_relied_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever created it may have died between naming it and flushing the folder."""
    store = LocalLogStore(str(tmp_path))
    store.create("g/offsets/0", b"one")
    seen = watch_the_disk(monkeypatch)
    assert store.create("g/offsets/0", b"one") == AlreadyExists(b"one")
    assert [name for what, name in seen if what == "flushed"][-3:] == ["offsets", "g", tmp_path.name]


def test_a_replaced_file_is_flushed_before_and_its_folder_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalLogStore(str(tmp_path))
    store.create("stream.json", b"one")
    seen = watch_the_disk(monkeypatch)
    store.replace("stream.json", b"one", b"two")
    assert [what for what, _ in seen] == ["flushed", "renamed", "flushed"]
    assert seen[-1] == ("flushed", tmp_path.name)


@pytest.mark.parametrize(
    ("moment", "visible"),
    [("os.fsync", False), ("os.link", False), ("pathlib.Path.unlink", True)],
    ids=["before-the-content-is-flushed", "before-it-is-named", "after-it-is-named"],
)
def test_a_process_that_dies_within_a_create_leaves_the_whole_file_or_none(
    tmp_path: Path, moment: str, visible: bool
) -> None:
    died = run_python(
        f"""
        def die(*_, **__): os.kill(os.getpid(), signal.SIGKILL)
        LocalLogStore({str(tmp_path)!r}).create("g/offsets/1", b"old")
        {moment} = die
        LocalLogStore({str(tmp_path)!r}).create("g/offsets/0", b"x" * 100_000)
        """
    )
    assert died.returncode == -signal.SIGKILL, died.stderr
    store = LocalLogStore(str(tmp_path))
    names = [entry.name for entry in store.list("g/offsets") if not entry.name.startswith(".")]
    assert names == (["0", "1"] if visible else ["1"])
    left = [entry.name for entry in store.list("g/offsets") if entry.name.startswith(".")]
    assert [name.endswith(".tmp") for name in left] == [True], "what is left has a name that Spark ignores"
    expected = AlreadyExists(b"x" * 100_000) if visible else Created()
    assert store.create("g/offsets/0", b"x" * 100_000) == expected, "and the next one can do it"


def test_a_disk_that_is_full_is_unknown_and_leaves_nothing(tmp_path: Path) -> None:
    done = run_python(
        f"""
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            LocalLogStore({str(tmp_path)!r}).create("g/offsets/0", b"x" * 100_000)
        except StoreUnreachable as problem:
            print(problem)
        """
    )
    assert done.stdout.startswith(f"The location {tmp_path} could not be created ("), done.stderr
    assert "File too large" in done.stdout
    assert LocalLogStore(str(tmp_path)).list("g/offsets") == (), "not even a temporary file"


def test_a_path_that_cannot_be_followed_is_unknown_and_not_missing(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    store = LocalLogStore(str(tmp_path))
    with pytest.raises(StoreUnreachable, match=r"could not be read .*loop: "):
        store.read("loop")
    with pytest.raises(StoreUnreachable, match="could not be listed"):
        store.list("loop")
    with pytest.raises(StoreUnreachable, match="could not be created"):
        store.create("loop/offsets/0", b"")


def test_a_location_below_a_file_is_told_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    store = LocalLogStore(str(tmp_path / "file" / "checkpoints"))
    acts: dict[str, Callable[[], object]] = {
        "listed": lambda: store.list(""),
        "read": lambda: store.read("stream.json"),
        "created": lambda: store.create("stream.json", b""),
    }
    for act, run in acts.items():
        with pytest.raises(StoreUnreachable) as caught:
            run()
        words = f"The location {tmp_path}/file/checkpoints could not be {act} ("
        assert str(caught.value).startswith(words)
        assert str(caught.value).endswith("Not a directory); make it a folder that this user may read and write.")


def test_a_folder_that_this_user_may_not_open_is_unknown_and_not_empty(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    LocalLogStore(str(closed)).create("stream.json", b"one")
    closed.chmod(0)
    try:
        done = run_python(
            f"""
            os.geteuid() or os.setuid(65534) # root may open everything
            store = LocalLogStore({str(closed)!r})
            for act in (lambda: store.list(""), lambda: store.read("stream.json"), lambda: store.create("x", b"")):
                try:
                    print("answered", act())
                except StoreUnreachable as problem:
                    print("Permission denied" in str(problem))
            """
        )
    finally:
        closed.chmod(0o700)
    assert done.stdout.split() == ["True"] * 3, done.stdout + done.stderr


def test_temporary_files_that_come_and_go_hide_no_other_file(tmp_path: Path) -> None:
    """Spark renames its temporary files while the operator lists; a folder read then is not an empty one."""
    store = LocalLogStore(str(tmp_path))
    kept = {str(number) for number in range(50)}
    for name in kept:
        store.create(f"offsets/{name}", b"x")
    ended = threading.Event()

    def come_and_go() -> None:
        while not ended.is_set():
            for number in range(20):
                (tmp_path / "offsets" / f".{number}.tmp").write_bytes(b"")
            for number in range(20):
                (tmp_path / "offsets" / f".{number}.tmp").unlink()

    churn = threading.Thread(target=come_and_go)
    churn.start()
    try:
        listings = [store.list("offsets") for _ in range(400)]
    finally:
        ended.set()
        churn.join()
    assert all(kept <= {entry.name for entry in listing} for listing in listings)


def test_what_others_put_there_is_listed_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(b"mine")
    (tmp_path / "g" / "offsets" / "7").mkdir(parents=True)
    (tmp_path / "g" / "offsets" / "dangling").symlink_to("nowhere")
    store = LocalLogStore(str(tmp_path))
    store.create("g/offsets/0", b"one")
    assert [entry.name for entry in store.list("")] == ["g", "notes.txt"]
    assert [(entry.name, entry.is_folder) for entry in store.list("g/offsets")] == [("0", False), ("7", True)]
    assert store.create("notes.txt", b"yours") == AlreadyExists(b"mine")
    assert (tmp_path / "notes.txt").read_bytes() == b"mine"
    with pytest.raises(FileMissing):
        store.read("g/offsets/7")


def test_a_folder_in_the_place_of_a_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "stream.json").mkdir()
    store = LocalLogStore(str(tmp_path))
    with pytest.raises(StoreUnreachable, match="Is a directory"):
        store.create("stream.json", b"one")
    assert store.list("") == (Entry("stream.json", (tmp_path / "stream.json").stat().st_size, True),)


def watch_the_disk(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """Record, in order, what is flushed (by its file's name), named and renamed; the calls are made all the same."""
    seen: list[tuple[str, str]] = []
    fsync, link, replace = os.fsync, os.link, os.replace

    def flushed(descriptor: int) -> None:
        seen.append(("flushed", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def named(source: Path, target: Path) -> None:
        seen.append(("named", target.name))
        link(source, target)

    def renamed(source: Path, target: Path) -> None:
        seen.append(("renamed", target.name))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "link", named)
    monkeypatch.setattr(os, "replace", renamed)
    return seen


def run_python(body: str) -> subprocess.CompletedProcess[str]:
    """Run lines in a process of their own, with the store imported."""
    lines = [
        "import os, pathlib, resource, signal",
        "from exactlyonce.checkpoint.local import LocalLogStore",
        "from exactlyonce.errors import StoreUnreachable",
    ]
    indent = len(body) - len(body.lstrip("\n ")) - 1
    lines += [line[indent:] for line in body.strip("\n").splitlines()]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", "\n".join(lines)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def test_a_file_that_is_not_there_is_not_replaced(tmp_path: Path) -> None:
    store = LocalLogStore(str(tmp_path))
    assert not store.replace("stream.json", b"one", b"two")
    assert list(tmp_path.iterdir()) == []
