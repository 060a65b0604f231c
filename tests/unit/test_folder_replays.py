"""Replays of a folder over a ledger in memory: whole files land, each once; one that fails or is gone costs itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from exactlyonce.connectors.files.source_bounds import FolderBounds
from exactlyonce.connectors.files.source_folder import LocalFolder
from exactlyonce.connectors.files.source_lists import FileLists, Known
from exactlyonce.connectors.files.source_position import NOTHING_READ, SourceFile, after
from exactlyonce.connectors.files.source_spec import FilesSource
from exactlyonce.ledger.replay import ReplayClaim
from exactlyonce.ledger.replay_rules import RangeKey
from exactlyonce.ledger.rows import FailureRow, FailureStatus
from exactlyonce.positions.ranges import BatchNumber, Partition, Ranges
from exactlyonce_spark.connectors.files.dividing import FolderDivider
from exactlyonce_spark.replay import Replay
from exactlyonce_spark.replay_outcome import ReplayOutcome, ReplayPace
from exactlyonce_spark.replay_records import RecordsFailed
from exactlyonce_spark.target import DeadLetter
from tests.ledgers import STREAM, started
from tests.simulation.database import Hooks, MemoryDatabase, MemoryLedger
from tests.simulation.files import MemoryStore
from tests.simulation.target import MemoryTarget

LINES = [3, 1, 4, 0, 0, 2]
"""How many records each file has."""
ALL = [f"{number}/{line}" for number, count in enumerate(LINES) for line in range(count)]


@dataclass
class Folder:
    """A stream over a folder of which all files are in quarantine, as one range; `failing` are records that fail."""

    path: Path
    database: MemoryDatabase
    failing: set[str] = field(default_factory=set)
    reads: list[list[str]] = field(default_factory=list)
    before_read: Callable[[], object] = lambda: None

    def __post_init__(self) -> None:
        self.folder = LocalFolder(str(self.path))
        self.lists = FileLists(MemoryStore(), "source", "life-1")
        files = sorted(self.folder.files(), key=lambda file: file.order)
        self.lists.record(Known((), ()), NOTHING_READ, files)
        self.end = after(NOTHING_READ, files)
        ledger = MemoryLedger(self.database)
        started(ledger)
        view = ledger.view(STREAM)
        assert view is not None
        row = FailureRow(
            BatchNumber(3), Partition(str(self.path), 0), NOTHING_READ, self.end, FailureStatus.QUARANTINED, "folder",
            "it failed", origin_id="folder", life=view.stream.life,
        )  # fmt: skip
        with ledger.transaction() as transaction:
            transaction.write_failures(STREAM, (row,))

    def rows(self, ranges: Ranges) -> Sequence[Hashable]:
        """Read the files of a range as tasks do: by the lists, and not by what the divider has found."""
        (span,) = ranges.values()
        files = self.lists.between(span.from_offset, span.until_offset)
        assert files, "a part ends between two files"
        self.before_read()
        records = [line.value.decode() for file in files for line in self.folder.lines(file)]
        self.reads.append([file.path for file in files])
        if self.failing.intersection(records):
            raise RecordsFailed("a record fails")
        return records

    def malformed(self, ranges: Ranges) -> Sequence[DeadLetter]:
        return ()

    def replay(self, *, most: int = 100) -> ReplayOutcome:
        def files(start: int, end: int) -> tuple[SourceFile, ...]:
            found = self.lists.between(start, end)
            assert found is not None
            return found

        divider = FolderDivider(
            str(self.path),
            files,
            lambda each: (1 for _ in self.folder.lines(each.file)),
        )
        replay = Replay(
            MemoryLedger(self.database), ReplayClaim(STREAM, "mine"), MemoryTarget(self.database, 0),
            FolderBounds(FilesSource(path=str(self.path))), self, ReplayPace(most), divider,
        )  # fmt: skip
        return replay.run([RangeKey.of(row) for row in self.with_status(FailureStatus.QUARANTINED)])

    def with_status(self, status: FailureStatus) -> list[FailureRow]:
        rows = self.database.tables.rows.values()
        return [row for row in rows if isinstance(row, FailureRow) and row.status is status]

    @property
    def landed(self) -> list[str]:
        """The records in the table, as often as they are there."""
        return sorted(self.database.tables.target.elements())  # type: ignore[arg-type]


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    for number, count in enumerate(LINES):
        path = tmp_path / f"{number}.txt"
        path.write_text("".join(f"{number}/{line}\n" for line in range(count)))
        os.utime(path, (1_700_000_000 + number,) * 2)
    return Folder(tmp_path, MemoryDatabase(Hooks(lambda _: None, lambda _label, may_go: None, lambda: "answered")))


def test_parts_are_whole_files_of_so_many_records_and_each_lands_once(folder: Folder) -> None:
    outcome = folder.replay(most=4)
    assert (outcome.landed, outcome.told) == (len(ALL), [])
    assert folder.landed == ALL
    assert folder.reads == [["0.txt", "1.txt"], ["2.txt"], ["3.txt", "4.txt", "5.txt"]], (
        "a file without records weighs one"
    )
    assert not folder.with_status(FailureStatus.QUARANTINED)


def test_a_file_with_more_records_than_a_transaction_is_to_have_lands_alone(folder: Folder) -> None:
    assert folder.replay(most=1).landed == len(ALL)
    assert [len(files) for files in folder.reads] == [1] * len(LINES)


def test_a_record_that_fails_costs_its_file_and_no_other(folder: Folder) -> None:
    folder.failing = {"2/3"}
    outcome = folder.replay()
    assert (outcome.landed, outcome.failed, outcome.uncounted) == (len(ALL) - 4, 4, 0)
    assert folder.landed == [record for record in ALL if not record.startswith("2/")]
    (left,) = folder.with_status(FailureStatus.QUARANTINED)
    (words,) = outcome.told
    assert words.startswith(f"The file {folder.path}/2.txt (4 records) of the range {RangeKey.of(left)} failed again")
    folder.failing = set()
    assert folder.replay().landed == 4
    assert folder.landed == ALL


def test_files_without_records_that_fail_are_tried_one_by_one_and_the_replay_ends(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A half of zero records is zero: a replay that divided by records alone would try the same files for ever."""

    def fails(_ranges: Ranges) -> Sequence[Hashable]:
        folder.reads.append([])
        if len(folder.reads) > 40:
            pytest.fail("it goes round in circles")
        raise RecordsFailed("the transform fails")

    monkeypatch.setattr(folder, "rows", fails)
    outcome = folder.replay()
    assert len(outcome.told) == len(LINES)
    assert (outcome.failed, outcome.uncounted) == (len(ALL), 2)


