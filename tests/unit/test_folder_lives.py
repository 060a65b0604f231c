"""Drivers over a folder in random order: they plan, land and die anywhere; files come, go and come late; checkpoints are lost.

Files change after they were planned, what has landed is removed or archived, and some streams start at a moment. The oracle
counts how often each file has landed. Ways of breaking the source on purpose are below: the same lives find each.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta

import pytest

from exactlyonce.connectors.files.source_lists import FileList, FileLists, name_of
from exactlyonce.connectors.files.source_plan import FileChanged, FileLimit, left_out_before
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile, count_of
from exactlyonce_spark.connectors.files import source_planner
from exactlyonce_spark.connectors.files.source_planner import FilesGone, FilesUnknown, FolderPlanner, Ready
from tests.folder_in_memory import MemoryFolder, SetClock, source_file
from tests.simulation.files import MemoryStore

SEEDS = range(48)
STEPS = 60
MOMENT = 100
"""In seconds: where some streams start. Files that come on time are written later."""


class DiedError(Exception):
    """The driver ended."""


@dataclass
class World:
    """What outlives drivers: the folder, the lists, the offset log's latest plan, and the ledger."""

    chance: random.Random
    folder: MemoryFolder = field(default_factory=MemoryFolder)
    clock: SetClock = field(default_factory=SetClock)
    landed: int = NOTHING_READ
    plan: tuple[int, int] | None = None
    counted: Counter[str] = field(default_factory=Counter)
    ever: set[str] = field(default_factory=set)
    lost_lists: bool = False
    is_mortal: bool = True
    deletes: bool = False
    archives: bool = False
    starts_late: bool = False
    left_out: set[str] = field(default_factory=set)
    history: list[tuple[int, Counter[str], set[str]]] = field(default_factory=list)
    was_restored: bool = False
    frozen: list[tuple[FolderPlanner, int]] = field(default_factory=list)
    """Planners of drivers that were taken for dead, and where they stood; one that wakes plans once more, and lands nothing."""
    store: MemoryStore = field(init=False)

    def __post_init__(self) -> None:
        self.store = MemoryStore(lambda _label: self.may_die(0.03))
        if self.starts_late:
            self.ever = {"old-1", "old-2", "new"}
            self.folder.put(source_file("old-1", 1), source_file("old-2", MOMENT - 1), source_file("new", MOMENT))

    def may_die(self, how_likely: float) -> None:
        """End the driver, perhaps."""
        if self.is_mortal and self.chance.random() < how_likely:
            raise DiedError

    def change(self) -> None:
        """Let files come, late ones too, and go once they have landed; now and then lists or the whole checkpoint are lost."""
        for _ in range(self.chance.randrange(4)):
            name = f"{len(self.ever):05}"
            is_late = self.chance.random() < 0.2
            self.folder.put(source_file(name, self.chance.randrange(100) if is_late else 100 + len(self.ever)))
            self.ever.add(name)
        if self.chance.random() < 0.1:
            self._write_to_one_that_has_not_landed()
        if self.chance.random() < 0.1:
            gone = [path for path in self.folder.held if self.counted[path]]
            for path in self.chance.sample(gone, min(len(gone), 2)):
                del self.folder.held[path]
        if self.frozen and self.chance.random() < 0.3:
            planner, stood = self.frozen.pop(self.chance.randrange(len(self.frozen)))
            with suppress(DiedError, FilesUnknown, FilesGone):
                planner.end(stood)
        if self.chance.random() < 0.02:
            self.plan = None
        if self.history and self.chance.random() < 0.01:
            # The ledger's database is restored, with the rows in it, and whatever is planned is not what it expects.
            back = self.chance.randrange(len(self.history))
            self.landed, self.counted, self.left_out = self.history[back]
            self.history, self.plan, self.was_restored = self.history[:back], None, True
        if self.chance.random() < 0.01:
            self.store.files.clear()
            self.plan, self.lost_lists = None, True

    def _write_to_one_that_has_not_landed(self) -> None:
        waiting = [path for path in self.folder.held if not self.counted[path] and path not in self.left_out]
        if waiting and not (self.starts_late and self.landed == NOTHING_READ):
            path = self.chance.choice(waiting)
            self.folder.put(source_file(path, 200 + len(self.ever), 11 + self.chance.randrange(100)))

    def live(self) -> None:
        """Run one driver until it dies, or has nothing to do."""
        planner = FolderPlanner(
            self.folder,
            FileLists(self.store, "source", "life-1"),
            FileLimit(self.chance.randrange(1, 5), 1000),
            Ready(timedelta(0), self.chance.random() < 0.2, self.deletes, "/archive" if self.archives else None),
            self.clock,
            left_out=lambda folder: left_out_before(folder.files(), MOMENT * 1000) if self.starts_late else (),
        )
        if self.plan is not None and self.plan[0] != self.landed:
            self.plan = None  # its batch has landed
        try:
            self._batches(planner)
        except DiedError:
            if self.chance.random() < 0.3:
                self.frozen.append((planner, self.landed))
            raise

    def _batches(self, planner: FolderPlanner) -> None:
        while True:
            if self.plan is None:
                end = planner.end(self.landed)
                self.may_die(0.1)
                if end == self.landed:
                    return
                self.plan = self.landed, end
            self.may_die(0.1)
            files = planner.files(*self.plan)
            assert len(files) == count_of(self.plan[1]) - count_of(self.plan[0])
            read = [file for file in files if not file.is_left_out]
            for file in read:
                assert file.path in self.folder.held, "it was taken away before it had landed"
            if any(self.folder.held[file.path] != file for file in read):
                self.plan = None  # the driver ends as FileChanged, and a person has the batch planned again
                raise DiedError
            self.may_die(0.1)
            # One transaction of the ledger.
            self.history.append((self.landed, Counter(self.counted), set(self.left_out)))
            self.landed = self.plan[1]
            self.counted.update(file.path for file in read)
            self.left_out |= {file.path for file in files if file.modified_milliseconds < MOMENT * 1000} - {
                file.path for file in read
            }
            self.may_die(0.1)
            self.plan = None


