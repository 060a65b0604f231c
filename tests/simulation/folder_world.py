"""A world whose source is a folder: files appear, also with old times, are written to and vanish; lists are lost.

The oracle knows every version of every file. After each commit the files with rows in the table have to be as many as the
position counts, each of them once, as a whole and as it was planned; what has vanished or changed is read, or the stream
halts and names it.
"""

from __future__ import annotations

import random
import re
from collections.abc import Hashable, Mapping
from dataclasses import replace
from datetime import timedelta
from functools import cache
from typing import Any, cast

from exactlyonce.api.resource import Stream, parse_stream
from exactlyonce.api.spec import Delivery
from exactlyonce.connectors.files.source_bounds import FolderBounds
from exactlyonce.connectors.files.source_lines import FileVanished
from exactlyonce.connectors.files.source_lists import ListUnfit
from exactlyonce.connectors.files.source_plan import FileChanged
from exactlyonce.connectors.files.source_position import SourceFile, count_of
from exactlyonce.connectors.files.source_spec import FilesSource
from exactlyonce.connectors.specs import Commit
from exactlyonce.positions.ranges import OffsetRange, Partition
from exactlyonce.source.connector import SourceCheck
from exactlyonce.source.port import Source
from exactlyonce_spark.connectors.files.source_planner import FilesGone, FilesUnknown
from exactlyonce_spark.connectors.files.source_records import FolderStreamReader
from tests.simulation.causes import ERRORS_OF_FOLDERS
from tests.simulation.files import MemoryStore
from tests.simulation.folder_bucket import FOLDER, PARTITION, SimulatedBucket, Version
from tests.simulation.folder_spark import FolderQuery
from tests.simulation.keyed import HowKeyed
from tests.simulation.resource import STREAM_ID, RequestedSpec, of_poison
from tests.simulation.scenario import Scenario
from tests.simulation.world import SimulatedWorld

OWN_HAZARDS = ("files late", "file changes", "file vanishes", "lose lists")
_NOT_WITH_FILES = frozenset(
    {"delivery changed", "foreign writes", "topics changed", "new partition", "former life", "commit changed"}
    | {"drop ledger", "leader moves", "truncate", "re-create", "retention", "edited by hand", "start over"}
)
"""What happens to topics alone, and what other worlds show whose part of the protocol does not see which source it is."""

_NAMED = re.compile(rb'^\["([^"]+)",', re.MULTILINE)


