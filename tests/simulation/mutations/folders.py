"""Mutations of what keeps a folder whole: lists of what was read, digests, versions of files, what may be taken away."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

from exactlyonce.connectors.files.source_lines import lines_of
from exactlyonce.connectors.files.source_lists import FileLists, Known
from exactlyonce.connectors.files.source_on_s3 import S3Folder
from exactlyonce.connectors.files.source_position import SourceFile, count_of
from exactlyonce_spark.connectors.files import source_planner
from exactlyonce_spark.connectors.files.source_planner import FolderPlanner


@contextmanager
def a_rebuilt_generation_forgets_its_lists() -> Iterator[None]:
    """Folders: a driver that starts at a position knows no file that was read up to it."""
    with mock.patch.object(FileLists, "known", lambda self, position: Known((), ())):
        yield


@contextmanager
def a_folder_is_believed_without_its_digest() -> Iterator[None]:
    """Folders: where the lists are lost, the oldest files of the folder are those that were read, as many as there were."""

    def believed(position: int, listed: Iterable[SourceFile]) -> tuple[SourceFile, ...]:
        return tuple(sorted(listed, key=lambda file: file.order)[: count_of(position)])

    with mock.patch.object(source_planner, "rebuilt", believed):
        yield


@contextmanager
def a_file_that_was_read_is_not_compared() -> Iterator[None]:
    """Folders: neither size nor time nor ETag of a file that was read is compared with what is listed later."""
    with mock.patch.object(SourceFile, "is_still", lambda self, known: True):
        yield


@contextmanager
def what_is_read_need_not_be_what_was_planned() -> Iterator[None]:
    """Folders: a task reads whatever has the name of the file that was planned, of whatever version."""

    def lines(folder: Any, file: SourceFile) -> Iterator[Any]:
        with folder._telling(file), folder._store.reading(file.path, None) as opened:
            yield from lines_of(folder.named(file), file.name, opened)

    with mock.patch.object(S3Folder, "lines", lines):
        yield


@contextmanager
def files_are_removed_once_they_are_planned() -> Iterator[None]:
    """Folders: cleanSource removes a file once its batch is planned, not once it has landed."""
    plan = FolderPlanner._plan

    def cleaned(planner: FolderPlanner, start: int, batch: Sequence[SourceFile]) -> int:
        end = plan(planner, start, batch)
        planner._clean(batch)
        return end

    with mock.patch.object(FolderPlanner, "_plan", cleaned):
        yield


@contextmanager
def what_was_planned_and_is_gone_is_not_told() -> Iterator[None]:
    """Folders: lists that go further than the ledger are not looked at, so nobody misses a file that one of them names."""
    with mock.patch.object(FileLists, "beyond", lambda self, position: {}):
        yield


@contextmanager
def whoever_removes_what_has_landed_misses_nothing() -> Iterator[None]:
    """Folders: with cleanSource, a file that is gone counts as landed, though the ledger was restored to before it did."""
    require = FolderPlanner._require_there

    def unless_cleaned(planner: FolderPlanner, there: Collection[str]) -> None:
        if not planner._ready.delete:
            require(planner, there)

    with mock.patch.object(FolderPlanner, "_require_there", unless_cleaned):
        yield