def run(seed: int) -> bool:
    """Run lives from a seed, and require that each file has landed once; return whether the stream has halted."""
    world = World(random.Random(seed), deletes=seed % 3 == 0, archives=seed % 3 == 1, starts_late=seed % 4 == 1)
    try:
        for _ in range(STEPS):
            world.change()
            with suppress(DiedError):
                world.live()
            doubled = [name for name, times in world.counted.items() if times > 1]
            assert doubled == [], f"seed {seed}"
            taken = {path.removeprefix("/archive/") for path in world.folder.archived}
            assert world.was_restored or taken <= set(world.counted), f"seed {seed}: archived before they had landed"
        world.is_mortal = False
        with suppress(DiedError):  # what was planned last may have been written to since
            world.live()
        world.live()
    except FilesGone:
        assert world.was_restored, f"seed {seed}: planned files were gone though the ledger never went back"
        return True
    except FilesUnknown:
        assert world.lost_lists, f"seed {seed}: lists were lost though nobody took them"
        return True
    except (FileChanged, DiedError) as problem:
        raise AssertionError(f"seed {seed}: nothing is written to after it has landed, or any more") from problem
    assert world.counted.keys() == world.ever - world.left_out, f"seed {seed}: some were never read"
    if world.starts_late:
        assert {"old-1", "old-2"} <= world.left_out, f"seed {seed}"
        assert "new" not in world.left_out, f"seed {seed}"
    return False


def test_each_file_lands_once_whatever_happens_or_the_stream_stops() -> None:
    halted = [run(seed) for seed in SEEDS]

    assert 0 < sum(halted) < len(halted), "both were tried"


def _believed(position: int, listed: list[SourceFile]) -> tuple[SourceFile, ...]:
    return tuple(sorted(listed, key=lambda file: file.order)[: count_of(position)])


def _no_list(self: FileLists, wanted: FileList) -> None:
    """A list that is only kept in memory."""


def _forgets_what_has_not_landed(self: FileLists, base: int) -> None:
    names = sorted(self._store.list(self._folder), key=lambda entry: entry.name)
    self._store.delete([f"{self._folder}/{entry.name}" for entry in names[:-1]])


def _by_name_alone(self: FileLists, end: int, names: list[str], found: list[FileList]) -> bool:
    """A list is taken for the right one if it has as many files."""
    fitting = sorted(name for name in names if name.startswith(f"{count_of(end):019d}-"))
    for name in fitting:
        listed = self._read(name)
        if listed is not None:
            found.insert(0, listed)
            return listed.start == NOTHING_READ or _by_name_alone(self, listed.start, names, found)
    return False


def _watermark(folder: str, listed: list[SourceFile], read: dict[str, SourceFile]) -> tuple[SourceFile, ...]:
    newest = max((file.order for file in read.values()), default=(0, ""))
    return tuple(sorted((file for file in listed if file.order > newest), key=lambda file: file.order))


def _the_latest_list_alone(self: FileLists, end: int, names: list[str], found: list[FileList]) -> bool:
    fitting = sorted(name for name in names if name.startswith(name_of(NOTHING_READ, end).rsplit("-", 2)[0]))
    found += [listed for name in fitting[:1] if (listed := self._read(name)) is not None]
    return bool(found)


def _cleaned_once_planned(self: FolderPlanner, start: int, batch: tuple[SourceFile, ...]) -> int:
    end = PLAN(self, start, batch)
    self._clean([file for file in batch if file.path in {it.path for it in self._folder.files()}])
    return end


PLAN = FolderPlanner._plan


def _nothing(self: FileLists, position: int) -> dict[str, tuple[SourceFile, ...]]:
    return {}


BROKEN: dict[str, tuple[object, str, object]] = {
    "a folder is believed without proof": (source_planner, "rebuilt", _believed),
    "a list is not written": (FileLists, "_create", _no_list),
    "a compact list removes what has landed": (FileLists, "_remove_before", _forgets_what_has_not_landed),
    "a list is known by its number of files": (FileLists, "_lead", _by_name_alone),
    "what a restored ledger has forgotten is not looked for": (FileLists, "beyond", _nothing),
    "only the latest list is read after a restart": (FileLists, "_lead", _the_latest_list_alone),
    "what was planned is cleaned before it has landed": (FolderPlanner, "_plan", _cleaned_once_planned),
    "what was left out is read": (SourceFile, "is_left_out", property(lambda _: False)),
    "what was left out is not written down": (source_planner, "NOTHING_READ", -1),
    "a watermark instead of what was read": (source_planner, "unread", _watermark),
}


@pytest.mark.parametrize("how", BROKEN)
def test_each_way_of_breaking_it_is_found(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, broken = BROKEN[how]
    monkeypatch.setattr(where, name, broken)

    for seed in SEEDS:
        try:
            run(seed)
        except AssertionError:
            return
    raise AssertionError(f"no seed notices that {how}")