class FolderWorld(SimulatedWorld):
    """Everything of one seed. `planned` are the files of each plan, by its end; `accepted` what a person gives up."""

    query_type = FolderQuery
    positions_count_records = False
    errors = ERRORS_OF_FOLDERS
    refused = (FileChanged, FileVanished, FilesGone, FilesUnknown, ListUnfit)
    min_age = timedelta(0)

    def __init__(self, seed: int, scenario: Scenario | None = None) -> None:
        super().__init__(seed, scenario)
        dice = random.Random(f"folder {seed}")
        self.cleans = "lose lists" not in self.scenario.hazards and dice.random() < 0.4
        self.latest_first = dice.random() < 0.2
        self.bucket = SimulatedBucket(self.simulation.step, self._note_cleaned)
        self.topic = cast(Any, self.bucket)
        self.named = frozenset({FOLDER})
        self.planned: dict[str, set[SourceFile]] = {}
        self.accepted: set[str] = set()
        self.repairs = 0
        self.must_tell: set[str] = set()
        if self.database.how_keyed is HowKeyed.OVERWRITES:
            self.database.how_keyed = HowKeyed.IF_NEWER  # files are not read in the order in which they were written
        for number in range(dice.randint(0, 4)):
            self.bucket.put(f"f{number}", self.bucket.made(dice.randint(1, 3)), 1000 * (50 + number // 2))

    def note_plan(self, reader: FolderStreamReader, start: int, end: int) -> None:
        """Note which files a plan has, from the planner's memory: no call to the world."""
        planner = reader._planner
        assert planner is not None
        for file in planner._known.files[count_of(start) : count_of(end)]:
            self.planned.setdefault(file.path, set()).add(file)

    @property
    def landed_paths(self) -> dict[str, Version | None]:
        """The files with rows in the table, each with the version that these are; None where they fit no version."""
        counts = self.database.tables.target
        found: dict[str, Version | None] = {}
        for path, versions in self.bucket.history.items():
            every = {record for version in versions for record in version.records}
            there = {record for record in every if counts[record]}
            if there:
                fitting = [version for version in versions if set(version.records) == there]
                found[path] = fitting[0] if fitting else None
        return found

    def wrong_since_commit(self) -> str | None:
        """The position counts other files than have rows, or one of these is there in part, or as it was not planned."""
        landed = self.landed_paths
        torn = [path for path, version in landed.items() if version is None]
        if torn:
            return f"neither once nor whole: {torn}"
        unplanned = [
            path
            for path, version in landed.items()
            if version is not None and version.listed not in self.planned.get(path, ())
        ]
        if unplanned:
            return f"landed otherwise than planned: {unplanned}"
        row = self.database.tables.rows.get(("position", STREAM_ID, PARTITION))
        count = None if row is None else count_of(row[0])
        if count is not None and count != len(landed):
            return f"the position counts {count} files, and {len(landed)} have rows: {sorted(landed)}"
        return None

    def never_asked(self) -> set[Hashable]:
        """Return the records that are in no file any more: what has vanished, or was written over, before it landed."""
        held = {record for version in self.bucket.held.values() for record in version.records}
        gone: set[Hashable] = {record for record in self.bucket.records if record not in held}
        untold = {path for path in self.must_tell - self.accepted if path not in self.landed_paths}
        owed = {record for path in untold for record in self.bucket.history[path][-1].records}
        self.taken |= gone - owed
        return gone - owed

    def is_lost(self, path: str) -> bool:
        """Whether a list names a file that is gone and has no rows: as long as the list is there, that may not go untold."""
        return path not in self.bucket.held and path not in self.landed_paths and self.is_listed(path)

    def is_listed(self, path: str) -> bool:
        """Whether a list names a file: from then on it may not go without a word."""
        lists = (content for name, content in self.store.files.items() if name.startswith("source/"))
        return any(path in paths_in(content) for content in lists)

    def source_check(self) -> SourceCheck:
        """Return the folder as the process that is running asks it before it lands."""
        return self._bounds(self.requested)

    def source(self, requested: RequestedSpec) -> Source:
        """Return the folder as an operator's pass looks at it: it never opens it."""
        return self._bounds(requested)

    def resource(self, requested: RequestedSpec) -> Stream:
        """Return the stream's resource."""
        return _resource(requested, self.cleans)

    def struck_by(self, hazard: str, told: str) -> None:
        """Note what has gone wrong."""
        self.simulation.tell(told)
        self.struck.add(hazard)
        if hazard == "restore":
            self.must_tell |= {path for path in self.bucket.history if self.is_lost(path)}
        if hazard == "lose checkpoint":
            self.must_tell.clear()  # nothing says any more that they were planned

    def records_before(self, partition: Partition, position: int) -> int:
        """Nothing: records are counted by the files that have landed, after each commit."""
        return 0

    def records_in(self, partition: Partition, span: OffsetRange) -> set[Hashable]:
        """Nothing is ever given up by ranges."""
        return set()

    def is_landed(self, record: tuple[str, int, int], stands: Mapping[Partition, int]) -> bool:
        """Whether a row may be there: whole files are compared with the position after each commit."""
        return record[2] < len(self.bucket.records)

    def has_landed_all(self, stands: Mapping[Partition, int]) -> bool:
        """Whether everything that can be read has landed."""
        counts = self.database.tables.target
        return all(counts[record] for version in self.bucket.held.values() for record in version.records)

    def _note_cleaned(self, version: Version) -> None:
        there = all(self.database.tables.target[record] for record in version.records)
        if not there and not self.journal.has_struck({"restore", "lose ledger"}):
            self.wrong.append(f"{version.path} is removed before it has landed")

    def _bounds(self, requested: RequestedSpec) -> FolderBounds:
        spec = self.resource(requested).spec.source.spec
        assert isinstance(spec, FilesSource)
        return FolderBounds(spec)

    def _fitting(self, scenario: Scenario) -> Scenario:
        dice = random.Random(f"hazards {self.seed}")
        own = {hazard for hazard in OWN_HAZARDS if scenario.hazards and dice.random() < 0.5}
        if scenario.hazards & set(OWN_HAZARDS):
            own = set()  # it was made for folders
        return replace(
            scenario,
            delivery=Delivery.EXACTLY_ONCE,
            commit=Commit.BATCH,
            stateful=False,
            quarantine=False,
            bisect=False,
            manifest=False,
            hazards=(scenario.hazards - _NOT_WITH_FILES) | own,
        )


def paths_in(content: bytes) -> set[str]:
    """Return the files that a list names, also one that was cut short."""
    return {path.decode() for path in _NAMED.findall(content)}


@cache
def _resource(requested: RequestedSpec, cleans: bool) -> Stream:
    return parse_stream(
        {
            "apiVersion": "exactlyonce.dev/v1alpha1",
            "kind": "ExactlyOnceStream",
            "metadata": {"name": "orders", "namespace": "shop", "annotations": dict(requested.annotations)},
            "spec": {
                "source": {
                    "files": {
                        "path": FOLDER,
                        "maxFilesPerTrigger": requested.limit,
                        "cleanSource": "Delete" if cleans else "Off",
                    },
                    "format": {"schema": "id BIGINT"},
                },
                "sink": {"postgres": {"secretRef": {"name": "warehouse"}, "table": "orders"}},
                "checkpoint": {"local": {"path": MemoryStore.location}},
                "recovery": of_poison(requested),
            },
        },
        "the simulation",
    )
