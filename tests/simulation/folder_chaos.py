"""What goes wrong with a folder and with the lists of what was read, and what a person does who reads why the stream halted."""

from __future__ import annotations

import re

from exactlyonce.api.status import Phase
from exactlyonce.connectors.files.source_lines import FileVanished
from exactlyonce.connectors.files.source_lists import ListUnfit
from exactlyonce.connectors.files.source_plan import FileChanged
from exactlyonce_spark.connectors.files.source_planner import FilesGone
from tests.simulation.chaos import Chaos
from tests.simulation.folder_bucket import Version
from tests.simulation.folder_world import FolderWorld, paths_in
from tests.simulation.violations import Violation

_MOST_REPAIRS = 6
_LIST = re.compile(r"source/[0-9a-f]{16}/[0-9a-f-]+")


class FolderChaos(Chaos):
    """Strikes a world with a folder."""

    def __init__(self, world: FolderWorld) -> None:
        super().__init__(world)
        self._folder = world

    def _produce(self) -> None:
        world, bucket = self._folder, self._folder.bucket
        if self._produced >= world.records_to_produce:
            return
        count = world.random.randint(1, 3)
        late = world.strikes("files late", 0.3)
        number = len(bucket.history)
        seconds = world.random.randint(0, 40) if late else 50 + number // 2
        bucket.put(f"f{number}", bucket.made(count), 1000 * seconds)
        self._produced += count

    def _strike_source(self) -> None:
        world, bucket = self._folder, self._folder.bucket
        self._stop_or_start_source()
        self._change_limit()
        if bucket.held and world.strikes("file changes", 0.2):
            self._write_to(bucket.held[world.random.choice(sorted(bucket.held))])
        if bucket.held and world.hazard_strikes("file vanishes", 0.2):
            path = world.random.choice(sorted(bucket.held))
            world.journal.strike("file vanishes")
            if path not in world.landed_paths and world.is_listed(path):
                world.must_tell.add(path)
            bucket.vanish(path)
            world.simulation.tell(f"{path} vanishes")

    def _write_to(self, version: Version) -> None:
        """Lines are added, or others are in their place, of the same size."""
        world, bucket = self._folder, self._folder.bucket
        count = world.random.randint(1, 2)
        added = bucket.made(count if world.random.random() < 0.6 else len(version.records))
        records = [*version.records, *added] if len(added) == count and world.random.random() < 0.6 else added
        later = version.modified_milliseconds + (1000 if world.random.random() < 0.7 else 0)
        bucket.put(version.path, records, later)
        world.simulation.tell(f"{version.path} is written to")

    def _strike_files(self) -> None:
        world = self._folder
        if world.store.files and world.hazard_strikes("lose checkpoint", 0.03):
            gone = [path for path in world.store.files if not path.startswith("source/")]
            for path in gone:
                del world.store.files[path]
            world.journal.strike("lose checkpoint")
            world.simulation.tell("the generations are lost, and the lists are not")
        if world.strikes("lose lists", 0.03):
            for path in [path for path in world.store.files if path.startswith("source/")]:
                del world.store.files[path]
            world.must_tell.clear()
            world.simulation.tell("the lists of files that were read are lost")
        super()._strike_files()


def mends(world: FolderWorld) -> bool:
    """A person reads why the stream has halted, does what it says, and lets it run again; whether that was done."""
    problems = [
        driver.problem
        for drivers in world.drivers.values()
        for driver in drivers
        if isinstance(driver.problem, world.refused)
    ]
    told = world.statuses.status.message
    latest = next((problem for problem in reversed(problems) if str(problem) in told or told in str(problem)), None)
    if latest is None or world.repairs >= _MOST_REPAIRS or any(not it.ended for it in world.operators):
        return False
    if not _mended(world, latest):
        return False
    world.repairs += 1
    world.statuses.status = world.statuses.status.model_copy(update={"phase": Phase.PENDING})
    world.statuses.version += 1
    world.journal.strike(MENDED)
    world.draining = False
    world.start_operator(f"operator of repair {world.repairs}")
    return True


MENDED = "mended"


def _mended(world: FolderWorld, problem: BaseException) -> bool:
    match problem:
        case FileChanged() | FileVanished():
            return _put_right(world, str(problem))
        case FilesGone():
            return _put_back_or_accept(world, str(problem))
        case ListUnfit():
            _remove_lists(world, str(problem))
            return True
    return False  # FilesUnknown: nothing tells what was read


def _named(world: FolderWorld, told: str) -> list[str]:
    found = [path for path in sorted(world.bucket.history) if re.search(rf"\b{path}\b", told)]
    if not found:
        raise Violation(f"the stream halted and names no file: {told}")
    return found


def _put_right(world: FolderWorld, told: str) -> bool:
    """A file that changed after it landed goes, and its new lines come in another one; one that was planned comes back.

    Or the limit of a batch is changed, so that a batch that landed nothing is planned again with the files as they are.
    """
    bucket, landed = world.bucket, world.landed_paths
    named = _named(world, told)
    if not any(path in landed for path in named) and world.random.random() < 0.5:
        world.limit = world.limit % world.batch_records + 1
        world.journal.strike("limit changed")
        world.simulation.tell("a person changes the limit of a batch")
        return True
    for path in named:
        read, held = landed.get(path), bucket.held.get(path)
        if read is None:
            planned = [version for version in bucket.history[path] if version.listed in world.planned.get(path, ())]
            if not planned:
                raise Violation(f"{path} is named, and was never planned: {told}")
            bucket.put_back(_latest_listed(world, planned))
            world.must_tell.discard(path)
        elif held is not None:
            new = len(set(held.records) - set(read.records))
            bucket.vanish(path)
            if new:  # as records of their own, so that each belongs to one file
                bucket.put(f"f{len(bucket.history)}", bucket.made(new), held.modified_milliseconds)
    world.simulation.tell("a person puts the files right that the stream names")
    return True


def _latest_listed(world: FolderWorld, planned: list[Version]) -> Version:
    """Return the version that the lists of the present plan name; any that was planned where there are none."""
    text = b"\n".join(content for name, content in world.store.files.items() if name.startswith("source/"))
    named = [version for version in planned if f'"{version.tag}"]'.encode() in text]
    return world.random.choice(named or planned)


def _put_back_or_accept(world: FolderWorld, told: str) -> bool:
    bucket = world.bucket
    paths = _named(world, told)
    if world.random.random() < 0.5:
        for path in paths:
            if path not in bucket.held:
                planned = [version for version in bucket.history[path] if version.listed in world.planned.get(path, ())]
                bucket.put_back(_latest_listed(world, planned or bucket.history[path]))
            world.must_tell.discard(path)
        world.simulation.tell("a person puts the files back that the stream names")
        return True
    world.accepted |= set(paths)
    _remove_lists(world, told)
    return True


def _remove_lists(world: FolderWorld, told: str) -> None:
    """Whoever removes a list answers for every file in it: one that vanishes behind the sentence is told by nobody."""
    for path in _LIST.findall(told):
        world.accepted |= paths_in(world.store.files.pop(path, b"")) - set(world.bucket.held)
    world.journal.strike("lose lists")
    world.simulation.tell("a person removes the lists that the stream names")
