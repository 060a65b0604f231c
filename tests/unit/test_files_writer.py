"""What the writer of files asks of a file system, beside what Spark does. No Spark session is started."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from exactlyonce.connectors.files.manifest import WRITING, Author, Write
from exactlyonce.connectors.files.spec import FileFormat, FilesSink
from exactlyonce.positions.ranges import BatchNumber, Epoch
from exactlyonce_spark.connectors.files.writer import SparkFileWriter, _flush

WRITE = Write.draw(Author(Epoch(1), "0123456789abcdef"), BatchNumber(3))


class Folder:
    """The folder of a sink, with a file for each day that an attempt has written twice."""

    def __init__(self) -> None:
        self.made: list[str] = []

    def files_below(self, folder: str) -> Iterator[Any]:
        for day in (1, 2):
            for part in (0, 1):
                path = f"{WRITING}/{WRITE.name}/day={day}/part-{part}.json"
                yield SimpleNamespace(getPath=lambda path=path: path, getLen=lambda: 4)

    def relative(self, path: str) -> str:
        return path

    def make_folder(self, folder: str) -> None:
        self.made.append(folder)

    def move(self, source: str, target: str) -> Any:
        return SimpleNamespace(getLen=lambda: 4, getModificationTime=lambda: 7)


@pytest.mark.parametrize(("path", "made"), [("/lake/orders", ["day=1", "day=2"]), ("s3a://lake/orders", [])])
def test_a_folder_is_made_once_and_none_on_s3(path: str, made: list[str]) -> None:
    folder: Any = Folder()
    footers: Any = SimpleNamespace(read=lambda status: (None, ()))
    writer = SparkFileWriter(FilesSink(path=path, format=FileFormat.JSON, partition_by=("day",)))
    files = list(writer._files(WRITE, f"{path}/{WRITING}/{WRITE.name}", folder, footers))
    assert [file.path for file in files] == [
        f"day={day}/{WRITE.name}-part-{part}.json" for day in (1, 2) for part in (0, 1)
    ]
    assert folder.made == made


def test_every_file_and_every_folder_between_it_and_the_path_is_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new day's folder is a name in the folder above: the machine may forget it though the file in it was flushed."""
    flushed: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: flushed.append(os.readlink(f"/proc/self/fd/{descriptor}")))
    paths = [f"day={day}/hour=1/part-{part}" for day in (1, 2) for part in (0, 1)]
    for path in paths:
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).touch()
    _flush(tmp_path, paths)
    folders = ["", "day=1", "day=1/hour=1", "day=2", "day=2/hour=1"]
    assert sorted(flushed) == sorted(str(tmp_path / name) for name in (*paths, *folders))