@pytest.mark.parametrize("how", ["gone", "written to"])
def test_a_file_that_is_not_as_it_was_planned_stays_with_its_name_until_it_is_back(folder: Folder, how: str) -> None:
    path = folder.path / "2.txt"
    was, content = path.stat(), path.read_text()
    if how == "gone":
        path.unlink()
    else:
        path.write_text(content + "2/4\n")
    outcome = folder.replay()
    assert (outcome.landed, outcome.failed, outcome.lost, outcome.uncounted) == (len(ALL) - 4, 0, 0, 1)
    assert folder.landed == [record for record in ALL if not record.startswith("2/")]
    (words,) = outcome.told
    assert str(path) in words
    assert ("is gone" if how == "gone" else "was written to") in words
    assert not folder.with_status(FailureStatus.LOST), "somebody may put it back"

    path.write_text(content)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert folder.replay().landed == 4
    assert folder.landed == ALL


@pytest.mark.parametrize("how", ["gone", "written to"])
def test_a_file_that_goes_between_its_count_and_its_read_costs_itself_and_no_other(folder: Folder, how: str) -> None:
    """A task refuses to read it (FileVanished, FileChanged): neither does that end the replay, nor is the count believed."""
    path = folder.path / "2.txt"
    was, content = path.stat(), path.read_text()
    folder.before_read = lambda: path.unlink(missing_ok=True) if how == "gone" else path.write_text(content + "2/4\n")
    outcome = folder.replay()
    assert (outcome.landed, outcome.failed, outcome.uncounted) == (len(ALL) - 4, 0, 1)
    assert folder.landed == [record for record in ALL if not record.startswith("2/")]
    (words,) = outcome.told
    assert str(path) in words

    folder.before_read = lambda: None
    path.write_text(content)
    os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert folder.replay().landed == 4
    assert folder.landed == ALL


def test_who_replays_a_file_that_is_gone_is_told_what_helps_and_not_what_would_help_a_batch(folder: Folder) -> None:
    (folder.path / "2.txt").unlink()
    (words,) = folder.replay().told
    assert words.endswith(
        "is gone. Put it back as it was, with its modification time, and replay again. Where it cannot be, as on S3, "
        "give the range up (exactlyonce failures give-up), and put the records into a file of another name: the stream reads "
        "that one itself."
    )
    assert "maxFilesPerTrigger" not in words, "the stream has continued behind this file"


def test_a_file_that_cannot_be_read_is_told_with_what_helps_a_replay(folder: Folder) -> None:
    whole = folder.path / "6.txt.gz"
    whole.write_bytes(b"no gzip")
    folder = Folder(folder.path, MemoryDatabase(Hooks(lambda _: None, lambda _label, may_go: None, lambda: "answered")))
    outcome = folder.replay()
    assert outcome.landed == len(ALL)
    (words,) = outcome.told
    assert "is not a whole gzip file" in words
    assert (
        "Or give the range up (exactlyonce failures give-up), and put the records into a file of another name" in words
    )
    assert "maxFilesPerTrigger" not in words
