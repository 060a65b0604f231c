"""Footers of a batch's files are read several at once, and one that is gone is left out."""

from __future__ import annotations

import threading

import pytest

from exactlyonce.connectors.files.manifest import DataFile
from exactlyonce_spark.connectors.delta.facts_at_once import READERS, facts_at_once
from exactlyonce_spark.connectors.delta.table import FileFacts

FILES = [DataFile(f"part-{number}", number, 0) for number in range(3 * READERS)]


def test_as_many_files_are_asked_at_once_as_there_are_readers() -> None:
    together = threading.Barrier(READERS)

    def facts_of(file: DataFile) -> FileFacts:
        together.wait(30)  # which nobody passes alone
        return FileFacts({}, file.path)

    assert facts_at_once(FILES, facts_of) == {file.path: FileFacts({}, file.path) for file in FILES}


def test_a_file_that_is_gone_or_another_one_is_left_out() -> None:
    def facts_of(file: DataFile) -> FileFacts | None:
        if file.size_bytes % 3 == 0:
            raise FileNotFoundError(file.path)
        return FileFacts({}, "") if file.size_bytes % 3 == 1 else None

    assert [*facts_at_once(FILES, facts_of)] == [file.path for file in FILES if file.size_bytes % 3 == 1]
    assert facts_at_once(FILES[:1], facts_of) == {}
    assert facts_at_once([], facts_of) == {}


@pytest.mark.parametrize("count", [1, 5])
def test_a_storage_that_does_not_answer_is_not_taken_for_files_that_are_gone(count: int) -> None:
    def facts_of(_: DataFile) -> FileFacts:
        raise TimeoutError("no answer")

    with pytest.raises(TimeoutError):
        facts_at_once(FILES[:count], facts_of)
